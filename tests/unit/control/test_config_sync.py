"""Settings of topics are kept as on the source: what is asked, what is sent, what is said."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from heliograph.clock import Clock
from heliograph.control.topic_configs import ConfigSync
from heliograph.errors import ConfigError
from tests.fake_cluster import ALTER_CONFIGS, DESCRIBE_CONFIGS, Call, FakeCluster
from tests.unit.helpers.flows import FlowOnFakes, flow_between
from tests.unit.helpers.logs import ENTRY

NOT_AUTHORIZED, INVALID_CONFIG = 29, 40
BOTH = {"orders": 1}, {"a.orders": 1}


def mirrored(world: FlowOnFakes, *topics: str, clock: Clock = time.monotonic) -> ConfigSync:
    """With these topics copied."""
    world.flow.entries.update({(topic, 0): ENTRY for topic in topics})
    return ConfigSync(world.flow, clock)


def settings(cluster: FakeCluster, topic: str) -> dict[str, str]:
    return cluster.topics[topic].configs


def hide(cluster: FakeCluster, *topics: str) -> list[bool]:
    """Show no settings of these topics while the list says so."""
    hidden = [True]

    async def hook(call: Call) -> Any:
        response = await call.proceed()
        for result in response.results:
            if hidden[0] and result.resource_name in topics:
                result.error_code, result.configs = NOT_AUTHORIZED, []
        return response

    cluster.control(DESCRIBE_CONFIGS, hook)
    return hidden


def test_only_differences_are_sent_and_each_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            settings(world.source, "orders").update({"retention.ms": "5", "cleanup.policy": "compact"})
            settings(world.target, "a.orders").update(
                {
                    "retention.ms": "7",
                    "max.message.bytes": "99",
                    "min.insync.replicas": "2",
                }
            )
            sync = mirrored(world, "orders")
            await sync.sync()
            assert settings(world.target, "a.orders") == {
                "retention.ms": "5",
                "cleanup.policy": "compact",
                "min.insync.replicas": "2",
            }
            assert sync.changed == 3
            sync._due = 0.0
            await sync.sync()
            assert world.calls(ALTER_CONFIGS) == 1

    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(run())
    [line] = caplog.messages
    head, told = line.split('a->b: settings of "a.orders": ')
    assert not head
    assert sorted(told.split("; ")) == [
        "cleanup.policy delete (default) -> compact",
        "max.message.bytes 99 -> default",
        "retention.ms 7 -> 5",
    ]


def test_a_pass_comes_at_its_interval_and_at_once_for_new_topics_and_other_settings() -> None:
    now = 1000.0

    async def run() -> None:
        nonlocal now
        topics = {"orders": 1, "more": 1}
        interval = "sync.topic.configs.interval.seconds = 60"
        async with flow_between(topics, {f"a.{name}": 1 for name in topics}, interval) as world:
            sync = mirrored(world, "orders", clock=lambda: now)

            async def asked() -> list[str]:
                """Of which topics the source was asked for settings."""
                world.source.calls.clear()
                await sync.sync()
                found = [call.request.resources for call in world.source.calls if call.api_key == DESCRIBE_CONFIGS]
                return [item.resource_name for resources in found for item in resources]

            assert await asked() == ["orders"]
            assert await asked() == []
            world.flow.entries["more", 0] = ENTRY
            assert await asked() == ["more"]
            assert await asked() == []
            now += 59
            settings(world.target, "a.orders")["retention.ms"] = "7"
            await sync.sync()
            assert settings(world.target, "a.orders") == {"retention.ms": "7"}
            now += 1
            await sync.sync()
            assert settings(world.target, "a.orders") == {}
            world.apply(f"{interval}\na->b.use.defaults.from = source")
            await sync.sync()
            assert settings(world.target, "a.orders")["retention.ms"] == "604800000"

    asyncio.run(run())


@pytest.mark.parametrize("more", ["sync.topic.configs.enabled = false", "a->b.state = paused"])
def test_it_rests_while_it_is_off_or_the_flow_does(more: str) -> None:
    async def run() -> None:
        async with flow_between(*BOTH, more) as world:
            assert ConfigSync(world.flow).interval_s() is None

    asyncio.run(run())


def test_who_does_not_lead_any_more_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            settings(world.source, "orders")["retention.ms"] = "5"
            monkeypatch.setattr(world.flow.opening, "leads", lambda: False)
            await mirrored(world, "orders").sync()
            assert not world.calls(ALTER_CONFIGS)

    asyncio.run(run())


def test_a_refusal_is_named_once_with_what_can_be_run_and_other_topics_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with flow_between({"orders": 1, "more": 1}, {"a.orders": 1, "a.more": 1}) as world:
            for topic in ("orders", "more"):
                settings(world.source, topic)["retention.ms"] = "5"
            world.target.refuse(ALTER_CONFIGS, "a.orders", 0, NOT_AUTHORIZED, times=2)
            sync = mirrored(world, "orders", "more")
            for _ in range(3):
                sync._due = 0.0
                await sync.sync()
            assert settings(world.target, "a.orders") == settings(world.target, "a.more") == {"retention.ms": "5"}

    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(run())
    change = "retention.ms 604800000 (default) -> 5"
    assert caplog.messages == [
        (
            f'a->b: settings of "a.orders" stay as they are ({change}): NOT_AUTHORIZED: "b": IncrementalAlterConfigs '
            'for "a.orders" is not allowed; grant AlterConfigs there, or have it done: kafka-configs.sh '
            "--bootstrap-server <address> --alter --entity-type topics --entity-name a.orders "
            "--add-config retention.ms=5"
        ),
        f'a->b: settings of "a.more": {change}',
        'a->b: settings of "a.orders" follow the source again',
        f'a->b: settings of "a.orders": {change}',
    ]


def test_a_setting_that_the_target_refuses_may_be_excluded(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            settings(world.source, "orders")["retention.ms"] = "5"
            world.target.refuse(ALTER_CONFIGS, "a.orders", 0, INVALID_CONFIG)
            await mirrored(world, "orders").sync()

    asyncio.run(run())
    assert "name the setting in config.properties.exclude, or have it done: kafka-configs.sh" in caplog.text


@pytest.mark.parametrize("side", ["a", "b"])
def test_settings_that_are_not_shown_are_named_once_and_that_it_is_over(
    side: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        names = [f"t{number}" for number in range(7)]
        async with flow_between(dict.fromkeys(names, 1), {f"a.{name}": 1 for name in names}) as world:
            hidden = hide(world.source, *names) if side == "a" else hide(world.target, *(f"a.{name}" for name in names))
            sync = mirrored(world, *names)
            for shown in (False, False, True, True):
                hidden[0] = not shown
                sync._due = 0.0
                await sync.sync()

    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(run())
    named, over = caplog.messages
    prefix = "" if side == "a" else "a."
    topics = ", ".join(f"{prefix}t{number}" for number in range(5))
    reason = f'NOT_AUTHORIZED: "{side}": DescribeConfigs is not allowed; grant DescribeConfigs there'
    assert named == f"a->b: settings of {topics} and 2 more are not copied: {reason}"
    assert over == f"a->b: settings are copied again; this no longer happens: {reason}"


def test_a_topic_that_has_gone_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with flow_between({"orders": 1, "gone": 1}, {"a.orders": 1}) as world:
            settings(world.source, "orders")["retention.ms"] = "5"
            await mirrored(world, "orders", "gone", "never").sync()
            assert settings(world.target, "a.orders") == {"retention.ms": "5"}

    asyncio.run(run())
    assert caplog.messages == []


def test_a_setting_that_the_target_does_not_know_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            settings(world.source, "orders").update({"remote.storage.enable": "true", "retention.ms": "5"})
            sync = mirrored(world, "orders")
            for _ in range(2):
                sync._due = 0.0
                await sync.sync()
            assert settings(world.target, "a.orders") == {"retention.ms": "5"}

    asyncio.run(run())
    assert caplog.messages == ['a->b: settings that "b" does not know are not copied: remote.storage.enable']


class Failing:
    """A class of somebody's own that says what is left out."""

    def accepts(self, name: str) -> bool:
        if name == "retention.ms":
            raise ConfigError("no luck")
        return False


