"""Bounds of a produced batch, independent of its size in bytes.

Kafka has none of these bounds: there a batch of a kilobyte may expand to gigabytes, or have millions of headers, all
of which are parsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.records.compression import FRAMES_MAX, UNPACKED_BYTES_MAX

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig


class RecordLimitExceeded(ValueError):
    """More records or headers than allowed. `splits`: the client may split the batch into smaller ones."""

    def __init__(self, message: str, *, splits: bool = False) -> None:
        super().__init__(message)
        self.splits = splits


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The defaults are far above what any client writes."""

    unpacked_bytes: int = UNPACKED_BYTES_MAX
    """batch.max.unpacked.bytes"""
    frames: int = FRAMES_MAX
    """batch.max.compressed.frames"""
    records: int = 5_000_000
    """batch.max.records"""
    headers: int = 10_000_000
    """batch.max.headers"""
    headers_a_record: int = 10_000
    """record.max.headers"""

    @classmethod
    def from_config(cls, config: ServerConfig) -> BatchLimits:
        return cls(
            unpacked_bytes=config.get_int("batch.max.unpacked.bytes"),
            frames=config.get_int("batch.max.compressed.frames"),
            records=config.get_int("batch.max.records"),
            headers=config.get_int("batch.max.headers"),
            headers_a_record=config.get_int("record.max.headers"),
        )


UNLIMITED = BatchLimits(records=1 << 62, headers=1 << 62, headers_a_record=1 << 62)
"""For batches built here, and for batches in logs."""
