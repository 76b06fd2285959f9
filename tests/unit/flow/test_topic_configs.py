"""Which settings of topics are copied, and which changes that takes. The rules; no clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import parse_settings
from heliograph.config.settings import Flow, TopicSync
from heliograph.flow.topic_configs import (
    NEVER,
    ConfigChange,
    first_configs,
    follows_configs,
    plan_config_sync,
    unknown_configs,
)
from heliograph.kafka.admin.topic_configs import OF_BROKER_FILE, OF_KAFKA, OF_TOPIC, ConfigEntry, TopicConfigs
from tests.unit.helpers.samples import BASE

OF_ONE_BROKER, OF_ALL_BROKERS = 2, 3


def flow_with(more: str = "") -> Flow:
    return parse_settings(BASE + more).flows[0]


TARGET_DEFAULTS = flow_with().topic_sync
SOURCE_DEFAULTS = flow_with("A->B.use.defaults.from = source\n").topic_sync


def own(value: str) -> ConfigEntry:
    return ConfigEntry(value, OF_TOPIC)


def default(value: str) -> ConfigEntry:
    return ConfigEntry(value, OF_KAFKA)


def plan(source: ConfigEntry, target: ConfigEntry, sync: TopicSync = TARGET_DEFAULTS) -> list[ConfigChange]:
    return plan_config_sync({"retention.ms": source}, {"retention.ms": target}, sync)


# -- one setting


def test_an_override_of_the_source_is_set_on_the_target() -> None:
    assert plan(own("1"), default("9")) == [ConfigChange("retention.ms", "9", "1", False)]


def test_what_is_equal_is_not_sent() -> None:
    assert plan(own("1"), own("1")) == []
    assert plan(default("1"), default("9")) == []
    assert plan(default("1"), own("1"), SOURCE_DEFAULTS) == []


def test_an_override_that_equals_the_targets_default_is_set_all_the_same() -> None:
    """The target's default may change, and the mirror may be gone by then."""
    assert plan(own("9"), default("9")) == [ConfigChange("retention.ms", "9", "9", False)]


def test_drift_on_the_target_is_repaired() -> None:
    assert plan(own("1"), own("2")) == [ConfigChange("retention.ms", "2", "1", True)]


def test_an_override_that_is_gone_from_the_source_goes_from_the_target() -> None:
    assert plan(default("9"), own("1")) == [ConfigChange("retention.ms", "1", None, True)]


def test_a_value_of_a_source_brokers_file_is_a_default() -> None:
    assert plan(ConfigEntry("9", OF_BROKER_FILE), own("1")) == [ConfigChange("retention.ms", "1", None, True)]
    assert plan(ConfigEntry("9", OF_BROKER_FILE), default("7"), SOURCE_DEFAULTS) == [
        ConfigChange("retention.ms", "7", "9", False)
    ]


def test_with_the_sources_defaults_the_target_gets_them() -> None:
    assert plan(default("9"), own("1"), SOURCE_DEFAULTS) == [ConfigChange("retention.ms", "1", "9", True)]


@pytest.mark.parametrize("origin", [OF_ONE_BROKER, OF_ALL_BROKERS])
def test_what_was_set_on_running_brokers_goes_with_the_topic(origin: int) -> None:
    assert plan(ConfigEntry("5", origin), default("9")) == [ConfigChange("retention.ms", "9", "5", False)]


@pytest.mark.parametrize("entry", [ConfigEntry("5", OF_TOPIC, True), ConfigEntry(None, OF_TOPIC, False, True)])
def test_what_cannot_be_set_or_is_secret_is_left_alone(entry: ConfigEntry) -> None:
    assert plan(entry, own("1")) == []


def test_a_setting_that_the_target_cannot_change_is_left_alone() -> None:
    assert plan(own("5"), ConfigEntry("1", OF_TOPIC, True)) == []


