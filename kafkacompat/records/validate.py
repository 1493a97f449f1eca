"""The checks of a broker before it appends a produced batch, in Kafka's order and with Kafka's error codes.

What Kafka has in LogValidator. The records of one partition in a Produce become a ValidatedBatch, or are refused. The batch
stays in its receive buffer; nothing is copied unless it must be re-encoded.

- The 61-byte header is always checked: exactly one batch, magic 2, base offset 0, size, CRC-32C, offset range and
  count, no control batch, a sequence with a producer id, max and base timestamp.
- As in Kafka, every record is checked: lengths, varints, header counts, offset deltas, timestamps and (in compacted
  topics) keys. `check_records` does this without creating objects.
- A batch is re-encoded only if the topic's compression.type names another codec. It is stamped (with a new CRC) only
  if the timestamp type or a wrong max timestamp requires it.
- The usual batch is sound and stays as it is: one pass of `validate_produce` finds that. Any other batch is looked at
  again from the beginning, by the functions that also say what is wrong.
- A small batch can expand to hundreds of megabytes and millions of records. Work beyond one step of the loop raises
  TooMuchAtOnce, and `validate_large` does the same with pauses and jobs for worker threads.

Follows KIP-98, KIP-32 (timestamps), KIP-467 (record errors), KIP-937 (timestamp bounds).
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ports import Fault, LogRefused, RefusedAtSight
from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchCorrupt,
    BatchHeader,
    ValidatedBatch,
    crc_of,
    iterate_batches,
    parse_header,
    seal,
    stamp_timestamp,
    trusted_batch,
)
from kafkacompat.records.crc import crc32c
from kafkacompat.records.limits import UNLIMITED, BatchLimits, RecordLimitExceeded
from kafkacompat.records.record import (
    RECORD_BYTES_MIN,
    TIMESTAMP_MAX,
    RecordMalformed,
    as_long,
    read_varint,
)
from kafkacompat.records.scan import (
    ALL_AT_ONCE,
    ANY_OFFSET,
    END,
    HEADERS_UNSEEN,
    IS_COMPILED,
    KEY_END,
    NULL_KEYS,
    START,
    TIMESTAMP,
    column,
    scan,
    scan_whole,
    shifted_head,
)
from kafkacompat.tasks import TURN_COST, Work, at_once, in_turns, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Buffer

STEP_UNITS = 4096
"""Records and headers checked in one step of the loop, at half a microsecond each, or two on a busy machine."""
BATCH_UNITS = 32
"""The cost of a batch besides its records."""
PARTITION_UNITS = 16
"""The cost of a partition in a request besides its batch."""
SHOWN_RECORD_ERRORS = 1000
"""Records named in one refusal. A batch can have millions, which a response should not."""
STEP_ROWS = 2048
"""Records looked at in one step, at up to two microseconds each. A worker thread may do several steps."""
STEP_BYTES = 1024 * 1024
"""Bytes copied in one step."""
PLAIN_BITS = CODEC_MASK | TRANSACTIONAL_BIT
"""Of the attributes. A batch with others needs a closer look."""
DEFAULT_LIMITS = BatchLimits()

T = TypeVar("T")


class InWorker(Protocol):
    """Has a job done that releases the interpreter's lock most of the time."""

    def __call__(self, job: Callable[[], T], /) -> Awaitable[T]: ...


class TooMuchAtOnce(Exception):
    """Not a refusal: the batch takes more than one step of the loop, or more memory than given. Raised before anything
    has changed."""


class Allowance:
    """The share of one step of the loop that the batches of one request may use. Each batch subtracts its cost; the
    last one may go below zero.

    The initial values are class attributes, so a new object costs little.
    """

    copied_bytes = 4 * 1024 * 1024
    """Bytes of uncompressed bodies. A larger batch is not even read for its CRC."""
    packed_bytes = 1024 * 1024
    """Bytes of compressed bodies, each counted as often as UNPACKING_COST says."""
    unpacked_bytes = 2 * 1024 * 1024
    re_encoded_bytes = 64 * 1024
    """Bytes of bodies that are checked record by record, or recompressed (`packing_cost`)."""
    units = STEP_UNITS


