"""The world that faults happen to: two clusters, a mirror between them through proxies, writers and a follower."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType

import psutil
from kafka import KafkaAdminClient, TopicPartition

from heliograph.lab import ClusterSpec, Lab, LabCluster
from heliograph.lab.listeners import DETOUR, DETOUR_ENTRY
from tests.cluster.mirror import MirrorProcess, View, admin, create_topic, grow_topic, unique, wait_until
from tests.cluster.spark import Standalone, kill_tree
from tests.fault import network
from tests.fault.arrivals import Arrivals, Place
from tests.fault.checker import Verdict, announced_repeats, judge, missing
from tests.fault.lost_tail import Lost, lose_tail
from tests.fault.network import Network
from tests.fault.proxy import Proxy, Weather
from tests.fault.stamp import Shape, stamp_of
from tests.fault.writer import TransactionalWriter, Writer

TWO_DAYS_MS = 2 * 24 * 3600 * 1000
MOST_PARTITIONS = 6
_DAEMON = "pyspark.daemon"
_PREFERRED = 0
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "5000",
    "segment.index.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "5000",
}
_NEXT_PLANS = ("2000", "5000", "30000")
_CONFIG = {"log.retention.ms": "-1", "log.cleaner.backoff.ms": "1500", "unclean.leader.election.enable": "false"}


def spec(alias: str, *, brokers: int = 1, forgets: bool = False) -> ClusterSpec:
    """A cluster for faults: keeps old records, cleans often, and can be reached through a proxy.

    One that `forgets` drops within seconds what it knows of producers of old records, not within ten minutes.
    Three brokers reach each other through proxies too (`Network`), and two of them can do without the third.
    """
    is_divisible = brokers > 2
    safe = {"min.insync.replicas": "2", **network.CONFIG} if is_divisible else {}
    brief = {"producer.id.expiration.check.interval.ms": "5000"} if forgets else {}
    config = {**_CONFIG, **safe, **brief}
    return ClusterSpec(alias=alias, brokers=brokers, detoured=True, inner_detoured=is_divisible, config=config)


class FaultStage:
    """Everything that is up for one run of faults; `mirror` is the process that is killed and started again."""

    def __init__(
        self,
        lab: Lab,
        source: LabCluster,
        target: LabCluster,
        folder: Path,
        *,
        isolation: str,
        chance: random.Random,
        standalone: bool = False,
        per_second: float = 120,
        networks: Mapping[str, Network] | None = None,
    ) -> None:
        self.lab = lab
        self.source = source
        self.target = target
        self.isolation = isolation
        self.chance = chance
        self.networks = networks or {}
        """Of the clusters whose brokers can be cut off from each other, by alias."""
        self.ledger_losses: list[Lost] = []
        self.spark: Standalone | None = None
        self.spark_workers: list[int] = []
        self.restarts = 0
        """How often the mirror ended by itself and was started again."""
        self._folder = folder
        self._wants_standalone = standalone
        self._stack = ExitStack()
        self._sessions: set[int] = set()
        self._others: list[MirrorProcess] = []
        self._proxies: dict[str, list[Proxy]] = {}
        prefix = unique("fault")
        self.writers = self._make_writers(prefix, per_second / 3)
        self.arrivals = Arrivals(target, [self.remote(writer) for writer in self.writers])
        self._workers_started = 0

    # -- coming and going

    def __enter__(self) -> FaultStage:
        with ExitStack() as stack:
            for cluster in (self.source, self.target):
                self._proxies[cluster.alias] = [
                    stack.enter_context(Proxy(node.extra_ports[DETOUR_ENTRY], node.extra_ports[DETOUR]))
                    for node in cluster.brokers
                ]
            if self._wants_standalone:
                self.spark = stack.enter_context(Standalone(self._folder))
                for _ in range(2):
                    self.start_worker()
            self.mirror = MirrorProcess(
                self._folder,
                {cluster.alias: _detour(cluster) for cluster in (self.source, self.target)},
                self._keys(),
                arguments=("--master", self.spark.master) if self.spark else (),
                on_spark=True,
            )
            stack.callback(self._end_mirror)
            for writer in self.writers:
                stack.enter_context(writer)
            stack.enter_context(self.arrivals)
            self.start_mirror()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _make_writers(self, prefix: str, rate: float) -> list[Writer]:
        replicas = min(3, self.source.spec.brokers)
        plain, keyed, paid = (f"{prefix}-{kind}" for kind in ("plain", "keyed", "paid"))
        create_topic(self.source, plain, 2, replicas=replicas)
        create_topic(self.source, keyed, 2, replicas=replicas, config=_COMPACTED)
        create_topic(self.source, paid, 2, replicas=replicas)
        old = Shape(writer="plain", age_ms=TWO_DAYS_MS)
        compacted = Shape(writer="keyed", keys=40, tombstones=True)
        return [
            Writer(self.source, plain, old, partitions=2, per_second=rate),
            Writer(self.source, keyed, compacted, partitions=2, per_second=rate),
            TransactionalWriter(
                self.source,
                paid,
                Shape(writer="paid"),
                partitions=2,
                per_second=rate,
                chance=random.Random(self.chance.random()),
            ),
        ]

    def _keys(self) -> dict[str, str]:
        source, target = self.source.alias, self.target.alias
        factor = str(min(3, self.target.spec.brokers))
        keys = {
            f"{source}->{target}.topics": ", ".join(writer.topic for writer in self.writers),
            f"{source}.consumer.isolation.level": self.isolation,
            "replication.factor": factor,
            "offset.storage.replication.factor": factor,
            "tasks.max": "2",
            "epoch.ms": self.chance.choice(_NEXT_PLANS),
        }
        if self.spark:
            keys |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m",
            }
        return keys

    # -- the mirror

    def start_mirror(self) -> None:
        self.mirror.start()
        self._sessions.add(self.mirror.process.pid)

    def kill_driver_only(self) -> None:
        """kill -9 of the driver's Python: its JVM and its lanes are orphans."""
        self.mirror.process.kill()
        self.mirror.process.wait(10)

    @contextmanager
    def second_mirror(self) -> Iterator[MirrorProcess]:
        """The same configuration once more, at the same time."""
        second = MirrorProcess(self._folder, {}, self.mirror.keys, arguments=self.mirror.arguments, on_spark=True)
        self._others.append(second)
        try:
            yield second.start()
        finally:
            second.kill()

    @property
    def output(self) -> str:
        """What all mirrors of this world have said."""
        return "\n".join(mirror.output for mirror in (self.mirror, *self._others))

    def keep_running(self, *, may_end: bool) -> None:
        """Start the mirror again if it ended, as a service manager would."""
        if self.mirror.is_running:
            return
        code = self.mirror.process.returncode
        assert may_end, f"the mirror ended with {code}\n{tail(self.mirror.output)}"
        self.restarts += 1
        self.start_mirror()

    def orphans(self) -> list[psutil.Process]:
        """What is left of mirrors and of Spark workers that are gone."""
        old = self._sessions - {self.mirror.process.pid}
        work = self._folder / "work"
        alive = {process.pid for process in self._spark_tree()}
        found = []
        for process in psutil.process_iter(["status"]):
            with suppress(ProcessLookupError, PermissionError, psutil.Error):
                if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid in alive:
                    continue
                if os.getsid(process.pid) in old or Path(process.cwd()).is_relative_to(work):
                    found.append(process)
        return found

    def _end_mirror(self) -> None:
        with suppress(AssertionError):
            self.mirror.kill()
        for process in self.orphans():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    # -- processes to harm

    def lanes(self) -> list[psutil.Process]:
        """The Python workers of Spark's tasks: what a daemon has forked."""
        daemons = {process.pid for process in self._spark_tree() if _is_daemon(process)}
        return [process for process in self._spark_tree() if _is_daemon(process) and _parent(process) in daemons]

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks; of local Spark there is one, and the driver's Python talks to it."""
        wanted = "CoarseGrainedExecutorBackend" if self.spark else "SparkSubmit"
        return [process for process in self._spark_tree() if wanted in _command(process) and _is_java(process)]

    def _spark_tree(self) -> list[psutil.Process]:
        if self.spark is None:
            return self.mirror.processes()
        found = []
        for pid in self.spark_workers:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(pid).children(recursive=True)
        return found

    def start_worker(self) -> None:
        assert self.spark is not None
        self._workers_started += 1
        self.spark_workers.append(self.spark.start_worker(f"worker-{self._workers_started}"))

    def kill_worker(self, *, with_executors: bool) -> None:
        """Of standalone Spark; its executors are to notice by themselves, unless they go too."""
        pid = self.spark_workers.pop(self.chance.randrange(len(self.spark_workers)))
        if with_executors:
            kill_tree(pid)
        else:
            psutil.Process(pid).kill()

    # -- brokers and the network

    def cluster(self, side: str) -> LabCluster:
        return self.source if side == "source" else self.target

    def any_broker(self, side: str) -> int:
        return self.chance.choice([node.node_id for node in self.cluster(side).brokers])

    def ensure_brokers(self) -> int:
        """Start again the brokers that ended by themselves; how many there were."""
        dead = 0
        codes = self.lab.keeper.exit_codes()
        for cluster in (self.source, self.target):
            for node in cluster.brokers:
                if node.name in codes and node.node_id in cluster.running_ids:
                    cluster.kill_broker(node.node_id)
                    dead += 1
                if node.node_id not in cluster.running_ids:
                    cluster.start_broker(node.node_id)
        return dead

    def become(self, side: str, weather: Weather) -> None:
        for proxy in self._proxies[self.cluster(side).alias]:
            proxy.become(weather)

    def network(self, side: str) -> Network | None:
        return self.networks.get(self.cluster(side).alias)

    @property
    def ledger(self) -> str:
        return f"mm2-ledger.{self.source.alias}.internal"

    def lose_ledger_tail(self, *, at_most: int) -> None:
        """A random number of its newest records, and not more than half of it: it began with the flow's producer id."""
        [end] = View(self.target, self.ledger).counts() or [0]
        records = self.chance.randint(1, max(1, min(at_most, end // 2)))
        self.ledger_losses.append(lose_tail(self.target, self.ledger, records=records))

    def largest_log(self) -> int:
        """Bytes of the largest file of the mirrored topics on the target's first broker."""
        folder = self.target.brokers[0].folder / "log"
        files = [file for writer in self.writers for file in folder.glob(f"{self.remote(writer)}-*/*.log")]
        return max((file.stat().st_size for file in files), default=0)

    def can_grow(self) -> bool:
        return any(writer.partitions < MOST_PARTITIONS for writer in self.writers)

    def grow(self) -> None:
        writer = min(self.writers, key=lambda writer: writer.partitions)
        grow_topic(self.source, writer.topic, writer.partitions + 1)
        writer.partitions += 1

    def move_leaders(self, side: str) -> None:
        """Of all mirrored topics: the replicas change places, then the first of them is elected."""
        cluster = self.cluster(side)
        names = [writer.topic if side == "source" else self.remote(writer) for writer in self.writers]
        found = admin(cluster).list_topics(timeout=30).topics
        orders = {}
        for name in names:
            for index, meta in found[name].partitions.items():
                orders[TopicPartition(name, index)] = self.chance.sample(meta.replicas, len(meta.replicas))
        client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            client.alter_partition_reassignments(orders)
            wait_until(lambda: not client.list_partition_reassignments(), 30, what="the reassignment")
            client.elect_leaders(_PREFERRED, names, raise_errors=False)
        finally:
            client.close()

    # -- progress

    def remote(self, writer: Writer) -> str:
        return f"{self.source.alias}.{writer.topic}"

    def acknowledged(self) -> dict[Place, int]:
        """The newest acknowledged sequences, by target partition."""
        return {
            (self.remote(writer), partition): sequence
            for writer in self.writers
            for partition, sequence in writer.newest.items()
        }

    def wait_for(self, wanted: Mapping[Place, int], timeout_s: float, *, may_end: bool = False) -> float:
        """Until all of these have arrived; the seconds it took."""
        began = time.monotonic()
        while lag := self._lag(wanted):
            self.keep_running(may_end=may_end)
            assert time.monotonic() - began < timeout_s, (
                f"not mirrored within {timeout_s:.0f} s (wanted, arrived): {lag}\n{tail(self.mirror.output)}"
            )
            time.sleep(0.05)
        return time.monotonic() - began

    def _lag(self, wanted: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
        newest = self.arrivals.newest
        return {
            place: (sequence, newest.get(place, -1))
            for place, sequence in wanted.items()
            if newest.get(place, -1) < sequence
        }

    # -- the end

    def stop_writers(self) -> None:
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()

    def newest_on_source(self) -> dict[Place, int]:
        """The last sequence of each partition that is to be mirrored, as a consumer of the source sees it."""
        return {
            (self.remote(writer), partition): stamp.sequence
            for writer in self.writers
            for partition, records in enumerate(View(self.source, writer.topic, self.isolation).read())
            if records and (stamp := stamp_of(records[-1])) is not None
        }

    def judge(self) -> dict[Place, Verdict]:
        """Compare both clusters, partition by partition, when all that the source has should be there."""
        verdicts = {}
        for writer in self.writers:
            source = View(self.source, writer.topic, self.isolation).read()
            target = View(self.target, self.remote(writer)).read()
            announced = announced_repeats(self.output)
            for partition, (wanted, found) in enumerate(zip(source, target, strict=True)):
                gone = missing(writer.acknowledged[partition], wanted, writer.shape, partition=partition)
                assert not gone, (
                    f"the source itself lost acknowledged records of {writer.topic}-{partition}: {gone[:5]}"
                )
                verdicts[writer.topic, partition] = judge(
                    wanted,
                    found,
                    writer.shape,
                    compacted=writer.shape.keys > 0,
                    announced=announced.get((writer.topic, partition), 0),
                )
        return verdicts


def tail(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _detour(cluster: LabCluster) -> str:
    return ",".join(f"127.0.0.1:{node.extra_ports[DETOUR_ENTRY]}" for node in cluster.brokers)


def _is_daemon(process: psutil.Process) -> bool:
    return _DAEMON in _command(process) and not _is_java(process)


def _is_java(process: psutil.Process) -> bool:
    return "java" in _command(process).split(" ", 1)[0]


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.ppid())
    return 0
