"""What a produced batch may hold, however small its bytes are.

Kafka has none of these: a batch of a kilobyte may unfold to gigabytes there, or hold millions of headers, and every one is looked
at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.records.compression import FRAMES_MAX, UNPACKED_BYTES_MAX

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig


class RecordLimitExceeded(ValueError):
    """More records or headers than are taken. `splits`: a batch of fewer records could be taken."""

    def __init__(self, message: str, *, splits: bool = False) -> None:
        super().__init__(message)
        self.splits = splits


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Defaults are far above what any client writes."""

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
"""For bytes of our own, and for what lies in logs."""