class _Everything(Allowance):
    """An allowance that is never used up."""

    copied_bytes = packed_bytes = unpacked_bytes = re_encoded_bytes = units = 1 << 60


_EVERYTHING = _Everything()


class Origin(enum.Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"


_CLIENT = Origin.CLIENT


def validate_produce(
    records: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    zstd_allowed: bool = True,
    origin: Origin = Origin.CLIENT,
    limits: BatchLimits = DEFAULT_LIMITS,
    allowance: Allowance | None = None,
) -> ValidatedBatch:
    """The only batch of a partition in a Produce, checked and, if the topic requires it, stamped or re-encoded.

    Raises LogRefused with Kafka's code, and TooMuchAtOnce beyond the allowance; None allows everything. A read-only
    buffer is copied once; a writable one may be stamped in place.
    """
    if allowance is None:
        allowance = _EVERYTHING
    if allowance.units <= 0:
        raise TooMuchAtOnce
    size = len(records)
    if size < HEADER_SIZE:
        return _validated(records, config, now_ms, zstd_allowed, origin is _CLIENT, limits, allowance)
    fields = HEADER.unpack_from(records)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = fields
    codec = attributes & CODEC_MASK
    view = memoryview(records)
    # The usual batch: nothing to refuse in the header, and nothing that the topic changes.
    if (
        base_offset
        or length + LOG_OVERHEAD != size
        or magic != 2
        or attributes & ~PLAIN_BITS
        or (codec >= codecs.ZSTD and (codec > codecs.ZSTD or not zstd_allowed))
        or last_offset_delta + 1 != count
        or not 0 < count <= limits.records
        or (producer_id >= 0 and sequence < 0)
        or size > config.max_message_bytes
        or size > allowance.copied_bytes
        or config.message_timestamp_type == "LogAppendTime"
        or codecs.CODEC_OF_SETTING.get(config.compression_type, codec) != codec
        or not IS_COMPILED  # without it a copy is read faster
        or crc32c(view[ATTRIBUTES_POSITION:]) != crc
    ):
        return _validated(records, config, now_ms, zstd_allowed, origin is _CLIENT, limits, allowance)
    if codec:
        body = unpacked_at_once(codec, view[HEADER_SIZE:], limits, allowance)
        data: Buffer = body
        start = 0
    else:
        body = b""
        data, start = view, HEADER_SIZE
        allowance.copied_bytes -= size - HEADER_SIZE
    end = len(data)
    try:
        position, found, units, headers, least, greatest, nulls, _ = scan(
            data, start, end, 0, count, allowance.units, limits.headers_a_record, False
        )
    except (RecordMalformed, RecordLimitExceeded):
        found = 0
    since_ms = now_ms - base_ms
    if (
        found != count
        or position != end
        or headers > limits.headers
        or base_ms + greatest != max_ms
        or greatest - since_ms > config.message_timestamp_after_max_ms
        or since_ms - least > config.message_timestamp_before_max_ms
        or (nulls & NULL_KEYS and "compact" in config.cleanup_policy)
        or (codec and end > config.max_decompressed_message_bytes)
    ):
        if not codec:
            body = bytes(view[HEADER_SIZE:])
        return _checked_at_once(BatchHeader(0, *fields), view, codec, body, config, now_ms, limits, allowance)
    allowance.units -= BATCH_UNITS + units
    buffer = bytearray(view) if view.readonly else view
    return ValidatedBatch(
        buffer, attributes, last_offset_delta, max_ms, producer_id, producer_epoch, sequence, count
    )


def _validated(
    records: Buffer,
    config: LogConfig,
    now_ms: int,
    zstd_allowed: bool,
    client: bool,
    limits: BatchLimits,
    allowance: Allowance,
) -> ValidatedBatch:
    """`validate_produce` for any batch."""
    header, view, target = _begin(records, config, zstd_allowed, client, limits, allowance.copied_bytes)
    codec = header.attributes & CODEC_MASK
    packed = view[HEADER_SIZE:]
    if codec != codecs.NONE:
        body = unpacked_at_once(codec, packed, limits, allowance)
    elif len(packed) <= allowance.copied_bytes:
        allowance.copied_bytes -= len(packed)
        body = bytes(packed)
    else:
        raise TooMuchAtOnce
    return _checked_at_once(header, view, target, body, config, now_ms, limits, allowance)


def _checked_at_once(
    header: BatchHeader,
    view: memoryview,
    target: int,
    body: bytes | bytearray,
    config: LogConfig,
    now_ms: int,
    limits: BatchLimits,
    allowance: Allowance,
) -> ValidatedBatch:
    try:
        facts = check_records(body, header.record_count, limits, allowance.units)
    except (RecordMalformed, RecordLimitExceeded) as error:
        raise _unsound(error) from error
    if not isinstance(facts, BodyFacts):
        allowance.units = 0
        raise TooMuchAtOnce
    allowance.units -= BATCH_UNITS + facts.units
    stamps_append_time = config.message_timestamp_type == "LogAppendTime"
    if (
        target != header.attributes & CODEC_MASK
        or _may_have_too_large_records(header, body, config)
        or is_suspicious(header, facts, config, now_ms, stamps_append_time)
    ):
        cost = len(body)
        if target != header.attributes & CODEC_MASK:
            cost *= codecs.packing_cost(target, level_of(target, config))
        if cost > allowance.re_encoded_bytes:
            raise TooMuchAtOnce
        allowance.re_encoded_bytes -= cost
        return at_once(_apply_settings(header, view, target, body, facts, config, now_ms, _here))
    return stamped(header, view, facts, now_ms, stamps_append_time)


def _here(job: Callable[[], T]) -> Deferred[T]:
    return Deferred.of(job())


async def validate_large(
    records: Buffer,
    config: LogConfig,
    now_ms: int,
    in_worker: InWorker,
    *,
    zstd_allowed: bool = True,
    origin: Origin = Origin.CLIENT,
    limits: BatchLimits = DEFAULT_LIMITS,
    memory_bytes: int = 1 << 62,
) -> ValidatedBatch:
    """`validate_produce` with pauses, and with jobs for worker threads. It uses the records until it ends. Raises
    TooMuchAtOnce for a body that may be larger, but not than `memory_bytes`."""
    crc: int | None = None
    if len(records) > Allowance.copied_bytes:
        crc = await in_worker(partial(crc_of, records))
    header, view, target = _begin(records, config, zstd_allowed, origin is _CLIENT, limits, crc=crc)
    return await _opened_and_checked(header, view, target, config, now_ms, limits, memory_bytes, in_worker)


def _begin(
    records: Buffer,
    config: LogConfig,
    zstd_allowed: bool,
    client: bool,
    limits: BatchLimits,
    bytes_max: int = 1 << 60,
    crc: int | None = None,
) -> tuple[BatchHeader, memoryview, int]:
    """The header, exactly the batch, and its target codec. Raises the refusals that depend on the header, and
    TooMuchAtOnce for a batch of more than `bytes_max`. `crc`: of all records, if it is known."""
    header = _only_batch(records, zstd_allowed)
    if client and header.base_offset != 0:
        raise LogRefused(
            ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is {header.base_offset}, not 0"
        )
    if header.size > config.max_message_bytes:
        raise too_large(header.size, config)
    view = memoryview(records)
    if len(view) != header.size:
        view = view[: header.size]
        crc = None
    if len(view) > bytes_max:
        raise TooMuchAtOnce
    if (crc_of(view) if crc is None else crc) != header.crc:
        raise LogRefused(ErrorCode.CORRUPT_MESSAGE, "the batch's crc is wrong", fault=Fault.CRC)
    codec = header.attributes & CODEC_MASK
    # Only now: bits that have changed on the way may name any codec, and a producer sends a corrupt batch again.
    if codec > codecs.ZSTD:
        raise LogRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no codec has the number {codec}")
    if client:
        _check_client_header(header)
    target = codecs.CODEC_OF_SETTING.get(config.compression_type, codec)
    if target != codec and codec == codecs.NONE and header.is_control:
        target = codec
    return header, view, target


async def _opened_and_checked(
    header: BatchHeader,
    view: memoryview,
    target: int,
    config: LogConfig,
    now_ms: int,
    limits: BatchLimits,
    memory_bytes: int,
    in_worker: InWorker,
) -> ValidatedBatch:
    codec = header.attributes & CODEC_MASK
    bound = limits.unpacked_bytes
    stored_max = config.max_message_bytes - HEADER_SIZE
    if target == codecs.NONE != codec:
        bound = min(bound, stored_max)
    unpacking = codecs.Unpacking(codec, view[HEADER_SIZE:], min(bound, memory_bytes), limits.frames)
    go_on = partial(unpacking.go_on, codecs.PIECE_BYTES)
    try:
        while not await in_worker(go_on):
            pass
    except codecs.DecompressionFailed as error:
        error.__traceback__ = None  # it would keep the body until it is found as garbage
        await _free(unpacking.body, in_worker)
        if isinstance(error, codecs.DecompressedTooLarge):
            if bound > memory_bytes:
                raise TooMuchAtOnce from None
            if bound == stored_max:
                raise LogRefused(ErrorCode.MESSAGE_TOO_LARGE, f"{error} (max.message.bytes)") from error
        raise _not_opened(error) from error
    body = unpacking.body
    try:
        batch = await _checked(header, view, target, body, config, now_ms, limits, in_worker)
    except LogRefused:
        await _free(body, in_worker)
        raise
    await _free(body, in_worker)
    return batch


async def _free(body: bytes | bytearray, in_worker: InWorker) -> None:
    if len(body) > codecs.FREED_AT_ONCE:
        await in_worker(partial(codecs.free, body))


async def _checked(
    header: BatchHeader,
    view: memoryview,
    target: int,
    body: bytes | bytearray,
    config: LogConfig,
    now_ms: int,
    limits: BatchLimits,
    in_worker: InWorker,
) -> ValidatedBatch:
    count = header.record_count
    try:
        facts = check_records(body, count, limits, STEP_UNITS)
        while not isinstance(facts, BodyFacts):
            await pause()
            facts = check_records(body, count, limits, STEP_UNITS, facts)
    except (RecordMalformed, RecordLimitExceeded) as error:
        raise _unsound(error) from error
    return await _apply_settings(header, view, target, body, facts, config, now_ms, in_worker)


def refusal_at_sight(records: Buffer, zstd_allowed: bool) -> RefusedAtSight | None:
    """The error in the structure of a partition's records, which does not depend on the log."""
    try:
        _only_batch(records, zstd_allowed)
    except RefusedAtSight as refused:
        return refused
    except LogRefused:
        pass
    return None


def _only_batch(records: Buffer, zstd_allowed: bool) -> BatchHeader:
    """Check the structure that Kafka requires before it examines the partition: one complete batch of magic 2."""
    size = len(records)
    try:
        if size >= HEADER_SIZE and records[16] == 2:
            header = parse_header(records)
            if header.size > size:
                raise RefusedAtSight(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
            more = header.size < size and any(
                True for _ in iterate_batches(memoryview(records)[header.size :])
            )
        else:
            batches = list(islice(iterate_batches(records), 2))
            if not batches:
                raise RefusedAtSight(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
            header = batches[0]
            raise RefusedAtSight(
                ErrorCode.INVALID_RECORD, f"a produced batch has magic {header.magic}, not 2"
            )
    except BatchCorrupt as error:
        raise RefusedAtSight(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    codec = header.attributes & CODEC_MASK
    if codec == codecs.ZSTD and not zstd_allowed:
        raise RefusedAtSight(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a Produce request of version 7 or above"
        )
    if more:
        raise RefusedAtSight(ErrorCode.INVALID_RECORD, "a produced partition holds exactly one batch")
    return header


def _check_client_header(header: BatchHeader) -> None:
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0 or header.last_offset_delta + 1 != count:
        raise LogRefused(
            ErrorCode.INVALID_RECORD,
            f"a last offset delta of {header.last_offset_delta} does not go with {count} records",
            fault=Fault.OFFSET_OR_SEQUENCE,
        )
    if header.attributes & CONTROL_BIT:
        raise LogRefused(
            ErrorCode.INVALID_RECORD,
            "clients may not write control records",
            fault=Fault.OFFSET_OR_SEQUENCE,
        )
    if header.producer_id > -1 and header.base_sequence < 0:
        raise LogRefused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} gave the sequence number {header.base_sequence}",
            fault=Fault.OFFSET_OR_SEQUENCE,
        )


def unpacked_at_once(
    codec: int, packed: memoryview, limits: BatchLimits, allowance: Allowance
) -> bytes | bytearray:
    cost = len(packed) * codecs.UNPACKING_COST[codec]
    if cost > allowance.packed_bytes:
        raise TooMuchAtOnce
    bound = min(limits.unpacked_bytes, allowance.unpacked_bytes)
    try:
        body = codecs.unpack(codec, packed, bound, limits.frames)
    except codecs.DecompressedTooLarge as error:
        if bound < limits.unpacked_bytes:
            allowance.unpacked_bytes = 0  # a failed decompression also took time
            raise TooMuchAtOnce from None
        raise _not_opened(error) from error
    except codecs.DecompressionFailed as error:
        raise _not_opened(error) from error
    allowance.packed_bytes -= cost
    allowance.unpacked_bytes -= len(body)
    return body


def _not_opened(error: codecs.DecompressionFailed) -> LogRefused:
    if isinstance(error, codecs.DecompressedTooLarge):
        return LogRefused(ErrorCode.MESSAGE_TOO_LARGE, f"{error} (batch.max.unpacked.bytes)")
    if isinstance(error, codecs.TooManyFrames):
        return LogRefused(ErrorCode.INVALID_RECORD, f"{error} (batch.max.compressed.frames)")
    return LogRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch cannot be opened: {error}")


def _unsound(error: RecordMalformed | RecordLimitExceeded) -> LogRefused:
    splits = isinstance(error, RecordLimitExceeded) and error.splits
    return LogRefused(ErrorCode.MESSAGE_TOO_LARGE if splits else ErrorCode.INVALID_RECORD, str(error))


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

    Raises RecordLimitExceeded for more records or headers than the limits allow. Returns the position after `units` of work.
    """
    position, reached, headers, least, greatest, nulls = since
    end, left = len(body), units
    if count > limits.records:
        if end < count * RECORD_BYTES_MIN:
            raise RecordMalformed(f"{count} records do not fit into {end} bytes")
        text = f"a batch of {count} records, of which batch.max.records takes {limits.records}"
        raise RecordLimitExceeded(text, splits=True)
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


async def _apply_settings(
    header: BatchHeader,
    view: memoryview,
    target: int,
    body: bytes | bytearray,
    facts: BodyFacts,
    config: LogConfig,
    now_ms: int,
    in_worker: InWorker,
) -> ValidatedBatch:
    """Check valid records against the topic's settings. Returns the batch as it must be written."""
    stamps_append_time = config.message_timestamp_type == "LogAppendTime"
    if _may_have_too_large_records(header, body, config):
        await in_turns(_refuse_large_records(header, body, config))
    if is_suspicious(header, facts, config, now_ms, stamps_append_time):
        await in_turns(_refuse_records(header, body, config, now_ms, stamps_append_time))
    if target != header.attributes & CODEC_MASK:
        append_time_ms = now_ms if stamps_append_time else None
        return await _re_encoded(header, body, facts, target, config, append_time_ms, in_worker)
    stamp_it = partial(stamped, header, view, facts, now_ms, stamps_append_time)
    if header.size > STEP_BYTES and _is_changed_by_stamp(header, facts, now_ms, stamps_append_time):
        return await in_worker(stamp_it)  # all of it is read for the new CRC
    return stamp_it()


def stamped(
    header: BatchHeader, view: memoryview, facts: BodyFacts, now_ms: int, stamps_append_time: bool
) -> ValidatedBatch:
    """The client's own bytes, with the timestamp type and max timestamp for the topic."""
    max_timestamp_ms = _max_timestamp_ms(header, facts, now_ms, stamps_append_time)
    buffer: bytearray | memoryview = bytearray(view) if view.readonly else view
    if _is_changed_by_stamp(header, facts, now_ms, stamps_append_time):
        stamp_timestamp(buffer, log_append_time=stamps_append_time, max_timestamp_ms=max_timestamp_ms)
        header.max_timestamp_ms = max_timestamp_ms
        header.attributes = header.attributes & ~LOG_APPEND_TIME_BIT | (
            LOG_APPEND_TIME_BIT if stamps_append_time else 0
        )
    return ValidatedBatch.of(buffer, header)


def _max_timestamp_ms(header: BatchHeader, facts: BodyFacts, now_ms: int, stamps_append_time: bool) -> int:
    if stamps_append_time:
        return now_ms
    if header.attributes & LOG_APPEND_TIME_BIT:
        return header.max_timestamp_ms
    return header.base_timestamp_ms + facts.greatest_timestamp_delta


def _is_changed_by_stamp(
    header: BatchHeader, facts: BodyFacts, now_ms: int, stamps_append_time: bool
) -> bool:
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
    return has_append_time is not stamps_append_time or header.max_timestamp_ms != _max_timestamp_ms(
        header, facts, now_ms, stamps_append_time
    )


def is_suspicious(
    header: BatchHeader, facts: BodyFacts, config: LogConfig, now_ms: int, stamps_append_time: bool
) -> bool:
    """Whether the topic may refuse records, so that each must be checked."""
    if header.attributes & LOG_APPEND_TIME_BIT or (facts.has_null_key and config.compact):
        return True
    if stamps_append_time:
        return False
    since_ms = now_ms - header.base_timestamp_ms
    return (
        header.base_timestamp_ms + facts.greatest_timestamp_delta > _latest_ms(config, now_ms)
        or since_ms - facts.least_timestamp_delta > config.message_timestamp_before_max_ms
    )


def _latest_ms(config: LogConfig, now_ms: int) -> int:
    """The latest timestamp that the topic takes. A batch cannot tell a later one than the last."""
    return min(now_ms + config.message_timestamp_after_max_ms, TIMESTAMP_MAX)


def _may_have_too_large_records(header: BatchHeader, body: bytes | bytearray, config: LogConfig) -> bool:
    """Apache Kafka measures records as it decompresses them, so those of other batches may have any size."""
    return header.attributes & CODEC_MASK != 0 and len(body) > config.max_decompressed_message_bytes


def _refuse_large_records(header: BatchHeader, body: bytes | bytearray, config: LogConfig) -> Work[None]:
    most = config.max_decompressed_message_bytes
    for rows, _ in scan_whole(body, header.record_count, STEP_ROWS):
        for start, end in zip(column(rows, START), column(rows, END), strict=True):
            if end - start > most and (size := read_varint(body, start)[0]) > most:
                raise LogRefused(
                    ErrorCode.INVALID_RECORD,
                    f"a record of {size} bytes is larger than max.decompressed.message.bytes, {most}",
                )
        yield TURN_COST


def _refuse_records(
    header: BatchHeader,
    body: bytes | bytearray,
    config: LogConfig,
    now_ms: int,
    stamps_append_time: bool,
) -> Work[None]:
    """Raise for the invalid records, if any. The quick check may suspect a valid batch."""
    errors: list[tuple[int, str | None]] = []
    bad_timestamp = lacks_key = False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = _latest_ms(config, now_ms)
    index = -1
    for rows, _ in scan_whole(body, header.record_count, STEP_ROWS):
        for timestamp_delta, key_end in zip(column(rows, TIMESTAMP), column(rows, KEY_END), strict=True):
            index += 1
            timestamp_ms = (
                header.max_timestamp_ms
                if header.is_log_append_time
                else header.base_timestamp_ms + timestamp_delta
            )
            if config.compact and key_end < 0:
                lacks_key = True
                errors.append((index, "Compacted topic cannot accept message without key"))
            elif not stamps_append_time and timestamp_ms != NO_TIMESTAMP:
                if not earliest <= timestamp_ms <= latest:
                    bad_timestamp = True
                    errors.append(
                        (
                            index,
                            f"Timestamp {timestamp_ms} is out of range: it should be in [{earliest}, {latest}]",
                        )
                    )
            elif header.is_log_append_time:
                bad_timestamp = True
                errors.append((index, "A producer may not set the timestamp type LogAppendTime"))
            if len(errors) >= SHOWN_RECORD_ERRORS:
                break
        if len(errors) >= SHOWN_RECORD_ERRORS:
            break
        yield TURN_COST
    if not errors:
        return
    fault = Fault.NO_KEY if lacks_key else None
    if bad_timestamp:
        raise LogRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
            fault,
        )
    raise LogRefused(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors",
        errors,
        fault,
    )


async def _re_encoded(
    header: BatchHeader,
    body: bytes | bytearray,
    facts: BodyFacts,
    target: int,
    config: LogConfig,
    append_time_ms: int | None,
    in_worker: InWorker,
) -> ValidatedBatch:
    # The delta of the first record need not be 0. Kafka rewrites the batch with that record's timestamp as its base.
    rows = scan(body, 0, len(body), ANY_OFFSET, 1, 1, HEADERS_UNSEEN, True)[-1]
    assert rows is not None
    by_ms = column(rows, TIMESTAMP)[0]
    bound = config.max_message_bytes - HEADER_SIZE
    level = level_of(target, config)
    try:
        if by_ms:
            batch = await _packed_with_another_base(
                body, header.record_count, by_ms, target, level, bound, in_worker
            )
        elif len(body) <= codecs.packing_piece(target, level):
            batch = await in_worker(partial(codecs.pack, target, body, level, bound, HEADER_SIZE))
        else:
            batch = await _packed_in_pieces(body, target, level, bound, in_worker)
    except codecs.PackedTooLarge:
        raise LogRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch that {codecs.CODEC_NAMES[target]} makes larger than max.message.bytes, {config.max_message_bytes}",
        ) from None
    # Where the records' own timestamps do not count, nothing has checked them.
    base_timestamp_ms = as_long(header.base_timestamp_ms + by_ms)
    stamps_append_time = append_time_ms is not None
    max_timestamp_ms = _max_timestamp_ms(header, facts, append_time_ms or 0, stamps_append_time)
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT) & 0x7FFF | target
    if stamps_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    seal_it = partial(
        seal,
        batch,
        base_offset=0,
        leader_epoch=-1,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    if len(batch) > STEP_BYTES:
        await in_worker(seal_it)
    else:
        seal_it()
    return trusted_batch(batch)


async def _packed_in_pieces(
    body: bytes | bytearray, codec: int, level: int | None, bound: int, in_worker: InWorker
) -> bytearray:
    packer = codecs.Packer(codec, level, bound, HEADER_SIZE)
    piece = codecs.packing_piece(codec, level)
    for start in range(0, len(body), piece):
        await in_worker(partial(packer.add, body, start, start + piece))
    await in_worker(packer.end)
    return packer.packed


async def _packed_with_another_base(
    body: bytes | bytearray,
    count: int,
    by_ms: int,
    codec: int,
    level: int | None,
    bound: int,
    in_worker: InWorker,
) -> bytearray:
    """The compressed body with all timestamp deltas lowered by `by_ms`. A record may be as large as the body, so it is
    copied in parts, and each part is compressed before the next one is made."""
    packer = codecs.Packer(codec, level, bound, HEADER_SIZE)
    piece = codecs.packing_piece(codec, level)
    moved = bytearray()
    with memoryview(body) as view:
        for rows, _ in scan_whole(body, count, STEP_ROWS):
            for start, end in zip(column(rows, START), column(rows, END), strict=True):
                head, rest = shifted_head(body, start, end, by_ms)
                moved += head
                while end - rest > piece:
                    moved += view[rest : rest + piece]
                    rest += piece
                    await in_worker(partial(packer.add, moved))
                    moved = bytearray()
                moved += view[rest:end]
                if len(moved) > piece:
                    await in_worker(partial(packer.add, moved))
                    moved = bytearray()
            await pause()
    await in_worker(partial(packer.add, moved))
    await in_worker(packer.end)
    return packer.packed


def level_of(codec: int, config: LogConfig) -> int | None:
    """The level with which the topic wants the codec's bodies."""
    if codec == codecs.GZIP:
        return config.compression_gzip_level
    if codec == codecs.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec == codecs.ZSTD else None


def too_large(size: int, config: LogConfig) -> LogRefused:
    return LogRefused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is larger than max.message.bytes, {config.max_message_bytes}",
    )
