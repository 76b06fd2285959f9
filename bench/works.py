"""Defines what is measured: the works, their volumes and the figures to reach; data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.systems import HELIOGRAPH, MM2_DEFAULT, MM2_TUNED

KIB = 1024
MB = 1_000_000

FIRST_RECORD_LIMIT_S = 120.0
STALL_LIMIT_S = 60.0
LANE_MEMORY_LIMIT_MB = 300.0
IDLE_LIMIT_PERCENT = 5.0
WIDE_CPU_FACTOR = 1.5
"""Maximum ratio of CPU per byte on 1,000 partitions to our own on 8."""
EXACTLY_ONCE = {"tgt.exactly.once.source.support": "enabled", "SOURCE.consumer.isolation.level": "read_committed"}
"""Settings for MirrorMaker 2's transactions; heliograph needs none and reads the isolation level alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The two clusters that a work runs on; their topics have a replica on each broker."""

    secured: bool = False
    brokers: int = 1


PLAIN = Stage()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A full topic to be copied as fast as possible.

    `min_wall` and `min_cpu` are the least ratios to tuned MirrorMaker 2: how many times faster, how many times less
    CPU per byte. `security` is the listener of a secured cluster that mirrors use for source and target. `settings`
    are for every system.
    """

    name: str
    records: int
    value_bytes: int
    partitions: int = 8
    codec: str = "none"
    security: str = ""
    brokers: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    batch_bytes: int = 255 * KIB  # of records, before compression; 0: each record is a batch
    min_wall: float
    min_cpu: float | None

    @property
    def topic(self) -> str:
        return f"bench-{self.name.lower()}"

    @property
    def stage(self) -> Stage:
        return Stage(secured=bool(self.security), brokers=self.brokers)

    @property
    def is_wide(self) -> bool:
        return self.partitions >= 1000

    @property
    def sample_s(self) -> float:
        """Returns the sampling interval: the request costs the broker more with more partitions."""
        return 0.1 if self.is_wide else 0.05

    def scaled_records(self, scale: float) -> int:
        """Returns the scaled number of records, at least one in each partition."""
        return max(self.partitions, round(self.records * scale))


WORKS = (
    Work(name="1KB", records=1_000_000, value_bytes=1024, min_wall=3, min_cpu=10),
    Work(name="1KB-tls", records=1_000_000, value_bytes=1024, security="TLS", min_wall=2, min_cpu=3),
    Work(name="1KB-sasl-ssl", records=1_000_000, value_bytes=1024, security="SASL_SSL", min_wall=2, min_cpu=3),
    Work(name="1KB-lz4", records=1_000_000, value_bytes=1024, codec="lz4", min_wall=3, min_cpu=10),
    Work(name="100B", records=5_000_000, value_bytes=100, min_wall=3, min_cpu=10),
    Work(name="200B-single", records=1_200_000, value_bytes=200, batch_bytes=0, min_wall=2, min_cpu=3),
    Work(
        name="1000-partitions",
        records=700_000,
        value_bytes=1024,
        partitions=1000,
        min_wall=1,
        min_cpu=None,
    ),
    Work(name="exactly-once", records=1_000_000, value_bytes=1024, settings=EXACTLY_ONCE, min_wall=4, min_cpu=10),
    Work(name="factor-3", records=500_000, value_bytes=1024, brokers=3, min_wall=2, min_cpu=None),
)
REFERENCE_WORK = "1KB"
WIDE_WORK = "1000-partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyWork:
    """A steady trickle: how long each record takes from the producer's call to an independent consumer.

    `max_p50` and `max_p99` are the largest shares of tuned MirrorMaker 2's; None: the figures are only shown. With
    `kills_lane` one of heliograph's lanes is killed in the middle.
    """

    name: str = "latency"
    settings: Mapping[str, str] = field(default_factory=dict)
    max_p50: float | None = 1
    max_p99: float | None = 0.5
    systems: tuple[str, ...] = (MM2_DEFAULT, MM2_TUNED, HELIOGRAPH)
    kills_lane: bool = False
    records_per_s: int = 1000
    value_bytes: int = 1024
    partitions: int = 8
    # MirrorMaker 2 needs up to 15 s to catch up with what arrived while it started, with seconds of delay; measuring
    # earlier would measure its start.
    warm_up_s: float = 20.0
    # As long as an epoch of heliograph, so that each measurement has one turnover in it.
    seconds: float = 60.0


LATENCY_WORKS = (
    LatencyWork(),
    LatencyWork(name="latency-exactly-once", settings=EXACTLY_ONCE, max_p50=None, systems=(MM2_TUNED, HELIOGRAPH)),
    LatencyWork(name="latency-lane-kill", max_p50=None, max_p99=None, systems=(HELIOGRAPH,), kills_lane=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeWork:
    """A mirror killed in the middle of a wide copy and started again: how soon it copies, once Spark is up.

    With a long flush interval the ledger has nothing of the copy: every partition has a tail to be settled.
    """

    name: str = "resume"
    records: int = 700_000
    partitions: int = 1000
    value_bytes: int = 1024
    batch_bytes: int = 255 * KIB
    settings: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 5.0


RESUME_WORKS = (
    ResumeWork(),
    ResumeWork(
        name="settle-memory",
        records=5_000_000,
        value_bytes=200,
        batch_bytes=500 * KIB,
        settings={"offset.flush.interval.ms": "60000", "tasks.max": "1"},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleWork:
    """An idle mirror: what it costs when no records arrive."""

    name: str = "idle"
    partitions: int = 100
    settle_s: float = 10.0
    seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWork:
    """Loading a configuration with many flows."""

    name: str = "load"
    flows: int = 1000
    limit_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsWork:
    """Many groups, all of which move between two syncs."""

    name: str = "groups"
    groups: int = 4000
    partitions: int = 3
    interval_s: int = 5
    turns: int = 5

    def names(self) -> list[str]:
        return [f"bench-group-{index:05d}" for index in range(self.groups)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerWork:
    """Translating a group by a ledger of many short runs."""

    name: str
    partitions: int
    runs: int
    """Number of runs of each partition."""
    limit_s: float = 2.0
    limit_mb: float = 500.0


LEDGER_WORKS = (
    LedgerWork(name="ledger-wide", partitions=1000, runs=1000),
    LedgerWork(name="ledger-deep", partitions=1, runs=1_000_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryWork:
    """Refreshing many topics, unchanged and with new ones; then a plan for all their partitions."""

    name: str
    topics: int
    partitions: int = 2
    """Number of partitions of each topic."""
    new: int = 50
    """Number of topics created after the first refreshes."""
    looks: int = 5
    on_brokers: bool = False
    """Whether the work runs on real brokers; otherwise on the fake clusters of the tests."""
    limit_s: float = 5.0
    plan_limit_s: float = 1.0

    @property
    def all_partitions(self) -> int:
        return self.topics * self.partitions


DISCOVERY_WORKS = (
    DiscoveryWork(name="discovery", topics=5000),
    DiscoveryWork(name="discovery-brokers", topics=750, on_brokers=True),
)

WORK_NAMES = (*(work.name for work in WORKS), *(work.name for work in LATENCY_WORKS))
WORK_NAMES += tuple(work.name for work in RESUME_WORKS)
WORK_NAMES += (IdleWork().name, LoadWork().name)
WORK_NAMES += (GroupsWork().name, *(work.name for work in LEDGER_WORKS))
WORK_NAMES += tuple(work.name for work in DISCOVERY_WORKS)
