"""Java is the judge: Kafka's own classes and `java.util.regex` must give the answers that ours give."""

from __future__ import annotations

import random
from collections import Counter
from enum import Enum
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from heliograph.config.keys.table import KEYS
from heliograph.config.keys.values import split_list
from heliograph.errors import ConfigError
from heliograph.ledger.mm2.positions import encode_position_key
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.entry import encode_entry_key
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.trouble import Trouble
from heliograph.names.filters import NameFilter, should_mirror
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, ReplicationPolicy
from heliograph.names.renaming import Rename
from tests.cluster.judge import MIRROR, Judge

# -- names

ALIASES = ("A", "B", "us")
NAMES = sorted(
    {
        "", ".", "..", "...", "A", "A.", "A..", ".b", "..b", "A..b", "heartbeats", "x-heartbeats", "myheartbeats",
        "mm2", "mm2.internal", "mm2-internal", "internal", ".internal", "checkpoints.internal", "__x", "_x", ".x", "x.",
        "mm2-ledger.A.internal", "orders.replica", "a.b.c.d.e", "us-orders", "us_orders", "us__orders", "B__A__x",
    }
    | {f"{a}{s}{t}" for a in ALIASES for s in (".", "_", "__", "-") for t in ("orders", "heartbeats", "B.x", "")}
    | {f"{a}{s}checkpoints{s}internal" for a in ALIASES for s in (".", "_", "-")}
    | {f"mm2-{kind}{s}A{s}internal" for kind in ("offsets", "offset-syncs") for s in (".", "_", "-")}
)  # fmt: skip
POLICIES = [
    (kind, separator, internal)
    for kind in (DefaultPolicy, IdentityPolicy)
    for separator, internal in ((".", True), ("_", False), ("__", True), ("", True))
]


def _java_policy(java: Judge, kind: type[DefaultPolicy], separator: str, internal: bool) -> Any:
    name = "Identity" if kind is IdentityPolicy else "Default"
    policy = java.mirror(f"{name}ReplicationPolicy")()
    policy.configure(
        {
            "replication.policy.separator": separator,
            "replication.policy.internal.topic.separator.enabled": str(internal).lower(),
            "source.cluster.alias": "A",
        }
    )
    return policy


@pytest.mark.parametrize(("kind", "separator", "internal"), POLICIES)
def test_policies_answer_as_javas(java: Judge, kind: type[DefaultPolicy], separator: str, internal: bool) -> None:
    theirs = _java_policy(java, kind, separator, internal)
    ours = kind(separator=separator, internal_separator_enabled=internal, source_alias="A")
    for name in NAMES:
        expected = (
            theirs.topicSource(name), theirs.upstreamTopic(name), theirs.originalTopic(name),
            theirs.isHeartbeatsTopic(name), theirs.isCheckpointsTopic(name), theirs.isMM2InternalTopic(name),
            theirs.isInternalTopic(name), theirs.formatRemoteTopic("us", name),
        )  # fmt: skip
        answers = (
            ours.topic_source(name), ours.upstream_topic(name), ours.original_topic(name),
            ours.is_heartbeats_topic(name), ours.is_checkpoints_topic(name), ours.is_mm2_internal_topic(name),
            ours.is_internal_topic(name), ours.format_remote_topic("us", name),
        )  # fmt: skip
        assert answers == expected, name
    assert ours.offset_syncs_topic("us") == theirs.offsetSyncsTopic("us")
    assert ours.checkpoints_topic("us") == theirs.checkpointsTopic("us")
    assert ours.heartbeats_topic() == theirs.heartbeatsTopic()


@pytest.mark.parametrize(
    ("topics", "exclude"),
    [(".*", None), ("", ""), ("orders, A.*", "A.orders"), ("(us|B)[._].*", "__.*"), ("(?i)a.orders,b", "")],
)
def test_selection_is_that_of_the_source_connector(java: Judge, topics: str, exclude: str | None) -> None:
    settings = {"topics": topics} | ({} if exclude is None else {"topics.exclude": exclude})
    their_filter = java.mirror("DefaultTopicFilter")()
    their_filter.configure(settings)
    default = next(key.default for key in KEYS if key.name == "topics.exclude")
    our_filter = NameFilter(split_list(topics), split_list(str(default) if exclude is None else exclude))
    for kind in (DefaultPolicy, IdentityPolicy):
        should_replicate = _source_connector(java, _java_policy(java, kind, ".", True), their_filter)
        policy: ReplicationPolicy = kind(source_alias="A")
        for name in NAMES:
            if name and not name.startswith("mm2-ledger."):
                assert should_mirror(policy, our_filter, name, "B") is should_replicate(name), name


