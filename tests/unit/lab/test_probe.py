from __future__ import annotations

import struct

import pytest

from heliograph.lab.probe import parse_broker_ids


def _broker(broker_id: int, rack: bytes | None) -> bytes:
    rack_field = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
    return struct.pack(">ih", broker_id, 9) + b"127.0.0.1" + struct.pack(">i", 9092) + rack_field


def test_broker_ids_with_and_without_rack() -> None:
    answer = struct.pack(">ii", 1, 2) + _broker(1, None) + _broker(7, b"rack-a") + struct.pack(">ii", 1, 0)
    assert parse_broker_ids(answer) == {1, 7}


def test_truncated_answer_is_an_error() -> None:
    answer = struct.pack(">ii", 1, 2) + _broker(1, None)
    with pytest.raises(struct.error):
        parse_broker_ids(answer)
