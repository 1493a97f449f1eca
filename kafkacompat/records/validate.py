"""What a broker checks before it appends a produced batch, in Kafka's order and with Kafka's codes.

Duty: turn the records of one partition of a Produce into a ValidatedBatch, or refuse. Must not know: partitions, sequence
state, logs. The batch stays in the buffer it came in; nothing is copied unless it must be re-encoded.

Always per batch, from the 61 bytes of the header: exactly one batch, magic 2, base offset 0, size, crc32c, offset range
against count, no control batch, a sequence with a producer id, max and base timestamp.
Of the records, Kafka looks at each one, and so does this: lengths, varints, header counts, offset deltas, timestamps and
(in compacted topics) keys. check.py does that without making objects, at C speed for runs of equal sizes. A batch is
re-encoded only when the topic's compression.type names another codec; it is stamped (with a new crc) only when the
timestamp type or a wrong max timestamp asks for it.
Follows KIP-98, KIP-32 (timestamps), KIP-467 (record errors), KIP-937 (timestamp bounds).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from kafkacompat.ports import LogRefused
from kafkacompat.records import compression as codecs
from kafkacompat.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    BatchCorrupt,
    BatchHeader,
    assemble,
    crc_of,
    iterate_batches,
    parse_header,
    stamp_timestamp,
)
from kafkacompat.records.check import BodyFacts, check_records
from kafkacompat.records.record import RecordMalformed, encode_records, iterate_records
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.ports import Buffer

NO_TIMESTAMP = -1
SHOWN_RECORD_ERRORS = 1000
"""Records named in one refusal; a batch can hold millions, a response should not."""


class Origin(enum.Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"


class ValidatedBatch:
    """One batch fit to be appended: everything the log needs, none of it read again from the bytes.

    `buffer` is exactly the batch and writable: the log stamps base offset and leader epoch into it.
    """

    __slots__ = (
        "base_sequence",
        "base_timestamp_ms",
        "buffer",
        "compression",
        "is_control",
        "is_transactional",
        "last_offset_delta",
        "log_append_time",
        "max_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size",
    )

    def __init__(self, buffer: bytearray | memoryview, header: BatchHeader) -> None:
        self.buffer = buffer
        self.record_count = header.record_count
        self.last_offset_delta = header.last_offset_delta
        self.base_timestamp_ms = header.base_timestamp_ms
        self.max_timestamp_ms = header.max_timestamp_ms
        self.producer_id = header.producer_id
        self.producer_epoch = header.producer_epoch
        self.base_sequence = header.base_sequence
        attributes = header.attributes
        self.is_transactional = attributes & 0x10 != 0
        self.is_control = attributes & 0x20 != 0
        self.log_append_time = attributes & 0x08 != 0
        self.compression = attributes & CODEC_MASK
        self.size = len(buffer)


def trusted_batch(buffer: bytearray) -> ValidatedBatch:
    """A batch that we have just built ourselves (build_batch, control markers): nothing is checked."""
    return ValidatedBatch(buffer, parse_header(buffer))


def validate_produce(
    records: Buffer,
    config: LogConfig,
    now_ms: int,
    *,
    zstd_allowed: bool = True,
    origin: Origin = Origin.CLIENT,
) -> ValidatedBatch:
    """The one batch of a Produce's partition, checked and, where the topic asks for it, stamped or re-encoded.

    Raises LogRefused with Kafka's code. A read-only buffer is copied once; a writable one may be stamped in place.
    """
    header = _only_batch(records, zstd_allowed)
    client = origin is Origin.CLIENT
    if client and header.base_offset != 0:
        raise LogRefused(
            ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is {header.base_offset}, not 0"
        )
    if header.size > config.max_message_bytes:
        raise _too_large(header.size, config)
    view = memoryview(records)
    if len(view) != header.size:
        view = view[: header.size]
    if crc_of(view) != header.crc:
        raise LogRefused(ErrorCode.CORRUPT_MESSAGE, "the batch's crc is wrong")
    if client:
        _check_client_header(header)
    codec = header.attributes & CODEC_MASK
    target = codecs.CODEC_OF_SETTING.get(config.compression_type, codec)
    if codec == codecs.NONE and header.is_control:
        target = codec
    body, facts = _open_and_check(view[HEADER_SIZE:], codec, header.record_count, config)
    stamps_append_time = config.message_timestamp_type == "LogAppendTime"
    max_timestamp_ms = _check_records_against_topic(header, body, facts, config, now_ms, stamps_append_time)
    if target != codec:
        return _re_encoded(header, body, target, config, now_ms if stamps_append_time else None)
    buffer: bytearray | memoryview = bytearray(view) if view.readonly else view
    if header.is_log_append_time != stamps_append_time or header.max_timestamp_ms != max_timestamp_ms:
        stamp_timestamp(buffer, log_append_time=stamps_append_time, max_timestamp_ms=max_timestamp_ms)
        header.max_timestamp_ms = max_timestamp_ms
        header.attributes = header.attributes & ~LOG_APPEND_TIME_BIT | (
            LOG_APPEND_TIME_BIT if stamps_append_time else 0
        )
    return ValidatedBatch(buffer, header)


def _only_batch(records: Buffer, zstd_allowed: bool) -> BatchHeader:
    """The shape that Kafka demands before a partition is looked at: one whole batch of magic 2."""
    size = len(records)
    try:
        if size >= HEADER_SIZE and records[16] == 2:
            header = parse_header(records)
            if header.size > size:
                raise LogRefused(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
            more = header.size < size and any(
                True for _ in iterate_batches(memoryview(records)[header.size :])
            )
        else:
            batches = list(iterate_batches(records))
            if not batches:
                raise LogRefused(ErrorCode.INVALID_RECORD, "the records hold no whole batch")
            header, more = batches[0], len(batches) > 1
            raise LogRefused(ErrorCode.INVALID_RECORD, f"a produced batch has magic {header.magic}, not 2")
    except BatchCorrupt as error:
        raise LogRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    codec = header.attributes & CODEC_MASK
    if codec == codecs.ZSTD and not zstd_allowed:
        raise LogRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs a Produce request of version 7 or above"
        )
    if codec > codecs.ZSTD:
        raise LogRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no codec has the number {codec}")
    if more:
        raise LogRefused(ErrorCode.INVALID_RECORD, "a produced partition holds exactly one batch")
    return header


def _check_client_header(header: BatchHeader) -> None:
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0 or header.last_offset_delta + 1 != count:
        raise LogRefused(
            ErrorCode.INVALID_RECORD,
            f"a last offset delta of {header.last_offset_delta} does not go with {count} records",
        )
    if header.is_control:
        raise LogRefused(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise LogRefused(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} gave the sequence number {header.base_sequence}",
        )


def _open_and_check(packed: memoryview, codec: int, count: int, config: LogConfig) -> tuple[bytes, BodyFacts]:
    try:
        body = codecs.decompress(codec, packed)
    except codecs.DecompressedTooLarge as error:
        raise LogRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except codecs.DecompressionFailed as error:
        raise LogRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"the batch cannot be opened: {error}") from error
    try:
        return body, check_records(body, count)
    except RecordMalformed as error:
        raise LogRefused(ErrorCode.INVALID_RECORD, str(error)) from error


def _check_records_against_topic(
    header: BatchHeader,
    body: bytes,
    facts: BodyFacts,
    config: LogConfig,
    now_ms: int,
    stamps_append_time: bool,
) -> int:
    """The max timestamp the batch is to carry. Raises LogRefused naming the records that the topic does not take."""
    base = header.base_timestamp_ms
    suspicious = header.is_log_append_time
    greatest = base + facts.greatest_timestamp_delta
    if not suspicious and not stamps_append_time:
        least = base + facts.least_timestamp_delta
        suspicious = (
            greatest - now_ms > config.message_timestamp_after_max_ms
            or now_ms - least > config.message_timestamp_before_max_ms
        )
    if suspicious or (facts.has_null_key and config.compact):
        _refuse_records(header, body, config, now_ms, stamps_append_time)
    if stamps_append_time:
        return now_ms
    return header.max_timestamp_ms if header.is_log_append_time else greatest


def _refuse_records(
    header: BatchHeader, body: bytes, config: LogConfig, now_ms: int, stamps_append_time: bool
) -> None:
    """Raise for the records to blame, if any: the quick look can suspect a batch that is sound."""
    errors: list[tuple[int, str | None]] = []
    bad_timestamp = False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for index, record in enumerate(iterate_records(body, header.record_count, header.base_timestamp_ms)):
        timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else record.timestamp_ms
        if config.compact and record.key is None:
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
    if bad_timestamp:
        raise LogRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )
    raise LogRefused(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors",
        errors,
    )


def _re_encoded(
    header: BatchHeader, body: bytes, target: int, config: LogConfig, append_time_ms: int | None
) -> ValidatedBatch:
    level = {
        codecs.GZIP: config.compression_gzip_level,
        codecs.LZ4: config.compression_lz4_level,
        codecs.ZSTD: config.compression_zstd_level,
    }.get(target)
    # The delta of the first record need not be 0; Kafka writes the batch anew, beginning with that record's timestamp.
    records = list(iterate_records(body, header.record_count, header.base_timestamp_ms))
    base_timestamp_ms = records[0].timestamp_ms
    if base_timestamp_ms != header.base_timestamp_ms:
        body = bytes(encode_records(records, base_timestamp_ms))
    greatest = max(record.timestamp_ms for record in records)
    attributes = header.attributes & ~(CODEC_MASK | LOG_APPEND_TIME_BIT) & 0x7FFF | target
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
    batch = assemble(
        codecs.compress(target, body, level),
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
    if len(batch) > config.max_message_bytes:
        raise _too_large(len(batch), config)
    return trusted_batch(batch)


def _too_large(size: int, config: LogConfig) -> LogRefused:
    return LogRefused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes is larger than max.message.bytes, {config.max_message_bytes}",
    )