def _source_connector(java: Judge, policy: Any, topic_filter: Any) -> Any:
    """`MirrorSourceConnector.shouldReplicateTopic`, which is not public."""
    kinds = [java.class_of(MIRROR + n) for n in ("SourceAndTarget", "ReplicationPolicy", "TopicFilter")]
    kinds.append(java.class_of(MIRROR + "ConfigPropertyFilter"))
    connector_class = java.class_of(f"{MIRROR}MirrorSourceConnector")
    maker = connector_class.getDeclaredConstructor(java.array(java.jvm.Class, kinds))
    maker.setAccessible(True)
    pair = java.mirror("SourceAndTarget")("A", "B")
    config_filter = java.mirror("DefaultConfigPropertyFilter")()
    connector = maker.newInstance(java.array(java.jvm.Object, [pair, policy, topic_filter, config_filter]))
    method = connector_class.getDeclaredMethod(
        "shouldReplicateTopic", java.array(java.jvm.Class, [java.class_of("java.lang.String")])
    )
    method.setAccessible(True)
    return lambda name: method.invoke(connector, java.array(java.jvm.Object, [name]))


# -- patterns

PATTERNS = r"""
LH.* orders foo.bar a{2} a{2,3} a{2,} a*+b a++b a?+ a+? (?i)Foo (?i)f[a-m]o (?-i)a a(?i)b (?i-s)A (?)a (?-)a
[a-z&&[^b]]+ [a-z&&[def]] [a-f[x-z]]+ [^a-c] []a]+ [^]a] [a-] [-a] [a\-z] [\w-.]+ [a-[b]]+ [a&b]+ [a&] [&a] [[a]]
[a-z&&[^aeiou]&&[^x]]+ [^a-z&&[def]] [a-z&&def]+ [a-z&&[m-p]x] [[a][b]]+ [a[^b]] [^[a]b] [\p{L}&&[^a]] [^\p{L}] [^\d]
[\d\-.]+ [\s\S]* [\x41-\x43]+ [\u0041-C] [a\]b] [.] [*+?] (?i)[^a] (?i)[A-Z&&[^B]] [(?i)a] [z-a] [a-\d] [a [] [\b] [\1]
\Qa.b\E+ \Qa.b a\Q.*\Eb [\Q^-]\E]+ \Q1\E2 \E \Q\E
\p{Alpha}+ \p{Lower} \p{Upper}x \p{Punct} \p{Alnum}+ \p{Graph} \p{Print} \p{Blank} \p{Cntrl} \p{XDigit} \p{Space}
\p{ASCII} \p{javaLowerCase}+ \p{javaUpperCase} \p{javaLetterOrDigit} \p{javaWhitespace} \p{javaISOControl} \p{L}+ \pL
\PL
\P{Lu} \p{IsLatin}+ \p{IsAlphabetic}+ \p{script=Latin}+ \p{gc=Lu} \p{IsL} \p{LC} \p{LD}+ \p{L1}+ \p{Foo} \p{IsFoo}
\p{Is}
\h \H \v \V \R a\R?b \s \S+ \d+ \D \w+ \W \bfoo\b fo\Bo.* \Afoo\z foo\Z ^foo$ (?m)^foo$ foo$\n foo\Z\n foo\z\n \Gfoo
(?s).* .* (?d).* (?dm)a$\nb (?m)a$\n^b (?m)a$\r\n^b (?s)a$.*
(foo|bar)\1 (?<n>fo)o\k<n> (a)(b)\2\1 (a)\11 \k<n> (?<n>a)(?<n>b) (?:foo|bar)+ (?=foo).* (?!foo).* foo(?<=oo)
(?<!x)foo (?<=a{1,3})b.* (?>a*)a (?>a|ab)c (?:a|b)*+c (foo|bar) (?i)foo|bar a(?i)|b ((?i)a)b (?i:a)b | a| [a|b] (a|b)c
\x41 \u0041 \x{41} \0101 \07 \08 \x4 \u12 \cA \t \e \. \- \_ \y \N
a** *a + ? { a{ a{,3} a{x} a{3,2} (?i)* () a||b ( ) a) (a ] } a} x] \ ^*a (?=a)*a (?:) $a a{0} a{1}? a{1}+
prod-(?!secret).* (?!.*\.tmp$).* ^(?!_).*$ mm2.*\.internal .*\.replica __.* .*[\-\.]internal console-consumer-.* (?#c)a
""".split()  # noqa: SIM905  a list of patterns reads best without quotes
SUBJECTS = [
    "", "a", "b", "A", "B", "ab", "Ab", "aB", "aa", "aaa", "aab", "abc", "foo", "Foo", "FOO", "foofoo", "barbar",
    "foobar",
    "foooo", "fooo", "foo\n", "foo\r\n", "a\nb", "a\r\nb", "\r\n", "\n", "a.b", "a.bb", "a-b", "a_b", "a b", " ", "\t",
    "é", "ß", "\u017f", "\u212a", "k", "orders", "LH.stock", "LHX", "x", "z", "d", "e", "-", "^", ".", "]", "[", "&",
    "b&a",
    "1", "12", "11", "8", "A1", "prod-x", "prod-secret", "x.tmp", "_x", "__x", "foofo", "abba", "aa1", "\x01", "\x1b",
    "*",
    "+", "\xa0", "\u2028", "\x85", "}", "a}", "x]", "m", "\\", "bc", "c", "ac", "aac", "q", "w9", "mm2-x.internal",
    "t-internal",
    "x.replica", "console-consumer-1", "\u03c0", "\U0001f600", "Ax",
]  # fmt: skip
# What Java takes and we refuse on purpose says so in one of these words.
BY_CHOICE = ("not supported", "in different Java releases", "add up to more than", "nested more than")


