"""Runs works on the two clusters of a benchmark: makes topics, runs mirrors, and cleans up in between."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.config_loading import FORMS, make_file, measure_loading
from bench.discovery import fake_clusters, measure_discovery
from bench.end_offsets import EndOffsets, OffsetsError
from bench.fill import FillError, fill_topic
from bench.group_sync import commit_groups, measure_groups
from bench.idle import measure_idle
from bench.latency import measure_latency
from bench.ledger_translation import measure_ledger, write_ledger
from bench.machine import HIDDEN, hide_secrets, hide_texts, load_average
from bench.measure import measure_throughput
from bench.resume import measure_resume
from bench.systems import (
    HELIOGRAPH,
    SYSTEMS,
    TARGET,
    RunningSystem,
    System,
    SystemFailed,
    plan_order,
    plan_properties,
)
from bench.works import (
    EXACTLY_ONCE,
    PLAIN,
    DiscoveryWork,
    GroupsWork,
    IdleWork,
    LatencyWork,
    LedgerWork,
    LoadWork,
    ResumeWork,
    Stage,
    Work,
)
from heliograph.lab import ORDINARY_JVM, Authority, ClusterSpec, Lab, LabCluster

_CLUSTERS = ("src", TARGET)
_MECHANISM = "SCRAM-SHA-512"
_STORES = "PKCS12"
_BROKER_CONFIG = {
    "log.segment.delete.delay.ms": "1000",  # disk of deleted copies is free before the next run
    # The first write to a partition's index makes the kernel read ahead in the empty file: with a device's read-ahead
    # of 8 MB and the usual 10 MB, 2 to 14 ms of the broker's CPU for each of two indexes of each new partition.
    # A thousand partitions then measure that, whoever copies. A quarter of a MB is enough for any work here.
    "log.index.size.max.bytes": str(256 * 1024),
}
_TOPIC_TIMEOUT_S = 60.0
_MM2_TRIES = 3
"""Attempts for a run of MM2: at times its producer stalls for good on OUT_OF_ORDER_SEQUENCE_NUMBER."""

Say = Callable[[str], None]


class Trial(NamedTuple):
    """One system on one work, once."""

    work: str
    system: System
    repetition: int
    topic: str
    measure: Callable[[RunningSystem, str], dict[str, Any]]
    security: str = ""
    settings: Mapping[str, str] = {}


class Session:
    """Runs works on a lab. Each run has a source alias of its own, hence its own copy, group and storage topics."""

    def __init__(self, lab: Lab, folder: Path, *, repetitions: int, say: Say, folder_names: Mapping[str, str]) -> None:
        self.runs: list[dict[str, Any]] = []
        self._lab = lab
        self._folder = folder
        self._repetitions = repetitions
        self._say = say
        self._hidden = dict(folder_names)
        self._numbers = itertools.count(1)
        self._kept: set[str] = set()

    def start(self, stage: Stage = PLAIN) -> None:
        """Starts two new clusters instead of the current ones. Filling and sampling always use the plain listener."""
        self._lab.stop()
        self._replicas = stage.brokers
        kind = "secured-" if stage.secured else f"{stage.brokers}-" if stage.brokers > 1 else ""
        aliases = [f"{kind}{alias}" for alias in _CLUSTERS]
        authority = Authority() if stage.secured else None
        self._lab.start(
            [
                ClusterSpec(
                    alias=alias,
                    brokers=stage.brokers,
                    jvm=ORDINARY_JVM,
                    config=_BROKER_CONFIG,
                    authority=authority,
                )
                for alias in aliases
            ]
        )
        self._pair = [self._lab.cluster(alias) for alias in aliases]
        self._source, self._target = (cluster.bootstrap for cluster in self._pair)
        for keys in (cluster.secured for cluster in self._pair):
            self._hidden |= dict.fromkeys(keys.secrets().values(), HIDDEN) if keys is not None else {}
        self._admins = {
            bootstrap: AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            for bootstrap in (self._source, self._target)
        }

    def attempt(self, work: str, do: Callable[[], None]) -> None:
        """Runs a work; one that cannot even begin counts as failed, and those after it still run."""
        try:
            do()
        except (FillError, OffsetsError, KafkaException) as error:
            run = {"work": work, "system": HELIOGRAPH, "repetition": 0, "error": hide_texts(str(error), self._hidden)}
            self.runs.append(run)
            self._say(f"{work}: {describe_run(run)}")

    def throughput(self, work: Work, *, scale: float) -> None:
        records = work.scaled_records(scale)
        with self._topic(work.topic, work.partitions):
            started = time.monotonic()
            fill_topic(self._source, work, records)
            expected = self._end_offsets(work.topic, work.partitions)
            self._say(f"{work.name}: {sum(expected)} records written in {time.monotonic() - started:.1f} s")
            if sum(expected) != records:
                raise OffsetsError(f"{work.topic} has {sum(expected)} records instead of {records}")

            def measure(running: RunningSystem, copy: str) -> dict[str, Any]:
                return measure_throughput(
                    running,
                    work,
                    target_bootstrap=self._target,
                    copy=copy,
                    expected=expected,
                    markers=work.settings == EXACTLY_ONCE and running.system.name != HELIOGRAPH,
                )

            for system, repetition in plan_order(self._repetitions):
                self._run(Trial(work.name, system, repetition, work.topic, measure, work.security, work.settings))

    def latency(self, work: LatencyWork) -> None:
        for system, repetition in plan_order(self._repetitions):
            if system.name not in work.systems:
                continue
            # A topic for each run: nothing but this run's records is under way.
            topic = f"bench-{work.name}-{system.name}-{repetition}"

            def measure(running: RunningSystem, copy: str, topic: str = topic) -> dict[str, Any]:
                return measure_latency(
                    running,
                    work,
                    source_bootstrap=self._source,
                    target_bootstrap=self._target,
                    topic=topic,
                    copy=copy,
                )

            with self._topic(topic, work.partitions):
                self._run(Trial(work.name, system, repetition, topic, measure, settings=work.settings))

    def resume(self, work: ResumeWork) -> None:
        [system] = [system for system in SYSTEMS if system.name == HELIOGRAPH]
        wide = Work(
            name=work.name,
            records=work.records,
            value_bytes=work.value_bytes,
            partitions=work.partitions,
            batch_bytes=work.batch_bytes,
            min_wall=0,
            min_cpu=None,
        )
        with self._topic(wide.topic, work.partitions):
            fill_topic(self._source, wide, work.records)
            expected = self._end_offsets(wide.topic, work.partitions)

            def measure(running: RunningSystem, copy: str) -> dict[str, Any]:
                return measure_resume(running, work, target_bootstrap=self._target, copy=copy, expected=expected)

            for repetition in range(1, self._repetitions + 1):
                self._run(Trial(work.name, system, repetition, wide.topic, measure, settings=work.settings))

    def idle(self, work: IdleWork) -> None:
        [system] = [system for system in SYSTEMS if system.name == HELIOGRAPH]
        one_each = Work(
            name="idle", records=work.partitions, value_bytes=100, partitions=work.partitions, min_wall=0, min_cpu=0
        )

        def measure(running: RunningSystem, copy: str) -> dict[str, Any]:
            return measure_idle(running, work, target_bootstrap=self._target, copy=copy)

        with self._topic(one_each.topic, work.partitions):
            fill_topic(self._source, one_each, work.partitions)
            self._run(Trial(work.name, system, 1, one_each.topic, measure))

    def loading(self, work: LoadWork) -> None:
        """Measures each file form as often as the mirrors are measured."""
        for form in FORMS:
            path = make_file(self._folder, form, work.flows)
            for repetition in range(1, self._repetitions + 1):
                run = {"work": work.name, "system": HELIOGRAPH, "repetition": repetition, "form": form}
                self.runs.append({**run, "result": measure_loading(work, path)})
                self._say(f"{work.name}: {form} {repetition}: {describe_run(self.runs[-1])}")

    def groups(self, work: GroupsWork) -> None:
        """Runs once: the work has its own repetitions."""
        few = Work(name="groups", records=3000, value_bytes=100, partitions=work.partitions, min_wall=0, min_cpu=0)
        system = System(
            name=HELIOGRAPH,
            settings={
                "groups": "bench-group-.*",
                "sync.group.offsets.enabled": "true",
                "sync.group.offsets.interval.seconds": str(work.interval_s),
                "emit.checkpoints.interval.seconds": str(work.interval_s),
                "refresh.groups.interval.seconds": "60",
            },
        )

        def measure(running: RunningSystem, copy: str) -> dict[str, Any]:
            return measure_groups(
                running,
                work,
                source_bootstrap=self._source,
                target_bootstrap=self._target,
                topic=few.topic,
                copy=copy,
            )

        with self._topic(few.topic, work.partitions):
            fill_topic(self._source, few, few.records)
            commit_groups(self._source, work, few.topic, 1)
            self._run(Trial(work.name, system, 1, few.topic, measure))

    def ledger(self, work: LedgerWork) -> None:
        alias = f"r{next(self._numbers):02d}"
        made = self._admins[self._target].create_topics(
            [
                NewTopic(f"mm2-ledger.{alias}.internal", 1, 1, config={"cleanup.policy": "compact"}),
                NewTopic(f"{alias}.bench", work.partitions, 1),
            ]
        )
        for topic in made.values():
            topic.result(_TOPIC_TIMEOUT_S)
        write_ledger(self._target, work, alias, "bench")
        for repetition in range(1, self._repetitions + 1):
            run = {"work": work.name, "system": HELIOGRAPH, "repetition": repetition}
            self.runs.append({**run, "result": measure_ledger(work, self._target, alias)})
            self._say(f"{work.name}: {repetition}: {describe_run(self.runs[-1])}")
        self._clean()

    def discovery(self, work: DiscoveryWork) -> None:
        for repetition in range(1, self._repetitions + 1):
            alias = f"r{next(self._numbers):02d}"
            run = {"work": work.name, "system": HELIOGRAPH, "repetition": repetition}
            if work.on_brokers:
                result = measure_discovery(work, self._source, self._target, alias)
                self._clean()
            else:
                with fake_clusters() as (source, target):
                    result = measure_discovery(work, source, target, alias)
            self.runs.append({**run, "result": result})
            self._say(f"{work.name}: {repetition}: {describe_run(self.runs[-1])}")

    def _run(self, trial: Trial) -> None:
        """Runs one system once. A failure is noted in the report; MM2 gets another try, heliograph does not."""
        for _ in range(1 if trial.system.name == HELIOGRAPH else _MM2_TRIES):
            run = self._try(trial)
            self.runs.append(run)
            self._say(f"{trial.work}: {trial.system.name} {trial.repetition}: {describe_run(run)}")
            self._clean()
            if "error" not in run:
                return

    def _try(self, trial: Trial) -> dict[str, Any]:
        work, system, repetition, topic, measure, security, settings = trial
        alias = f"r{next(self._numbers):02d}"
        source_keys, target_keys = (client_keys(cluster, security) for cluster in self._pair)
        properties = plan_properties(
            system,
            source=alias,
            source_keys=source_keys,
            target_keys=target_keys,
            topic=topic,
            replicas=self._replicas,
            settings=settings,
        )
        run: dict[str, Any] = {
            "work": work,
            "system": system.name,
            "repetition": repetition,
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "load_before": load_average(),
            "configuration": hide_secrets(properties, self._hidden),
        }
        label = f"{alias}-{work}-{system.name}"
        try:
            with RunningSystem(
                system, self._lab, properties=properties, folder=self._folder / "runs", label=label
            ) as running:
                run["command"] = [hide_texts(argument, self._hidden) for argument in running.command]
                run["result"] = measure(running, f"{alias}.{topic}")
        except (SystemFailed, OffsetsError, KafkaException, OSError) as error:
            run["error"] = hide_texts(str(error), self._hidden)
        return run

    @contextmanager
    def _topic(self, topic: str, partitions: int) -> Iterator[None]:
        """Makes a source topic for the duration of a work."""
        self._kept.add(topic)
        [made] = (
            self._admins[self._source]
            .create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=self._replicas)])
            .values()
        )
        made.result(_TOPIC_TIMEOUT_S)
        self._end_offsets(topic, partitions)
        try:
            yield
        finally:
            self._kept.discard(topic)
        self._clean()

    def _end_offsets(self, topic: str, partitions: int) -> list[int]:
        """Returns the end offsets of a source topic, once all its partitions have a leader."""
        deadline = time.monotonic() + _TOPIC_TIMEOUT_S
        with EndOffsets(self._source, topic, partitions) as offsets:
            while (found := offsets.fetch()) is None:
                if time.monotonic() > deadline:
                    raise OffsetsError(f"{topic} does not come up")
                time.sleep(0.1)
        return [int(offset) for offset in found]

    def _clean(self) -> None:
        """Deletes every topic of both clusters but Kafka's own and those in use, and waits until they are gone."""
        for admin in self._admins.values():
            deadline = time.monotonic() + _TOPIC_TIMEOUT_S
            while left := self._disposable(admin):
                for outcome in admin.delete_topics(left).values():
                    if (error := outcome.exception(_TOPIC_TIMEOUT_S)) and time.monotonic() > deadline:
                        raise error
                time.sleep(0.1)

    def _disposable(self, admin: AdminClient) -> list[str]:
        names = admin.list_topics(timeout=_TOPIC_TIMEOUT_S).topics
        return [name for name in names if not name.startswith("__") and name not in self._kept]


