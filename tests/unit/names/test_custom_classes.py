"""Classes of one's own: loaded, checked against what is asked of them, and their faults named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from heliograph.config import Settings, inspect_content, parse_settings
from heliograph.config.convert import convert
from heliograph.config.settings import Flow
from heliograph.errors import ConfigError
from heliograph.flow.topic_configs import carried_configs, follows_configs, unjudged_configs
from heliograph.kafka.admin.topic_configs import OF_TOPIC, ConfigEntry
from heliograph.ledger.copy_names import plan_names
from heliograph.names.custom_classes import make_custom
from heliograph.names.filters import CustomFilter
from heliograph.names.policies import POLICIES, CustomPolicy, IdentityPolicy, make_policy
from heliograph.names.renaming import RenamingPolicy
from heliograph.preflight.applications import mirrored_topics
from heliograph.rights.required import flow_rights
from heliograph.views.topic_views import Reading, TopicSide, TopicState, topic_views
from tests.unit.helpers.samples import BASE

NAMING = (Path(__file__).parents[3] / "docs" / "naming.md").read_text()
[EXAMPLE] = re.findall(r"```python\n(.*?)```", NAMING, re.DOTALL)
FAULTY = """
from heliograph.names.policies import DefaultPolicy
class NoArguments:
    def __init__(self): ...

class Nothing:
    def __init__(self, properties): self.properties = properties

class Wrong:
    def __init__(self, properties): ...
    def accepts(self, name):
        if name == "bad":
            raise ZeroDivisionError("no luck")
        return "yes" if name == "odd" else name != "no"

class Keeps:
    def __init__(self, properties): self.properties = properties
    def accepts(self, name): return name.startswith(self.properties["python.keep"])

class Policy(DefaultPolicy):
    # one method, by the properties, fails for the name "bad"
    def __init__(self, properties):
        super().__init__(source_alias=properties["source.cluster.alias"])
        object.__setattr__(self, "fails", properties.get("python.fails", ""))
    def _look(self, method, name):
        if method == self.fails and name == "bad":
            raise ZeroDivisionError("no luck")
    def format_remote_topic(self, source_alias, topic):
        self._look("format_remote_topic", topic)
        return super().format_remote_topic(source_alias, topic)
    def is_heartbeats_topic(self, topic):
        self._look("is_heartbeats_topic", topic)
        return super().is_heartbeats_topic(topic)
    def is_internal_topic(self, topic):
        self._look("is_internal_topic", topic)
        return super().is_internal_topic(topic)
    def topic_source(self, topic):
        self._look("topic_source", topic)
        return super().topic_source(topic)
    def upstream_topic(self, topic):
        self._look("upstream_topic", topic)
        return super().upstream_topic(topic)

thing = 3
"""
METHODS = ("format_remote_topic", "is_heartbeats_topic", "is_internal_topic", "topic_source", "upstream_topic")


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules on the Python path: the example of the documents, faulty ones, one that does not load."""
    (tmp_path / "regions.py").write_text(EXAMPLE)
    (tmp_path / "faulty.py").write_text(FAULTY)
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("regions", "faulty", "broken"):
        sys.modules.pop(name, None)


def flow_of(more: str) -> Flow:
    return parse_settings(BASE + more).flows[0]


EXAMPLE_KEYS = """\
replication.policy.class = python:regions.RegionPolicy
topic.filter.class = python:regions.Approved
python.regions.suffix = -eu
"""


def test_the_example_of_the_documents_works() -> None:
    flow = flow_of(EXAMPLE_KEYS)
    assert isinstance(flow.policy, CustomPolicy)
    assert isinstance(flow.topics, CustomFilter)
    plan = plan_names(flow, ["orders", "payments", "other", "heartbeats", "__consumer_offsets"])
    assert plan.wanted == {"orders": "orders-eu", "payments": "payments-eu", "heartbeats": "A.heartbeats"}
    assert (flow.policy.topic_source("orders-eu"), flow.policy.upstream_topic("orders-eu")) == ("A", "orders")
    assert flow.checkpoints_topic == "A.checkpoints.internal"


