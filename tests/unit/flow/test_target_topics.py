"""The target's topics: made as the source's are, grown before they are copied, and what the target refuses."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.errors import BrokerRefused, HeliographError
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.flow.required_topics import wanted_topics
from heliograph.flow.topic_refusals import TopicRefusals, advised
from heliograph.kafka.admin import topics
from heliograph.kafka.catalogue import Catalogue, PartitionMeta, TopicMeta
from heliograph.kafka.types import NO_TOPIC_ID
from tests.fake_cluster import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
    Call,
    FakeCluster,
)
from tests.unit.helpers.flows import FlowOnFakes, flow_between
from tests.unit.helpers.samples import BASE

INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION, QUOTA, NOT_AUTHORIZED = 38, 40, 44, 89, 29


async def ensure(world: FlowOnFakes) -> Catalogue:
    """As a look at the topics does."""
    source, _ = await asyncio.gather(world.flow.source.refresh(), world.flow.target.refresh())
    return await world.flow.topics.targets.ensure(source, wanted_topics(world.flow.flow, source))


def partitions(cluster: FakeCluster) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in cluster.topics.items()}


def refuse_with(world: FlowOnFakes, api_key: int, topic: str, code: int, message: str) -> None:
    """One topic, with the broker's own words."""

    async def hook(call: Call) -> Any:
        world.target.refuse(api_key, topic, 0, code)
        response = await call.proceed()
        for answer in response.topics if api_key == CREATE_TOPICS else response.results:
            answer.error_message = message if answer.error_code else None
        return response

    world.target.control(api_key, hook)


# -- creation


def test_a_new_topic_has_the_partitions_and_settings_of_its_source() -> None:
    async def run() -> None:
        async with flow_between({"orders": 3}) as world:
            world.source.topics["orders"].configs |= {
                "cleanup.policy": "compact",
                "min.insync.replicas": "2",
                "message.timestamp.after.max.ms": "5",
            }
            found = await ensure(world)
            assert len(found.topics["a.orders"].partitions) == 3
            assert world.target.topics["a.orders"].configs == {"cleanup.policy": "compact"}

    asyncio.run(run())


def test_with_the_sources_defaults_a_new_topic_has_those_too() -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}, more="a->b.use.defaults.from = source") as world:
            await ensure(world)
            configs = world.target.topics["a.orders"].configs
            assert configs["retention.ms"] == "604800000"
            assert "message.timestamp.type" not in configs

    asyncio.run(run())


def test_a_factor_of_minus_one_is_left_to_the_broker() -> None:
    async def run() -> None:
        more = "a->b.replication.factor = -1"
        async with flow_between({"orders": 1}, more=more) as world:
            await ensure(world)
            asked = [call.request for call in world.target.calls if call.api_key == CREATE_TOPICS]
            [factors] = [{topic.name: topic.replication_factor for topic in request.topics} for request in asked]
            assert factors == {"a.orders": -1}

    asyncio.run(run())


def test_a_new_copy_of_heartbeats_is_compacted_whatever_its_source_is() -> None:
    async def run() -> None:
        async with flow_between({"heartbeats": 1}) as world:
            world.source.topics["heartbeats"].configs["retention.ms"] = "5"
            await ensure(world)
            assert world.target.topics["a.heartbeats"].configs == {"cleanup.policy": "compact"}
            assert [call.api_key for call in world.source.calls].count(DESCRIBE_CONFIGS) == 0

    asyncio.run(run())


