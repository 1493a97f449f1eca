"""A plain Produce request, read whole in one call: its fields, the headers and checksums of its batches, and its records.

Most requests are plain: no transaction, each partition named once with one batch of magic 2 that a client may write, correct
checksums, valid records, and little enough for one step of the loop. _produce.c tells about such requests only. It judges
nothing and knows no setting of a topic. For any other request it returns nothing, and the decoder of wire/ and validate.py
say what is wrong. A build without a compiler takes that way for all requests. Tests hold the two ways equal.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import HEADER_SIZE
from kafkacompat.records.compression import UNPACKING_COST
from kafkacompat.records.limits import BatchLimits, RecordLimitExceeded
from kafkacompat.records.record import RecordMalformed
from kafkacompat.records.scan import NULL_KEYS, scan
from kafkacompat.records.validate import (
    BATCH_UNITS,
    PARTITION_UNITS,
    STEP_UNITS,
    Allowance,
    TooMuchAtOnce,
    unpacked_at_once,
)

try:
    from kafkacompat.records import _produce

    _parse = _produce.parse_produce
except (ImportError, AttributeError):  # it was not compiled, or from older source text
    _parse = None  # type: ignore[assignment]

BatchFacts: TypeAlias = "tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]"
"""(partition index, start and end in the frame, size, codec, record count, base timestamp, earliest and latest timestamp in ms,
producer id, producer epoch, base sequence, NULL_KEYS if a key is null).

With a codec the records are not read: the earliest timestamp is the base timestamp, and no key counts as null.
"""
TopicFacts: TypeAlias = "tuple[Any, list[BatchFacts]]"
"""(name or, from version 13 on, id; its partitions)."""


class PlainAllowance(Allowance):
    """Half of what one step may unpack, because whatever turns out not to be plain is unpacked once more."""

    packed_bytes = Allowance.packed_bytes // 2
    unpacked_bytes = Allowance.unpacked_bytes // 2


class PlainProduce:
    """A request whose batches are valid as far as no topic's settings are concerned. Batches with a codec are not opened."""

    __slots__ = ("acks", "frame", "position", "timeout_ms", "topics", "units", "version")

    def __init__(
        self,
        frame: memoryview,
        position: int,
        version: int,
        acks: int,
        timeout_ms: int,
        units: int,
        topics: list[TopicFacts],
    ) -> None:
        self.frame = frame
        self.position = position
        """Of the body in the frame."""
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.units = units
        """Units of an Allowance that are left for batches with a codec."""
        self.topics = topics

    def allowance(self) -> PlainAllowance | None:
        """For its batches with a codec. None if they have more bytes than it allows."""
        cost = 0
        for _, batches in self.topics:
            for facts in batches:
                if facts[4]:
                    cost += facts[3] * UNPACKING_COST[facts[4]]
        if cost > PlainAllowance.packed_bytes:
            return None
        allowance = PlainAllowance()
        allowance.units = self.units
        return allowance


def parse_produce(frame: memoryview, position: int, version: int, limits: BatchLimits) -> PlainProduce | None:
    """The request whose body begins at a position of the frame. None if it is not plain, or if nothing was compiled."""
    if _parse is None:
        return None
    found = _parse(
        frame,
        position,
        version,
        STEP_UNITS,
        PARTITION_UNITS + BATCH_UNITS,
        limits.records,
        limits.headers,
        limits.headers_a_record,
    )
    return None if found is None else PlainProduce(frame, position, version, *found)


def scan_packed(
    batch: memoryview,
    codec: int,
    count: int,
    base_ms: int,
    latest_ms: int,
    limits: BatchLimits,
    allowance: Allowance,
) -> tuple[int, int] | None:
    """(earliest timestamp in ms, NULL_KEYS if a key is null) of a batch with a codec. None if the batch is not plain, or if
    it takes more than the allowance."""
    try:
        body = unpacked_at_once(codec, batch[HEADER_SIZE:], limits, allowance)
        position, found, units, headers, least, greatest, nulls, _ = scan(
            body, 0, len(body), 0, count, allowance.units, limits.headers_a_record, False
        )
    except (LogRefused, TooMuchAtOnce, RecordMalformed, RecordLimitExceeded, OSError):
        return None
    allowance.units -= units
    if (
        found != count
        or position != len(body)
        or headers > limits.headers
        or base_ms + greatest != latest_ms
        or allowance.units <= 0
    ):
        return None
    return base_ms + least, nulls & NULL_KEYS
