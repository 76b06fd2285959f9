"""Writes the positions of a flow's copies in a lane to the target, once per flush interval.

The ledger gets the entries, the pages of runs, and messages to the driver: which errors keep
partitions waiting, which are over, which quotas throttle us. The offset topic gets the
positions. The next flush retries a failed one; stored positions lag until then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from heliograph.clock import wall_ms
from heliograph.errors import HeliographError
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import Group, KeyValue, append_all
from heliograph.kafka.types import TopicPartition
from heliograph.lane.partition_copy import CopyState, PartitionCopy
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.lane.shared_target import SharedTarget
from heliograph.ledger.mm2.positions import encode_position_value
from heliograph.ledger.model import FlowTerms
from heliograph.ledger.records.entry import encode_entry
from heliograph.ledger.records.page import Page, encode_page
from heliograph.ledger.records.throttle import LIMIT, Throttle
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange
from heliograph.ledger.records.trouble import Trouble
from heliograph.ledger.store import StoreKeys, store_keys

_NO_SUCH_TOPIC = (3, 100, 103)
"""UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID."""
THROTTLE_TELL_S = 5.0
"""How often a lane reports for how long it was throttled."""


class Flusher:
    """Flushes all copies of one flow in a lane."""

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        terms: FlowTerms,
        *,
        source: Cluster,
        target: Cluster,
        may_write: Callable[[], bool],
        limiter: RateLimiter | None = None,
        shared_targets: Sequence[SharedTarget] = (),
    ) -> None:
        self._copies = copies
        self._shared_targets = shared_targets
        self._terms = terms
        self._target = target
        self._may_write = may_write
        self._waits = [(cluster.alias, cluster.client_id, cluster.muted) for cluster in (source, target)]
        """What may make us wait: a cluster's quota or our rate limit, the client id, and the time waited."""
        if limiter is not None:
            self._waits.append((LIMIT, target.client_id, limiter.waited))
        self._keys = {copy: store_keys(terms, copy.assignment.topic, copy.assignment.partition) for copy in copies}
        self._words: list[KeyValue] = []
        """Messages to the driver that the next flush writes."""
        self._changes: dict[str, ChangeKind] = {}
        """Source topics that changed since the plan; the next flush tells the driver."""
        self._throttles_told = 0.0
        self._flushing = asyncio.Lock()
        self._unflushed: tuple[PartitionCopy, str] | None = None
        """The text about a failed flush, reported for one of its partitions until a flush succeeds."""

    async def run(self) -> None:
        """Flush once per interval until the lane ends."""
        while True:
            await asyncio.sleep(self._terms.flush_ms / 1000)
            await self.flush_quietly()

    def tell(
        self, copy: PartitionCopy, code: str, text: str, *, final: bool, details: Mapping[str, Any] | None = None
    ) -> None:
        """Report trouble of a copy to the driver with the next flush."""
        topic, partition = copy.assignment.topic, copy.assignment.partition
        trouble = Trouble(
            topic=topic, partition=partition, code=code, text=text, final=final, details=dict(details or {})
        )
        self._words.append(trouble.encode(self._terms.group_id))

    def note_change(self, topic: str, what: ChangeKind) -> None:
        """Report a changed source topic to the driver with the next flush; GONE overrides other changes."""
        if self._changes.get(topic) is not ChangeKind.GONE:
            self._changes[topic] = what

    async def flush_quietly(self) -> None:
        """Flush; report a failure to the driver with a later flush, or in the lane's rows."""
        try:
            await self.flush()
        except HeliographError as error:
            behind = [copy for copy in self._copies if copy.entry.source_offset != copy.flushed]
            if behind and self._unflushed is None:
                self._unflushed = behind[0], _not_flushed(behind, self._terms, error)
        else:
            self._unflushed = None

    async def flush(self) -> None:
        """Write what changed since the last flush; return when the target has replicated it."""
        async with self._flushing:
            if not self._may_write():
                return  # another driver leads now: its entries must not be overwritten
            for shared in self._shared_targets:
                shared.advance_idle_copies()
            dirty = [copy for copy in self._copies if copy.dirty]
            self._note_troubles()
            self._note_throttling()
            self._tell_changes()
            words, self._words = self._words, []
            if not dirty and not words:
                return
            for copy in dirty:
                copy.flush_started()
            now_ms = wall_ms()
            draft = _draft_of({copy: self._keys[copy] for copy in dirty}, self._terms.group_id, now_ms=now_ms)
            try:
                # The ledger first: then a position ahead of its entry means that another tool mirrored the flow.
                ledger = {TopicPartition(self._terms.ledger_topic, 0): [*([word] for word in words), *draft.ledger]}
                await append_all(self._target, ledger, now_ms=now_ms, max_bytes=self._terms.append_bytes)
                words = []
                for copy, pages in draft.pages.items():
                    copy.pages_written(pages)
                await append_all(self._target, draft.positions, now_ms=now_ms, max_bytes=self._terms.append_bytes)
                for copy, offset in draft.offsets.items():
                    copy.flush_done(offset)
            except BaseException:
                for copy in dirty:
                    copy.flush_failed()
                self._words = words + self._words
                raise

    # -- messages to the driver ----------------------------------------------------------

    def _note_troubles(self) -> None:
        """Report errors that the lane retries: when they begin, when they change and when they are over."""
        for copy in self._copies:
            error = copy.error
            text = ""
            if error is not None and copy.state is not CopyState.RELEASED:
                text = str(error).replace(copy.assignment.name, self._terms.name)  # the same for all partitions
            elif error is None and self._unflushed is not None and copy is self._unflushed[0]:
                text = self._unflushed[1]
            if text != copy.reported and (error is None or copy.failures > 1 or copy.fetch_node is None):
                copy.note_reported(text)
                self.tell(copy, error.code if error else "", text, final=False)
                if error is not None and error.details.get("error_code") in _NO_SUCH_TOPIC:
                    self.note_change(copy.assignment.topic, ChangeKind.GONE)

    def _tell_changes(self) -> None:
        for topic, what in self._changes.items():
            self._words.append(TopicChange(topic=topic, what=what).encode(self._terms.group_id))
        self._changes.clear()

    def _note_throttling(self) -> None:
        now = time.monotonic()
        if now < self._throttles_told + THROTTLE_TELL_S:
            return
        for alias, client_id, muted in self._waits:
            muted_ms = int(muted.take_s(now) * 1000)
            if muted_ms:
                self._throttles_told = now
                throttle = Throttle(cluster=alias, client_id=client_id, muted_ms=muted_ms, time_ms=wall_ms())
                self._words.append(throttle.encode(self._terms.group_id))


