"""A batch that is ready to be appended."""

from __future__ import annotations

from kafkacompat.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)


class ValidatedBatch:
    """A batch that is ready to be appended, with everything the log needs, so that no byte is parsed again.

    `buffer` is exactly the batch and writable: the log stamps base offset and leader epoch into it.
    """

    __slots__ = (
        "base_sequence",
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

    def __init__(
        self,
        buffer: bytearray | memoryview,
        attributes: int,
        last_offset_delta: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.buffer = buffer
        self.is_transactional = attributes & TRANSACTIONAL_BIT != 0
        self.is_control = attributes & CONTROL_BIT != 0
        self.log_append_time = attributes & LOG_APPEND_TIME_BIT != 0
        self.compression = attributes & CODEC_MASK
        self.last_offset_delta = last_offset_delta
        self.max_timestamp_ms = max_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count
        self.size = len(buffer)

    @classmethod
    def of(cls, buffer: bytearray | memoryview, header: BatchHeader) -> ValidatedBatch:
        return cls(
            buffer,
            header.attributes,
            header.last_offset_delta,
            header.max_timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )


def trusted_batch(buffer: bytearray) -> ValidatedBatch:
    """A batch built here (build_batch, control markers). Nothing is checked."""
    return ValidatedBatch.of(buffer, parse_header(buffer))
