"""One run: faults one after the other under load, recovery after each, and the comparison at the end."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.cluster.mirror import wait_until
from tests.fault.arrivals import percentile
from tests.fault.checker import Verdict, announced_repeats, false_names
from tests.fault.faults import Fault, hold
from tests.fault.stamp import OWN_KEY_EVERY
from tests.fault.world import FaultStage, tail

log = logging.getLogger(__name__)
START_S = 300.0
RECOVERY_S = 300.0
"""Generous: a start of Spark on a busy machine is in it. What it took is in the report."""
ORPHANS_S = 120.0
Record = Callable[[str, object], None]
_OUR_FRAME = re.compile(r'File "\S*/heliograph/\S+", line')
"""Of a traceback; PySpark prints one of its own when its JVM is killed."""


def run_faults(world: FaultStage, faults: Iterable[Fault], record: Record) -> None:
    """Harm the world by one fault after the other; AssertionError when it does not recover, or when the copy is not
    the source. The next fault is taken when the world has recovered from the one before."""
    told: list[dict[str, Any]] = []
    with world:
        wait_until(lambda: len(world.acknowledged()) == 6, START_S, what="the first records on the source")
        world.wait_for(world.acknowledged(), START_S)
        began = time.monotonic()
        try:
            for fault in faults:
                told.append({"at_s": round(time.monotonic() - began, 1), "fault": fault.name})
                told[-1] |= _harm(world, fault)
                log.info("%s", told[-1])
                time.sleep(world.chance.uniform(0, 2))
        finally:
            end = time.monotonic()
            record("faults", told)
            record("longest_stall_s", round(world.arrivals.longest_silence_s(began, end), 1))
            record("latency_ms", _latency(world, began, end))
            record("restarts", world.restarts)
            record("ledger_lost", [lost._asdict() for lost in world.ledger_losses])
        world.stop_writers()
        verdicts = _judge(world)
        counts = _counts(world, verdicts)
        record("counts", counts)
    bad = {
        f"{topic}-{partition}": str(verdict) for (topic, partition), verdict in verdicts.items() if not verdict.is_good
    }
    assert not bad, f"{bad}\n{told}\n{world.output}"
    keyed = counts["keyed"]
    assert keyed["acknowledged"] // OWN_KEY_EVERY <= keyed["compared"], "records with keys of their own are missing"
    assert keyed["compared"] < keyed["acknowledged"], "the source was not compacted"
    assert counts["paid"]["aborted"] > 0, "no transaction was aborted"
    assert not _OUR_FRAME.search(world.output), world.output
    assert "INTERNAL" not in world.output, world.output
    assert not (named := false_names(world.output)), f"this did not happen: {named}\n{world.output}"


def _harm(world: FaultStage, fault: Fault) -> dict[str, Any]:
    began = time.monotonic()
    try:
        with fault.harm(world):
            held = hold(fault, world.chance)
        healed = time.monotonic()
        recovered = world.wait_for(world.acknowledged(), RECOVERY_S, may_end=fault.may_end)
        wait_until(lambda: not world.orphans(), ORPHANS_S, what="the end of orphaned processes")
    except AssertionError as error:
        raise AssertionError(f"after {fault.name}: {error}") from error
    end = time.monotonic()
    return {
        "held_s": round(held, 1),
        "healed_after_s": round(healed - began, 1),
        "recovered_after_s": round(recovered, 1),
        "stall_s": round(world.arrivals.longest_silence_s(began, end), 1),
    }


def _judge(world: FaultStage) -> dict[tuple[str, int], Verdict]:
    """When nothing more comes: what the source has last must be there, and nothing may come behind it."""
    world.wait_for(world.newest_on_source(), RECOVERY_S)
    stopped = world.mirror.stop()
    assert stopped.code == 0, tail(world.mirror.output)
    return world.judge()


def _latency(world: FaultStage, began: float, end: float) -> dict[str, int]:
    ordered = world.arrivals.latencies(began, end)
    return {"p50": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99), "most": percentile(ordered, 1.0)}


def _counts(world: FaultStage, verdicts: dict[tuple[str, int], Verdict]) -> dict[str, dict[str, int]]:
    """What was written, compared and found; `may_repeat` is what the mirror announced, `announced` what came of it."""
    counts: dict[str, dict[str, int]] = {}
    said = announced_repeats(world.output)
    for writer in world.writers:
        mine = [verdict for (topic, _), verdict in verdicts.items() if topic == writer.topic]
        counts[writer.shape.writer] = {
            "acknowledged": sum(map(len, writer.acknowledged.values())),
            "aborted": sum(map(len, writer.aborted.values())),
            "given_up": len(writer.troubles),
            "compared": sum(verdict.compared for verdict in mine),
            "compacted_away": sum(verdict.compacted_away for verdict in mine),
            "may_repeat": sum(number for (topic, _), number in said.items() if topic == writer.topic),
            **{
                name: sum(len(getattr(verdict, name)) for verdict in mine)
                for name in ("lost", "repeated", "announced", "reordered", "altered", "unwanted")
            },
        }
    return counts
