"""Exactness under life: traffic that never rests, groups that commit every second, then everything dies at once.

A repetition: heliograph and the real MirrorMaker 2 mirror the same topic at the same time into the same cluster,
each under its own prefix and with the same intervals. Groups far behind and close to the end commit every second.
Then both mirrors and the source get kill -9, and on the target a real consumer of each group reads its first records.

    source    ... 41 42 43 44 45 ...     a record's value is its own source offset
    target    x x ... 41 42 43 ...       x: records that were there before, so that offsets differ by partition

The first value read, against the last commit, tells what is read again and what is lost.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from heliograph.config.files.properties import property_line
from heliograph.lab import Jvm, Lab, LabCluster
from heliograph.lab.keeper import die_with_parent
from tests.cluster.consumers import committed, consumer, place_of
from tests.cluster.mirror import MirrorProcess, View, admin, create_topic, produce, producer, unique, wait_until

PARTITIONS = 3
PER_SECOND = 1500
PREFILL = 12_000
"""Records of each partition before anything starts."""
LAGS = (0, 50, 1_000, 10_000)
"""How many records of each partition the groups stay behind what is acknowledged."""
COMMIT_EVERY_S = 1.0
INTERVAL_S = 5
PASS_S = 3.0
"""What a pass may take: half a second to two until the lanes have written down what the fastest group has read, then a
few requests, on a machine that two mirrors, a load and two brokers share."""
SIZE = 100
AHEAD = tuple(7 * (partition + 1) for partition in range(PARTITIONS))
"""Records of somebody else in each copy, before it begins: no source offset is a target offset."""

HELIOGRAPH = "heliograph"
MM2 = "MM2"
_MM2_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_START_S = 120.0
_PATIENCE_WITH_MM2_S = 30.0
_CARRY = {
    "emit.checkpoints.interval.seconds": str(INTERVAL_S),
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": str(INTERVAL_S),
    "refresh.groups.interval.seconds": "1",
}


# -- what goes on at the source


class Traffic:
    """Records at a steady rate, each with its own source offset as its value; knows what is acknowledged."""

    def __init__(self, cluster: LabCluster, topic: str) -> None:
        self._producer = producer(cluster)
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._next = 0
        self.acknowledged = [0] * PARTITIONS
        self.wrong: list[str] = []

    def prefill(self) -> None:
        for _ in range(PREFILL):
            self._send()
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        assert self.acknowledged == [PREFILL] * PARTITIONS, self.wrong[:3]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After the broker's end: what it has not acknowledged is given up."""
        self._stop.set()
        self._thread.join(10)
        right = not self.wrong
        self._producer.purge()
        self._producer.poll(0)
        assert right, self.wrong[:3]

    def _send(self) -> None:
        value = (b"%d" % self._next).ljust(SIZE)
        for partition in range(PARTITIONS):
            self._producer.produce(self._topic, value, None, partition, on_delivery=self._delivered)
        self._next += 1

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None or int(message.value()) != message.offset():
            self.wrong.append(f"{message.value()!r} at {message.offset()}: {error}")
        else:
            self.acknowledged[message.partition()] = message.offset() + 1

    def _run(self) -> None:
        began, rounds = time.monotonic(), 0
        while not self._stop.is_set():
            self._send()
            rounds += 1
            self._producer.poll(0)
            ahead = rounds * PARTITIONS / PER_SECOND - (time.monotonic() - began)
            if ahead > 0.01:
                self._stop.wait(ahead)


class Moment(NamedTuple):
    """A commit of all partitions."""

    acknowledged_at: float
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    lag: int
    history: list[Moment] = field(default_factory=list)


class Committer:
    """Groups without members that commit every second, each so many records behind what is acknowledged."""

    def __init__(self, cluster: LabCluster, topic: str, traffic: Traffic, groups: Sequence[Group]) -> None:
        self._topic = topic
        self._traffic = traffic
        self._groups = groups
        self._clients = [consumer(cluster, group.name) for group in groups]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failed: KafkaException | None = None

    def start(self) -> None:
        """Returns when every group has committed: its coordinator may not be there at once."""
        self._thread.start()
        wait_until(lambda: all(group.history for group in self._groups), 30, what="the first commits")

    def stop(self) -> None:
        """At once. No commit is under way on return."""
        self._stop.set()
        self._thread.join(30)
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due += COMMIT_EVERY_S
            try:
                self._commit()
            except KafkaException as error:
                if all(group.history for group in self._groups):
                    self._failed = error  # raised where somebody looks
                    return

    def _commit(self) -> None:
        for group, client in zip(self._groups, self._clients, strict=True):
            offsets = tuple(max(0, end - group.lag) for end in self._traffic.acknowledged)
            places = [TopicPartition(self._topic, *place) for place in enumerate(offsets)]
            for place in client.commit(offsets=places, asynchronous=False):
                if place.error is not None:
                    raise KafkaException(place.error)
            group.history.append(Moment(time.monotonic(), offsets))


# -- the other mirror


