"""What of a changed configuration takes effect at once, and what waits for a restart."""

from __future__ import annotations

from dataclasses import fields

import pytest

from heliograph.config import Flow, Settings, parse_settings
from heliograph.config.changes import LIVE, compare
from heliograph.config.files.parts import ConnectorState
from tests.unit.helpers.samples import BASE


def load(more: str = "") -> Settings:
    return parse_settings(BASE + more)


def test_the_same_file_changes_nothing() -> None:
    changes = compare(load(), load("# a comment\n"))
    assert (changes.settings, changes.applied, changes.need_restart) == (load(), (), ())


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("A->B.topics = x\n", "topics"),
        ("A->B.topics.exclude = x\n", "topics"),
        ("tasks.max = 7\n", "tasks_max"),
        ("refresh.topics.interval.seconds = 5\n", "refresh_topics_interval_s"),
        ("B.offset.flush.interval.ms = 500\n", "offset_flush_interval_ms"),
        ("A->B.groups = x\n", "checkpoints"),
        ("sync.group.offsets.enabled = true\n", "checkpoints"),
        ("A->B.emit.heartbeats.interval.seconds = 5\n", "heartbeats"),
        ("A->B.state = paused\n", "state"),
        ("on.data.loss = stop-flow\n", "on_data_loss"),
        ("stall.timeout.ms = 5000\n", "stall_timeout_ms"),
        ("start.position = latest\n", "start_positions"),
        ("start.position.1.topics = x\nstart.position.1.from = latest\n", "start_positions"),
    ],
)
def test_what_the_next_plan_can_take_up_is_applied(more: str, field: str) -> None:
    wanted = load(more)
    changes = compare(load(), wanted)
    assert changes.settings == wanted
    assert changes.applied == (f"A->B: {field.replace('_', ' ')}",)
    assert changes.need_restart == ()


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("B.group.id = x\n", "A->B: group id"),
        ("replication.policy.separator = _\n", "A->B: policy"),
        ("A.bootstrap.servers = c:9092\n", 'cluster "A"'),
        ("B->A.enabled = true\n", "B->A is new"),
        ("spark.executor.memory = 1g\n", "spark.*"),
        ("A.consumer.isolation.level = read_committed\n", "A->B: isolation level"),
    ],
)
def test_what_needs_a_restart_is_named_and_not_applied(more: str, what: str) -> None:
    changes = compare(load(), load(more))
    assert what in changes.need_restart
    assert changes.settings == load()
    assert changes.applied == ()


def test_a_flow_that_is_gone_goes_on_until_a_restart() -> None:
    before = load("B->A.enabled = true\n")
    changes = compare(before, load())
    assert changes.need_restart == ("B->A was removed",)
    assert changes.settings == before


def test_epochs_take_their_new_length_at_once() -> None:
    changes = compare(load(), load("epoch.ms = 5000\n"))
    assert changes.settings.epoch_ms == 5000


def test_a_paused_flow_stays_in_the_settings_and_does_not_run() -> None:
    [flow] = load("A->B.state = paused\n").enabled_flows
    assert flow.state is ConnectorState.PAUSED
    assert not flow.is_running


def test_every_live_field_is_one_of_a_flow() -> None:
    assert {field.name for field in fields(Flow)} >= LIVE


def test_how_a_cluster_is_reached_takes_effect_with_the_next_connection() -> None:
    changes = compare(load(), load("A.security.protocol = SSL\n"))
    assert changes.applied == ('cluster "A": how it is reached, from the next connection on',)
    assert changes.settings.clusters["A"].security_protocol == "SSL"


def test_another_placeholder_with_the_same_value_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "x")
    monkeypatch.setenv("TWO", "x")
    one, two = (load(f"A.ssl.truststore.password = ${{env:{name}}}\n") for name in ("ONE", "TWO"))
    changes = compare(one, two)
    assert (changes.applied, changes.need_restart) == ((), ())
    assert changes.settings.clusters["A"].references == {"ssl.truststore.password": "${env:TWO}"}


def test_heartbeats_of_pairs_without_a_flow_change_at_once() -> None:
    for more in (
        "emit.heartbeats.interval.seconds = 5\nA->B.emit.heartbeats.interval.seconds = 1\n",
        "B->A.emit.heartbeats.enabled = false\n",
        "B->A.heartbeats.state = paused\n",
    ):
        wanted = load(more)
        changes = compare(load(), wanted)
        assert (changes.applied, changes.need_restart) == (("heartbeats of B->A",), ())
        assert changes.settings.heartbeat_pairs() == wanted.heartbeat_pairs()
        back = compare(changes.settings, load())
        assert back.settings.heartbeat_pairs() == load().heartbeat_pairs()
        assert ("heartbeats of B->A" in back.applied, back.need_restart) == (True, ())


def test_many_pairs_with_other_heartbeats_are_one_line() -> None:
    base = "clusters=A,B,C\n" + "".join(f"{alias}.bootstrap.servers={alias}:1\n" for alias in "ABC")
    changes = compare(parse_settings(base), parse_settings(f"{base}emit.heartbeats.interval.seconds=9"))
    assert changes.applied == ("heartbeats of A->B, A->C, B->A, B->C, C->A and 1 more",)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("lease.ms = 5000", "lease.ms"),
        ("spark.ui.enabled = true", "spark.*"),
        ("executor.packages = installed", "executor.packages"),
        ("executor.secrets = mount", "executor.secrets"),
    ],
)
def test_what_is_read_once_needs_a_restart(line: str, key: str) -> None:
    changes = compare(load(), load(f"{line}\n"))
    assert changes.need_restart == (key,)
    assert changes.settings == load()
