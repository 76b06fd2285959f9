"""Fetches from the source for all copies of a flow in a lane, and keeps their queues filled.

There is one long-polling fetch per source broker at a time. A copy takes part while it is
COPYING and its queue has room; a fetch is sent when there is memory for its answer
(`fetch_memory`). When a leader has moved, metadata is refreshed. What only the driver can
decide (lost data, a recreated topic) goes to `on_trouble`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

from heliograph.errors import CorruptBatch, HeliographError, NotAuthorized, TopicRecreated
from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k01_fetch
from heliograph.kafka.error_codes import Code
from heliograph.kafka.leader_epochs import EpochAnswer, EpochQuestion, epoch_ends, has_epochs
from heliograph.kafka.log import FETCH_GRACE_S, fetch_version
from heliograph.kafka.types import TopicPartition, may_be_same_topic
from heliograph.lane import divergence
from heliograph.lane.fetch_memory import FetchMemory, Reservation
from heliograph.lane.partition_copy import CopyState, PartitionCopy, Spawn
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.ledger.lineage import UNKNOWN, Lineage
from heliograph.ledger.loss_outcomes import source_made_anew
from heliograph.ledger.model import FlowTerms
from heliograph.ledger.records.topic_change import ChangeKind, change_of

AHEAD_PAUSE_S = 0.02
"""Pause of a flow that has fetched all that its rate limit lets it send."""
TRICKLE_BYTES = 32 * 1024
TRICKLE_PAUSE_S = 0.002
"""After an answer smaller than this the next fetch waits: single records would cost a round trip each."""
LEAST_ANSWER_BYTES = 1024 * 1024
QUIET_ANSWER_BYTES = 512 * 1024
"""Maximum size of an answer while the source has nothing new as far as we know: so the long polls of many flows and
brokers reserve little memory, and the answer tells whether to ask for more."""
FEW_PARTITIONS = 32
ALL_EVERY_S = 0.25
"""While many partitions are behind, a fetch names only a few of them, since an answer holds the records of a few; every
`ALL_EVERY_S` a fetch names all, the quiet ones too. Naming 1,000 partitions costs as much as copying 5 MB."""
BLOCKED_WAIT_MS = 10
"""Maximum long poll while a copy of the same broker waits for room in its queue: the next fetch must include it."""

_LEADER_ERRORS = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REPLICA_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
        Code.OFFSET_NOT_AVAILABLE,
        Code.UNKNOWN_TOPIC_ID,
        Code.INCONSISTENT_TOPIC_ID,
    }
)
UNKNOWN_EPOCH_TRIES = 10
"""How often a leader that does not know the leader epoch of what was copied is asked, over some 13 s: it may be deposed
and not know it."""
_MIN_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0

Leadership = tuple[int | None, int]
"""A partition's leader and leader epoch."""