def test_a_source_that_does_not_show_settings_is_named_once_and_topics_are_made_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def deny(call: Call) -> Any:
        response = await call.proceed()
        for result in response.results:
            result.error_code, result.configs = NOT_AUTHORIZED, []
        return response

    async def run() -> None:
        async with flow_between({"orders": 1}) as world:
            world.source.control(DESCRIBE_CONFIGS, deny)
            world.source.topics["orders"].configs["cleanup.policy"] = "compact"
            await ensure(world)
            world.source.create("more")
            await ensure(world)
            assert partitions(world.target) == {"a.orders": 1, "a.more": 1}

    asyncio.run(run())
    [line] = caplog.messages
    assert line == (
        "a->b: new topics are made with the target's own settings: "
        'NOT_AUTHORIZED: "a": DescribeConfigs is not allowed; grant DescribeConfigs there'
    )


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        (NOT_AUTHORIZED, "", "grant Create there, or have it made: "),
        (POLICY_VIOLATION, "names begin with x", "names begin with x; have it made: "),
        (INVALID_REPLICATION_FACTOR, "too few", "lower replication.factor (-1: the broker's default), or have it made"),
        (INVALID_CONFIG, "no zstd", "name the setting in config.properties.exclude, or have it made: "),
        (QUOTA, "", "raise controller_mutation_rate of our user; it is tried again soon, or have it made: "),
    ],
)
def test_a_refused_topic_is_named_once_with_what_can_be_run_and_the_others_go_on(
    code: int, message: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with flow_between({"orders": 2, "payments": 1}) as world:
            world.source.topics["orders"].configs["retention.ms"] = "5"
            refuse_with(world, CREATE_TOPICS, "a.orders", code, message)
            for _ in range(3):
                await ensure(world)
            assert partitions(world.target) == {"a.payments": 1}
            assert world.calls(CREATE_TOPICS) == 3
            assert world.flow.topics.targets.denials.is_passing is (code == QUOTA)
            world.target.create("a.orders", 2)  # somebody ran it
            await ensure(world)
            assert world.flow.topics.targets.refused == {}

    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(run())
    refused, over = caplog.messages
    assert refused.startswith('a->b: "a.orders" is not mirrored: ')
    assert advice in refused
    assert refused.endswith(
        "kafka-topics.sh --bootstrap-server <address> --create --topic a.orders --partitions 2 --replication-factor 1 "
        "--config retention.ms=5"
    )
    assert over == 'a->b: "a.orders" is as it should be now'


def test_a_topic_that_is_not_wanted_any_more_is_not_refused_any_more() -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}) as world:
            world.target.refuse(CREATE_TOPICS, "a.orders", 0, POLICY_VIOLATION)
            await ensure(world)
            assert list(world.flow.topics.targets.refused) == ["a.orders"]
            world.apply("a->b.topics = other")
            await ensure(world)
            assert world.flow.topics.targets.refused == {}

    asyncio.run(run())


def test_no_metadata_request_lets_a_broker_make_a_topic() -> None:
    async def run() -> None:
        async with flow_between({"orders": 2}) as world:
            await ensure(world)
            asked = [call for call in world.target.calls if call.api_key == METADATA]
            assert asked
            assert not any(call.request.allow_auto_topic_creation for call in asked)

    asyncio.run(run())


def test_a_topic_that_somebody_else_makes_at_the_same_moment_is_grown_before_it_is_copied() -> None:
    async def make_first(call: Call) -> Any:
        call.cluster.create("a.orders", 1)  # as a broker does for a consumer that came early
        return await call.proceed()

    async def run() -> None:
        async with flow_between({"orders": 4}) as world:
            world.target.control(CREATE_TOPICS, make_first)
            found = await ensure(world)
            assert len(found.topics["a.orders"].partitions) == 4

    asyncio.run(run())


def test_many_topics_are_made_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_MAX_NEW_PARTITIONS", 5)

    async def run() -> None:
        async with flow_between({"t1": 2, "t2": 2, "t3": 2, "t4": 9, "t5": 1}) as world:
            await ensure(world)
            sizes = [
                [topic.num_partitions for topic in call.request.topics]
                for call in world.target.calls
                if call.api_key == CREATE_TOPICS
            ]
            assert sizes == [[2, 2], [2], [9], [1]]

    asyncio.run(run())


# -- growth


def test_a_short_target_is_grown_and_seen_grown_before_it_is_copied() -> None:
    async def run() -> None:
        behind = 3

        async def lag(call: Call) -> Any:
            nonlocal behind
            response = await call.proceed()
            if world.calls(CREATE_PARTITIONS) and behind:
                behind -= 1
                for topic in response.topics:
                    topic.partitions = topic.partitions[:1]
            return response

        async with flow_between({"orders": 3}, {"a.orders": 1}) as world:
            world.target.control(METADATA, lag)
            found = await ensure(world)
            assert not behind
            assert len(found.topics["a.orders"].partitions) == 3

    asyncio.run(run())


def test_a_target_with_more_partitions_is_left_alone() -> None:
    async def run() -> None:
        async with flow_between({"orders": 2}, {"a.orders": 5}) as world:
            found = await ensure(world)
            assert len(found.topics["a.orders"].partitions) == 5
            assert not world.calls(CREATE_PARTITIONS)

    asyncio.run(run())


