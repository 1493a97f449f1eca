"""A batch that is ready to be appended."""

from __future__ import annotations

from kafkacompat.records.batch import CODEC_MASK, BatchHeader, parse_header


class ValidatedBatch:
    """A batch that is ready to be appended, with everything the log needs, so that no byte is parsed again.

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
    """A batch built here (build_batch, control markers). Nothing is checked."""
    return ValidatedBatch(buffer, parse_header(buffer))
