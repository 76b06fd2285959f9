"""The pipeline's data: what the driver plans, what a lane reports. No behaviour.

`Assignment` gives a partition with its entry to a lane, `LedgerRow` is what comes
back from the lane when its epoch ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from heliograph.kafka.log import APPEND_BYTES
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.ledger.partition_remap import row_of, target_partition
from heliograph.ledger.records.entry import Entry

PartitionName = tuple[str, int]
"""(source topic, partition)"""
NOT_LATE = -1
"""Nothing of a partition is on its way to the target: all that was sent was answered."""
PackedPage = bytes
"""A page being filled on its way between driver and lane (`runs.OpenPage`)."""
COMMITTED = "committed"
"""The rule that leaves out what belongs to aborted transactions."""
MARKED = " marked"
"""Ends a rule by which records get a mark, and those that come home are left out (`marks`)."""
METADATA_MAX_AGE_MS = 300_000
"""When metadata is asked for again at the latest; the default of Kafka's clients."""
MEMORY_MS = 12 * 3600 * 1000
"""Half of Kafka's default for `producer.id.expiration.ms` (`memory`)."""
SEQUENCE_MODULUS = 1 << 31
"""Kafka's sequences are 31 bits wide and wrap to 0; a count goes on in 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One partition of one flow, given to a lane for one epoch."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    entry: Entry
    max_message_bytes: int
    """The target topic's limit for one batch."""
    target_stamps_time: bool = False
    """The target topic has message.timestamp.type=LogAppendTime."""
    page: PackedPage = b""
    """The page of runs that goes on being filled; empty: a new one begins at the entry's open run."""
    late_ms: int = NOT_LATE
    """How long the target was watched since an earlier lane sent batches that had no answer and may still arrive."""
    first_of_term: bool = False
    """No lane has settled it under this lease: that the target still has our last batch is to be seen."""
    source_leader_epoch: int = -1
    """The source's leader epoch that the driver knows: the lane's metadata may be older."""

    @property
    def name(self) -> str:
        return f"{self.flow} {self.topic}-{self.partition}"

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def target(self) -> TopicPartition:
        """The target partition that holds the copy."""
        return TopicPartition(self.target_topic, target_partition(self.partition, self.entry.modulo))


class Side(Enum):
    """One of a flow's two clusters."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTerms:
    """The settings of a flow that a lane needs beside its assignments."""

    name: str
    source: str
    target: str
    source_bootstrap: tuple[BrokerAddress, ...]
    target_bootstrap: tuple[BrokerAddress, ...]
    group_id: str
    connector: str
    """The connector's name, part of every stored position."""
    client_id: str
    """Begin of the client ids."""
    producer_id: int
    """The first row's id; all copies that have the number of their source are in that row."""
    ledger_topic: str
    ledger_end: int
    """The offset from which the lane follows the ledger for orders and leases."""
    offset_topic: str
    offset_partitions: int
    flush_ms: int
    append_bytes: int = APPEND_BYTES
    """Most bytes of a batch of ledger records or positions."""
    read_committed: bool = False
    client_rack: str = ""
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 8 * 1024 * 1024
    """Most bytes of one answer; all flows of a lane share its memory."""
    partition_bytes: int = 2 * 1024 * 1024
    """Most bytes of one partition in an answer."""
    compression: int | None = None
    """Codec to write with; None keeps what the source has."""
    marks: bool = False
    """Records get a mark of where they come from, and others write the target's topics too."""
    source_cluster_id: str = ""
    target_cluster_id: str = ""
    source_metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    target_metadata_max_age_ms: int = METADATA_MAX_AGE_MS
    source_security: Security = PLAINTEXT
    target_security: Security = PLAINTEXT
    term: int = 0
    """The term of the lease under which the epoch runs."""
    lease_ms: int = 0
    """How long the leader may be silent; 0: there is no lease."""
    shares: tuple[float, ...] = ()
    """Bytes per second that each lane may send, by its number; empty: the flow has no limit."""
    further_ids: tuple[tuple[int, int], ...] = ()
    """(row, producer id) of the rows after the first (`partition_remap`)."""
    memory_ms: int = MEMORY_MS
    """Behind a record that is older the target's brokers may not remember us (`memory`)."""

    def access(self, side: Side) -> tuple[str, tuple[BrokerAddress, ...], Security]:
        """Alias, addresses and security of a side's cluster."""
        if side is Side.SOURCE:
            return self.source, self.source_bootstrap, self.source_security
        return self.target, self.target_bootstrap, self.target_security

    @property
    def ids_by_row(self) -> dict[int, int]:
        return {0: self.producer_id, **dict(self.further_ids)}

    @property
    def producer_ids(self) -> tuple[int, ...]:
        return tuple(self.ids_by_row.values())

    def producer_id_of(self, assignment: Assignment) -> int:
        entry = assignment.entry
        return self.ids_by_row[row_of(assignment.partition, entry.modulo, entry.turn)]

    def former_ids_of(self, assignment: Assignment) -> tuple[int, ...]:
        """Those that the copy has used up."""
        ids, entry = self.ids_by_row, assignment.entry
        rows = (row_of(assignment.partition, entry.modulo, turn) for turn in range(entry.turn))
        return tuple(ids[row] for row in rows if row in ids)

    @property
    def rule(self) -> str:
        """Which of the source's records are copied: the n-th record of a count means something by one rule only."""
        return counting_rule(read_committed=self.read_committed, marks=self.marks)

    def rule_of(self, entry: Entry) -> str:
        """Return the rule of the entry's count; releases that wrote none into their entries had no marks."""
        return entry.rule or counting_rule(read_committed=self.read_committed, marks=False)

    def reads_committed(self, entry: Entry) -> bool:
        """Whether the records of the entry's count are the committed ones; it may be older than the flow's setting."""
        return self.rule_of(entry).startswith(COMMITTED)


def counting_rule(*, read_committed: bool, marks: bool) -> str:
    return (COMMITTED if read_committed else "all") + (MARKED if marks else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochTerms:
    """The settings that all lanes of an epoch share."""

    owner: str
    epoch_id: int
    duration_ms: int
    flows: tuple[FlowTerms, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A lane's report on one assignment."""

    flow: str
    topic: str
    partition: int
    lane: int
    entry: Entry
    records: int
    bytes: int
    active_ms: int
    host: str
    state: str
    page: PackedPage = b""
    """As in an assignment."""
    late_ms: int = NOT_LATE
    """As in an assignment, of what this lane sent too."""
    unwritten: int = 0
    """Source offsets copied since its position was last written down."""
    left_out: int = 0
    """Records that came home by their marks."""
    unseen: bool = False
    """It was the first of its term, and this lane did not settle it either."""
    error_code: str = ""
    error_text: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """Which lane copies what; lanes are never empty."""

    epoch_id: int
    lanes: tuple[tuple[Assignment, ...], ...]
