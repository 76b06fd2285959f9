"""Positions in a file: what Kafka Connect's REST takes is taken, and what it refuses is refused (alterOffsets)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.recovery.offsets_file import Given, as_body, faulty_names, read_offsets

WHERE: dict[str, Any] = {"cluster": "A", "topic": "t", "partition": 7}


def body(*items: tuple[Any, Any]) -> str:
    return json.dumps({"offsets": [{"partition": partition, "offset": offset} for partition, offset in items]})


def read(text: str, name: str = "x.json") -> list[Given]:
    return read_offsets(text, name=name, source="A")[0]


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in WHERE.items() if name != key}


@pytest.mark.parametrize("offset", [0, 41, 2**31 + 5, 2**62])
def test_an_offset_is_that_of_the_last_copied_record(offset: int) -> None:
    assert read(body((WHERE, {"offset": offset}))) == [Given("t", 7, offset + 1)]


def test_several_partitions_and_an_empty_list_are_taken() -> None:
    other = WHERE | {"partition": 8}
    assert read(body((WHERE, {"offset": 1}), (other, None))) == [Given("t", 7, 2), Given("t", 8, None)]
    assert read(body()) == []


OFFSET = 'Source offset %s for source partition {"cluster": "A", "topic": "t", "partition": 7} '
MISSING = "is missing the '%s' key, which is required"
INVALID = "has an invalid value %s for the '%s' key, which %s"


@pytest.mark.parametrize(
    ("partition", "offset", "fault"),
    [
        (without("cluster"), {"offset": 1}, f"Source partition {json.dumps(without('cluster'))} {MISSING % 'cluster'}"),
        (without("topic"), {"offset": 1}, MISSING % "topic"),
        (without("partition"), {"offset": 1}, MISSING % "partition"),
        (without("cluster") | {"unused": "A"}, {"offset": 1}, MISSING % "cluster"),
        ("t-7", {"offset": 1}, f'Source partition "t-7" {MISSING % "cluster"}'),
        (WHERE | {"cluster": 5}, {"offset": 1}, INVALID % (5, "cluster", "must be a string")),
        (WHERE | {"topic": None}, {"offset": 1}, INVALID % ("null", "topic", "must be a string")),
        (WHERE | {"partition": "7"}, {"offset": 1}, INVALID % ('"7"', "partition", "must be an integer")),
        (WHERE | {"partition": 7.0}, {"offset": 1}, INVALID % (7.0, "partition", "must be an integer")),
        (WHERE | {"partition": True}, {"offset": 1}, INVALID % ("true", "partition", "must be an integer")),
        (WHERE | {"partition": 2**31}, {"offset": 1}, INVALID % (2**31, "partition", "must be an integer up to 2147")),
        (WHERE | {"partition": -1}, {"offset": 1}, INVALID % (-1, "partition", "cannot be negative")),
        (WHERE, {}, OFFSET % "{}" + MISSING % "offset"),
        (WHERE, {"last": 1}, OFFSET % '{"last": 1}' + MISSING % "offset"),
        (WHERE, 41, OFFSET % 41 + MISSING % "offset"),
        (WHERE, {"offset": "41"}, INVALID % ('"41"', "offset", "must be an integer")),
        (WHERE, {"offset": 41.5}, INVALID % (41.5, "offset", "must be an integer")),
        (WHERE, {"offset": None}, INVALID % ("null", "offset", "must be an integer")),
        (WHERE, {"offset": -1}, OFFSET % '{"offset": -1}' + INVALID % (-1, "offset", "cannot be negative")),
        (WHERE, {"offset": 2**63 - 1}, INVALID % (2**63 - 1, "offset", "must be an integer up to 9223")),
        (WHERE | {"cluster": "C"}, {"offset": 1}, 'is of the cluster "C", and the flow comes from "A"'),
        (None, {"offset": 1}, "Source partitions may not be null"),
    ],
)
def test_what_is_wrong_is_said_in_mm2s_words(partition: Any, offset: Any, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(body((WHERE | {"partition": 99}, {"offset": 1}), (partition, offset)))
    assert "x.json: 1 of 2 positions cannot be used; 2: " in str(caught.value)
    assert fault in str(caught.value)
    assert "nothing was changed" in str(caught.value)


@pytest.mark.parametrize("partition", [None, {}, without("topic"), WHERE | {"cluster": "C"}, WHERE | {"partition": -1}])
def test_a_reset_is_taken_of_anything(partition: Any) -> None:
    assert read_offsets(body((partition, None), (WHERE, None)), name="x", source="A") == ([Given("t", 7, None)], 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "not valid JSON"),
        ("[]", 'list "offsets" is missing'),
        ("{}", 'list "offsets" is missing'),
        ('{"offsets": {}}', 'list "offsets" is missing'),
        ('{"offsets": [5]}', 'must have the keys "partition" and "offset"'),
        (json.dumps({"offsets": [{"partition": WHERE}]}), 'must have the keys "partition" and "offset"'),
        (body((WHERE, {"offset": 1}), (WHERE, {"offset": 2})), "is given twice"),
    ],
)
def test_a_file_of_another_shape_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read(text)


def test_of_many_faults_five_are_told() -> None:
    with pytest.raises(ConfigError) as caught:
        read(body(*((WHERE | {"partition": -1}, {"offset": 1}) for _ in range(9))))
    assert "9 of 9 positions" in str(caught.value)
    assert "5: " in str(caught.value)
    assert "6: " not in str(caught.value)
    assert "and 4 more" in str(caught.value)


def test_columns_of_a_csv_file_say_what_they_mean() -> None:
    assert read("topic,partition,offset\nt,7,41\nu,0,\n", "x.csv") == [Given("t", 7, 42), Given("u", 0, None)]
    assert read("flow,topic,partition,position,by\nA->B,t,7,42,set\n", "X.CSV") == [Given("t", 7, 42)]
    for text, fault in (
        ("t,7,41\n", "must name the columns"),
        ("topic,partition,offset\nt,seven,41\n", "value \"seven\" for the 'partition' key, which must be"),
        ("cluster,topic,partition,offset\nC,t,7,41\n", 'is of the cluster "C"'),
        ("topic,partition,position\nt,7,-2\n", "value -2 for the 'position' key, which cannot be negative"),
        ("", "must name the columns"),
    ):
        with pytest.raises(ConfigError, match=fault):
            read(text, "x.csv")


@given(st.dictionaries(st.tuples(st.text(min_size=1, max_size=5), st.integers(0, 99)), st.integers(1, 2**62)))
def test_what_is_listed_can_be_set(positions: dict[tuple[str, int], int]) -> None:
    given = [Given(topic, partition, position) for (topic, partition), position in positions.items()]
    assert read(as_body("A", given)) == given


def test_names_that_the_source_does_not_have_are_told() -> None:
    given = [Given("t", 1, 5), Given("t", 2, 5), Given("u", 0, 5), Given("v", 0, None)]
    assert faulty_names(given, {"t": 2}) == [
        "t has 2 partitions, no partition 2",
        'the topic "u" is unknown, or not mirrored',
    ]