class Fetcher:
    """Fetches for all copies of one flow in a lane."""

    def __init__(
        self,
        cluster: Cluster,
        terms: FlowTerms,
        *,
        on_fetched: Callable[[PartitionCopy], None],
        on_trouble: Callable[[PartitionCopy, HeliographError], None],
        on_change: Callable[[str, ChangeKind], None],
        time_left_ms: Callable[[], int],
        spawn: Spawn,
        memory: FetchMemory,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._cluster = cluster
        self._terms = terms
        self._on_fetched = on_fetched
        self._on_trouble = on_trouble
        self._on_change = on_change
        self._time_left_ms = time_left_ms
        self._spawn = spawn
        self._limiter = limiter
        self._memory = memory.flow(self._queued_bytes)
        self._copies: dict[int, dict[PartitionCopy, None]] = {}
        """The copies by the broker that they are fetched from; a dict, since thousands leave at once when one fails."""
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._unassigned: dict[PartitionCopy, HeliographError | None] = {}
        """Copies without a broker, and why."""
        self._due: dict[PartitionCopy, float] = {}
        """When the leader of each unassigned copy is looked up again."""
        self._tries: dict[PartitionCopy, int] = {}
        """How often each copy was unassigned since its last good answer."""
        self._assigning: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, copy: PartitionCopy) -> None:
        """Start to fetch for a copy that has settled."""
        if copy.fetch_node is not None:
            self.wake(copy)
            return
        self._assign_broker(copy, None)

    def wake(self, copy: PartitionCopy) -> None:
        """Fetch again for a copy whose queue may have room."""
        event = self._wakes.get(copy.fetch_node) if copy.fetch_node is not None else None
        if event is not None:
            event.set()

    def drop(self, copy: PartitionCopy) -> None:
        """Stop to fetch for a copy that was released to the driver."""
        self._unassign(copy)
        self._unassigned.pop(copy, None)
        self._tries.pop(copy, None)

    def return_to_leaders(self) -> None:
        """Fetch from the leaders that the new metadata names; they tell whether another replica is nearer (KIP-392).

        A follower that is cut off from its leader would go on answering that there is nothing new.
        """
        leader_of = self._cluster.catalogue.leader_of
        for node, copies in list(self._copies.items()):
            for copy in list(copies):
                if leader_of(*copy.source) != node:
                    self._assign_broker(copy, None)

    def close(self) -> None:
        self._closed = True
        for task in self._loops.values():
            task.cancel()
        if self._assigning is not None:
            self._assigning.cancel()

    # -- which broker --------------------------------------------------------------------

    def _assign_broker(self, copy: PartitionCopy, error: HeliographError | None) -> None:
        """Fetch the copy from its leader: now if the leader is known and did not fail, else after a refresh."""
        self._unassign(copy)
        leader = self._leader_of(copy)
        if error is None and leader is not None:
            self._fetch_from(copy, leader)
            return
        self._wait(copy, error)
        if self._assigning is None or self._assigning.done():
            self._assigning = self._spawn(self._find_brokers())

    def _leader_of(self, copy: PartitionCopy) -> int | None:
        """Return the leader that the metadata names, unless what was copied has a later leader epoch."""
        self._cluster.saw_epoch(copy.source, copy.seen_leader_epoch, copy.entry.source_topic_id)
        return self._cluster.catalogue.leader_of(*copy.source)

    def _wait(self, copy: PartitionCopy, error: HeliographError | None) -> None:
        """Look the copy's leader up after a pause that doubles with every failure of this copy."""
        tries = self._tries.get(copy, 0)
        pause = min(_MIN_PAUSE_S * 2 ** min(tries, 10), _MAX_PAUSE_S) * random.uniform(0.7, 1.3)
        self._tries[copy] = tries + 1
        self._unassigned[copy] = None if error is None else error.bare()
        self._due[copy] = asyncio.get_running_loop().time() + pause

    def _unassign(self, copy: PartitionCopy) -> None:
        if copy.fetch_node is not None:
            del self._copies[copy.fetch_node][copy]
            copy.fetch_node = None

    def _fetch_from(self, copy: PartitionCopy, node: int) -> None:
        self._unassign(copy)
        self._unassigned.pop(copy, None)
        copy.fetch_node = node
        self._copies.setdefault(node, {})[copy] = None
        self._wakes.setdefault(node, asyncio.Event()).set()
        loop = self._loops.get(node)
        if loop is None or loop.done():
            self._loops[node] = self._spawn(self._fetch_loop(node))

    async def _find_brokers(self) -> None:
        """Refresh metadata until every copy has a broker to fetch from."""
        loop = asyncio.get_running_loop()
        while self._unassigned and not self._closed:
            left = min(self._due[copy] for copy in self._unassigned) - loop.time()
            if left > 0:
                await asyncio.sleep(min(left, _MIN_PAUSE_S))  # another copy may be due sooner
                continue
            due = [copy for copy in self._unassigned if self._due[copy] <= loop.time()]
            before = self._cluster.catalogue.topics
            try:
                await self._cluster.refresh({copy.assignment.topic for copy in due})
            except HeliographError as error:
                for copy in due:
                    if copy in self._unassigned:
                        copy.note_error(error)
                        self._wait(copy, self._unassigned[copy])
                continue
            for topic in {copy.assignment.topic for copy in due}:
                if (changed := change_of(before.get(topic), self._cluster.catalogue.topics.get(topic))) is not None:
                    self._on_change(topic, changed)
            for copy in due:
                if copy in self._unassigned:
                    self._reassign(copy, self._unassigned.pop(copy))

    def _reassign(self, copy: PartitionCopy, error: HeliographError | None) -> None:
        assignment = copy.assignment
        meta = self._cluster.catalogue.topics.get(assignment.topic)
        if meta is not None and not may_be_same_topic(copy.entry.source_topic_id, meta.topic_id.hex):
            recreated = source_made_anew(copy.entry, meta.topic_id.hex)
            self._on_trouble(copy, TopicRecreated(recreated.text, where=assignment.name, **recreated.details))
            return
        leader = self._leader_of(copy)
        if leader is None:
            cause = error or self._cluster.no_leader(
                assignment.topic, assignment.partition, "Fetch", where=assignment.name
            )
            copy.note_error(cause)
            self._wait(copy, cause)
        else:
            self._fetch_from(copy, leader)

    # -- fetching ------------------------------------------------------------------------

    async def _fetch_loop(self, node: int) -> None:
        """Fetch from one broker until it fails; then its copies are reassigned."""
        all_at = 0.0
        while not self._closed:
            wake = self._wakes[node]
            wake.clear()
            if self._limiter is not None and self._queued_bytes(node) > self._answer_bytes() // 2:
                await asyncio.sleep(AHEAD_PAUSE_S)
                continue
            wanted = self._wanted(node)
            if not wanted:
                await wake.wait()
                continue
            reservation = await self._memory.reserve(self._answer_bytes(wanted))
            wanted = self._wanted(node)  # the reservation may have taken time
            now = asyncio.get_running_loop().time()
            if now - all_at < ALL_EVERY_S:
                wanted = _a_few_behind(wanted)
            if len(wanted) > FEW_PARTITIONS:
                all_at = now
            try:
                size = await self._fetch(node, wanted, reservation) if wanted else 0
            except HeliographError as error:
                for copy in list(self._copies[node]):
                    copy.note_error(error)
                    self._assign_broker(copy, error)
                return
            finally:
                reservation.release()
            if size < TRICKLE_BYTES:
                await asyncio.sleep(TRICKLE_PAUSE_S)

    def _wanted(self, node: int) -> list[PartitionCopy]:
        """Return the copies of a broker that have room in their queues."""
        copies = self._copies[node]
        return [copy for copy in copies if copy.queued_bytes < copy.room_bytes and copy.state is CopyState.COPYING]

    def _queued_bytes(self, node: int | None = None) -> int:
        """Return the bytes fetched from one broker, or all, and not sent yet."""
        nodes = self._copies if node is None else (node,)
        return sum(copy.queued_bytes for one in nodes for copy in self._copies[one])

    def _answer_bytes(self, wanted: Sequence[PartitionCopy] | None = None) -> int:
        """Return the maximum bytes of one answer, for these copies or for any."""
        brokers = max(1, len(self._copies))
        most = max(LEAST_ANSWER_BYTES, self._terms.fetch_max_bytes // brokers)
        if wanted is not None and not any(_is_behind(copy) for copy in wanted):
            most = min(most, QUIET_ANSWER_BYTES)
        return most if self._limiter is None else min(most, self._limiter.ahead_bytes // brokers)

    async def _fetch(self, node: int, wanted: list[PartitionCopy], reservation: Reservation) -> int:
        """Fetch once for these copies; return the size of the answer."""
        max_bytes = reservation.answer_bytes
        blocked = len(wanted) < len(self._copies[node])
        connection = await self._cluster.connection(node, f"fetch {self._terms.name}")
        with_id = all(copy.has_source_id for copy in wanted)
        version = fetch_version(connection, with_id=with_id)
        must_ask = not k01_fetch.tells_divergence(version) and has_epochs(connection.versions)
        if must_ask:
            wanted = await self._agreeing(wanted)
            if not wanted:
                return 0
        by_id = k01_fetch.uses_topic_ids(version)
        topics: dict[str | UUID, list[k01_fetch.FetchPartition]] = {}
        by_key: dict[tuple[str | UUID, int], tuple[PartitionCopy, int]] = {}
        first = random.randrange(len(wanted))
        leader_epoch_of = self._cluster.catalogue.leader_epoch_of
        for copy in wanted[first:] + wanted[:first]:
            assignment = copy.assignment
            key: str | UUID = copy.source_id if by_id else assignment.topic
            limit = min(copy.wanted_bytes, self._terms.partition_bytes, max_bytes)
            topics.setdefault(key, []).append(
                k01_fetch.FetchPartition(
                    assignment.partition,
                    copy.fetch_offset,
                    limit,
                    leader_epoch=copy.checked_leader_epoch
                    if must_ask
                    else leader_epoch_of(assignment.topic, assignment.partition),
                    last_fetched_epoch=copy.fetch_leader_epoch,
                )
            )
            by_key[key, assignment.partition] = copy, copy.fetch_offset
        correlation_id = connection.next_correlation_id()
        wait_ms = max(0, min(BLOCKED_WAIT_MS if blocked else self._terms.fetch_max_wait_ms, self._time_left_ms()))
        request = k01_fetch.encode_fetch_request(
            version,
            list(topics.items()),
            correlation_id=correlation_id,
            client_id=self._cluster.client_id,
            max_wait_ms=wait_ms,
            min_bytes=self._terms.fetch_min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(self._terms.read_committed),
            rack_id=self._terms.client_rack,
        )
        body = await connection.send(
            [request], correlation_id, timeout_s=wait_ms / 1000 + FETCH_GRACE_S, allowance=reservation
        )
        try:
            response = k01_fetch.decode_fetch_response(body, version)
        except HeliographError as error:
            connection.close(error)
            raise
        connection.throttle(response.throttle_ms)
        if response.error_code:
            raise refused(response.error_code, "Fetch", where=connection.where)
        for topic in response.topics:
            for answer in topic.partitions:
                asked, offset = by_key.get((topic.topic, answer.partition), (None, -1))
                # A copy that was settled meanwhile wants another offset now: its answer is dropped.
                if (
                    asked is not None
                    and asked.fetch_node == node
                    and asked.fetch_offset == offset
                    and asked.state is CopyState.COPYING
                ):
                    self._take(asked, answer)
        return body.nbytes

    async def _agreeing(self, wanted: list[PartitionCopy]) -> list[PartitionCopy]:
        """Return the copies whose leader's log holds what was copied; brokers before 3.1 do not check it in a fetch.

        Asks once per leader epoch (OffsetForLeaderEpoch). Later fetches name that epoch, and a leader
        of another epoch refuses them; a leader's log loses nothing while its epoch lasts.
        """
        unchecked: dict[int, dict[TopicPartition, PartitionCopy]] = {}
        agreeing = []
        for copy in wanted:
            topic, partition = copy.assignment.topic, copy.assignment.partition
            epoch = self._cluster.catalogue.leader_epoch_of(topic, partition)
            leader = self._cluster.catalogue.leader_of(topic, partition)
            if leader is None:
                self._assign_broker(
                    copy, self._cluster.no_leader(topic, partition, "Fetch", where=copy.assignment.name)
                )
            elif copy.checked_leader_epoch == epoch or copy.fetch_leader_epoch == UNKNOWN:
                copy.epoch_checked(epoch)
                agreeing.append(copy)
            else:
                unchecked.setdefault(leader, {})[TopicPartition(topic, partition)] = copy
        for leader, copies in unchecked.items():
            questions = {
                where: EpochQuestion(self._cluster.catalogue.leader_epoch_of(*where), copy.fetch_leader_epoch)
                for where, copy in copies.items()
            }
            asked = {where: copy.fetch_offset for where, copy in copies.items()}
            for where, answer in (await epoch_ends(self._cluster, leader, questions)).items():
                copy = copies[where]
                if copy.fetch_offset != asked[where] or copy.state is not CopyState.COPYING:
                    continue  # it was settled meanwhile: the next fetch asks again
                if self._agrees(copy, answer):
                    copy.epoch_checked(questions[where].leader_epoch)
                    agreeing.append(copy)
        return [copy for copy in agreeing if copy.state is CopyState.COPYING and copy.fetch_node is not None]

    def _agrees(self, copy: PartitionCopy, answer: EpochAnswer) -> bool:
        """Return whether the leader's log holds what was copied; if not, or if it is unknown, handle the copy."""
        error: HeliographError
        if answer.error_code:
            where = f'"{self._cluster.alias}" {copy.assignment.name}'
            error = refused(answer.error_code, "OffsetForLeaderEpoch", where=where)
            self._assign_broker(copy, error)
        elif answer.end.leader_epoch == UNKNOWN:
            self._unassign(copy)
            alias, name = self._cluster.alias, copy.assignment.name
            error = divergence.unknown_epoch(copy.fetch_offset, copy.fetch_leader_epoch, alias=alias, where=name)
            self._spawn(self._diagnose_range(copy, error))
        elif answer.end.leader_epoch < copy.fetch_leader_epoch or answer.end.end_offset < copy.fetch_offset:
            self._diverged(copy, answer.end)
        else:
            return True
        return False

    def _take(self, copy: PartitionCopy, answer: k01_fetch.FetchedPartition) -> None:
        """Handle one partition's part of a fetch answer."""
        if answer.error_code:
            self._refused(copy, answer)
            return
        if answer.diverging_epoch is not None:
            self._diverged(copy, answer.diverging_epoch)
            return
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica in self._cluster.catalogue.brokers:
            self._fetch_from(copy, answer.preferred_read_replica)
            return
        self._tries.pop(copy, None)
        copy.fetch_answered(answer.high_watermark)
        if answer.records or answer.high_watermark != copy.entry.source_end:
            try:
                copy.take(answer)
            except CorruptBatch as error:
                self._on_trouble(copy, error)
                return
            self._on_fetched(copy)

    def _diverged(self, copy: PartitionCopy, theirs: k01_fetch.EpochEnd) -> None:
        """Find out from which offset on the leader's log is not the one that was copied."""
        assignment = copy.assignment
        if copy.fetch_node != self._cluster.catalogue.leader_of(assignment.topic, assignment.partition):
            self._assign_broker(copy, None)  # a follower may be behind; the leader knows
            return
        self._unassign(copy)
        led = self._cluster.catalogue.leadership_of(*copy.source)
        self._spawn(self._diagnose_divergence(copy, theirs, led))

    async def _diagnose_divergence(self, copy: PartitionCopy, theirs: k01_fetch.EpochEnd, led: Leadership) -> None:
        if not await self._still_leads(copy, led, None):
            return
        lineage, name = Lineage.parse(copy.entry.lineage), copy.assignment.name
        error = divergence.diverged(copy.fetch_offset, lineage, theirs, where=name)
        if copy.is_idle:
            self._on_trouble(copy, error)
        else:
            self._assign_broker(copy, error)  # send what was fetched first, so that the entry is at this offset

    async def _still_leads(self, copy: PartitionCopy, led: Leadership, error: HeliographError | None) -> bool:
        """Return whether another broker confirms the leader that said that the source lost records.

        If it does not, or if the copy was settled meanwhile, the answer is dropped and the new leader is asked.
        """
        try:
            now = await self._cluster.refresh([copy.assignment.topic], elsewhere=True)
        except HeliographError as failure:
            copy.note_error(failure)
            self._assign_broker(copy, failure)
            return False
        if copy.state is not CopyState.COPYING:
            return False  # it is settled again, then fetched again
        if now.leadership_of(*copy.source) != led:
            self._assign_broker(copy, error)
            return False
        return True

    def _refused(self, copy: PartitionCopy, answer: k01_fetch.FetchedPartition) -> None:
        """Handle a partition's error: find its leader again, or find out what the source lost."""
        assignment = copy.assignment
        code = answer.error_code
        error: HeliographError = refused(code, "Fetch", where=f'"{self._cluster.alias}" {assignment.name}')
        if code == Code.OFFSET_OUT_OF_RANGE:
            if copy.fetch_node != self._cluster.catalogue.leader_of(assignment.topic, assignment.partition):
                self._assign_broker(copy, None)  # a follower may be behind; the leader knows
                return
            self._unassign(copy)
            self._spawn(self._diagnose_range(copy, error))
            return
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            error = NotAuthorized(
                f'"{self._cluster.alias}" refused Fetch for "{assignment.topic}"',
                where=assignment.name,
                remedy="grant Read on the topic",
            )
        if code not in _LEADER_ERRORS:
            copy.note_error(error)
        self._assign_broker(copy, error)

    async def _diagnose_range(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Find out why the source does not have the wanted offset: expired, truncated, or another log."""
        where = copy.source
        led = self._cluster.catalogue.leadership_of(*where)
        if not await self._still_leads(copy, led, error):
            return
        try:
            start = (await list_offsets(self._cluster, [where], EARLIEST))[where]
            end = (await list_offsets(self._cluster, [where], LATEST))[where]
        except HeliographError as failure:
            copy.note_error(failure)
            self._assign_broker(copy, failure)
            return
        if copy.state is not CopyState.COPYING:
            return  # it is settled again, then fetched again
        if start.error_code or end.error_code or not copy.is_idle:
            self._assign_broker(copy, error)  # send what was fetched first, so that the entry is at this offset
            return
        position, epoch, name = copy.fetch_offset, copy.fetch_leader_epoch, copy.assignment.name
        alias = self._cluster.alias
        lost: HeliographError | None = divergence.out_of_range(
            position, start.offset, end.offset, alias=alias, where=name
        )
        if lost is None and epoch != UNKNOWN:
            copy.epoch_unknown()
            if copy.unknown_epochs <= UNKNOWN_EPOCH_TRIES:
                error = divergence.unknown_epoch(position, epoch, alias=alias, where=name)
                copy.note_error(error)
                await asyncio.sleep(min(_MIN_PAUSE_S * 2**copy.unknown_epochs, _MAX_PAUSE_S))
            else:
                lost = divergence.another_log(position, epoch, start.offset, where=name)
        if lost is not None:
            self._on_trouble(copy, lost)
        elif copy.state is CopyState.COPYING:
            self._assign_broker(copy, error)


def _a_few_behind(wanted: list[PartitionCopy]) -> list[PartitionCopy]:
    """Return some of the copies that are behind, if those are many; else all copies."""
    behind = [copy for copy in wanted if _is_behind(copy)]
    return random.sample(behind, FEW_PARTITIONS) if len(behind) > FEW_PARTITIONS else wanted


def _is_behind(copy: PartitionCopy) -> bool:
    """Return whether the source is known to have more records."""
    return copy.fetch_offset < copy.entry.source_end