def _java_matches(java: Judge, pattern: str, subjects: Any) -> set[str] | None:
    """The subjects that match, in a few calls; None if Java refuses the pattern."""
    try:
        predicate = java.jvm.java.util.regex.Pattern.compile(pattern).asMatchPredicate()
    except Py4JJavaError:
        return None
    matching = java.jvm.java.util.ArrayList(subjects)
    matching.removeIf(predicate.negate())
    return set(java.texts(matching))


def _our_matches(patterns: tuple[str, ...], names: list[str]) -> set[str] | ConfigError:
    try:
        ours = NameFilter(patterns)
    except ConfigError as refusal:
        return refusal
    return {name for name in names if ours.accepts(name)}


class Verdict(Enum):
    SAME = "both match the same names"
    REFUSED = "both refuse it"
    REFUSED_BY_CHOICE = "we refuse what Java takes, and say so"


def _compare(java: Judge, patterns: tuple[str, ...], names: list[str], subjects: Any) -> Verdict:
    expected = _java_matches(java, "|".join(patterns), subjects)
    ours = _our_matches(patterns, names)
    if isinstance(ours, ConfigError) and expected is not None:
        assert any(reason in ours.why for reason in BY_CHOICE), (patterns, ours.why)
        return Verdict.REFUSED_BY_CHOICE
    assert (None if isinstance(ours, ConfigError) else ours) == expected, patterns
    return Verdict.REFUSED if expected is None else Verdict.SAME


def test_patterns_match_what_java_matches(java: Judge) -> None:
    subjects = java.list_of(SUBJECTS)
    verdicts = {pattern: _compare(java, (pattern,), SUBJECTS, subjects) for pattern in PATTERNS}
    assert [pattern for pattern, verdict in verdicts.items() if verdict is Verdict.REFUSED_BY_CHOICE] == []


LITERALS = ("a", "b", "B", "ab", "orders", "1", "_", "-", "-internal", r"\.", r"\-", r"\x41", r"\u0042", r"\0101", " ")
SETS = (
    ".", ".", r"\d", r"\w", r"\W", r"\s", r"\S", r"\D", r"\h", r"\p{Alpha}", r"\p{L}", r"\P{Lu}", r"\p{Punct}", r"\pN",
    "[a-c]", "[^a]", "[a-z&&[^b]]", "[A-Z0-9_]", r"[\w.-]", r"[._\-]", "[ab[1-3]]", "[^a-z&&[ab]]", r"[\d&&[^1]a]",
    "[]a]", "[a-]", "[a&&b]", r"[\Q.-\E]", r"[^\w]", r"[\p{Lower}1]", "[a&b]", "[-a]", "[+*?.]",
)  # fmt: skip
ANCHORS = ("^", "$", r"\A", r"\z", r"\Z", r"\G", "(?i)", "(?-i)", "(?s)", "(?m)", "(?im-s)")
GROUPS = ("(", "(", "(?:", "(?i:", "(?-i:", "(?s-i:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>")
QUANTIFIERS = ("*", "*", "+", "?", "{2}", "{1,2}", "{0,}", "*+", "+?", "??", "++", "{2}+")
BREAKS = (
    "[", "]", "(", ")", "{", "}", "*", "+", "?", "|", "\\", "^", "-", "&&", ",", r"\Q", r"\E", "a", "1", ":", "<",
    "[b-a]", r"\1", r"\k<n>", "(?#", "(?P<n>", "**", "{x}", "{2,1}", r"\p{Foo}", r"\y", r"\x4", r"\08", "(?x)",
)  # fmt: skip


