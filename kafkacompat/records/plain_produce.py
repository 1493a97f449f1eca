"""A plain Produce request, read whole in one call: its fields, the headers and checksums of its batches, and its records. And the
response to it, packed in one call.

Most requests are plain: no transaction, each partition named once with one batch of magic 2 that a client may write, correct
checksums, valid records, and little enough for one step of the loop. _produce.c tells about such requests only. It judges
nothing and knows no setting of a topic. For any other request it returns nothing, and the decoder of wire/ and validate.py
say what is wrong. A build without a compiler takes that way for all requests. Tests hold the two ways equal.

_produce.c opens batches with lz4 itself, block by block, in memory that it uses again. It is linked with no library: it is shown
the one in the extension module of the package lz4. Where it finds nothing there, and for other codecs and unusual frames, a batch
is left unread, and opened here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from struct import Struct as Layout
from typing import Any, TypeAlias

from kafkacompat.compiled import require_switched_on
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import HEADER_SIZE
from kafkacompat.records.compression import LZ4, UNPACKING_COST, library
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
from kafkacompat.wire.primitives import write_uvarint

BatchFacts: TypeAlias = "tuple[int, int, int, int, int, int, int, int, int, int, int, int]"
"""(partition index, start and end in the frame, size, codec, record count, base timestamp and latest timestamp in ms, producer
id, producer epoch, base sequence, whether the records were read)."""
TopicSummary: TypeAlias = "tuple[int, int, int, int, int]"
"""Of all batches of a topic: (size of the largest, a bit for each codec, earliest and latest timestamp in ms, NULL_KEYS if a key
is null).

