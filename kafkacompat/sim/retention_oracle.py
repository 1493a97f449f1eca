"""Checks the log start offsets: a start moves only for a valid reason, and nothing above it is missing.

The reasons are DeleteRecords requests, and the retention by time or size of one topic. This module knows no segments:
it checks each deleted batch.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.records.batch import BatchHeader
from kafkacompat.sim.breach import Breach


class Weight(NamedTuple):
    """The size and time of a committed batch."""

    last_offset: int
    size: int
    max_timestamp_ms: int


class StartLedger:
    """The starts of one partition. `retention_ms` and `retention_bytes` are -1 without retention by time or size."""

    def __init__(self, retention_ms: int = -1, retention_bytes: int = -1) -> None:
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._weights: dict[int, Weight] = {}
        """By base offset: batches that may still be deleted."""
        self.asked = 0
        """The highest offset up to which a deletion was requested."""
        self.start = 0
        """The highest log start offset with a valid reason."""

    def commit(self, header: BatchHeader) -> None:
        if self._retention_ms >= 0 or self._retention_bytes >= 0:
            weight = Weight(header.last_offset, header.size, header.max_timestamp_ms)
            self._weights[header.base_offset] = weight

    def moved(self, where: str, start: int, bytes_left: int, now_ms: int | None) -> bool:
        """Check that a log may begin at `start` with `bytes_left` from there on. Return whether retention has moved
        it. `now_ms` is None if clocks were set."""
        if start <= self.start:
            return False
        before, self.start = self.start, start
        gone = [base for base in self._weights if self._weights[base].last_offset < start]
        if start > self.asked:
            if not gone:
                raise Breach(
                    "log starts move for a reason",
                    f"{where} begins at {start}, others at {before}, asked for was {self.asked}",
                )
            self._check(where, gone, bytes_left, now_ms)
        for base in gone:
            del self._weights[base]
        return start > self.asked

    def _check(self, where: str, gone: list[int], bytes_left: int, now_ms: int | None) -> None:
        """From the newest batch on: each is old enough, or there are enough bytes after it."""
        bytes_behind = bytes_left
        for base in sorted(gone, reverse=True):
            weight = self._weights[base]
            is_old = self._retention_ms >= 0 and (
                now_ms is None or now_ms - weight.max_timestamp_ms > self._retention_ms
            )
            is_surplus = 0 <= self._retention_bytes <= bytes_behind
            if not is_old and not is_surplus and weight.last_offset >= self.asked:
                raise Breach(
                    "log starts move for a reason",
                    f"{where} has let {base} go, of {weight.max_timestamp_ms} at {now_ms}, with {bytes_behind} bytes behind it; "
                    f"it keeps {self._retention_ms} ms and {self._retention_bytes} bytes",
                )
            bytes_behind += weight.size