def client_keys(cluster: LabCluster, security: str) -> dict[str, str]:
    """Returns the client keys of the plain listener, or of the one named."""
    if not security:
        return {"bootstrap.servers": cluster.bootstrap}
    assert cluster.secured is not None
    return cluster.secured.client_properties(security, mechanism=_MECHANISM, stores=_STORES)


def describe_run(run: Mapping[str, Any]) -> str:
    """Describes a run in a line, for whoever watches."""
    if "error" in run:
        return f"FAILED: {run['error']}"
    result = run["result"]
    if "mb_per_s" in result:
        return (
            f"{result['mb_per_s']:.1f} MB/s, {result['records_per_s']} records/s, {result['mb_per_cpu_s']:.1f} MB per "
            f"CPU s, {result['seconds']:.1f} s after {result['first_record_s']:.1f} s, {result['peak_rss_mb']:.0f} MB"
        )
    if "resume_s" in result:
        return (
            f"first record {result['resume_s']:.2f} s after Spark is up, all of them {result['whole_s']:.1f} s, "
            f"a lane has up to {result['peak_lane_rss_mb']:.0f} MB"
        )
    if "pass_s" in result:
        return f"a pass over {result['groups']} groups takes up to {result['pass_s']:.2f} s: {result['passes_s']}"
    if "translate_s" in result:
        return f"{result['translate_s']:.3f} s and {result['peak_mb']:.0f} MB for {result['runs']} runs"
    if "look_with_new_s" in result:
        return (
            f"{result['refresh_s']:.3f} s for {result['partitions']} partitions, {result['look_with_new_s']:.3f} s "
            f"with {result['new_topics']} new topics, plan in {result['plan_s']:.3f} s, {result['peak_mb']:.0f} MB"
        )
    if "load_s" in result:
        return f"{result['load_s']:.3f} s for {result['flows']} flows"
    if "p50_ms" in result:
        return f"p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms, {result['records']} records"
    return f"{result['percent_of_core']:.2f} % of a core over {result['seconds']:.0f} s"


def describe_systems() -> list[dict[str, Any]]:
    return [asdict(system) for system in SYSTEMS]
