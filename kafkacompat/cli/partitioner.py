"""The partition of a key: murmur2 as in Kafka's Java clients, so that both choose the same partition. Pure."""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash, unsigned."""
    length = len(data)
    result = SEED ^ length
    whole = length - length % 4
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        result = (result * MULTIPLIER & MASK) ^ word
    if length % 4:
        result = (result ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    result = (result ^ result >> 13) * MULTIPLIER & MASK
    return result ^ result >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
