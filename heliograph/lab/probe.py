"""Asks a broker for the brokers it knows: one Metadata request (v1), which Kafka 2.4 and 4.3 both answer.

Written out by hand so that the lab can judge the wire layer instead of relying on it.
"""

from __future__ import annotations

import socket
import struct

_METADATA_V1 = struct.pack(">hhih3si", 3, 1, 1, 3, b"lab", 0)
_MAX_ANSWER_BYTES = 1 << 20


def fetch_broker_ids(port: int, *, timeout_s: float = 1.0) -> frozenset[int] | None:
    """Fetches the ids of the live brokers as the broker on this port sees them; None if it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_METADATA_V1)) + _METADATA_V1)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < size <= _MAX_ANSWER_BYTES:
                return None
            return parse_broker_ids(_receive(connection, size))
    except (OSError, struct.error):
        return None


def is_listening(port: int, *, timeout_s: float = 1.0) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout_s).close()
    except OSError:
        return False
    return True


def parse_broker_ids(answer: bytes) -> frozenset[int]:
    """Parses broker ids in a Metadata v1 response: correlation id, then id, host, port and rack of each broker."""
    (count,) = struct.unpack_from(">i", answer, 4)
    offset = 8
    ids = []
    for _ in range(count):
        (broker_id, host_length) = struct.unpack_from(">ih", answer, offset)
        offset += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, offset)
        offset += 2 + max(rack_length, 0)
        ids.append(broker_id)
    return frozenset(ids)


def _receive(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise ConnectionResetError("the broker hung up")
        chunks += chunk
    return bytes(chunks)
