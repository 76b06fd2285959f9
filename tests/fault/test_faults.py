"""Faults at random under load: whatever happens, the target has what the source has, once, in order, unaltered.

FAULT_SEED=17 repeats the faults of a run (not its timing); the seed is printed and recorded.
FAULT_KINDS="kill lane, grow" leaves only these kinds, FAULT_COUNT=5 so many of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.lab import Lab
from tests.fault.conftest import Start
from tests.fault.faults import Fault, catalogue, choose
from tests.fault.run import run_faults
from tests.fault.world import FaultStage, spec

ISOLATIONS = ("read_committed", "read_uncommitted")
BRIEFLY_S, LONG_S = (1.0, 3.0), (20.0, 20.0)
"""How long processes are frozen: less than a lease lasts, and three times as long."""
OF_PROCESSES = ("kill lane", "kill executor", "kill mirror", "kill driver", "second driver")
Record = Callable[[str, object], None]


@pytest.fixture
def seed(request: pytest.FixtureRequest, run_seed: int, record_property: Record) -> int:
    seed = int(os.environ.get("FAULT_SEED") or run_seed)
    record_property("fault_seed", seed)
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"{request.node.name}: FAULT_SEED={seed}")
    return seed


def faults(frozen_s: tuple[float, float]) -> list[Fault]:
    kinds = {name.strip() for name in os.environ.get("FAULT_KINDS", "").split(",")} - {""}
    found = [fault for fault in catalogue(frozen_s=frozen_s) if not kinds or fault.name in kinds]
    assert found, f"there are no such faults: {kinds}"
    return found


def count(usual: int) -> int:
    return int(os.environ.get("FAULT_COUNT") or usual)


@pytest.fixture
def small_world(lab: Lab, tmp_path: Path, seed: int, record_property: Record) -> FaultStage:
    """One broker a side and Spark on this machine."""
    chance = random.Random(seed)
    isolation = chance.choice(ISOLATIONS)
    record_property("isolation", isolation)
    lab.start([spec("calm"), spec("safe", forgets=True)])
    return FaultStage(lab, lab.cluster("calm"), lab.cluster("safe"), tmp_path, isolation=isolation, chance=chance)


@pytest.mark.timeout(1800)
def test_ten_faults(small_world: FaultStage, record_property: Record) -> None:
    """Those of Spark's processes and a second driver, and as many of the others by chance."""
    found = faults(BRIEFLY_S)
    of_processes = [fault for fault in found if fault.name in OF_PROCESSES]
    others = [fault for fault in found if fault.name not in OF_PROCESSES]
    number = count(10) - len(of_processes)
    chosen = [*of_processes, *choose(others or found, number, small_world, small_world.chance)]
    small_world.chance.shuffle(chosen)
    run_faults(small_world, chosen, record_property)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_forty_faults_on_one_broker_a_side(small_world: FaultStage, record_property: Record) -> None:
    chosen = choose(faults(BRIEFLY_S), count(40), small_world, small_world.chance)
    run_faults(small_world, chosen, record_property)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_two_hundred_faults(
    lab: Lab, start_clusters: Start, tmp_path: Path, *, seed: int, isolation: str, record_property: Record
) -> None:
    """Three brokers a side and a standalone Spark with two workers; FAULT_COUNT=50 has all kinds too."""
    chance = random.Random(f"{seed} {isolation}")
    source, target = (f"{name}-{isolation[5:]}" for name in ("calm", "safe"))
    specs = [spec(source, brokers=3), spec(target, brokers=3, forgets=True)]
    networks = start_clusters(specs)
    clusters = lab.cluster(source), lab.cluster(target)
    world = FaultStage(lab, *clusters, tmp_path, isolation=isolation, chance=chance, standalone=True, networks=networks)
    run_faults(world, choose(faults(LONG_S), count(200), world, chance), record_property)
