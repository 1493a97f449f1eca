"""The batches of metadata that a node replays: their records, and how long that takes (BrokerMetadataListener of Kafka's
MBeans)."""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.meters import Histogram


class BatchMeter:
    """A batch may be replayed in parts. One part of one batch at a time."""

    __slots__ = ("_began_s", "_monotonic_s", "_records", "_took_s", "sizes", "times_us")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self.sizes = Histogram()
        """Records of a batch."""
        self.times_us = Histogram()
        self._began_s = 0.0
        self._records = 0
        """Of the parts so far."""
        self._took_s = 0.0

    def begin(self) -> None:
        """A part, or a whole batch."""
        self._began_s = self._monotonic_s()

    def end_part(self, records: int) -> None:
        """More of the same batch follows."""
        self._took_s += self._monotonic_s() - self._began_s
        self._records += records

    def end(self, records: int) -> None:
        """`records`: of the last part."""
        self.end_part(records)
        self.sizes.note(self._records)
        self.times_us.note(1_000_000 * self._took_s)
        self.forget()

    def forget(self) -> None:
        """What was replayed in parts is no batch, but a snapshot, or its end does not come."""
        self._records, self._took_s = 0, 0.0
