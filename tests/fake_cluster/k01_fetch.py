"""Fetch, versions 4 to 16, sessionless: long polls, both isolation levels, the preferred read replica.

Any replica answers. The last batch of a partition is cut at its limit. The first one is not if it is the first of the
answer, and else left out (KIP-74).
A fetch that names the epoch before its offset is answered with the diverging epoch if the log has another there.
Not modelled: sessions, hints of the new leader.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import FetchRequest, FetchResponse

from heliograph.kafka.batch import parse_header
from tests.fake_cluster.partition import FakePartition

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = FetchRequest
VERSIONS = (4, 16)
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, UNKNOWN_TOPIC_ID = 1, 3, 6, 100
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75

_Partition = FetchResponse.FetchableTopicResponse.PartitionData


async def answer(call: Call) -> Any:
    loop = asyncio.get_running_loop()
    until = loop.time() + call.request.max_wait_ms / 1000
    while True:
        response, is_empty = _look(call)
        left = until - loop.time()
        if not is_empty or left <= 0:
            return response
        await call.cluster.wait_for_change(left)


def _look(call: Call) -> tuple[Any, bool]:
    """The answer as it would be now, and whether it has nothing to tell."""
    topics, is_empty, room = [], True, _Room(call.request.max_bytes)
    for topic in call.request.topics:
        key = topic.topic_id if call.version >= 13 else topic.topic
        answers = [_read(call, key, wanted, room) for wanted in topic.partitions]
        is_empty &= not any(map(_is_news, answers))
        topics.append(
            FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics), is_empty


@dataclass(slots=True)
class _Room:
    """What is left of the answer's limit."""

    left: int
    is_first: bool = True

    def take(self, found: bytes, limit: int) -> bytes:
        """What of the batches found goes into the answer."""
        limit = min(limit, self.left)
        first = parse_header(found).size if found else 0
        if first > limit and not self.is_first:
            return b""
        taken = found[: max(limit, first)]
        self.left = max(0, self.left - len(taken))
        self.is_first = self.is_first and not taken
        return taken


def _is_news(answer: Any) -> bool:
    diverging = answer.diverging_epoch
    is_diverging = diverging is not None and diverging.epoch >= 0
    return bool(answer.records or answer.error_code or answer.preferred_read_replica >= 0 or is_diverging)


def _read(call: Call, key: Any, wanted: Any, room: _Room) -> Any:
    partition = call.sight.find(key, wanted.partition)
    code = _error(call, key, wanted, partition)
    if code or partition is None:
        return _result(wanted.partition, error_code=code)
    if partition.preferred_replica >= 0 and call.node_id == partition.leader and call.request.rack_id:
        return _result(wanted.partition, partition, preferred_read_replica=partition.preferred_replica)
    diverging = _diverging(call, wanted, partition)
    if diverging is not None:
        return _result(wanted.partition, partition, diverging_epoch=diverging)
    committed = call.request.isolation_level == 1
    end = partition.last_stable_offset if committed else partition.high_watermark
    aborted = [
        _Partition.AbortedTransaction(producer_id=item.producer_id, first_offset=item.first_offset)
        for item in partition.aborted
        if committed and item.last_offset >= wanted.fetch_offset
    ]
    records = partition.read(wanted.fetch_offset, limit=wanted.partition_max_bytes, end=end)
    records = room.take(records, wanted.partition_max_bytes)
    return _result(wanted.partition, partition, records=records, aborted_transactions=aborted)


def _error(call: Call, key: Any, wanted: Any, partition: FakePartition | None) -> int:
    if partition is None:
        return UNKNOWN_TOPIC_ID if call.version >= 13 else UNKNOWN_TOPIC_OR_PARTITION
    if call.node_id not in (partition.leader, partition.preferred_replica):
        return NOT_LEADER
    if wanted.current_leader_epoch not in (-1, partition.leader_epoch):
        return FENCED_LEADER_EPOCH if wanted.current_leader_epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
    if _names_epoch(call, wanted) and partition.epoch_end(wanted.last_fetched_epoch) is None:
        return OFFSET_OUT_OF_RANGE
    is_beyond = wanted.fetch_offset > partition.end and not _names_epoch(call, wanted)
    if wanted.fetch_offset < partition.start or is_beyond:
        return OFFSET_OUT_OF_RANGE
    return call.cluster.refusal_of(REQUEST.API_KEY, call.sight.name_of(key), wanted.partition)


def _names_epoch(call: Call, wanted: Any) -> bool:
    return bool(call.version >= 12 and wanted.last_fetched_epoch >= 0)


def _diverging(call: Call, wanted: Any, partition: FakePartition) -> Any:
    if not _names_epoch(call, wanted):
        return None
    epoch, end = partition.epoch_end(wanted.last_fetched_epoch) or (-1, -1)
    if epoch == wanted.last_fetched_epoch and end >= wanted.fetch_offset:
        return None
    return _Partition.EpochEndOffset(epoch=epoch, end_offset=end)


def _result(index: int, partition: FakePartition | None = None, **fields: Any) -> Any:
    return _Partition(
        **{
            "partition_index": index,
            "error_code": 0,
            "high_watermark": partition.high_watermark if partition else -1,
            "last_stable_offset": partition.last_stable_offset if partition else -1,
            "log_start_offset": partition.start if partition else -1,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": b"",
            **fields,
        }
    )
