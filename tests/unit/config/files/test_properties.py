import contextlib
from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.files.properties import parse_properties
from heliograph.config.findings import ConfigEntry, FilePlace, Report
from heliograph.config.load import read_bytes
from heliograph.errors import ConfigError

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def values(text: str) -> dict[str, str]:
    return {key: entry.value for key, entry in parse_properties(text.encode(), Report("f")).items()}


def lines(text: str) -> dict[str, int]:
    entries = parse_properties(text.encode(), Report("f")).values()
    return {entry.key: entry.place.line for entry in entries if entry.place}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("  a=1  ", {"a": "1  "}),
        ("a", {"a": ""}),
        ("# c\n! c\n\na=1", {"a": "1"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a=\\u0041\\t", {"a": "A\t"}),
        ("a=SãoPaulo", {"a": "SãoPaulo"}),
        ("A->B.topics=x", {"A->B.topics": "x"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("\ufeffclusters=a", {"clusters": "a"}),
    ],
)
def test_java_syntax(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_lines_count_comments_continuations_and_all_line_ends() -> None:
    text = "# one\r\n\r\na=1,\\\r\n  2,\\\r\n  3\r\nb=4\rc=5\n\n  d=6"
    assert lines(text) == {"a": 3, "b": 6, "c": 7, "d": 9}


def test_later_duplicate_wins_with_a_warning() -> None:
    report = Report("mm2.properties")
    entries = parse_properties(b"a=1\nb=2\na=3\n", report)
    assert entries["a"] == ConfigEntry("a", "3", FilePlace("mm2.properties", 3))
    [finding] = report.findings
    assert str(finding) == 'mm2.properties:3:1: "a" is given twice; line 3 replaces line 1'


def test_a_column_is_that_of_the_key() -> None:
    assert parse_properties(b"a=1\n   b=2\n", Report("f"))["b"].place == FilePlace("f", 2, 4)


@pytest.mark.parametrize("text", [r"topics = LH\.ORDERS", r"topics = \w+", r"a = \\\d"])
def test_a_backslash_that_java_drops_gives_a_warning(text: str) -> None:
    report = Report("f")
    parse_properties(text.encode(), report)
    assert [finding.rule for finding in report.findings] == ["dropped-backslash"]


@pytest.mark.parametrize("text", [r"topics = LH\\.ORDERS", r"a = \t\n\u0041\ \:\=\#\!", "a = x\\\n y"])
def test_a_backslash_that_java_keeps_gives_none(text: str) -> None:
    report = Report("f")
    parse_properties(text.encode(), report)
    assert report.findings == ()


def test_bad_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f:2:1: \\u without four hexadecimal digits"):
        parse_properties(b"a=1\nb=\\u12", Report("f"))


def test_latin_1_is_read_with_a_warning() -> None:
    report = Report("f")
    assert parse_properties("a=1\nb=é".encode("latin-1"), report)["b"].value == "é"
    assert report.findings[0].place == FilePlace("f", 2)


def test_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_bytes(tmp_path / "none.properties")


@given(st.dictionaries(TEXTS, TEXTS))
def test_written_properties_come_back(pairs: dict[str, str]) -> None:
    assert values(javaproperties.dumps(pairs, timestamp=False)) == pairs


@given(st.binary(max_size=60))
def test_any_bytes_load_or_give_a_config_error(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_properties(content, Report("f"))