CHARACTERS = r"aabb1B..--_[[]]^&&\\\*+?()|{2,}wdsQEi:=!<>$"


def _generated_sequence(chance: random.Random, depth: int) -> str:
    made = ""
    for _ in range(chance.randint(1, 3)):
        kind = chance.random()
        if kind < 0.35:
            atom = chance.choice(LITERALS)
        elif kind < 0.65:
            atom = chance.choice(SETS)
        elif kind < 0.73:
            atom = chance.choice(ANCHORS)
        elif kind < 0.78:
            atom = rf"\Q{chance.choice(('a.', 'a*b', '', '-', '[', 'A'))}\E"
        elif depth:
            atom = chance.choice(GROUPS) + _generated_pattern(chance, depth - 1) + ")"
        else:
            atom = "ab"
        made += atom + (chance.choice(QUANTIFIERS) if chance.random() < 0.35 else "")
    return made


def _generated_pattern(chance: random.Random, depth: int = 2) -> str:
    return "|".join(_generated_sequence(chance, depth) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def _generated_list(chance: random.Random) -> str:
    """The value of `topics`: patterns between commas, some broken by a misplaced character; or any characters."""
    if chance.random() < 0.3:
        return "".join(chance.choices(CHARACTERS, k=chance.randint(1, 11)))
    text = chance.choice((",", ", ", " ,")).join(
        _generated_pattern(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))
    )
    if chance.random() < 0.2:
        at = chance.randint(0, len(text))
        text = text[:at] + chance.choice(BREAKS) + text[at + chance.randint(0, 1) :]
    return text


def _generated_names(chance: random.Random) -> list[str]:
    words = ("a", "b", "A", "B", "ab", "orders", "1", "2", ".", "-", "_", "-internal", " ", "a.", "a*b", "\n")
    return sorted({"".join(chance.choices(words, k=chance.randint(0, 4))) for _ in range(200)})


def test_generated_patterns_match_what_java_matches(java: Judge) -> None:
    chance = random.Random(1)
    names = _generated_names(chance)
    subjects = java.list_of(names)
    lists = (split_list(_generated_list(chance)) for _ in range(3000))
    verdicts = Counter(_compare(java, patterns, names, subjects) for patterns in lists if patterns)
    assert verdicts[Verdict.SAME] > 1000
    assert verdicts[Verdict.REFUSED] > 300


# -- replacements

RULES = [
    ("(.*)", "x-$1"), ("(a)(b)?", "$2$1"), ("(a|ab)(c|bcd)?(d*)", "$1-$2-$3"), ("(?<n>a+)(.*)", "${n}.$2"),
    (".*", "$0$0"), ("(a)", "$11"), ("(a)", r"\$1\\$1\x"), ("((a|b)c?)", "$2$1"), ("(a)(b)(c)", "$3$2$1"),
    ("a", ""), ("(.*?)(b*)", "$1_$2"), ("(a", "x"), ("a", "$1"), ("(a)", "$2"), ("(a)", "$"), ("(a)", "$x"),
    ("(a)", "x\\"), ("(?<n>a)", "${m}"), ("(a)", "${}"), ("(?<n>a)", "${n"), ("(?<n>a)", "${n x}"),
    ("(a)", "${1}"), ("(.)(.)?(.)?(.)?(.)?(.)?(.)?(.)?(.)?(.)?", "$10$1"), ("(?:(a)|b)(c|d)?", "<$1$2>"),
    ("(?:(a)b|(a)c)", "$1/$2"), ("(a?)(a?)b", "$1|$2"), ("(?i)(A)b", "$1"), ("()a", "$1."),
]  # fmt: skip