def test_a_topic_that_may_not_grow_is_named_with_what_can_be_run(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with flow_between({"orders": 3, "more": 1}, {"a.orders": 1}) as world:
            world.target.refuse(CREATE_PARTITIONS, "a.orders", 0, NOT_AUTHORIZED, times=2)
            await ensure(world)
            await ensure(world)
            assert partitions(world.target) == {"a.orders": 1, "a.more": 1}
            found = await ensure(world)
            assert len(found.topics["a.orders"].partitions) == 3

    asyncio.run(run())
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert line == (
        'a->b: "a.orders" has too few partitions, and those that are not copied yet are left out: NOT_AUTHORIZED: '
        '"b": CreatePartitions for "a.orders" is not allowed; grant Alter there, or have it grown: '
        "kafka-topics.sh --bootstrap-server <address> --alter --topic a.orders --partitions 3"
    )


def catalogue(**counts: int) -> Catalogue:
    one = PartitionMeta(1, 0, (1,), (1,))
    topics = {name: TopicMeta(name, NO_TOPIC_ID, (one,) * count) for name, count in counts.items()}
    return Catalogue(cluster_id="c", brokers={}, topics=topics)


@pytest.mark.parametrize(
    ("here", "there", "begun", "copied"),
    [
        (2, {"t": 2}, (), [0, 1]),
        (2, {"t": 5}, (), [0, 1]),
        (2, {}, (0, 1), []),
        (3, {"t": 2}, (), []),
        (3, {"t": 2}, (0, 1), [0, 1]),
        (3, {"t": 2}, (1, 2), [1]),
    ],
    ids=["as many", "more there", "not there", "too few", "too few, and begun", "begun, and lost there"],
)
def test_a_topic_with_too_few_partitions_is_not_begun_and_what_was_begun_goes_on(
    here: int, there: dict[str, int], begun: tuple[int, ...], copied: list[int]
) -> None:
    identity = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    [flow] = parse_settings(BASE + identity).flows
    places = PartitionMapping(flow, {}, source=catalogue(t=here), target=catalogue(**there))
    assert places.present(["t"], begun={("t", index) for index in begun}) == [("t", index) for index in copied]


def test_what_may_not_grow_is_not_begun_and_is_copied_whole_when_it_has_grown() -> None:
    async def run() -> None:
        async with flow_between({"orders": 3, "more": 1}, {"a.orders": 1}) as world:
            world.target.refuse(CREATE_PARTITIONS, "a.orders", 0, NOT_AUTHORIZED, times=3)
            flow = world.flow
            await flow.opening.open()
            await flow.prepare()
            assert flow.entries.keys() == {("more", 0)}
            world.source.grow("more", 2)
            world.target.refuse(CREATE_PARTITIONS, "a.more", 0, NOT_AUTHORIZED, times=2)
            for _ in range(2):
                await flow.topics.discover()
                assert flow.entries.keys() == {("more", 0)}, "what was begun goes on"
            assert flow.topics.is_complete
            await flow.topics.discover()
            assert flow.entries.keys() == {("more", 0), ("more", 1), ("orders", 0), ("orders", 1), ("orders", 2)}

    asyncio.run(run())


def test_a_quota_is_tried_again_soon() -> None:
    async def run() -> None:
        async with flow_between({"orders": 1}) as world:
            world.target.refuse(CREATE_TOPICS, "a.orders", 0, QUOTA)
            await world.flow.opening.open()
            await world.flow.prepare()
            seen = [world.flow.topics.is_complete]
            await world.flow.topics.discover()
            assert [*seen, world.flow.topics.is_complete] == [False, True]
            assert world.flow.entries.keys() == {("orders", 0)}

    asyncio.run(run())


# -- what is refused, said once


def test_a_refusal_is_news_once_and_again_when_its_reason_is_another() -> None:
    denials = TopicRefusals()
    one, other = BrokerRefused("x", error_code=44), BrokerRefused("y", error_code=44)
    steps: list[tuple[HeliographError | None, bool, bool]] = [
        (None, False, False),
        (one, True, False),
        (BrokerRefused("x", error_code=44), False, False),
        (other, True, False),
        (None, False, True),
        (None, False, False),
        (one, True, False),
    ]
    for result, is_news, is_over in steps:
        news = denials.note({"t": result})
        assert ("t" in news.denied, "t" in news.granted) == (is_news, is_over)


def test_an_error_without_advice_stays_as_it_is() -> None:
    error = BrokerRefused("x", remedy="y", error_code=44)
    assert advised(error) is error
