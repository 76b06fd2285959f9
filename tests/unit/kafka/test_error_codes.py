"""The table of error codes against kio's and kafka-python's."""

from __future__ import annotations

import kafka.errors
from kio.schema.errors import ErrorCode

from heliograph.kafka.error_codes import Code, code_of, error_name, hint_of, is_retriable

# kafka-python does not retry a corrupt message; Kafka's own clients do.
KAFKA_PYTHON_DIFFERS = {Code.CORRUPT_MESSAGE}


def test_table_equals_kio() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in ErrorCode}
    assert {int(code): (code.name, code.retriable) for code in Code} == theirs


def test_retriable_agrees_with_kafka_python() -> None:
    theirs = {number: error.retriable for number, error in kafka.errors.kafka_errors.items()}
    ours = {int(code): code.retriable for code in Code if code in theirs and code not in KAFKA_PYTHON_DIFFERS}
    assert len(ours) > 120
    assert ours == {number: theirs[number] for number in ours}


def test_known_code_has_name_and_hint() -> None:
    assert code_of(45) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_name(6) == "NOT_LEADER_OR_FOLLOWER (6)"
    assert is_retriable(6)
    assert "settle" in hint_of(45)


def test_code_of_a_newer_broker_is_named_by_number_and_not_retried() -> None:
    assert code_of(999) is None
    assert error_name(999) == "code 999"
    assert not is_retriable(999)
    assert hint_of(999) == ""
