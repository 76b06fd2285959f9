"""YAML to a tree with places: what scalars mean, merges, and what is refused."""

from __future__ import annotations

import pytest

from heliograph.config.files.yaml_tree import Mapping, parse_documents, to_plain
from heliograph.config.findings import FilePlace
from heliograph.errors import ConfigError


def plain(text: str) -> object:
    [document] = parse_documents(text, "f.yaml")
    return to_plain(document)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", "true"),
        ("True", "true"),
        ("yes", "true"),
        ("off", "false"),
        ("'yes'", "yes"),
        ('"true"', "true"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'null'", "null"),
        ('""', ""),
        ("12", "12"),
        ("1_000", "1000"),
        ("'1_000'", "1_000"),
        ("12:30", "12:30"),
        ("2026-11-16", "2026-11-16"),
        ("1.50", "1.50"),
        ("SãoPaulo", "SãoPaulo"),
    ],
)
def test_scalars_mean_what_kubernetes_makes_of_them(written: str, meant: str | None) -> None:
    assert plain(f"a: {written}\n") == {"a": meant}


def test_places_are_those_of_keys_and_values() -> None:
    [document] = parse_documents("a: 1\nb:\n  c: x\n", "f.yaml")
    assert isinstance(document, Mapping)
    inner = document.get("b")
    assert isinstance(inner, Mapping)
    assert (document.keys["b"], inner.keys["c"]) == (FilePlace("f.yaml", 2, 1), FilePlace("f.yaml", 3, 3))
    assert inner.items["c"].place == FilePlace("f.yaml", 3, 6)


def test_merged_keys_give_way_to_written_ones() -> None:
    text = "base: &base {a: 1, b: 2}\nuse:\n  <<: *base\n  b: 3\n"
    assert plain(text) == {"base": {"a": "1", "b": "2"}, "use": {"a": "1", "b": "3"}}


def test_several_documents_and_empty_ones() -> None:
    assert [to_plain(document) for document in parse_documents("---\na: 1\n---\n---\nb: 2\n", "f")] == [
        {"a": "1"},
        {"b": "2"},
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\na: 2\n", 'the key "a" is given twice, first in line 1'),
        ("a: &x [*x]\n", 'the alias "*x" has no anchor before it'),
        ("? [1]\n: 2\n", "a key must be a plain text"),
        ("a: [1\n", "not valid YAML"),
        ("a:\n\t- 1\n", "not valid YAML"),
        ("[" * 100 + "]" * 100, "nested more than"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_documents(text, "f.yaml")
    assert what in str(caught.value)
    assert "f.yaml:" in str(caught.value)
