"""One flow on the driver: what it mirrors, where each partition stands, what went wrong.

Owns the flow's two cluster clients and its ledger in memory. It opens counts (the
driver alone does), creates target topics, and answers a lane's troubles by policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.config.settings import ClusterSettings, Flow
from heliograph.errors import BrokerRefused, ConfigError, HeliographError
from heliograph.kafka.admin import (
    EARLIEST,
    NewTopic,
    create_partitions,
    create_topics,
    end_offsets,
    group_members,
    topic_configs,
)
from heliograph.kafka.cluster import Catalogue, Cluster
from heliograph.kafka.compression import Codec
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.mirror import formats, store
from heliograph.mirror.model import Assignment, Entry, FlowTerms, LedgerRow
from heliograph.mirror.store import PartitionName

log = logging.getLogger("heliograph")

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
MAX_COUNT = 32767
FETCH_MAX_BYTES = 16 * 1024 * 1024
PARTITION_BYTES = 2 * 1024 * 1024
"""Larger fetches bring no more speed and cost the lane's memory: these are the upper limits of Kafka's keys."""
_LIMITS = ("max.message.bytes", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class TargetLimits:
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    stamps_time: bool = False


class FlowDriver:
    """The driver's side of one flow."""

    def __init__(self, flow: Flow, source: ClusterSettings, target: ClusterSettings) -> None:
        self.flow = flow
        self.name = flow.name
        connector = f"{flow.name}|{flow.connector_name}"
        self._source_bootstrap = _addresses(source)
        self._target_bootstrap = _addresses(target)
        self.source = Cluster(flow.source, self._source_bootstrap, client_id=f"{connector}|replication-source-admin")
        self.target = Cluster(flow.target, self._target_bootstrap, client_id=f"{connector}|replication-target-admin")
        self.entries: dict[PartitionName, Entry] = {}
        self.stopped: dict[PartitionName, LedgerRow] = {}
        self.halted = False
        """A loss was to stop the whole flow."""
        self.refused_topics: dict[str, HeliographError] = {}
        self.ledger_end = 0
        self.outcomes: dict[str, int] = {}
        self._waiting: dict[str, set[PartitionName]] = {}
        self._producer_id = -1
        self._limits: dict[str, TargetLimits] = {}
        self._positions: dict[PartitionName, int] = {}
        self._known: dict[PartitionName, Entry] = {}

    # -- start ---------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Connect, check what would make mirroring wrong, make the internal topics, read the ledger."""
        flow = self.flow
        source, target = await self.source.refresh(), await self.target.refresh()
        if source.cluster_id and source.cluster_id == target.cluster_id:
            raise ConfigError(
                f'"{flow.source}" and "{flow.target}" are the same cluster ({source.cluster_id})',
                where=self.name,
                remedy="check the two bootstrap.servers",
            )
        await self._refuse_beside_mm2()
        internal = self._internal_topics()
        wanted = self._wanted_topics(source)
        self._check_factors(target, internal, wanted)
        await store.ensure_topics(self.target, internal)
        ledger = await store.claim_producer_id(
            self.target,
            flow.ledger_topic,
            flow.group_id,
            source_cluster_id=source.cluster_id,
            target_cluster_id=target.cluster_id,
        )
        assert ledger.claim is not None
        if ledger.unreadable:
            log.warning(
                "%s: %d records of the ledger could not be read and were passed over", self.name, ledger.unreadable
            )
        self._producer_id = ledger.claim.producer_id
        self._known = ledger.entries
        self.ledger_end = ledger.end
        self._positions = await store.read_positions(
            self.target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        await self.discover()

    async def _refuse_beside_mm2(self) -> None:
        members = await group_members(self.target, self.flow.group_id)
        if members:
            raise ConfigError(
                f'the group "{self.flow.group_id}" has {len(members)} live members on "{self.flow.target}": '
                f"MirrorMaker 2 is running there ({members[0]})",
                where=self.name,
                remedy="stop it first, or give this flow another group.id",
            )

    def _internal_topics(self) -> list[NewTopic]:
        flow = self.flow
        return [
            NewTopic(
                name=flow.offset_storage_topic,
                partitions=flow.offset_storage_partitions,
                replication_factor=flow.offset_storage_replication_factor,
                configs=store.BUSY,
            ),
            NewTopic(
                name=flow.config_storage_topic,
                partitions=1,
                replication_factor=flow.config_storage_replication_factor,
                configs=store.COMPACTED,
            ),
            NewTopic(
                name=flow.status_storage_topic,
                partitions=flow.status_storage_partitions,
                replication_factor=flow.status_storage_replication_factor,
                configs=store.COMPACTED,
            ),
            NewTopic(
                name=flow.ledger_topic,
                partitions=1,
                replication_factor=flow.offset_storage_replication_factor,
                configs=store.BUSY,
            ),
        ]

    def _check_factors(self, target: Catalogue, internal: Sequence[NewTopic], wanted: Mapping[str, str]) -> None:
        """Before anything is made: does the target have brokers enough?"""
        brokers = len(target.brokers)
        faults = [
            f'"{topic.name}" needs {topic.replication_factor}'
            for topic in internal
            if topic.name not in target.topics and topic.replication_factor > brokers
        ]
        factor = self.flow.replication_factor
        new = [name for name in wanted.values() if name not in target.topics]
        if new and factor > brokers:
            faults.append(f'"{new[0]}"' + (f" and {len(new) - 1} more need" if new[1:] else " needs") + f" {factor}")
        if faults:
            raise ConfigError(
                f'"{self.flow.target}" has {brokers} broker{"s" if brokers > 1 else ""}, too few for the replication '
                f"factors asked for: {', '.join(faults)}",
                where=self.name,
                remedy="lower replication.factor and offset|config|status.storage.replication.factor "
                "(-1 takes the broker's default), or start more brokers",
            )

    # -- topics --------------------------------------------------------------------------

    def _wanted_topics(self, source: Catalogue) -> dict[str, str]:
        """Source topics to mirror and their names on the target."""
        flow = self.flow
        return {name: flow.remote_topic(name) for name in source.topics if flow.mirrors(name)}

    async def discover(self) -> bool:
        """Look for new topics and partitions, make their targets, open their counts; did anything change?"""
        source, target = await asyncio.gather(self.source.refresh(), self.target.refresh())
        wanted = self._wanted_topics(source)
        if await self._ensure_targets(source, target, wanted):
            target = await self.target.refresh()
        await self._read_limits([name for name in wanted.values() if name in target.topics])
        present = {
            (topic, partition): remote
            for topic, remote in wanted.items()
            if remote in target.topics and topic not in self.refused_topics
            for partition in range(min(len(source.topics[topic].partitions), len(target.topics[remote].partitions)))
        }
        gone = [where for where in self.entries if where not in present]
        for where in gone:
            del self.entries[where]
        fresh = [where for where in present if where not in self.entries]
        await self._enrol(fresh, source, target, wanted)
        return bool(gone or fresh)

    async def _ensure_targets(self, source: Catalogue, target: Catalogue, wanted: Mapping[str, str]) -> bool:
        """Create missing target topics and grow short ones; a refusal concerns that topic alone."""
        missing = [
            NewTopic(
                name=remote,
                partitions=len(source.topics[topic].partitions),
                replication_factor=self.flow.replication_factor,
            )
            for topic, remote in wanted.items()
            if remote not in target.topics
        ]
        short = {
            remote: len(source.topics[topic].partitions)
            for topic, remote in wanted.items()
            if remote in target.topics and len(target.topics[remote].partitions) < len(source.topics[topic].partitions)
        }
        results: dict[str, HeliographError | None] = {}
        if missing:
            results.update(await create_topics(self.target, missing))
        if short:
            results.update(await create_partitions(self.target, short))
        made = [name for name, error in results.items() if error is None]
        if made:
            await store.wait_for_topics(self.target, made)
        by_remote = {remote: topic for topic, remote in wanted.items()}
        for remote, error in results.items():
            self._note_refusal(by_remote[remote], error)
        return bool(made)

    def _note_refusal(self, topic: str, error: HeliographError | None) -> None:
        if error is None:
            if self.refused_topics.pop(topic, None) is not None:
                log.info('%s: "%s" is mirrored now', self.name, topic)
        elif str(self.refused_topics.get(topic)) != str(error):
            self.refused_topics[topic] = error
            log.error('%s: "%s" is not mirrored: %s', self.name, topic, error)

    async def _read_limits(self, remotes: Sequence[str]) -> None:
        unknown = [name for name in remotes if name not in self._limits]
        if not unknown:
            return
        try:
            configs = await topic_configs(self.target, unknown, _LIMITS)
        except BrokerRefused:
            configs = {}
        for name in unknown:
            values = configs.get(name, {})
            self._limits[name] = TargetLimits(
                int(values.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                values.get("message.timestamp.type") == "LogAppendTime",
            )

    # -- counts --------------------------------------------------------------------------

    async def _enrol(
        self, fresh: Sequence[PartitionName], source: Catalogue, target: Catalogue, wanted: Mapping[str, str]
    ) -> None:
        """Give partitions their entry: the ledger's, or a new count."""
        starts: dict[PartitionName, int | None] = {}
        for where in fresh:
            known = self._known.get(where)
            if known is None:
                starts[where] = self._positions.get(where)
                continue
            source_id = source.topics[where[0]].topic_id.hex
            target_id = target.topics[wanted[where[0]]].topic_id.hex
            if known.source_topic_id != source_id:
                self._outcome("TOPIC_RECREATED", where, "the source topic was made anew; it is copied from its start")
                starts[where] = None
            elif known.target_topic_id != target_id:
                self._outcome("TARGET_TOPIC_LOST", where, "the target topic was made anew; all is copied again")
                starts[where] = None
            elif self._positions.get(where, 0) > known.source_offset:
                log.info(
                    "%s %s-%d: another tool had the flow: its position is %d, the ledger's %d; going on there",
                    self.name,
                    *where,
                    self._positions[where],
                    known.source_offset,
                )
                starts[where] = self._positions[where]
            else:
                self.entries[where] = known
        known_ones = [TopicPartition(*where) for where in fresh if where not in starts]
        for where, end in (await end_offsets(self.source, known_ones)).items():
            self.entries[where] = self.entries[where].moved(source_end=end)
        await self._open_counts(starts)

    async def _open_counts(self, starts: Mapping[PartitionName, int | None]) -> None:
        """Begin a new count for each partition at the given source offset (None: where a new topic starts).

        The counts are in the ledger before any lane can send a batch of theirs.
        """
        if not starts:
            return
        source, target = self.source.catalogue, self.target.catalogue
        at_start = [TopicPartition(*where) for where, start in starts.items() if start is None]
        reset = EARLIEST if self.flow.auto_offset_reset == "earliest" else -1
        first = await end_offsets(self.source, at_start, timestamp=reset) if at_start else {}
        remotes = {where: TopicPartition(self.flow.remote_topic(where[0]), where[1]) for where in starts}
        ends = await end_offsets(self.target, list(remotes.values()))
        source_ends = await end_offsets(self.source, [TopicPartition(*where) for where in starts])
        opened: dict[PartitionName, Entry] = {}
        for where, start in starts.items():
            previous = self.entries.get(where) or self._known.get(where)
            count = previous.count + 1 if previous else 0
            if count > MAX_COUNT:
                raise ConfigError(
                    f"{where[0]}-{where[1]} has used up its {MAX_COUNT} counts", where=self.name,
                    remedy="give the flow another group.id",
                )  # fmt: skip
            offset = first[TopicPartition(*where)] if start is None else start
            opened[where] = Entry(
                source_topic_id=source.topics[where[0]].topic_id.hex,
                target_topic_id=target.topics[remotes[where].topic].topic_id.hex,
                count=count,
                n=0,
                source_offset=offset,
                target_offset=ends[remotes[where]],
                run_source=offset,
                run_target=ends[remotes[where]],
                source_end=source_ends[TopicPartition(*where)],
            )
        await store.write_entries(self.target, self.flow.ledger_topic, self.flow.group_id, opened)
        self.entries.update(opened)
        self._known.update(opened)

    # -- epochs --------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        result = []
        for (topic, partition), entry in self.entries.items():
            if self.halted or (topic, partition) in self.stopped:
                continue
            remote = self.flow.remote_topic(topic)
            limits = self._limits.get(remote, TargetLimits())
            result.append(
                Assignment(
                    flow=self.name,
                    topic=topic,
                    partition=partition,
                    target_topic=remote,
                    entry=entry,
                    max_message_bytes=limits.max_message_bytes,
                    target_stamps_time=limits.stamps_time,
                )
            )
        return result

    def terms(self) -> FlowTerms:
        flow = self.flow
        consumer = flow.source_consumer
        return FlowTerms(
            name=self.name,
            source=flow.source,
            target=flow.target,
            source_bootstrap=self._source_bootstrap,
            target_bootstrap=self._target_bootstrap,
            group_id=flow.group_id,
            connector=flow.connector_name,
            producer_id=self._producer_id,
            ledger_topic=flow.ledger_topic,
            ledger_end=self.ledger_end,
            offset_topic=flow.offset_storage_topic,
            offset_partitions=len(self.target.catalogue.topics[flow.offset_storage_topic].partitions),
            flush_ms=flow.offset_flush_interval_ms,
            read_committed=flow.isolation_level == "read_committed",
            client_rack=consumer.get("client.rack", ""),
            fetch_max_wait_ms=int(consumer.get("fetch.max.wait.ms", 500)),
            fetch_min_bytes=int(consumer.get("fetch.min.bytes", 1)),
            fetch_max_bytes=min(FETCH_MAX_BYTES, int(consumer.get("fetch.max.bytes", FETCH_MAX_BYTES))),
            partition_bytes=min(PARTITION_BYTES, int(consumer.get("max.partition.fetch.bytes", PARTITION_BYTES))),
            compression=None if flow.compression == "none" else int(Codec[flow.compression.upper()]),
        )

    async def take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Take over what the lanes report; answer what they could not decide."""
        starts: dict[PartitionName, int | None] = {}
        for row in rows:
            where = (row.topic, row.partition)
            if where in self.entries:
                self.entries[where] = self._known[where] = row.entry
            if row.state == "released":
                self._answer(where, row, starts)
        if starts:
            await asyncio.gather(self.source.refresh(), self.target.refresh())
            if any(code in self.outcomes for code in ("TARGET_TOPIC_LOST", "TOPIC_RECREATED")):
                await self.discover()
            await self._open_counts({where: start for where, start in starts.items() if where in self.entries})

    def _answer(self, where: PartitionName, row: LedgerRow, starts: dict[PartitionName, int | None]) -> None:
        """Where to go on after a trouble, or that the partition stops."""
        self._outcome(row.error_code, where, row.error_text)
        details: Mapping[str, Any] = row.details
        entry = row.entry
        match row.error_code:
            case "DATA_LOST" | "LOG_TRUNCATED" if self.flow.on_data_loss != "continue":
                self.stopped[where] = row
                self.halted = self.halted or self.flow.on_data_loss == "stop-flow"
            case "DATA_LOST":
                starts[where] = int(details["log_start"])
            case "LOG_TRUNCATED":
                starts[where] = int(details["log_end"])
            case "TOPIC_RECREATED" if self.flow.on_topic_recreated == "stop-partition":
                self.stopped[where] = row
            case "TOPIC_RECREATED" if self.flow.on_topic_recreated == "continue":
                starts[where] = entry.source_offset
            case "TOPIC_RECREATED" | "TARGET_TOPIC_LOST":
                starts[where] = None
            case "TARGET_TRUNCATED":
                end = int(details.get("target_end", -1))
                starts[where] = entry.run_source + end - entry.run_target if end >= entry.run_target else None
            case "POSITION_UNPROVEN":
                starts[where] = entry.source_offset
            case "SECOND_WRITER":
                starts[where] = entry.source_offset
            case _:
                self.stopped[where] = row

    def _outcome(self, code: str, where: PartitionName, text: str) -> None:
        self.outcomes[code] = self.outcomes.get(code, 0) + 1
        log.error("%s", text if text.startswith(code) else f"{code}: {self.name} {where[0]}-{where[1]}: {text}")

    def note_trouble(self, trouble: formats.Trouble) -> None:
        """Log what keeps partitions waiting: once when it begins, once when it is over, not once a partition."""
        where = (trouble.topic, trouble.partition)
        for text, partitions in list(self._waiting.items()):
            if where in partitions and text != trouble.text:
                partitions.discard(where)
                if not partitions:
                    del self._waiting[text]
                    log.info("%s: over: %s", self.name, text)
        if trouble.text and not trouble.final:
            if trouble.text not in self._waiting:
                log.warning("%s: waiting: %s", self.name, trouble.text)
            self._waiting.setdefault(trouble.text, set()).add(where)

    async def order_end(self, owner: str, epoch_id: int) -> None:
        """Tell the lanes of this epoch, and of all before it, to end now."""
        order = formats.Order(owner=owner, end_epoch=epoch_id)
        await store.write_order(self.target, self.flow.ledger_topic, self.flow.group_id, order)

    def close(self) -> None:
        self.source.close()
        self.target.close()


def _addresses(cluster: ClusterSettings) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress.parse(text) for text in cluster.bootstrap_servers)