@pytest.mark.parametrize("there", [{}, {"a.orders": 1, "a.others": 1}], ids=["new copies", "copies"])
def test_a_setting_for_which_a_filter_fails_is_named_once_and_the_others_follow(
    there: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with flow_between({"orders": 1, "others": 1}, there) as world:
            for topic in ("orders", "others"):
                settings(world.source, topic).update({"retention.ms": "5", "cleanup.policy": "compact"})
            flow = world.flow
            sync = replace(flow.flow.topic_sync, configs_exclude=Failing())
            flow.opening.flow = replace(flow.flow, topic_sync=sync)
            flow.topics.targets.apply(flow.flow)
            source, _ = await asyncio.gather(flow.source.refresh(), flow.target.refresh())
            await flow.topics.targets.ensure(source, {"orders": "a.orders", "others": "a.others"})
            await mirrored(world, "orders", "others").sync()
            assert settings(world.target, "a.orders") == settings(world.target, "a.others")
            assert settings(world.target, "a.orders") == {"cleanup.policy": "compact"}

    caplog.set_level(logging.WARNING, "heliograph")
    asyncio.run(run())
    assert caplog.messages == ['a->b: the setting "retention.ms" of topics is not copied: CONFIG: no luck']


def test_a_target_that_cannot_change_single_settings_is_named_once_and_mirroring_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            del world.target.versions[ALTER_CONFIGS]
            settings(world.source, "orders")["retention.ms"] = "5"
            sync = mirrored(world, "orders")
            for _ in range(3):
                sync._due = 0.0
                await sync.sync()

    asyncio.run(run())
    [line] = caplog.messages
    assert line.startswith("a->b: settings of topics are not copied: UNSUPPORTED_VERSION: ")


def test_lanes_learn_of_a_limit_that_was_changed() -> None:
    async def run() -> None:
        async with flow_between(*BOTH) as world:
            sync = mirrored(world, "orders")
            for key, is_limit in (("retention.ms", False), ("max.message.bytes", True)):
                world.flow.opening.changed.clear()
                settings(world.source, "orders")[key] = "500000"
                sync._due = 0.0
                await sync.sync()
                assert settings(world.target, "a.orders")[key] == "500000"
                assert world.flow.opening.changed.is_set() is is_limit

    asyncio.run(run())


def test_heartbeats_are_left_alone() -> None:
    async def run() -> None:
        async with flow_between({"heartbeats": 1}, {"a.heartbeats": 1}) as world:
            settings(world.target, "a.heartbeats")["cleanup.policy"] = "compact"
            await mirrored(world, "heartbeats").sync()
            assert settings(world.target, "a.heartbeats") == {"cleanup.policy": "compact"}

    asyncio.run(run())
