"""The policies: where a copy goes on after something happened to its records, or that it stops."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.config import Flow, parse_settings
from heliograph.kafka.admin.topics import EARLIEST
from heliograph.ledger.loss_outcomes import GoOn, Outcome, Stop, answer_to
from tests.unit.helpers.logs import ENTRY

STANDING = ENTRY.moved(n=40, source_offset=540, target_offset=145, our_end=145, run_source=510, run_target=115)
"""The open run began at (510, 115) and is 30 records long; there were others before it."""
RANGE = {"position": 540, "log_start": 600, "log_end": 700}


def flow(**policies: str) -> Flow:
    lines = [
        "clusters = a, b",
        "a.bootstrap.servers = a:9092",
        "b.bootstrap.servers = b:9092",
        "a->b.enabled = true",
        *(f"a->b.{name.replace('_', '.')} = {value}" for name, value in policies.items()),
    ]
    return parse_settings("\n".join(lines)).flows[0]


def answer(code: str, details: dict[str, Any] | None = None, **policies: str) -> GoOn | Stop:
    return answer_to(Outcome(code, "text", STANDING, details or {}), flow(**policies))


@pytest.mark.parametrize(
    ("code", "details", "start"),
    [
        ("DATA_LOST", RANGE, 600),
        ("LOG_TRUNCATED", RANGE, 700),
        ("TOPIC_RECREATED", {}, EARLIEST),
        ("TARGET_TOPIC_LOST", {}, EARLIEST),
        ("POSITION_UNPROVEN", {"records": 5}, 540),
        ("SECOND_WRITER", {}, 540),
    ],
)
def test_going_on_is_the_default(code: str, details: dict[str, Any], start: int) -> None:
    assert answer(code, details) == GoOn(start)


@pytest.mark.parametrize("code", ["DATA_LOST", "LOG_TRUNCATED"])
def test_loss_stops_what_the_policy_names(code: str) -> None:
    assert answer(code, RANGE, on_data_loss="stop-partition") == Stop()
    assert answer(code, RANGE, on_data_loss="stop-flow") == Stop(whole_flow=True)


def test_a_recreated_topic_by_policy() -> None:
    assert answer("TOPIC_RECREATED", on_topic_recreated="continue") == GoOn(540)
    assert answer("TOPIC_RECREATED", on_topic_recreated="stop-partition") == Stop()
    assert answer("TARGET_TOPIC_LOST", on_topic_recreated="stop-partition") == GoOn(EARLIEST)


@pytest.mark.parametrize(("target_end", "start"), [(144, 539), (120, 515), (115, 510), (114, EARLIEST), (0, EARLIEST)])
def test_what_the_target_lost_is_copied_again(target_end: int, start: int) -> None:
    assert answer("TARGET_TRUNCATED", {"target_end": target_end}) == GoOn(start)


@pytest.mark.parametrize("code", ["RECORD_REFUSED", "NOT_AUTHORIZED", "INTERNAL", ""])
def test_what_has_no_answer_stops_the_partition_alone(code: str) -> None:
    assert answer(code) == Stop()