class MirrorMaker:
    """The real MM2, all its settings but intervals, factors and names at their defaults."""

    def __init__(
        self, lab: Lab, folder: Path, clusters: tuple[LabCluster, LabCluster], keys: Mapping[str, str]
    ) -> None:
        source, target = clusters
        self.alias = unique("mm2")
        there = unique("there")
        properties = {
            "clusters": f"{self.alias}, {there}",
            f"{self.alias}.bootstrap.servers": source.bootstrap,
            f"{there}.bootstrap.servers": target.bootstrap,
            f"{self.alias}->{there}.enabled": "true",
            f"{there}.group.id": self.alias,
            f"{there}.scheduled.rebalance.max.delay.ms": "0",
            **{f"{there}.{kind}.storage.topic": f"{self.alias}.{kind}" for kind in ("offset", "config", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
            **{
                f"{kind}replication.factor": "1"
                for kind in ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
            },
            **keys,
        }
        config = folder / f"{self.alias}.properties"
        config.write_text("".join(f"{property_line(key, value)}\n" for key, value in properties.items()))
        self._command = lab.java(_MM2_CLASS, str(config), "--clusters", there, jvm=Jvm(heap="512m"))
        self._log = folder / f"{self.alias}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._command.env},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - a C call only, safe with threads too
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)


# -- what came of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a group goes on in one partition of one mirror's copy."""

    mirror: str
    lag: int
    partition: int
    last: int
    """The last commit on the source, which is the next record to be read."""
    first: int
    """The source offset of the first record that was read on the target."""
    has_offset: bool
    """False: the group had no offset there, and read from the start."""
    age_s: float | None
    """How long before the kill the group committed just this; None if it never did."""

    @property
    def read_again(self) -> int:
        return max(0, self.last - self.first)

    @property
    def lost(self) -> int:
        return max(0, self.first - self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One repetition."""

    stopped: bool
    pause_s: float
    times_s: Mapping[str, float]
    """Since the beginning."""
    places: tuple[Place, ...]

    @property
    def variant(self) -> str:
        return "stopped" if self.stopped else "mid-traffic"

    def of(self, mirror: str, lag: int) -> list[Place]:
        return [place for place in self.places if (place.mirror, place.lag) == (mirror, lag)]

    def broken(self) -> list[str]:
        """What heliograph's promise is not kept by."""
        ours = [place for place in self.places if place.mirror == HELIOGRAPH]
        assert len(ours) == len(LAGS) * PARTITIONS
        if self.stopped:
            return [f"not exact: {place}" for place in ours if place.first != place.last]
        wrong = [f"lost: {place}" for place in ours if place.lost]
        wrong += [f"never committed: {place}" for place in ours if place.age_s is None]
        wrong += [
            f"too old: {place}" for place in ours if place.age_s is not None and place.age_s > INTERVAL_S + PASS_S
        ]
        return wrong

    def figures(self) -> dict[str, object]:
        """For the report."""
        places = [{**asdict(place), "read_again": place.read_again, "lost": place.lost} for place in self.places]
        return {"variant": self.variant, "pause_s": self.pause_s, "times_s": self.times_s, "places": places}


def read_first(target: LabCluster, group: Group, copy: Copy) -> list[int]:
    """Join the group as an application would: the source offset of the first record of each partition.

    Where the group stands at the copy's end it is the next record that would have come.
    """
    reader = consumer(target, group.name, enable_partition_eof=True)
    first: dict[int, int] = {}
    try:
        reader.subscribe([copy.topic])
        deadline = time.monotonic() + 30
        while len(first) < PARTITIONS:
            assert time.monotonic() < deadline, f"{group.name} got records of partitions {sorted(first)} only"
            _note_first(reader, first)
    finally:
        reader.close()
    return [max(0, first[partition]) for partition in range(PARTITIONS)]


def _note_first(reader: Consumer, first: dict[int, int]) -> None:
    for message in reader.consume(500, 0.2):
        value, error = message.value(), message.error()
        assert error is None or error.code() == KafkaError._PARTITION_EOF, error
        partition, offset = place_of(message)
        if error is None:
            assert value is not None
            first.setdefault(partition, int(value))
        else:
            first.setdefault(partition, offset - AHEAD[partition])


# -- a repetition


class Copy(NamedTuple):
    mirror: str
    topic: str


def live(lab: Lab, clusters: tuple[LabCluster, LabCluster], folder: Path, *, stopped: bool, pause_s: float) -> Life:
    """Live for a while, die, go on elsewhere.

    stopped: the groups' last commit is followed by a second in which none comes, and by one interval.
    else: the groups commit until both mirrors are dead.
    """
    source, target = clusters
    times_s: dict[str, float] = {}
    note = _stopwatch(times_s)
    topic = create_topic(source, unique("life"), PARTITIONS)
    groups = [Group(unique(f"behind-{lag}"), lag) for lag in LAGS]
    wanted = {"topics": topic, "groups": ",".join(group.name for group in groups), **_CARRY}
    traffic = Traffic(source, topic)
    traffic.prefill()
    committer = Committer(source, topic, traffic, groups)
    flow = f"{source.alias}->{target.alias}"
    keys = {f"{flow}.{key}": value for key, value in wanted.items()}
    mirror = MirrorProcess(folder, {source.alias: source, target.alias: target}, keys)
    other = MirrorMaker(lab, folder, clusters, wanted)
    ours, theirs = Copy(HELIOGRAPH, f"{source.alias}.{topic}"), Copy(MM2, f"{other.alias}.{topic}")
    for copy in (ours, theirs):
        _begin_copy(target, copy)
    with ExitStack() as ends:
        ends.callback(committer.close)
        ends.callback(traffic.stop)
        ends.callback(committer.stop)
        traffic.start()
        committer.start()
        note("started")
        ends.enter_context(mirror.until_killed())
        ends.enter_context(other)
        mirror.wait_until(lambda: _is_carried(target, ours, groups, traffic), _START_S, what="the first offsets")
        note("heliograph carries")
        with suppress(AssertionError):
            wait_until(lambda: _is_carried(target, theirs, groups[:1], traffic), _PATIENCE_WITH_MM2_S)
            note("MM2 carries")
        time.sleep(2 * INTERVAL_S + pause_s)
        if stopped:
            committer.stop()
            last = max(group.history[-1].acknowledged_at for group in groups)
            time.sleep(last + COMMIT_EVERY_S + INTERVAL_S - time.monotonic())
        killed_at = time.monotonic()
        mirror.kill()
        other.kill()
        committer.stop()
        source.kill_broker(1)
        note("killed")
    assert "Traceback" not in mirror.output, mirror.output
    places = [place for copy in (ours, theirs) for group in groups for place in _judge(target, copy, group, killed_at)]
    note("read")
    admin(target).delete_topics([ours.topic, theirs.topic])
    return Life(stopped=stopped, pause_s=pause_s, times_s=times_s, places=tuple(places))


def _stopwatch(times_s: dict[str, float]) -> Callable[[str], None]:
    began = time.monotonic()

    def note(what: str) -> None:
        times_s[what] = round(time.monotonic() - began, 1)

    return note


def _begin_copy(target: LabCluster, copy: Copy) -> None:
    create_topic(target, copy.topic, PARTITIONS)
    for partition, count in enumerate(AHEAD):
        produce(target, copy.topic, [b"-1"] * count, partition=partition)


def _is_carried(target: LabCluster, copy: Copy, groups: Sequence[Group], traffic: Traffic) -> bool:
    """The copy is at most a second behind, and every group has an offset everywhere."""
    ends = View(target, copy.topic).counts() or AHEAD
    behind = [end - (there - ahead) for end, there, ahead in zip(traffic.acknowledged, ends, AHEAD, strict=True)]
    return max(behind) < PER_SECOND / PARTITIONS and all(
        len(_standing(target, copy, group)) == PARTITIONS for group in groups
    )


def _standing(target: LabCluster, copy: Copy, group: Group) -> dict[int, int]:
    found = committed(target, group.name)
    return {partition: offset for (topic, partition), offset in found.items() if topic == copy.topic and offset >= 0}


def _judge(target: LabCluster, copy: Copy, group: Group, killed_at: float) -> Iterator[Place]:
    standing = _standing(target, copy, group)
    for partition, first in enumerate(read_first(target, group, copy)):
        same = [moment.acknowledged_at for moment in group.history if moment.offsets[partition] == first]
        yield Place(
            mirror=copy.mirror,
            lag=group.lag,
            partition=partition,
            last=group.history[-1].offsets[partition],
            first=first,
            has_offset=partition in standing,
            age_s=round(killed_at - max(same), 2) if same else None,
        )


# -- the table


def tell(lives: Sequence[Life]) -> list[str]:
    """How many records a group reads again by variant and lag, in its worst partition and in all of them.

    Of several repetitions the least, the median and the most.
    """
    widths = (11, 6, 5, 19, 21, 24, 27, 8)
    heads = ("variant", "lag", "times", "heliograph: worst", "sum", "MM2: worst", "sum", "MM2 none")
    rows: list[tuple[str, ...]] = [heads]
    for variant in dict.fromkeys(life.variant for life in lives):
        chosen = [life for life in lives if life.variant == variant]
        rows += [_row(variant, lag, chosen) for lag in LAGS]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _row(variant: str, lag: int, lives: Sequence[Life]) -> tuple[str, ...]:
    cells = []
    for mirror in (HELIOGRAPH, MM2):
        again = [[place.read_again for place in life.of(mirror, lag)] for life in lives]
        cells += [_spread(list(map(max, again))), _spread(list(map(sum, again)))]
    none = sum(not all(place.has_offset for place in life.of(MM2, lag)) for life in lives)
    return (variant, f"{lag:,}", str(len(lives)), *cells, str(none))


def _spread(values: Sequence[int]) -> str:
    if len(values) == 1:
        return f"{values[0]:,}"
    return f"{min(values):,} / {statistics.median(values):,.0f} / {max(values):,}"
