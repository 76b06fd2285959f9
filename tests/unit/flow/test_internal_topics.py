"""The topics in which a flow keeps its state: as MirrorMaker 2 has them, made up front or found there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.errors import ConfigError, NotCompacted
from heliograph.flow.required_topics import internal_topics, too_few_brokers, topics_beside
from heliograph.flow.start_checks import read_policies
from heliograph.kafka.admin.acls import Operation
from heliograph.kafka.admin.topics import NewTopic
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.types import BrokerAddress
from heliograph.preflight.steps import Verdict
from heliograph.preflight.topics import check_policies, check_storage
from heliograph.rights.required import flow_rights
from tests.fake_cluster import CREATE_TOPICS, DESCRIBE_CONFIGS, Call, FakeCluster
from tests.unit.helpers.flows import flow_between
from tests.unit.helpers.samples import BASE

NOT_MADE = "b.internal.topics.automatic.creation.enable = false"
COMPACT = {"cleanup.policy": "compact"}
OFFSETS, CONFIGS, STATUS, LEDGER = (f"mm2-{name}.a.internal" for name in ("offsets", "configs", "status", "ledger"))

# -- names and shapes


def shapes(topics: Iterable[NewTopic]) -> dict[str, tuple[int, int]]:
    """Partitions and replicas by name; all are compacted."""
    found = list(topics)
    assert all(topic.configs.items() >= COMPACT.items() for topic in found)
    return {topic.name: (topic.partitions, topic.replication_factor) for topic in found}


def test_by_default_they_are_mm2s() -> None:
    flow = parse_settings(BASE).flows[0]
    assert shapes(internal_topics(flow)) == {
        "mm2-offsets.A.internal": (25, 3),
        "mm2-configs.A.internal": (1, 3),
        "mm2-status.A.internal": (5, 3),
        "mm2-ledger.A.internal": (1, 3),
    }
    beside = list(topics_beside(flow))
    assert [item.alias for item in beside] == ["A", "B", "B"]
    assert shapes(item.topic for item in beside) == {
        "mm2-offset-syncs.B.internal": (1, 3),
        "A.checkpoints.internal": (1, 3),
        "heartbeats": (1, 3),
    }


def test_names_partitions_and_factors_are_those_that_are_written() -> None:
    flow = parse_settings(
        BASE + "".join(f"B.{name}.storage.topic = __mm2_{name}\n" for name in ("offset", "config", "status"))
        + "B.offset.storage.partitions = 7\nB.status.storage.partitions = 2\noffset.storage.replication.factor = 1\n"
        "config.storage.replication.factor = 2\nstatus.storage.replication.factor = -1\n"
        "offset-syncs.topic.location = target\noffset-syncs.topic.replication.factor = 1\n"
        "checkpoints.topic.replication.factor = 2\nheartbeats.topic.replication.factor = -1\n"
        "replication.policy.separator = _\n"
    ).flows[0]  # fmt: skip
    assert shapes(internal_topics(flow)) == {
        "__mm2_offset": (7, 1),
        "__mm2_config": (1, 2),
        "__mm2_status": (2, -1),
        "mm2-ledger.A.internal": (1, 1),
    }
    beside = list(topics_beside(flow))
    assert [item.alias for item in beside] == ["B", "B", "B"]
    assert shapes(item.topic for item in beside) == {
        "mm2-offset-syncs_A_internal": (1, 1),
        "A_checkpoints_internal": (1, 2),
        "heartbeats": (1, -1),
    }


# -- made, or not


def test_they_are_made_before_anything_is_copied() -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}) as world:
            await world.flow.opening.open()
            made = {name: len(topic.partitions) for name, topic in world.target.topics.items()}
            assert made == {OFFSETS: 25, CONFIGS: 1, STATUS: 5, LEDGER: 1}
            assert world.source.topics.keys() == {"orders"}

    asyncio.run(run())


def test_where_they_are_not_to_be_made_the_missing_ones_are_named_with_what_can_be_run() -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}, more=NOT_MADE) as world:
            with pytest.raises(ConfigError) as caught:
                await world.flow.opening.open()
            text = str(caught.value)
            for name, partitions in ((OFFSETS, 25), (CONFIGS, 1), (STATUS, 5)):
                assert f"--create --topic {name} --partitions {partitions} --replication-factor 1 " in text
            assert "positions have no place" in text
            assert not world.calls(CREATE_TOPICS)
            [step] = check_storage(world.flow.flow, world.flow.target.catalogue)
            assert (step.verdict, step.step) == (Verdict.FAIL, "internal topics")

    asyncio.run(run())


def test_with_the_topic_of_the_positions_it_does_and_says_once_what_else_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}, {OFFSETS: 25}, NOT_MADE) as world:
            flow = world.flow
            await flow.opening.open()
            await flow.opening.open()
            places, wishes = [flow.ledger_topic], [flow.opening.wants_reopening]
            assert not world.calls(CREATE_TOPICS)
            [step] = check_storage(flow.flow, flow.target.catalogue)
            assert step.verdict is Verdict.WARN
            world.target.create(LEDGER)
            await flow.target.refresh()
            wishes.append(flow.opening.wants_reopening)
            await flow.opening.open()
            assert [*places, flow.ledger_topic] == [OFFSETS, LEDGER]
            assert wishes == [False, True]

    caplog.set_level(logging.WARNING, "heliograph")
    asyncio.run(run())
    first, second = caplog.messages
    assert f'"b" lacks {CONFIGS}, {STATUS}, {LEDGER}, and we are not to make internal topics' in first
    assert f'the ledger is kept in "{OFFSETS}"; MirrorMaker 2 cannot take the flow over' in first
    assert f'"b" lacks {CONFIGS}, {STATUS}, and we are not' in second


def test_where_all_are_there_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        topics = {OFFSETS: 25, CONFIGS: 1, STATUS: 5, LEDGER: 1}
        async with flow_between({"orders": 1}, topics, NOT_MADE) as world:
            await world.flow.opening.open()
            assert world.flow.ledger_topic == LEDGER
            assert check_storage(world.flow.flow, world.flow.target.catalogue) == []

    asyncio.run(run())
    assert caplog.messages == []


def test_what_is_not_made_needs_neither_brokers_nor_rights() -> None:
    settings = parse_settings(BASE + NOT_MADE.replace("b.", "B."))
    one_broker = Catalogue(cluster_id="c", brokers={1: BrokerAddress("b", 9092)})
    names = {topic.name for topic in internal_topics(settings.flows[0])}
    for flow in (settings.flows[0], parse_settings(BASE).flows[0]):
        made = {
            right.resource.name
            for _, right in flow_rights(flow, settings)
            if right.operation is Operation.CREATE and right.resource.name in names
        }
        assert made == (names if flow.makes_internal_topics else set())
        assert (too_few_brokers(flow, one_broker, []) is not None) is flow.makes_internal_topics


# -- compacted


def set_policy(cluster: FakeCluster, topic: str, policy: str) -> None:
    cluster.topics[topic].configs["cleanup.policy"] = policy


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
@pytest.mark.parametrize("topic", [LEDGER, OFFSETS])
def test_a_flow_whose_state_retention_would_delete_does_not_start(topic: str, policy: str) -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}, {LEDGER: 1, OFFSETS: 25}) as world:
            set_policy(world.target, topic, policy)
            with pytest.raises(NotCompacted) as caught:
                await world.flow.opening.open()
            text = str(caught.value)
            assert f'NOT_COMPACTED: a->b: "{topic}" on "b" has cleanup.policy={policy}, and must have compact' in text
            assert f"--entity-name {topic} --add-config cleanup.policy=compact" in text
            policies = await read_policies(world.flow.flow, source=world.flow.source, target=world.flow.target)
            [step] = check_policies(world.flow.flow, policies)
            assert (step.verdict, step.subject) == (Verdict.FAIL, topic)
            assert step.remedy.endswith("cleanup.policy=compact")
            set_policy(world.target, topic, "compact")
            await world.flow.opening.open()

    asyncio.run(run())


def test_topics_that_others_need_compacted_are_named_once_and_the_flow_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "heliograph")
    beside = {CONFIGS: 1, "a.checkpoints.internal": 1, "heartbeats": 1}
    syncs = "mm2-offset-syncs.b.internal"

    async def run() -> None:
        async with flow_between({"orders": 1, syncs: 1}, beside) as world:
            set_policy(world.target, CONFIGS, "delete")
            set_policy(world.source, syncs, "delete")
            await world.flow.opening.open()
            await world.flow.opening.open()
            policies = await read_policies(world.flow.flow, source=world.flow.source, target=world.flow.target)
            steps = check_policies(world.flow.flow, policies)
            assert {step.subject: step.verdict for step in steps} == dict.fromkeys([*beside, syncs], Verdict.WARN)

    asyncio.run(run())
    assert len(caplog.messages) == 4
    for name in (*beside, syncs):
        [line] = [message for message in caplog.messages if f'"{name}"' in message]
        assert f"--entity-name {name} --add-config cleanup.policy=compact" in line


def test_topics_that_we_made_are_compacted_and_settings_that_are_not_shown_stop_nothing() -> None:
    async def forbid(call: Call) -> Any:
        answer = await call.proceed()
        for result in answer.results:
            result.error_code, result.configs = 29, []
        return answer

    async def run() -> None:
        async with flow_between({"orders": 1}) as world:
            flow = world.flow
            await flow.opening.open()
            policies = await read_policies(flow.flow, source=flow.source, target=flow.target)
            [step] = check_policies(flow.flow, policies)
            assert (step.verdict, step.what) == (Verdict.PASS, "4 have cleanup.policy=compact")
        async with flow_between({"orders": 1}, {LEDGER: 1}) as world:
            flow = world.flow
            world.target.control(DESCRIBE_CONFIGS, forbid)
            await flow.opening.open()
            policies = await read_policies(flow.flow, source=flow.source, target=flow.target)
            assert not policies.found
            assert check_policies(flow.flow, policies) == []

    asyncio.run(run())
