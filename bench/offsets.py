"""Asks a broker for the end offsets of a topic's partitions as cheaply as can be, many times a second.

ListOffsets v1 is written by hand: the question is encoded once, the answer is read by numpy. One leader only, so
for clusters of one broker.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

_API_KEY = 2
_VERSION = 1
_LATEST = -1
_UNKNOWN_TOPIC = 3
_ANSWER = np.dtype([("partition", ">i4"), ("error", ">i2"), ("timestamp", ">i8"), ("offset", ">i8")])


class OffsetsError(Exception):
    """The broker gave an error or an answer that cannot be."""


def encode_request(topic: str, partitions: int) -> bytes:
    """The whole request with its size; high watermarks, as a consumer sees them."""
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", partitions)
    body += b"".join(struct.pack(">iq", partition, _LATEST) for partition in range(partitions))
    request = struct.pack(">hhi", _API_KEY, _VERSION, 1) + _string("bench") + body
    return struct.pack(">i", len(request)) + request


def parse_answer(answer: bytes, topic: str, partitions: int) -> NDArray[np.int64] | None:
    """End offsets by partition; None while the topic is unknown."""
    start = 4 + 4 + len(_string(topic)) + 4  # correlation id, topics, name, partitions
    if len(answer) != start + partitions * _ANSWER.itemsize:
        raise OffsetsError(f"ListOffsets: an answer of {len(answer)} bytes for {partitions} partitions")
    rows = np.frombuffer(answer, _ANSWER, offset=start)
    errors = set(rows["error"].tolist()) - {0}
    if errors:
        # A topic being made or deleted is known in part for a moment.
        if _UNKNOWN_TOPIC in errors or errors & {5, 6}:
            return None
        raise OffsetsError(f"ListOffsets: error codes {sorted(errors)} for {topic}")
    offsets = np.zeros(partitions, dtype=np.int64)
    offsets[rows["partition"]] = rows["offset"]
    return offsets


class EndOffsets:
    """One topic's end offsets, over a connection of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._topic = topic
        self._partitions = partitions
        self._request = encode_request(topic, partitions)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def fetch(self) -> NDArray[np.int64] | None:
        """End offsets by partition; None while the topic is not there."""
        self._socket.sendall(self._request)
        (size,) = struct.unpack(">i", self._receive(4))
        return parse_answer(self._receive(size), self._topic, self._partitions)

    def _receive(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            received = self._socket.recv_into(view)
            if not received:
                raise OffsetsError("ListOffsets: the broker closed the connection")
            view = view[received:]
        return bytes(buffer)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
