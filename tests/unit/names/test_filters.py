import pickle

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.names.filters import GroupFilter, TopicFilter, should_mirror
from heliograph.names.java_regex.translation import translate
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, is_own_internal_topic

DOT = DefaultPolicy(source_alias="A")
ALL = TopicFilter((".*",))
DEFAULT = TopicFilter((".*",), (r"mm2.*\.internal", r".*\.replica", "__.*"))
TOPIC_CHARS = "abzABZ019._-"


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("LH.*", ["LH", "LHX", "LH.stock"], ["xLH"]),
        ("a++b", ["ab", "aab"], ["b"]),
        ("a*+a", [], ["a", "aa"]),
        (r"\Qa.b\E+", ["a.b", "a.bbb"], ["axb"]),
        (r"\Qa.*", ["a.*"], ["ab"]),
        ("[a-z&&[^b]]+", ["acz"], ["b", "ab"]),
        ("[a-z&&[def]x]", ["d", "x"], ["a"]),
        ("[^a-z&&[def]]", ["a", "1"], ["d"]),
        ("[]a]+", ["]a"], ["b"]),
        (r"[\w-.]+", ["a-b.c_1"], ["a b"]),
        (r"\p{Alpha}+", ["aZ"], ["a1", "é"]),
        (r"\p{javaLowerCase}+", ["aé"], ["A"]),
        (r"\p{L}+", ["aé"], ["1"]),
        (r"\p{IsLatin}+", ["aé"], ["π"]),
        (r"\P{Lu}", ["a"], ["A"]),
        (r"\w+", ["a_1"], ["é"]),
        (r"\d", ["1"], ["\u0661"]),
        (r"a\hb", ["a b", "a\xa0b"], ["a\nb"]),
        (r"a\Rb", ["a\nb", "a\r\nb"], ["ab"]),
        (r"a\z", ["a"], ["a\n"]),
        (r"a$\n", ["a\n"], ["a"]),
        (r"a\Z\n", ["a\n"], ["a"]),
        ("(?i)Foo", ["foo", "FOO"], ["fo"]),
        ("(?i)k", ["K"], ["\u212a"]),
        ("(?i)[a-c]x", ["BX"], ["D"]),
        ("((?i)a)b", ["Ab"], ["AB"]),
        ("a(?i)b|c", ["aB", "C"], ["AB"]),
        (r"(?<n>ab)-\k<n>", ["ab-ab"], ["ab-ba"]),
        (r"(a|b)\1", ["aa"], ["ab"]),
        ("prod-(?!secret).*", ["prod-x"], ["prod-secret"]),
        ("(?<!x)a", ["a"], ["xa"]),
        ("(?>a|ab)c", ["ac"], ["abc"]),
        (r"\u0041\x42\0103", ["ABC"], ["abc"]),
        ("a{2,3}", ["aa", "aaa"], ["a", "aaaa"]),
        ("(?s).*", ["a\nb"], []),
        (".*", ["ab"], ["a\nb", "a\u2028b"]),
    ],
)
def test_pattern_means_what_java_says(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = regex.compile(translate(pattern), regex.V1)
    assert [name for name in yes if not compiled.fullmatch(name)] == []
    assert [name for name in no if compiled.fullmatch(name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "*a", "a**", "a{", "{1}", "a{3,2}", "a{999999999999}", "(a", "a)", "[a", "[z-a]", r"[a-\d]", r"\y", r"\E", "\\",
        r"\p{Foo}", r"\p{", r"(?<n>a)(?<n>b)", r"\k<n>", r"\1", "(?i)*", "(?x)a", "(?u)a", "(?U)a", r"(?i)(a)\1",
        r"(?i)\p{Lower}", "(?<=a*)b", r"\X", r"\b{g}", "[a&&]", "(?P<n>a)", "(?#c)", "(a{1000}){1000}", "(" * 200,
        "[" * 200, r"\x4", r"\u12", r"\08", r"\N{DIGIT ONE}",
    ],
)  # fmt: skip
def test_what_java_or_we_cannot_do_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        translate(pattern)
    assert pattern in str(caught.value)
    assert caught.value.why


@given(st.text(max_size=20))
def test_any_text_translates_to_something_that_compiles_or_is_refused(pattern: str) -> None:
    try:
        translated = translate(pattern)
    except ConfigError:
        return
    regex.compile(translated, regex.V1)


@given(st.text(alphabet=r"ab[]^-&\.*+?(){}|dQEpLi:=!<>1,", max_size=12))
def test_any_pattern_like_text_translates_or_is_refused(pattern: str) -> None:
    try:
        translated = translate(pattern)
    except ConfigError:
        return
    regex.compile(translated, regex.V1)


@given(st.text(alphabet=TOPIC_CHARS, min_size=1))
def test_quoted_name_matches_itself_only(name: str) -> None:
    picked = TopicFilter((rf"\Q{name}\E",))
    assert picked.accepts(name)
    assert not picked.accepts(name + "x")


def test_lists_are_joined_as_mm2_joins_them() -> None:
    assert TopicFilter(("(a", "b)c")).accepts("ac")
    assert TopicFilter(("(?i)a", "b")).accepts("B")
    assert TopicFilter(("accounts", "orders")).accepts("orders")
    with pytest.raises(ConfigError, match="comma"):
        TopicFilter(("a{1", "3}"))


def test_excludes_beat_includes_and_empty_matches_nothing() -> None:
    assert not TopicFilter((".*",), ("secret",)).accepts("secret")
    assert not TopicFilter(()).accepts("a")
    assert not GroupFilter((), ()).accepts("")


def test_the_faulty_pattern_of_a_list_is_named_alone() -> None:
    with pytest.raises(ConfigError) as caught:
        TopicFilter(("orders", "*bad"))
    assert '"*bad"' in str(caught.value)


def test_endless_pattern_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def fullmatch(self, name: str, timeout: float) -> None:
            raise TimeoutError(name, timeout)

    monkeypatch.setattr("heliograph.names.filters._compiled", lambda _patterns: Endless())
    with pytest.raises(ConfigError, match="takes more than 5 s"):
        ALL.accepts("a")


@pytest.mark.parametrize(
    ("topic", "mirrored"),
    [
        ("orders", True),
        ("A.orders", True),
        ("B.orders", False),
        ("A.B.orders", False),
        ("__consumer_offsets", False),
        (".x", False),
        ("mm2-offsets.A.internal", False),
        ("orders.internal", True),
        ("orders.replica", False),
        ("heartbeats", True),
        ("B.heartbeats", False),
        ("C.heartbeats", True),
        ("my-offsets", False),
    ],
)
def test_should_mirror_towards_b(topic: str, mirrored: bool) -> None:
    assert should_mirror(DOT, DEFAULT, topic, "B", never={"my-offsets"}) is mirrored


def test_heartbeats_pass_any_filter_unless_disabled() -> None:
    nothing = TopicFilter(())
    assert should_mirror(DOT, nothing, "heartbeats", "B")
    assert not should_mirror(DOT, nothing, "heartbeats", "B", heartbeats_enabled=False)
    assert should_mirror(DOT, ALL, "heartbeats", "B", heartbeats_enabled=False)


@pytest.mark.parametrize("topic", ["mm2-ledger.A.internal", "mm2-rejected.A.internal"])
def test_own_topics_are_never_mirrored_whatever_the_separator(topic: str) -> None:
    assert is_own_internal_topic(topic)
    for policy in (DefaultPolicy(separator="_"), IdentityPolicy(separator="-", source_alias="A")):
        assert not should_mirror(policy, ALL, topic, "B")


def test_filter_pickles() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT
