"""Rules for names: Java's replacements, the way back, and policies that have them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.names.filters import TopicFilter, should_mirror
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, is_cycle
from heliograph.names.renaming import Rename, Renames, RenamingPolicy, comes_home, with_rules, without_rules

DOT = DefaultPolicy(source_alias="A")


def renames(*rules: tuple[str, str]) -> Renames:
    return Renames(tuple(Rename(*rule) for rule in rules))


def policy(*rules: tuple[str, str], base: DefaultPolicy = DOT, source: str = "A") -> RenamingPolicy:
    made = with_rules(base, [(source, renames(*rules))])
    assert isinstance(made, RenamingPolicy)
    return made


# -- replacements


@pytest.mark.parametrize(
    ("pattern", "replacement", "name", "new"),
    [
        ("orders", "bestellungen", "orders", "bestellungen"),
        ("orders", "bestellungen", "my-orders", None),
        (r"legacy\.(.*)", "$1", "legacy.a.b", "a.b"),
        (".*", "pre-$0", "x", "pre-x"),
        ("(?<region>eu|us)-(.*)", "$2.${region}", "eu-x", "x.eu"),
        ("(a)(b)?(c)", "$3$2$1", "ac", "ca"),
        ("(a)", "$11", "a", "a1"),
        ("(a)", "$1$1", "a", "aa"),
        (r"(.*)", r"\$1\\\x$1", "a", r"$1\xa"),
        ("a", "", "a", ""),
        ("((a|b)c)", "$2$1", "bc", "bbc"),
        ("(a|ab)(c|bcd)(d*)", "$1-$2-$3", "abcd", "a-bcd-"),
        ("(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)", "$11$10$1", "abcdefghijk", "kja"),
    ],
)
def test_a_replacement_is_javas(pattern: str, replacement: str, name: str, new: str | None) -> None:
    assert Rename(pattern, replacement).apply(name) == new


@pytest.mark.parametrize(
    ("pattern", "replacement", "why"),
    [
        ("a", "$1", "the pattern has no group 1"),
        ("(a)", "$2", "the pattern has no group 2"),
        ("(a)", "$", "$ is not followed by a group"),
        ("(a)", "$x", "$ is not followed by a group"),
        ("(a)", "x\\", "escapes nothing"),
        ("(?<n>a)", "${m}", "the pattern has no group <m>"),
        ("(?<n>a)", "${n", "${ is not closed"),
        ("(a)*", "$1", "group 1 is in a repetition"),
        ("(?:x(a)){2}", "$1", "group 1 is in a repetition"),
        ("(?=(a)).*", "$1", "group 1 is in a repetition, a look-around"),
        ("(?>(a))b", "$1", "or an atomic group"),
        ("((a)*+)", "$2", "group 2 is in a repetition"),
        ("(a", "x", "( is not closed"),
    ],
)
def test_a_rule_that_java_would_refuse_is_refused(pattern: str, replacement: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        Rename(pattern, replacement)


def test_a_group_beside_a_repeated_one_can_be_used() -> None:
    assert Rename(r"(?:\w+\.)*(\w+)", "$1").apply("a.b.c") == "c"


def test_a_pattern_that_takes_for_ever_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def fullmatch(self, name: str, timeout: float) -> None:
            raise TimeoutError(name, timeout)

    monkeypatch.setattr("heliograph.names.renaming._compiled", lambda _text: Endless())
    with pytest.raises(ConfigError, match=r'pattern "a\*" takes more than 5 s on "x"'):
        Rename("a*", "x").apply("x")


# -- the way back

TWO_WAY = [
    ("orders", "bestellungen", "orders"),
    ("orders-(.+)", "eu.$1.orders", "orders-a.b"),
    (".*", "$0-copy", "a-copy"),
    ("(.*)", "$1", "x"),
    ("^(.*)$", "x$1y", "xy"),
    (r"([^.]+)\.(.+)", "$2.$1", "a.b.c"),
    (r"(.+)\.([^.]+)", "$2.$1", "a.b.c"),
    ("([a-z]+)([0-9]+)", "$1$2", "ab12"),
    ("(..)(.*)", "$2$1", "abcde"),
    ("(?<region>eu|us)-(.*)", "${region}.$2", "us-a.b"),
    ("(?!tmp)(.*)", "x-$1", "orders"),
    ("a(b(c)*)d", "$1", "abccd"),
    ("(a|bc)-([0-9]*)x", "$2$1", "bc-12x"),
    ("(?i:o)(rders)", "$0", "Orders"),
]


@pytest.mark.parametrize(("pattern", "replacement", "name"), TWO_WAY)
def test_a_rule_is_turned_round(pattern: str, replacement: str, name: str) -> None:
    rule = Rename(pattern, replacement)
    assert rule.one_way == ""
    new = rule.apply(name)
    assert new is not None
    assert rule.invert(new) == name


@pytest.mark.parametrize(
    ("pattern", "replacement", "why"),
    [
        ("a|b", "x", "has alternatives"),
        ("(a|b)-(.*)", "$2", "leaves group 1 out"),
        ("[ab]-(.*)", "$1", "outside its groups"),
        ("(?:eu)?(.*)", "$1", "outside its groups"),
        ("(?i)orders", "x", "outside its groups"),
        (".*-tmp", "tmp", "outside its groups"),
        (r"(.+)\.(.+)", "$2.$1", "where group 2 ends and group 1 begins"),
        ("(.*)(.*)", "$1$2", "where group 1 ends and group 2 begins"),
        ("(.*)x(.*)", "$1-$2", "where group 1 ends and group 2 begins"),
        ("([a-z]*)([0-9]*)([a-z]*)", "$1$2$3", "is not certain"),
        ("(.*)", "$1-$1", "where group 1 ends"),
    ],
)
def test_why_a_rule_cannot_be_turned_round(pattern: str, replacement: str, why: str) -> None:
    rule = Rename(pattern, replacement)
    assert why in rule.one_way
    assert rule.invert("x") is None


def test_a_name_that_no_rule_made_has_no_origin() -> None:
    rule = Rename("orders-([a-z]+)", "eu.$1")
    assert rule.invert("eu.7") is None
    assert rule.invert("us.a") is None
    assert Rename("(?!b)(.*)", "x$1").invert("xb") is None


ATOMS = ["a", "b", r"\.", "-", "(?:a|b)", "[ab]", ".*", "^", "$", "(?=a)", r"\b"]
INSIDE = [".*", ".+", "[ab]+", "[^.]+", "a|b", "..", "[a-z]{1,2}", r"\w*", "a", "(a)|b", r"[^.-]*", "(?:a|b)*", "b?"]
PARTS = ["a", "b", ".", "-", r"\$", "x"]
NAMES = st.text(alphabet="ab.-x", max_size=8)


@st.composite
def rules(draw: st.DrawFn) -> Rename:
    pieces = draw(st.lists(st.sampled_from(ATOMS[:4]) | st.sampled_from(INSIDE).map("({})".format), max_size=5))
    if draw(st.booleans()):
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(ATOMS)))
    groups = sum(piece.count("(") - piece.count("(?") for piece in pieces)
    ordered = draw(st.permutations([f"${number}" for number in range(1, groups + 1)]))
    made = [draw(st.sampled_from(PARTS))]
    for part in draw(st.sampled_from([ordered, ordered, ["$0"], ordered[:1]])):
        made += [part, *draw(st.lists(st.sampled_from(PARTS), max_size=1))]
    return Rename("".join(pieces), "".join(made))


@given(rules(), st.lists(NAMES, min_size=1, max_size=20))
def test_a_rule_without_a_reason_against_it_gives_every_name_back(rule: Rename, names: list[str]) -> None:
    for name in names:
        new = rule.apply(name)
        if new is not None and not rule.one_way:
            assert rule.invert(new) == name
        before = rule.invert(name)
        assert before is None or rule.apply(before) == name


@given(rules(), rules(), st.lists(NAMES, min_size=1, max_size=20))
def test_of_several_rules_the_origin_is_among_those_found(one: Rename, two: Rename, names: list[str]) -> None:
    both = Renames((one, two))
    for name in names:
        new = both.apply(name)
        first = one.apply(name)
        assert new == (two.apply(name) if first is None else first)
        if new is not None and not (one.one_way if first is not None else two.one_way):
            assert name in both.origins(new)


def test_what_generated_rules_prove_is_not_about_nothing() -> None:
    """Enough of them can be turned round, and match."""
    seen = {"two-way": 0, "matched": 0}

    @given(rules(), NAMES)
    def count(rule: Rename, name: str) -> None:
        seen["two-way"] += not rule.one_way
        seen["matched"] += not rule.one_way and rule.apply(name) is not None

    count()
    assert seen["two-way"] > 10
    assert seen["matched"] > 3


# -- policies


def test_a_rule_names_and_the_policy_names_the_rest() -> None:
    made = policy((r"legacy\.(.+)", "$1.v1"), ("audit-.*", "$0"))
    names = ("legacy.orders", "audit-1", "orders", "heartbeats", "B.heartbeats", "mm2-ledger.Z.internal", "__x")
    assert [made.format_remote_topic("A", name) for name in names] == [
        "orders.v1", "audit-1", "A.orders", "A.heartbeats", "A.B.heartbeats", "A.mm2-ledger.Z.internal", "A.__x",
    ]  # fmt: skip
    assert made.format_remote_topic("C", "legacy.orders") == "C.legacy.orders"


def test_heartbeats_and_internal_topics_are_not_renamed_whatever_the_pattern() -> None:
    made = policy(("(.*)", "x-$1"))
    for name in (
        "heartbeats",
        "B.heartbeats",
        "A.checkpoints.internal",
        "mm2-offsets.A.internal",
        "__consumer_offsets",
    ):
        assert made.format_remote_topic("A", name) == f"A.{name}"
        assert made.topic_source(name) == DOT.topic_source(name)


def test_a_renamed_copy_tells_its_source() -> None:
    made = policy((r"legacy\.(.+)", "$1.v1"))
    assert (made.topic_source("a.b.v1"), made.upstream_topic("a.b.v1")) == ("A", "legacy.a.b")
    assert made.original_topic("orders.v1") == "orders"
    assert (made.topic_source("B.x"), made.upstream_topic("B.x")) == ("B", "x")
    assert made.topic_source("native") is None


@given(rules(), NAMES)
def test_policies_give_the_source_name_back(rule: Rename, name: str) -> None:
    made = policy((rule.pattern, rule.replacement))
    remote = made.format_remote_topic("A", name)
    is_renamed = rule.apply(name) is not None and not DOT.is_internal_topic(name) and not DOT.is_heartbeats_topic(name)
    if is_renamed and not rule.one_way and not DOT.is_internal_topic(remote):
        assert (made.topic_source(remote), made.upstream_topic(remote)) == ("A", name)


def test_without_rules_the_policy_is_itself() -> None:
    assert with_rules(DOT, [("A", Renames())]) is DOT
    assert without_rules(policy(("a", "b"))) is DOT


# -- cycles


def test_a_copy_that_a_rule_named_does_not_go_back() -> None:
    arrivals = (("B", policy(("orders-(.+)", "$1.orders"))),)
    assert comes_home(DOT, arrivals, "x.orders", source="B", target="A")
    assert not comes_home(DOT, arrivals, "x.payments", source="B", target="A")
    assert not comes_home(DOT, arrivals, "x.orders", source="B", target="C")
    assert not comes_home(DOT, arrivals, "x.orders", source="A", target="B")


def test_a_way_over_several_clusters_is_followed_through_rules_and_prefixes() -> None:
    arrivals = (
        ("C", policy((r"B\.(.+)", "from-b-$1"))),
        ("D", policy(("from-(.+)", "via-c-$1"), source="C")),
    )
    assert comes_home(DOT, arrivals, "from-b-x", source="C", target="B")
    assert comes_home(DOT, arrivals, "via-c-b-x", source="D", target="B")
    assert comes_home(DOT, arrivals, "via-c-b-x", source="D", target="A")
    assert not comes_home(DOT, arrivals, "via-c-z", source="D", target="B")


def test_rules_that_fit_every_name_are_not_followed_for_ever() -> None:
    shorter = ("(.*)-old", "$1")
    arrivals = (("A", policy(shorter, source="C")), ("C", policy(shorter)))
    assert not comes_home(DOT, arrivals, "orders", source="A", target="B")
    assert comes_home(DOT, arrivals, "orders", source="A", target="C")
    own = policy(shorter)
    assert should_mirror(own, TopicFilter((".*",)), "orders", "B")
    assert not is_cycle(own, "orders", "B")


def test_equal_names_with_rules_go_home_by_the_rules_alone() -> None:
    same = IdentityPolicy(source_alias="B")
    arrivals = (("B", policy(("(.+)", "$1-eu"), base=IdentityPolicy(source_alias="A"))),)
    assert comes_home(same, arrivals, "orders-eu", source="B", target="A")
    assert not comes_home(same, arrivals, "orders", source="B", target="A")