Of a batch that was not read the earliest timestamp is the base timestamp, and no key counts as null.
"""
TopicFacts: TypeAlias = "tuple[Any, list[BatchFacts], TopicSummary]"
"""(name or, from version 13 on, id; its partitions; what all of them have together)."""


class PlainAllowance(Allowance):
    """Half of what one step may unpack, because whatever turns out not to be plain is unpacked once more."""

    packed_bytes = Allowance.packed_bytes // 2
    unpacked_bytes = Allowance.unpacked_bytes // 2


PlainFacts: TypeAlias = "tuple[int, int, int, int, bool, list[TopicFacts]]"
"""(position of the body in the frame, acks, timeout in ms, units of an Allowance that are left for batches that were not read,
whether all were read, topics)."""
PlainBounds: TypeAlias = "tuple[int, int, int, int, int, int]"


def bounds_of(limits: BatchLimits) -> PlainBounds:
    """What `read_frame` reads at most."""
    return (
        STEP_UNITS,
        PARTITION_UNITS + BATCH_UNITS,
        limits.records,
        limits.headers,
        limits.headers_a_record,
        min(limits.unpacked_bytes, PlainAllowance.unpacked_bytes),
    )


NOT_TRIED = object()


class PlainProduce:
    """A request whose batches are valid as far as no topic's settings are concerned, but for those that were not read. Made when
    it is not answered at once."""

    __slots__ = ("acks", "appended", "facts", "frame", "position", "timeout_ms", "topics", "version")

    def __init__(self, frame: memoryview, version: int, facts: PlainFacts, appended: Any = NOT_TRIED) -> None:
        self.frame = frame
        self.version = version
        self.facts = facts
        self.position, self.acks, self.timeout_ms, _, _, self.topics = facts
        self.appended = appended
        """What came of its appends: the results, None if it has to take another way, or what they raised."""


def allowance_for(units: int, topics: list[TopicFacts]) -> PlainAllowance | None:
    """For the batches that were not read. None if they have more bytes than it allows."""
    cost = 0
    for _, batches, _ in topics:
        for facts in batches:
            if not facts[11]:
                cost += facts[3] * UNPACKING_COST[facts[4]]
    if cost > PlainAllowance.packed_bytes:
        return None
    allowance = PlainAllowance()
    allowance.units = units
    return allowance


def read_nothing(frame: memoryview, version: int, bounds: PlainBounds) -> PlainFacts | None:
    """The facts of a plain request, from its frame. None if it is not plain. Here nothing is read."""
    return None


_has_shown_lz4 = False


def _show_lz4() -> None:
    """Have _produce.c open the next batches with lz4, by the library that opens this one."""
    global _has_shown_lz4
    _has_shown_lz4 = True
    if _use_lz4 is None:
        return
    with suppress(OSError, AttributeError, TypeError):  # no library now, or one without a file of its own
        _use_lz4(library("lz4.frame._frame").__file__)


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
    if codec == LZ4 and not _has_shown_lz4:
        _show_lz4()
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


FIRST_PACKED_VERSION = 5
FIRST_VERSION_WITH_MESSAGES = 8
FIRST_FLEXIBLE_VERSION = 9
FIRST_VERSION_WITH_TOPIC_IDS = 13
HEADER = Layout(">ii")
"""Size and correlation id."""
COUNT = Layout(">i")
NAME_SIZE = Layout(">h")
THROTTLE_TIME = bytes(4)
NO_TAGS = b"\0"
FIELDS = Layout(">ihqqq")
"""Of a partition: index, error code, base offset, log append time and log start offset."""
NO_MESSAGES = COUNT.pack(0) + b"\xff\xff"
NO_COMPACT_MESSAGES = b"\1\0" + NO_TAGS


def packed_in_python(
    version: int, topics: list[TopicFacts], results: list[Any], correlation_id: int | None
) -> bytes | bytearray | None:
    """The response to a plain request, as the codec of wire/ encodes it. `results` has for each partition in turn the offset of
    its first record and the log start. None if one of them is something else, such as a refusal, or in an older version.

    With a correlation id it has size and header before it.
    """
    if version < FIRST_PACKED_VERSION:
        return None
    is_flexible = version >= FIRST_FLEXIBLE_VERSION
    rest = NO_COMPACT_MESSAGES if is_flexible else NO_MESSAGES
    if version < FIRST_VERSION_WITH_MESSAGES:
        rest = b""
    pack = FIELDS.pack
    out = bytearray()
    if correlation_id is not None:
        out += HEADER.pack(0, correlation_id)
        if is_flexible:
            out += NO_TAGS
    write_count = _write_compact_count if is_flexible else _write_count
    write_count(out, len(topics))
    left = iter(results)
    for name, partitions, _ in topics:
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            out += name
        else:
            encoded = name.encode()
            if is_flexible:
                write_uvarint(out, len(encoded) + 1)
            else:
                out += NAME_SIZE.pack(len(encoded))
            out += encoded
        write_count(out, len(partitions))
        # zip asks the partitions first, so that it takes no result when they end.
        for facts, result in zip(partitions, left, strict=False):
            if type(result) is not tuple:
                return None
            out += pack(facts[0], 0, result[0], -1, result[1])
            out += rest
        if is_flexible:
            out += NO_TAGS
    out += THROTTLE_TIME
    if is_flexible:
        out += NO_TAGS
    if correlation_id is not None:
        COUNT.pack_into(out, 0, len(out) - COUNT.size)
    return out


def _write_count(out: bytearray, count: int) -> None:
    out += COUNT.pack(count)


def _write_compact_count(out: bytearray, count: int) -> None:
    write_uvarint(out, count + 1)


read_frame: Callable[[memoryview, int, PlainBounds], PlainFacts | None] = read_nothing
packed_answer: Callable[[int, list[TopicFacts], list[Any], int | None], bytes | bytearray | None] = (
    packed_in_python
)
_use_lz4: Callable[[str], bool] | None = None
compiled: Any = None
"""The same functions of _produce.c; None if it was not compiled, or from another source text."""
try:
    require_switched_on()
    from kafkacompat.records import _produce

    compiled = _produce.read_frame, _produce.pack_answer, _produce.use_lz4
    read_frame, packed_answer, _use_lz4 = compiled
except (ImportError, AttributeError):  # it was not compiled, or from another source text
    pass