def test_a_class_is_given_the_properties_of_its_flow() -> None:
    flow = flow_of("topics = a, b\ngroup.filter.class = python:faulty.Keeps\npython.keep = x\nA->B.python.more = 1\n")
    assert flow.checkpoints is not None
    groups = flow.checkpoints.groups
    assert isinstance(groups, CustomFilter)
    assert (groups.accepts("xy"), groups.accepts("y")) == (True, False)
    given = dict(groups.own.properties)
    assert given["source.cluster.alias"] == "A"
    assert (given["topics"], given["python.keep"], given["python.more"]) == ("a, b", "x", "1")
    assert given["groups.exclude"] == "console-consumer-.*, connect-.*, __.*"


def test_a_filter_of_topic_settings_says_what_is_copied() -> None:
    flow = flow_of("config.property.filter.class = python:faulty.Keeps\npython.keep = retention\n")
    assert not flow.topic_sync.configs_exclude.accepts("retention.ms")
    assert flow.topic_sync.configs_exclude.accepts("cleanup.policy")


def test_rules_come_before_a_policy_of_ones_own() -> None:
    flow = flow_of(EXAMPLE_KEYS + "topic.rename.1.pattern = orders\ntopic.rename.1.replacement = bestellungen\n")
    assert isinstance(flow.policy, RenamingPolicy)
    assert plan_names(flow, ["orders", "payments"]).wanted == {"orders": "bestellungen", "payments": "payments-eu"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("python:broken.Policy", 'the module "broken" of python:broken.Policy cannot be loaded: ModuleNotFoundError'),
        ("python:no_such_module_here.X", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module"),
        ("python:faulty.Absent", 'the module "faulty" has no class "Absent"'),
        ("python:faulty.thing", 'the module "faulty" has no class "thing"'),
        ("python:faulty.NoArguments", "python:faulty.NoArguments cannot be created: TypeError"),
        ("python:faulty.Nothing", "lacks format_remote_topic, topic_source, upstream_topic, original_topic"),
        ("python:faulty", '"python:faulty" names no class; write python:module.Class'),
        ("python:", '"python:" names no class'),
        ("python:a b.C", "names no class"),
    ],
)
def test_a_class_that_cannot_be_used_is_an_error_of_the_file(value: str, said: str) -> None:
    [finding] = [
        finding
        for finding in inspect_content(f"{BASE}replication.policy.class = {value}\n".encode(), "f.properties").findings
        if finding.severity == "error"
    ]
    assert (finding.rule, str(finding.place)) == ("bad-class", "f.properties:5:1")
    assert said in finding.text


@pytest.mark.parametrize("key", ["topic.filter.class", "group.filter.class", "config.property.filter.class"])
def test_a_filter_that_lacks_its_method_is_an_error_of_the_file(key: str) -> None:
    with pytest.raises(ConfigError, match=f'"{key}": python:faulty.Nothing lacks accepts'):
        flow_of(f"{key} = python:faulty.Nothing\n")


def test_an_unknown_class_is_answered_with_the_built_in_ones_and_with_how_to_write_one() -> None:
    with pytest.raises(ConfigError) as caught:
        flow_of("replication.policy.class = com.example.Mine\n")
    assert all(name in str(caught.value) for name in (*POLICIES, "python:module.Class", '"com.example.Mine"'))
    with pytest.raises(ConfigError, match=r"DefaultReplicationPolicy.*python:module\.Class"):
        make_policy("com.example.Mine")


def test_strimzis_name_of_the_identity_policy_is_an_alias() -> None:
    flow = flow_of("replication.policy.class = io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy\n")
    assert flow.policy == IdentityPolicy(source_alias="A")
    assert flow.remote_topic("orders") == "orders"


def test_what_fails_later_concerns_the_name_it_was_asked_about() -> None:
    flow = flow_of("topic.filter.class = python:faulty.Wrong\n")
    plan = plan_names(flow, ["a", "bad", "no", "odd"])
    assert plan.wanted == {"a": "A.a"}
    assert {name: error.why for name, error in plan.refused.items()} == {
        "bad": "python:faulty.Wrong: accepts('bad') failed: ZeroDivisionError: no luck",
        "odd": "python:faulty.Wrong: accepts('odd') gave str, not True or False",
    }


