"""Kafka's default partitioner: which partition a key belongs to. Pure."""

from __future__ import annotations


def murmur2(data: bytes) -> int:
    """Return the hash of Kafka's partitioner, as an unsigned 32-bit number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length & ~3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
