"""Classify the first batch of a partition in a Produce request, from the header fields that Kafka reads first.

Kafka looks at the first batch of each partition in order, until one is transactional. If a length or a magic value is
invalid before that, the whole request is refused.
"""

from __future__ import annotations

from enum import Enum, auto
from struct import Struct
from typing import Any

LENGTH_AT, MAGIC_AT, ATTRIBUTES_LOW_AT = 8, 16, 22
BEGINNING = Struct(">8xi4xb5xB")
"""Length, magic, and the low byte of the attributes."""
OVERHEAD = 12
"""Bytes of the offset and length fields, which the length does not count."""
LEGACY_MINIMUM_LENGTH = 14
TRANSACTIONAL_BIT = 0x10


class FirstBatch(Enum):
    PLAIN = auto()
    """Also if the records contain no whole batch."""
    TRANSACTIONAL = auto()
    CORRUPT = auto()


def first_batch(records: Any) -> FirstBatch:
    size = 0 if records is None else len(records)
    if size < OVERHEAD:
        return FirstBatch.PLAIN
    length = int.from_bytes(records[LENGTH_AT:OVERHEAD], "big", signed=True)
    if length < LEGACY_MINIMUM_LENGTH:
        return FirstBatch.CORRUPT
    if size <= MAGIC_AT:
        return FirstBatch.PLAIN
    magic = records[MAGIC_AT]
    if magic > 2:
        return FirstBatch.CORRUPT
    if magic == 2 and size >= length + OVERHEAD and records[ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT:
        return FirstBatch.TRANSACTIONAL
    return FirstBatch.PLAIN


def is_transactional(records: Any) -> bool:
    return first_batch(records) is FirstBatch.TRANSACTIONAL