def failing(method: str) -> str:
    return f"replication.policy.class = python:faulty.Policy\npython.fails = {method}\n"


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_that_fails_for_a_name_concerns_that_topic_alone(method: str) -> None:
    """Whoever makes, shows or grants something later asks no question that was not answered for the plan."""
    flow = flow_of(failing(method))
    plan = plan_names(flow, ["a", "bad"])
    assert (plan.wanted, list(plan.refused)) == ({"a": "A.a"}, ["bad"])
    assert all(follows_configs(flow, topic) for topic in plan.wanted)
    states = {view.topic: view.state for view in topic_views(flow, reading_of(["a", "bad"]))}
    assert states == {"a": TopicState.NOT_LED, "bad": TopicState.REFUSED}
    assert "A.a" in mirrored_topics([flow], ["A.a", "A.bad", "bad"])


@pytest.mark.parametrize("method", METHODS)
def test_a_file_loads_though_a_policy_fails_for_a_name_in_it(method: str) -> None:
    text = BASE + "B->A.enabled = true\nB->A.topics = bad\nA->B.topics = bad.*, a\n" + failing(method)
    assert len(parse_settings(text).flows) == 2


def test_a_topic_that_a_filter_fails_for_is_shown_as_refused() -> None:
    flow = flow_of("topic.filter.class = python:faulty.Wrong\n")
    views = {view.topic: view for view in topic_views(flow, reading_of(["a", "bad", "no"]))}
    assert {topic: view.state for topic, view in views.items()} == {
        "a": TopicState.NOT_LED,
        "bad": TopicState.REFUSED,
        "no": TopicState.NOT_MIRRORED,
    }
    assert views["bad"].target_topic is None
    assert "accepts('bad') failed: ZeroDivisionError" in views["bad"].error


def test_a_setting_that_a_filter_fails_for_is_not_copied_and_named() -> None:
    sync = flow_of("config.property.filter.class = python:faulty.Wrong\n").topic_sync
    configs = {key: ConfigEntry("1", OF_TOPIC) for key in ("a", "bad", "no", "odd")}
    assert carried_configs(configs, sync) == {"a": "1"}
    assert [str(error) for error in unjudged_configs(configs, sync).values()] == [
        "CONFIG: python:faulty.Wrong: accepts('bad') failed: ZeroDivisionError: no luck; fix the class",
        "CONFIG: python:faulty.Wrong: accepts('odd') gave str, not True or False; fix the class",
    ]


def reading_of(topics: Sequence[str]) -> Reading:
    """Of a flow that never ran."""
    return Reading(
        source=TopicSide(dict.fromkeys(topics, 1), {}),
        seen_s=None,
        target=TopicSide({}, {}),
        before={},
        entries={},
        troubles={},
        losses=(),
        is_led=False,
        differing={},
    )


def test_a_file_that_is_loaded_again_is_the_same_as_before() -> None:
    assert settings_of(EXAMPLE_KEYS).flows == settings_of(EXAMPLE_KEYS).flows
    assert settings_of(EXAMPLE_KEYS).flows != settings_of(EXAMPLE_KEYS + "python.more = 1\n").flows


def settings_of(more: str) -> Settings:
    return parse_settings(BASE + more)


def test_either_form_of_a_configuration_has_them() -> None:
    text = BASE + EXAMPLE_KEYS + "group.filter.class = python:faulty.Keeps\npython.keep = ${env:KEEP}\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEEP", "x")
        convert(inspect_content(text.encode(), "f.properties"))  # raises if the resource means something else


def test_rights_of_a_class_of_ones_own_are_on_all_names() -> None:
    settings = settings_of(EXAMPLE_KEYS)
    names = {
        right.resource.name
        for _, right in flow_rights(settings.flows[0], settings)
        if right.without.startswith("nothing")
    }
    assert names == {"*"}


def test_an_object_shows_none_of_its_properties() -> None:
    own = make_custom("python:faulty.Nothing", object, {"python.password": "hush"})
    assert "hush" not in repr(own)
