"""The strict check of an uncompressed body without creating objects: the hot path for records.

Every record of a batch is checked, because Kafka refuses a malformed one at any position; offset deltas are 0..n-1. A
batch can have millions of records and headers, so the check can run in steps. It stops after a number of work units
(about half a microsecond each) and returns its position.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.records.limits import UNLIMITED, BatchLimits, RecordLimitExceeded
from kafkacompat.records.record import RecordMalformed
from kafkacompat.records.scan import ALL_AT_ONCE, NULL_KEYS, scan


class BodyFacts(NamedTuple):
    """Timestamp deltas in ms. The least is exact if negative, otherwise 0."""

    least_timestamp_delta: int
    greatest_timestamp_delta: int
    has_null_key: bool
    units: int
    """Units of work in the last step."""


class Unfinished(NamedTuple):
    """The position of a check that is not complete."""

    position: int
    reached: int
    headers: int
    least: int
    greatest: int
    nulls: int


_BEGINNING = Unfinished(0, 0, 0, 0, -(1 << 63), 0)


def check_records(
    body: bytes | bytearray,
    count: int,
    limits: BatchLimits = UNLIMITED,
    units: int = ALL_AT_ONCE,
    since: Unfinished = _BEGINNING,
) -> BodyFacts | Unfinished:
    """Raise RecordMalformed unless the body is exactly `count` well-formed records with offset deltas 0..count-1.

    Raises RecordLimitExceeded for more headers than the limits allow. Returns the position after `units` of work.
    """
    position, reached, headers, least, greatest, nulls = since
    end, left = len(body), units
    while reached < count:
        if left <= 0:
            return Unfinished(position, reached, headers, least, greatest, nulls)
        position, found, cost, more, low, high, null, _ = scan(
            body, position, end, reached, count - reached, left, limits.headers_a_record, False
        )
        reached += found
        left -= cost
        headers += more
        if headers > limits.headers:
            raise RecordLimitExceeded(f"a batch with more than {limits.headers} headers", splits=True)
        nulls |= null
        if low < least:
            least = low
        if high > greatest:
            greatest = high
    if position != end:
        raise RecordMalformed(f"{end - position} bytes after the last record")
    return BodyFacts(least, greatest, bool(nulls & NULL_KEYS), units - left)