def test_settings_that_one_side_does_not_know_are_left_alone_and_those_of_the_source_named() -> None:
    source, target = {"new": own("1"), "newer": default("2")}, {"old": own("1")}
    assert plan_config_sync(source, target, TARGET_DEFAULTS) == []
    assert unknown_configs(source, target, TARGET_DEFAULTS) == {"new"}
    assert unknown_configs(source, target, SOURCE_DEFAULTS) == {"new", "newer"}


@pytest.mark.parametrize("key", sorted(NEVER))
def test_limits_on_timestamps_are_never_copied_whatever_the_list_says(key: str) -> None:
    sync = flow_with("config.properties.exclude = nothing\nA->B.use.defaults.from = source\n").topic_sync
    assert plan_config_sync({key: own("1")}, {key: own("2")}, sync) == []
    assert first_configs({key: own("1")}, sync) == {}


@pytest.mark.parametrize(
    "key",
    [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    ],
)
def test_mm2s_exclusions_hold_by_default(key: str) -> None:
    for sync in (TARGET_DEFAULTS, SOURCE_DEFAULTS):
        assert plan_config_sync({key: own("1")}, {key: own("2")}, sync) == []
        assert plan_config_sync({key: default("1")}, {key: own("2")}, sync) == []
        assert first_configs({key: own("1")}, sync) == {}


def test_the_old_name_of_the_list_works_and_patterns_are_javas() -> None:
    sync = flow_with("config.properties.blacklist = retention\\\\..*\n").topic_sync
    assert plan(own("1"), own("2"), sync) == []
    assert plan_config_sync({"segment.ms": own("1")}, {"segment.ms": own("2")}, sync) != []


def test_a_change_says_old_and_new() -> None:
    told = [
        str(change)
        for change in (
            ConfigChange("retention.ms", "9", "1", False),
            ConfigChange("retention.ms", "2", "1", True),
            ConfigChange("retention.ms", "1", None, True),
            ConfigChange("x", "", "1", True),
        )
    ]
    assert told == [
        "retention.ms 9 (default) -> 1",
        "retention.ms 2 -> 1",
        "retention.ms 1 -> default",
        'x "" -> 1',
    ]


# -- all together

KEYS = ("retention.ms", "segment.ms", "cleanup.policy", "min.insync.replicas", *sorted(NEVER))
ENTRIES = st.builds(
    ConfigEntry,
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from([OF_TOPIC, OF_ONE_BROKER, OF_ALL_BROKERS, OF_BROKER_FILE, OF_KAFKA]),
    st.just(False) | st.booleans(),
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS), ENTRIES)
SYNCS = st.sampled_from([TARGET_DEFAULTS, SOURCE_DEFAULTS])


def apply(target: TopicConfigs, changes: list[ConfigChange]) -> dict[str, ConfigEntry]:
    """As a broker does."""
    after = dict(target)
    for change in changes:
        after[change.key] = ConfigEntry("7") if change.new is None else ConfigEntry(change.new, OF_TOPIC)
    return after


@given(CONFIGS, CONFIGS, SYNCS)
def test_a_plan_is_enough_and_touches_nothing_that_is_not_its_own(
    source: dict[str, ConfigEntry], target: dict[str, ConfigEntry], sync: TopicSync
) -> None:
    changes = plan_config_sync(source, target, sync)
    assert plan_config_sync(source, apply(target, changes), sync) == []
    changed = [change.key for change in changes]
    assert len(changed) == len(set(changed))
    for key in changed:
        assert key in source
        assert key in target
        assert key not in NEVER
        assert key != "min.insync.replicas"
        assert not source[key].is_read_only


@given(CONFIGS, SYNCS)
def test_a_copy_is_made_as_a_sync_would_have_it(source: dict[str, ConfigEntry], sync: TopicSync) -> None:
    made = first_configs(source, sync)
    target = {key: ConfigEntry(made[key], OF_TOPIC) if key in made else ConfigEntry("7") for key in KEYS}
    assert plan_config_sync(source, target, sync) == []


def test_copies_of_heartbeats_have_settings_of_their_own() -> None:
    flow = flow_with()
    assert follows_configs(flow, "orders")
    assert not follows_configs(flow, "heartbeats")
    assert not follows_configs(flow, "C.heartbeats")
