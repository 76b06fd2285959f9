from __future__ import annotations

import pickle

import pytest

from heliograph.errors import LabError
from heliograph.lab.spec import ClusterSpec, parse_cluster_spec


@pytest.mark.parametrize(
    ("text", "alias", "brokers", "version"),
    [
        ("primary", "primary", 1, "4.3.1"),
        ("backup:3", "backup", 3, "4.3.1"),
        ("old:1@2.4.1", "old", 1, "2.4.1"),
        ("mid@3.9.1", "mid", 1, "3.9.1"),
    ],
)
def test_parse_cluster_spec(text: str, alias: str, brokers: int, version: str) -> None:
    assert parse_cluster_spec(text) == ClusterSpec(alias=alias, brokers=brokers, version=version)


def test_own_version_wins_over_the_common_one() -> None:
    assert parse_cluster_spec("a@2.4.1", version="3.9.1").version == "2.4.1"
    assert parse_cluster_spec("a", version="3.9.1").version == "3.9.1"


@pytest.mark.parametrize("text", ["", "a:", "a:x", "a:-1", "a:1:2", "@4.3.1", "a@", "a b", "../a", "a:0", "a@9.9.9"])
def test_bad_text_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_cluster_spec(text)
    assert caught.value.remedy
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_racks_are_one_per_broker() -> None:
    with pytest.raises(LabError, match="3 brokers but 2 racks"):
        ClusterSpec(alias="a", brokers=3, racks=("x", "y"))
