"""Applies a topic's settings to a batch with valid records: refuse it, accept it as it is, stamp it, or rewrite it.

It checks timestamps, keys, codec and level. Work that creates an object per record, or compresses a body, runs in
steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from kafkacompat.ports import Fault, LogRefused
from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    seal,
    stamp_timestamp,
)
from kafkacompat.records.columns import shifted_head
from kafkacompat.records.scan import (
    ANY_OFFSET,
    END,
    HEADERS_UNSEEN,
    KEY_END,
    START,
    TIMESTAMP,
    column,
    scan,
    scan_whole,
)
from kafkacompat.records.validated import ValidatedBatch, trusted_batch
from kafkacompat.tasks import TURN_COST, Work, in_turns, pause
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.records.check import BodyFacts

NO_TIMESTAMP = -1
SHOWN_RECORD_ERRORS = 1000
"""Records named in one refusal. A batch can have millions, which a response should not."""
STEP_ROWS = 2048
"""Records looked at in one step, at up to two microseconds each. A worker thread may do several steps."""
STEP_BYTES = 1024 * 1024
"""Bytes copied in one step."""

T = TypeVar("T")


class InWorker(Protocol):
    """Has a job done that releases the interpreter's lock most of the time."""

    def __call__(self, job: Callable[[], T], /) -> Awaitable[T]: ...


async def judge(
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
        facts.greatest_timestamp_delta - since_ms > config.message_timestamp_after_max_ms
        or since_ms - facts.least_timestamp_delta > config.message_timestamp_before_max_ms
    )


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
    latest = now_ms + config.message_timestamp_after_max_ms
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
    base_timestamp_ms = header.base_timestamp_ms + by_ms
    greatest = header.base_timestamp_ms + facts.greatest_timestamp_delta
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT) & 0x7FFF | target
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
    seal_it = partial(
        seal,
        batch,
        base_offset=0,
        leader_epoch=-1,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=greatest if append_time_ms is None else append_time_ms,
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