class _Draft(NamedTuple):
    """Holds what one flush writes, as it was when the flush began: copying goes on meanwhile."""

    ledger: list[Group]
    """The pages and the entry of each copy, written together."""
    positions: dict[TopicPartition, list[Group]]
    pages: dict[PartitionCopy, list[Page]]
    offsets: dict[PartitionCopy, int]


def _draft_of(copies: Mapping[PartitionCopy, StoreKeys], group_id: str, *, now_ms: int) -> _Draft:
    draft = _Draft([], {}, {}, {copy: copy.entry.source_offset for copy in copies})
    for copy, keys in copies.items():
        pages = draft.pages[copy] = copy.pages()
        where = group_id, copy.assignment.topic, copy.assignment.partition
        entry = keys.entry, encode_entry(copy.entry.moved(time_ms=now_ms))
        draft.ledger.append([*(encode_page(*where, page.start, page) for page in pages), entry])
        if copy.entry.source_offset > 0:
            draft.positions.setdefault(keys.position_partition, []).append(
                [(keys.position, encode_position_value(copy.entry.source_offset))]
            )
    return draft


def _not_flushed(behind: Sequence[PartitionCopy], terms: FlowTerms, error: HeliographError) -> str:
    """Return the text about a failed flush."""
    names = ", ".join(f"{copy.assignment.topic}-{copy.assignment.partition}" for copy in behind[:3])
    more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
    records = sum(copy.entry.source_offset - copy.flushed for copy in behind)
    return (
        f"{terms.name}: positions of {len(behind)} partitions ({names}{more}) were not stored, {records} records since "
        f"the last flush; copying goes on and no data is at risk: {error}"
    )
