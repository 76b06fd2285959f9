"""Asks a broker for the end offsets of a topic's partitions as cheaply as possible, many times a second.

ListOffsets v1 is written by hand: the request is encoded once and sent to each broker, numpy reads the answers.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

_API_KEY = 2
_VERSION = 1
_LATEST = -1
_NOT_HERE = {3, 5, 6}
"""Codes of a partition led by another broker or by none, as while a topic is being created or deleted."""
_ANSWER = np.dtype([("partition", ">i4"), ("error", ">i2"), ("timestamp", ">i8"), ("offset", ">i8")])


class OffsetsError(Exception):
    """The broker returned an error or an impossible answer."""


def encode_request(topic: str, partitions: int) -> bytes:
    """Encodes the whole request with its size; asks for high watermarks, as a consumer sees them."""
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, _LATEST) for partition in range(partitions))
    request = struct.pack(">hhi", _API_KEY, _VERSION, 1) + _string("bench") + body
    return struct.pack(">i", len(request)) + request


def parse_answers(answers: Sequence[bytes], topic: str, partitions: int) -> NDArray[np.int64] | None:
    """Parses end offsets by partition, each from its leader among the brokers asked; None while one has none."""
    start = 4 + 4 + len(_string(topic)) + 4  # correlation id, topics, name, partitions
    offsets = np.full(partitions, -1, dtype=np.int64)
    for answer in answers:
        if len(answer) != start + partitions * _ANSWER.itemsize:
            raise OffsetsError(f"ListOffsets: an answer of {len(answer)} bytes for {partitions} partitions")
        rows = np.frombuffer(answer, _ANSWER, offset=start)
        errors = set(rows["error"].tolist()) - {0} - _NOT_HERE
        if errors:
            raise OffsetsError(f"ListOffsets: error codes {sorted(errors)} for {topic}")
        led = rows[rows["error"] == 0]
        offsets[led["partition"]] = led["offset"]
    return None if (offsets < 0).any() else offsets


class EndOffsets:
    """Reads one topic's end offsets, over a connection of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._request = encode_request(topic, partitions)
        self._sockets = []
        for address in bootstrap.split(","):
            host, _, port = address.rpartition(":")
            self._sockets.append(socket.create_connection((host, int(port)), timeout=30))
            self._sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._sockets:
            connection.close()

    def fetch(self) -> NDArray[np.int64] | None:
        """Fetches end offsets by partition; None while the topic does not exist."""
        for connection in self._sockets:
            connection.sendall(self._request)
        answers = [_receive(connection, *struct.unpack(">i", _receive(connection, 4))) for connection in self._sockets]
        return parse_answers(answers, self._topic, self._partitions)


def _receive(connection: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        received = connection.recv_into(view)
        if not received:
            raise OffsetsError("ListOffsets: the broker closed the connection")
        view = view[received:]
    return bytes(buffer)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
