"""Applies a topic's settings to a batch with valid records: refuse it, accept it as it is, stamp it, or rewrite it.

It checks timestamps, keys, codec and level. Work that creates an object per record, or compresses a body, runs in
steps.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ports import Fault, LogRefused
from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    assemble,
    stamp_timestamp,
)
from kafkacompat.records.record import append_varint, encode_record
from kafkacompat.records.scan import walk_records
from kafkacompat.records.validated import ValidatedBatch, trusted_batch
from kafkacompat.stepping.jobs import Steps
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.records.check import BodyFacts

NO_TIMESTAMP = -1
SHOWN_RECORD_ERRORS = 1000
"""Records named in one refusal. A batch can have millions, which a response should not."""
STEP_OBJECTS = 1024
"""Record or header objects created in one step, at about three microseconds each."""


def judge(
    header: BatchHeader,
    view: memoryview,
    target: int,
    body: bytes | bytearray,
    facts: BodyFacts,
    config: LogConfig,
    now_ms: int,
) -> Steps[ValidatedBatch]:
    """Check valid records against the topic's settings. Returns the batch as it must be written."""
    stamps_append_time = config.message_timestamp_type == "LogAppendTime"
    if is_suspicious(header, facts, config, now_ms, stamps_append_time):
        yield from _refuse_records(header, body, config, now_ms, stamps_append_time)
    if target != header.attributes & CODEC_MASK:
        append_time_ms = now_ms if stamps_append_time else None
        return (yield from _re_encoded(header, body, facts, target, config, append_time_ms))
    return stamped(header, view, facts, now_ms, stamps_append_time)


def stamped(
    header: BatchHeader, view: memoryview, facts: BodyFacts, now_ms: int, stamps_append_time: bool
) -> ValidatedBatch:
    """The client's own bytes, with the timestamp type and max timestamp for the topic."""
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT != 0
    if stamps_append_time:
        max_timestamp_ms = now_ms
    elif has_append_time:
        max_timestamp_ms = header.max_timestamp_ms
    else:
        max_timestamp_ms = header.base_timestamp_ms + facts.greatest_timestamp_delta
    buffer: bytearray | memoryview = bytearray(view) if view.readonly else view
    if has_append_time is not stamps_append_time or header.max_timestamp_ms != max_timestamp_ms:
        stamp_timestamp(buffer, log_append_time=stamps_append_time, max_timestamp_ms=max_timestamp_ms)
        header.max_timestamp_ms = max_timestamp_ms
        header.attributes = header.attributes & ~LOG_APPEND_TIME_BIT | (
            LOG_APPEND_TIME_BIT if stamps_append_time else 0
        )
    return ValidatedBatch(buffer, header)


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
) -> Generator[None, None, None]:
    """Raise for the invalid records, if any. The quick check may suspect a valid batch."""
    errors: list[tuple[int, str | None]] = []
    bad_timestamp = lacks_key = False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    made = 0
    for index, record in enumerate(walk_records(body, header.record_count, header.base_timestamp_ms)):
        made += 1 + len(record.headers)
        if made > STEP_OBJECTS:
            made = 0
            yield None
        timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else record.timestamp_ms
        if config.compact and record.key is None:
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


def _re_encoded(
    header: BatchHeader,
    body: bytes | bytearray,
    facts: BodyFacts,
    target: int,
    config: LogConfig,
    append_time_ms: int | None,
) -> Steps[ValidatedBatch]:
    if target == codecs.NONE and HEADER_SIZE + len(body) > config.max_message_bytes:
        raise too_large(HEADER_SIZE + len(body), config)  # before it is copied: it may have 256 MiB
    # The delta of the first record need not be 0. Kafka rewrites the batch with that record's timestamp as its base.
    base_timestamp_ms = next(walk_records(body, 1, header.base_timestamp_ms, 0)).timestamp_ms
    if base_timestamp_ms != header.base_timestamp_ms:
        moved = bytearray()
        made = 0
        for record in walk_records(body, header.record_count, header.base_timestamp_ms):
            encoded = encode_record(record, base_timestamp_ms)
            append_varint(moved, len(encoded))
            moved += encoded
            made += 1 + len(record.headers)
            if made > STEP_OBJECTS:
                made = 0
                yield None
        body = moved
    greatest = header.base_timestamp_ms + facts.greatest_timestamp_delta
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT) & 0x7FFF | target
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
    packed: bytes = yield partial(codecs.compress, target, body, level_of(target, config))
    if HEADER_SIZE + len(packed) > config.max_message_bytes:
        raise too_large(HEADER_SIZE + len(packed), config)
    return trusted_batch(
        assemble(
            packed,
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
    )


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
