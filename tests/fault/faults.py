"""The catalogue of faults. Each is a context: entering does the harm, leaving heals it."""

from __future__ import annotations

import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import psutil

from heliograph.lab import LabCluster
from tests.cluster.mirror import wait_until
from tests.fault.proxy import FINE, Weather
from tests.fault.world import FaultStage

SIDES = ("source", "target")
_TURNS = 100
_ROOM_BYTES = 2000
_LEDGER_RECORDS = 60
_OFTEN = 3
"""A round of all kinds has so many of some: those of which a run of 50 faults is to have several."""
_SECOND_S = 25.0
"""Enough for Spark to start on a quiet machine."""

_SECOND_SIGNS = ("records/s", "and waits for a flow to copy")
"""It copies; it stands by, with its Spark up."""

Harm = Callable[[FaultStage], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    harm: Harm
    weight: float = 1.0
    lasts_s: tuple[float, float] = (0.0, 0.0)
    """It lasts at least and at most so long before it is healed; 0: it is over at once."""
    may_end: bool = False
    """Whether the mirror may end by it, and is then started again."""
    is_possible: Callable[[FaultStage], bool] = lambda _: True
    times: int = 1
    """How often it comes in a round, in which each of the others comes once."""


# -- processes of the mirror


@contextmanager
def kill_lane(world: FaultStage) -> Iterator[None]:
    _one(world, world.lanes).kill()
    yield


@contextmanager
def kill_executor(world: FaultStage) -> Iterator[None]:
    """Of local Spark it is the JVM, without which the mirror ends; its lanes may copy on until they notice."""
    _one(world, world.executors).kill()
    if world.spark is None:
        wait_until(lambda: not world.mirror.is_running, 60, what="the mirror's end")
    yield


@contextmanager
def kill_tree(world: FaultStage) -> Iterator[None]:
    world.mirror.kill()
    yield
    world.start_mirror()


@contextmanager
def kill_driver(world: FaultStage) -> Iterator[None]:
    world.kill_driver_only()
    yield
    world.start_mirror()


@contextmanager
def kill_worker(world: FaultStage) -> Iterator[None]:
    world.kill_worker(with_executors=world.chance.random() < 0.5)
    yield
    world.start_worker()


@contextmanager
def second_driver(world: FaultStage) -> Iterator[None]:
    """Until it stands by, copies or ends, and a little longer; where Spark takes too long it is not waited for."""
    with world.second_mirror() as second:
        with suppress(AssertionError):
            wait_until(lambda: not second.is_running or any(sign in second.output for sign in _SECOND_SIGNS), _SECOND_S)
        yield


@contextmanager
def freeze(world: FaultStage, find: Callable[[FaultStage], Sequence[psutil.Process]]) -> Iterator[None]:
    process = _one(world, partial(find, world))
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def _one(world: FaultStage, find: Callable[[], Sequence[psutil.Process]]) -> psutil.Process:
    """One of the processes, when there are any: right after another fault there may be none yet."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        found[:] = find()
        return bool(found)

    wait_until(is_there, 60, what="a process to harm")
    return world.chance.choice(found)


# -- brokers


@contextmanager
def lose_broker(world: FaultStage, side: str, end: Callable[[LabCluster, int], None]) -> Iterator[None]:
    cluster, broker = world.cluster(side), world.any_broker(side)
    end(cluster, broker)
    yield
    cluster.start_broker(broker)


@contextmanager
def freeze_broker(world: FaultStage, side: str) -> Iterator[None]:
    cluster, broker = world.cluster(side), world.any_broker(side)
    cluster.signal_broker(broker, signal.SIGSTOP)
    try:
        yield
    finally:
        cluster.signal_broker(broker, signal.SIGCONT)


@contextmanager
def cut_off_broker(world: FaultStage, side: str) -> Iterator[None]:
    """Its clients still reach it, and it believes that it leads; the others have new leaders when this is entered."""
    network = world.network(side)
    assert network is not None
    with network.cut_off(world.any_broker(side)):
        yield


@contextmanager
def lose_ledger_tail(world: FaultStage) -> Iterator[None]:
    """The brokers that hold the ledger end uncleanly, and its newest records are on none of their disks.

    Half of the time the mirror is killed with them, and what it knew is gone too.
    """
    dies_too = world.chance.random() < 0.5
    if dies_too:
        world.mirror.kill()
    world.lose_ledger_tail(at_most=_LEDGER_RECORDS)
    yield
    if dies_too:
        world.start_mirror()


@contextmanager
def fill_disk(world: FaultStage) -> Iterator[None]:
    """The files of one target broker cannot grow; it gives up at the first that fails, and is started again."""
    broker = world.any_broker("target")
    pid = world.target.pids[broker]
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (world.largest_log() + _ROOM_BYTES, hard))
    yield
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    world.ensure_brokers()


@contextmanager
def move_leaders(world: FaultStage, side: str) -> Iterator[None]:
    world.move_leaders(side)
    yield


@contextmanager
def grow(world: FaultStage) -> Iterator[None]:
    world.grow()
    yield


# -- the network between the mirror and a cluster


@contextmanager
def weather(world: FaultStage, side: str, bad: Weather) -> Iterator[None]:
    world.become(side, bad)
    try:
        yield
    finally:
        world.become(side, FINE)


# -- everything


@contextmanager
def stop_everything(world: FaultStage) -> Iterator[None]:
    world.mirror.stop()
    for side in SIDES:
        for broker in sorted(world.cluster(side).running_ids):
            world.cluster(side).stop_broker(broker)
    yield
    for side in SIDES:
        cluster = world.cluster(side)
        cluster.launch(cluster.brokers)
        cluster.wait_until_ready(timeout_s=120)
    world.start_mirror()


WEATHERS = {
    "cut": Weather(is_cut=True),
    "delay": Weather(delay_s=0.2),
    "stalls": Weather(stall_share=0.05),
    "resets": Weather(resets_per_s=2.0),
    "half-open": Weather(swallows=True),
}


def _has_standalone(world: FaultStage) -> bool:
    return world.spark is not None


def catalogue(*, frozen_s: tuple[float, float]) -> list[Fault]:
    """All kinds; processes are frozen for at least and at most so long, the rest is over sooner."""
    brief = (1.0, min(frozen_s[1], 5.0))
    faults = [
        Fault(name="kill lane", harm=kill_lane, weight=2),
        Fault(name="kill executor", harm=kill_executor, may_end=True),
        Fault(name="kill mirror", harm=kill_tree),
        Fault(name="kill driver", harm=kill_driver),
        Fault(name="kill worker", harm=kill_worker, lasts_s=brief, is_possible=_has_standalone),
        Fault(name="freeze lane", harm=partial(freeze, find=FaultStage.lanes), lasts_s=frozen_s),
        Fault(name="freeze executor", harm=partial(freeze, find=FaultStage.executors), lasts_s=frozen_s),
        Fault(name="freeze driver", harm=partial(freeze, find=_driver), lasts_s=frozen_s),
        Fault(name="freeze worker", harm=partial(freeze, find=_workers), lasts_s=frozen_s, is_possible=_has_standalone),
        Fault(name="fill disk", harm=fill_disk, lasts_s=brief),
        Fault(name="grow", harm=grow, is_possible=FaultStage.can_grow),
        Fault(name="lose ledger tail", harm=lose_ledger_tail, times=_OFTEN),
        Fault(name="stop everything", harm=stop_everything, weight=0.2),
        Fault(name="second driver", harm=second_driver, lasts_s=brief, may_end=True),
    ]
    for side in SIDES:
        faults += [
            Fault(
                name=f"kill {side} broker",
                harm=partial(lose_broker, side=side, end=LabCluster.kill_broker),
                lasts_s=brief,
            ),
            Fault(name=f"restart {side} broker", harm=partial(lose_broker, side=side, end=LabCluster.stop_broker)),
            Fault(name=f"freeze {side} broker", harm=partial(freeze_broker, side=side), lasts_s=frozen_s),
            Fault(
                name=f"cut off {side} broker",
                harm=partial(cut_off_broker, side=side),
                lasts_s=brief,
                is_possible=partial(_has_network, side=side),
                times=_OFTEN,
            ),
            Fault(
                name=f"move {side} leaders",
                harm=partial(move_leaders, side=side),
                is_possible=partial(_has_several_brokers, side=side),
            ),
        ]
        faults += [
            Fault(name=f"{name} {side}", harm=partial(weather, side=side, bad=bad), weight=0.7, lasts_s=brief)
            for name, bad in WEATHERS.items()
        ]
    return faults


def _driver(world: FaultStage) -> list[psutil.Process]:
    return [psutil.Process(world.mirror.process.pid)]


def _workers(world: FaultStage) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in world.spark_workers]


def _has_several_brokers(world: FaultStage, side: str) -> bool:
    return world.cluster(side).spec.brokers > 1


def _has_network(world: FaultStage, side: str) -> bool:
    return world.network(side) is not None


def choose(faults: Sequence[Fault], number: int, world: FaultStage, chance: random.Random) -> Iterator[Fault]:
    """So many, at random by weight, in rounds: each kind comes as often as it is to before the next round begins."""
    left: list[Fault] = []
    for _ in range(number):
        for _ in range(_TURNS):
            left = left or [fault for fault in faults if fault.is_possible(world) for _ in range(fault.times)]
            fault = chance.choices(left, [fault.weight for fault in left])[0]
            left.remove(fault)
            if fault.is_possible(world):
                break
        yield fault


def hold(fault: Fault, chance: random.Random) -> float:
    """Let it last; the seconds."""
    seconds = chance.uniform(*fault.lasts_s) if any(fault.lasts_s) else 0.0
    time.sleep(seconds)
    return seconds