def _java_renamed(java: Judge, pattern: str, replacement: str, names: list[str]) -> dict[str, str] | None:
    """What `Matcher` makes of the names that match as a whole; None if Java refuses the rule."""
    made = {}
    try:
        compiled = java.jvm.java.util.regex.Pattern.compile(pattern)
        for name in names:
            matcher = compiled.matcher(name)
            if matcher.matches():
                text = java.jvm.java.lang.StringBuilder()
                matcher.appendReplacement(text, replacement)
                made[name] = str(text.toString())
    except Py4JJavaError:
        return None
    return made


def _compare_rule(java: Judge, pattern: str, replacement: str, names: list[str]) -> Verdict | None:
    """None if no name matches: Java looks at a replacement only then."""
    rule = _our_rule(pattern, replacement)
    if isinstance(rule, ConfigError):
        expected = _java_renamed(java, pattern, replacement, names)
        is_by_choice = any(reason in rule.why for reason in (*BY_CHOICE, "is not certain there"))
        assert is_by_choice or not expected, (pattern, replacement, rule.why, expected)
        return Verdict.REFUSED_BY_CHOICE if expected else Verdict.REFUSED if expected is None else None
    ours = {name: new for name in names if (new := rule.apply(name)) is not None}
    # Most names match no pattern, and a call takes its time.
    assert _java_renamed(java, pattern, replacement, [*ours, *names[:2]]) == ours, (pattern, replacement)
    for name, new in ours.items():
        assert rule.one_way or rule.invert(new) == name, (pattern, replacement, name)
    return Verdict.SAME if ours else None


def _our_rule(pattern: str, replacement: str) -> Rename | ConfigError:
    try:
        return Rename(pattern, replacement)
    except ConfigError as refusal:
        return refusal


def test_replacements_make_what_java_makes(java: Judge) -> None:
    names = ["", "a", "b", "ab", "abc", "abcd", "ac", "bc", "bd", "aab", "aa", "abcdefghij", "Ab", "x.y"]
    for pattern, replacement in RULES:
        assert _compare_rule(java, pattern, replacement, names) is not None, pattern


def _generated_replacement(chance: random.Random, groups: int) -> str:
    numbers = [f"${number}" for number in range(1, groups + 1)]
    parts = ["a", ".", "-", r"\$", r"\\", "${n}", "$0", *numbers, *numbers]
    return "".join(chance.choices(parts, k=chance.randint(0, 4)))


def test_generated_rules_make_what_java_makes(java: Judge) -> None:
    chance = random.Random(2)
    names = chance.sample(_generated_names(chance), 60)
    verdicts: Counter[Verdict | None] = Counter()
    for _ in range(1500):
        pattern = _generated_pattern(chance)
        replacement = _generated_replacement(chance, pattern.count("(") - pattern.count("(?") + pattern.count("(?<n>"))
        verdicts[_compare_rule(java, pattern, replacement, names)] += 1
    assert verdicts[Verdict.SAME] > 400
    assert verdicts[Verdict.REFUSED] > 50


def test_connect_passes_over_a_ledger_that_stands_among_its_offsets(java: Judge) -> None:
    """Where a mirror has no right on the ledger's topic, MirrorMaker 2 must still read the positions beside it."""
    settings = java.jvm.java.util.HashMap()
    settings.put("schemas.enable", "false")
    settings.put("converter.type", "key")
    converter = java.jvm.org.apache.kafka.connect.json.JsonConverter()
    converter.configure(settings)
    found = java.jvm.java.util.HashMap()
    claim = ProducerClaim(token="t", producer_id=1, source_cluster_id="s", target_cluster_id="t")
    trouble = Trouble(topic="t", partition=1, code="DATA", text="x", final=False)
    condition = Condition(lacks=("x",), is_blocked=False, time_ms=1)
    keys = [
        encode_entry_key("g", "foo", 7),
        Order(owner="me", end_epoch=1).encode("g")[0],
        claim.encode("g")[0],
        trouble.encode("g")[0],
        condition.encode("g")[0],
        encode_position_key("A", "t", 0),
    ]
    for key in keys:
        java.jvm.org.apache.kafka.connect.storage.OffsetUtils.processPartitionKey(
            key, b'{"offset":1}', converter, found
        )
    assert list(found.keySet()) == ["MirrorSourceConnector"]
