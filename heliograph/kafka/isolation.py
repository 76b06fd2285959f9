"""Sorts out the batches of a fetch answer that are not copied: control batches, and aborted ones with read_committed.

Pure. With a read_committed fetch a broker lists the aborted transactions that overlap the
answer; sorting out their batches is the client's work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from heliograph.kafka.batch import CONTROL, BatchHeader, check_crc, iter_batches, iter_records
from heliograph.kafka.codec.k01_fetch import FetchedPartition


def visible_batches(
    answer: FetchedPartition, start: int, *, read_committed: bool, where: str
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch answer from `start` on; those not copied have a record count of 0 and no bytes.

    Control batches are never copied, nor, with read_committed, batches of aborted transactions. The checksums of these
    are checked here, since a damaged header could make records vanish; the caller checks the others.
    """
    aborted = _Aborted(answer, where) if read_committed and answer.aborted else None
    for batch in iter_batches(answer.records, where=where):
        header = batch[0]
        special = header[5] & CONTROL or aborted or not header[12]  # by index: hot where batches hold one record
        judged = _judged(header, batch[1], aborted, where) if special else batch
        if header[0] + header[6] >= start:
            yield judged
        else:
            check_crc(batch[1], where=where)


def _judged(
    header: BatchHeader, view: memoryview, aborted: _Aborted | None, where: str
) -> tuple[BatchHeader, memoryview]:
    """Return the batch, or an empty one instead if it is not copied."""
    if aborted:
        aborted.reach(header)
        if header.record_count and not header.is_control and not aborted.covers(header):
            return header, view
    check_crc(view, where=where)
    if aborted and header.is_control:
        aborted.end(header, view)
    return header._replace(record_count=0), view[:0]


class _Aborted:
    """Tells which batches of a fetch answer belong to aborted transactions."""

    def __init__(self, answer: FetchedPartition, where: str) -> None:
        self._where = where
        self._starts = deque(sorted(answer.aborted, key=lambda item: item.first_offset))
        self._open: set[int] = set()

    def reach(self, header: BatchHeader) -> None:
        """Note the transactions that began up to this batch; to be called for every batch, control batches too."""
        while self._starts and self._starts[0].first_offset <= header.last_offset:
            self._open.add(self._starts.popleft().producer_id)

    def covers(self, header: BatchHeader) -> bool:
        return header.is_transactional and header.producer_id in self._open

    def end(self, header: BatchHeader, view: memoryview) -> None:
        """Note that a control batch ends its producer's transaction (key: version i16, type i16; 0 is abort)."""
        for record in iter_records(header, view, where=self._where):
            if record.key is not None and record.key[2:4] == b"\x00\x00":
                self._open.discard(header.producer_id)
