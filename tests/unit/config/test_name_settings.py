"""Rules for names in configurations: read, refused, linted, shown, converted, changed; and given to clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.client import MirrorClient, Translated, mirror_client
from heliograph.client.access import read_config, read_properties
from heliograph.client.checkpoints import FoundCheckpoints, Wanted
from heliograph.config import inspect_content, parse_settings
from heliograph.config.changes import compare
from heliograph.config.convert import convert
from heliograph.config.name_settings import MAX_RULES
from heliograph.config.settings import Flow
from heliograph.config.show import effective
from heliograph.errors import ConfigError
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from heliograph.names.renaming import Rename, Renames, RenamingPolicy
from tests.unit.config.test_lint import IDENTITY, RESOURCE, said
from tests.unit.helpers.samples import BASE
from tests.unit.ledger.test_copy_names import EU, rule

IDENTITY_LINE = f"replication.policy.class = {IDENTITY}\n"


def flow_of(more: str) -> Flow:
    return parse_settings(BASE + more).flows[0]


def rules_of(flow: Flow) -> tuple[Rename, ...]:
    assert isinstance(flow.policy, RenamingPolicy)
    [(source, renames)] = flow.policy.rules
    assert source == flow.source
    return renames.rules


# -- reading


def test_rules_are_read_in_the_order_of_their_numbers() -> None:
    flow = flow_of(rule("c", "z", 10) + rule("a", "x", 2) + rule("b", "y", 3))
    assert rules_of(flow) == (Rename("a", "x"), Rename("b", "y"), Rename("c", "z"))
    assert flow.policy == RenamingPolicy(DefaultPolicy(source_alias="A"), (("A", Renames(rules_of(flow))),))


def test_rules_at_the_top_are_for_all_flows_and_a_flow_has_its_own_before_them() -> None:
    top = "topic.rename.1.pattern = a\ntopic.rename.1.replacement = x\ngroup.rename.1.pattern = g\n"
    text = f"{BASE}B->A.enabled = true\n{top}group.rename.1.replacement = h\nA->B.topic.rename.1.replacement = y\n"
    there, back = parse_settings(text).flows
    assert (rules_of(there), rules_of(back)) == ((Rename("a", "y"),), (Rename("a", "x"),))
    assert there.group_renames == back.group_renames == Renames((Rename("g", "h"),))


def test_a_group_of_a_pattern_is_no_placeholder() -> None:
    text = BASE + rule("(?<region>eu|us)-(.*)", "${region}.$2")
    assert said("bare-placeholder", text) == []
    assert flow_of(rule("(?<region>eu|us)-(.*)", "${region}.$2")).remote_topic("eu-x") == "eu.x"


def test_either_half_of_a_rule_may_come_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RENAME_TO", "x-$1")
    flow = flow_of(rule("(.*)", "${env:RENAME_TO}"))
    assert flow.remote_topic("a") == "x-a"
    monkeypatch.setenv("RENAME_TO", "hush-$7")
    with pytest.raises(ConfigError, match=r'replacement": \$\{env:RENAME_TO\} cannot be used') as caught:
        flow_of(rule("(.*)", "${env:RENAME_TO}"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "A->B.topic.rename.1.pattern = a",
            '"A->B.topic.rename.1.pattern" has no replacement; write A->B.topic.rename.1.replacement',
        ),
        ("group.rename.2.replacement = a", '"group.rename.2.replacement" has no pattern; write group.rename.2.pattern'),
        ("topic.rename.x.pattern = a", '"topic.rename.x.pattern" is not part of a rule; write topic.rename.1.pattern'),
        ("topic.rename.1.patern = a", '"topic.rename.1.patern" is not part of a rule'),
        (rule("(a", "x"), '"A->B.topic.rename.1.pattern": pattern "(a" cannot be used: ( is not closed'),
        (rule("a", "$1"), '"A->B.topic.rename.1.replacement": replacement "$1" cannot be used: the pattern has no'),
        (rule("a", "x") + "A->B.topic.rename.01.pattern = b", "there is another rule 1"),
        (rule("a" * 1001, "x"), '"A->B.topic.rename.1.pattern" has more than 1000 characters'),
        (
            "".join(rule("a", "x", number) for number in range(MAX_RULES + 1)),
            "there are more than 1000 rules topic.rename.<n>",
        ),
    ],
)
def test_a_rule_with_a_fault_is_named(more: str, expected: str) -> None:
    [line] = said("bad-rename", BASE + more)
    assert line.startswith("error f.properties:")
    assert expected in line


# -- findings


def test_a_rule_that_cannot_be_turned_round_is_found_with_its_reason_and_its_cost() -> None:
    [line] = said("one-way-rename", BASE + rule("a|b", "x"))
    assert line.startswith('warning f.properties:5:1: "A->B.topic.rename.1.pattern": its pattern has alternatives')
    assert "its copies' names do not show where they came from" in line
    [line] = said("one-way-rename", BASE + rule("a|b", "x", of="group"))
    assert "checkpoints show its groups only under their names on the target" in line
    assert said("one-way-rename", BASE + rule("a-(.*)", "$1")) == []


def test_where_flows_form_a_cycle_a_rule_must_be_turned_round() -> None:
    text = BASE + rule("a|b", "x") + "B->A.enabled = true\n"
    [line] = said("one-way-cycle", text)
    assert line.startswith('error f.properties:4:1: A->B is part of a cycle, and its rule "a|b" cannot be reversed')
    assert said("one-way-cycle", BASE + rule("a|b", "x")) == []
    assert said("one-way-cycle", BASE + rule("(a|b)", "x-$1") + "B->A.enabled = true\n") == []


def test_equal_names_in_a_cycle_pass_if_rules_name_all_of_them() -> None:
    cycle = BASE + IDENTITY_LINE + "B->A.enabled = true\n"
    assert len(said("identity-cycle", cycle + rule("a(.*)", "x$1"))) == 1
    assert said("identity-cycle", cycle + rule("(.*)", "$1-eu")) == []


def test_patterns_of_rules_are_linted_like_others() -> None:
    assert len(said("glob", BASE + rule("orders-*", "x"))) == 1
    assert len(said("unescaped-dot", BASE + rule("a.b", "x"))) == 1
    assert said("unescaped-dot", BASE + rule(r"a\.b", "x")) == []


# -- shown, converted, changed


def test_rules_are_shown_with_their_places() -> None:
    text = BASE + rule(r"a\.(.*)", "$1") + "python.x = 1\n"
    rows = {row.key: row for row in effective(inspect_content(text.encode(), "f").parts) if row.owner == "A->B"}
    assert rows["topic.rename.1.pattern"][2:] == (r"a\.(.*)", "f:5:1")
    assert rows["topic.rename.1.replacement"][2:] == ("$1", "f:6:1")
    assert rows["python.x"][2:] == ("1", "f:7:1")


@pytest.mark.parametrize("more", [rule(r"a\.(.*)", r"\\$$1"), EU, rule("a", "b") + EU + "group.rename.2.pattern=\n"])
def test_rules_are_the_same_in_either_form(more: str) -> None:
    more += "group.rename.2.replacement = x\n" if "group.rename.2" in more else ""
    loaded = inspect_content((BASE + more).encode(), "f.properties")
    resource = convert(loaded).text
    again = inspect_content(resource.encode(), "f.yaml")
    assert again.valid_settings().flows[0].policy == loaded.valid_settings().flows[0].policy
    assert again.valid_settings().flows[0].group_renames == loaded.valid_settings().flows[0].group_renames
    back = inspect_content(convert(again).text.encode(), "f.properties").valid_settings()
    assert back.flows == loaded.valid_settings().flows


def test_a_resource_has_rules_in_the_configuration_of_its_connectors() -> None:
    text = RESOURCE + '        topic.rename.1.pattern: "(.*)"\n        topic.rename.1.replacement: $1-x\n'
    [flow] = parse_settings(text, "f.yaml").flows
    assert flow.remote_topic("a") == "a-x"


def test_a_changed_rule_waits_for_a_restart() -> None:
    changes = compare(parse_settings(BASE), parse_settings(BASE + rule("a", "b") + EU))
    assert (changes.applied, changes.need_restart) == ((), ("A->B: group renames", "A->B: policy"))


# -- clients

X0 = TopicPartition("x", 0)


def checkpoint(group: str, offset: int) -> tuple[bytes, bytes]:
    return Checkpoint(group=group, topic="x", partition=0, upstream=9, downstream=offset, metadata="").encode()


def client_of(tmp_path: Path, more: str) -> MirrorClient:
    file = tmp_path / "mm2.properties"
    file.write_text(BASE + more)
    return MirrorClient.from_config(file, "B")


def checkpoints(monkeypatch: pytest.MonkeyPatch, **offsets: int) -> None:
    async def read(_: Cluster, __: str, found: FoundCheckpoints) -> None:
        found.is_begun = found.is_complete = True
        for group, offset in offsets.items():
            found.take(*checkpoint(group.replace("_", "-"), offset))

    monkeypatch.setattr(mirror_client, "read_checkpoints", read)


def test_checkpoints_are_asked_for_by_either_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints(monkeypatch, eu_app=5, eu_eu_app=7, native=9)
    client = client_of(tmp_path, EU)
    found = {name: client.translate_offsets("A", name) for name in ("app", "eu-app", "eu-eu-app", "other")}
    assert {name: offsets[X0].offset for name, offsets in found.items() if offsets} == {
        "app": 5, "eu-app": 5, "eu-eu-app": 7,
    }  # fmt: skip
    assert set(client.translate_groups("A", lambda name: name == "app")) == {"eu-app"}
    assert set(client.translate_groups("A", lambda name: True)) == {"eu-app", "eu-eu-app", "native"}


def test_the_ledger_is_asked_by_either_name_and_two_groups_with_one_name_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    places = {"app-1": {X0: Translated(1, "", 1)}, "app-2": {X0: Translated(2, "", 2)}, "z": {X0: Translated(3, "", 3)}}

    async def read(*_: object, **__: object) -> Ledger:
        return Ledger(group_id="g")

    async def translated(_: object, __: str, ___: Ledger, ____: object, wanted: Wanted) -> object:
        return {name: offsets for name, offsets in places.items() if wanted(name)}

    monkeypatch.setattr(mirror_client, "read_ledger", read)
    monkeypatch.setattr(mirror_client, "translate_groups", translated)
    client = client_of(tmp_path, rule("app-[0-9]", "app", of="group"))
    assert client.translate_offsets("A", "app-2", by="ledger") == places["app-2"]
    assert client.translate_offsets("A", "z", by="ledger") == places["z"]
    assert client.translate_offsets("A", "app", by="ledger") == places["app-1"]
    assert 'group "app-2" of "A" is left out: another one is called "app" here' in caplog.text


def test_a_client_of_a_file_has_the_rules_of_each_source(tmp_path: Path) -> None:
    text = "clusters = A, B, C\n" + "".join(f"{alias}.bootstrap.servers = {alias}:1\n" for alias in "ABC")
    text += "A->C.enabled = true\nB->C.enabled = true\n" + rule("a", "from-a", flow="A->C") + IDENTITY_LINE
    text += rule("a", "from-b", flow="B->C") + rule("g", "h", of="group", flow="B->C")
    file = tmp_path / "mm2.properties"
    file.write_text(text)
    settings = read_config(file, "C")
    policy = settings.policy
    assert [policy.format_remote_topic(alias, "a") for alias in "AB"] == ["from-a", "from-b"]
    assert [policy.topic_source(name) for name in ("from-a", "from-b", "x")] == ["A", "B", None]
    assert (settings.renames_of("A"), settings.renames_of("B")) == (Renames(), Renames((Rename("g", "h"),)))


def test_a_client_may_be_given_rules_with_its_properties() -> None:
    properties = {"bootstrap.servers": "k:1", "group.rename.1.pattern": "(.+)", "group.rename.1.replacement": "eu-$1"}
    assert read_properties(properties).renames_of("any").apply("app") == "eu-app"
    properties |= {"topic.rename.1.pattern": "a", "topic.rename.1.replacement": "b"}
    with pytest.raises(
        ConfigError, match=r"rules topic.rename.<n> are those of one source; name it by source\.cluster"
    ):
        read_properties(properties)
    settings = read_properties(properties | {"source.cluster.alias": "A", "replication.policy.class": IDENTITY})
    assert settings.policy.upstream_topic("b") == "a"
    assert settings.policy == RenamingPolicy(IdentityPolicy(source_alias="A"), (("A", Renames((Rename("a", "b"),))),))
    assert settings.renames_of("A").apply("app") == "eu-app"
    with pytest.raises(ConfigError, match="is not closed"):
        read_properties(properties | {"topic.rename.1.pattern": "(a"})
