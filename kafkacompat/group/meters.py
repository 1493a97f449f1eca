"""What the group coordinator has counted since the start, with rates: the sensors of Kafka's GroupCoordinatorMetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafkacompat.quota.rate import Counted

if TYPE_CHECKING:
    from kafkacompat.coordinator.core import CoordinatorResult
    from kafkacompat.ports import Clock

R = TypeVar("R")
T = TypeVar("T")


class GroupMeters:
    """Like Kafka, it counts offsets when their records are made, before they are written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_commits = Counted()
        """Offsets, those of transactions too."""
        self.offset_expirations = Counted()
        self.offset_deletions = Counted()
        """Offsets that an administrator has deleted."""
        self.completed_rebalances = Counted()
        """Of groups of the classic protocol: a generation has its assignment."""
        self.consumer_rebalances = Counted()
        """New epochs of consumer groups."""
        self.share_rebalances = Counted()
        """New epochs of share groups."""
        self.streams_rebalances = Counted()
        """New epochs of streams groups."""

    def committed(
        self, result: CoordinatorResult[R, T], number: int | None = None
    ) -> CoordinatorResult[R, T]:
        """Count the offsets of a commit: one for each record, or this number. Returns the result."""
        self._note(self.offset_commits, len(result.records) if number is None else number)
        return result

    def deleted(self, result: CoordinatorResult[R, T]) -> CoordinatorResult[R, T]:
        """Count the offsets of an administrator's deletion. Returns its argument."""
        self._note(self.offset_deletions, len(result.records))
        return result

    def expired(self, number: int) -> None:
        self._note(self.offset_expirations, number)

    def rebalance_completed(self) -> None:
        self._note(self.completed_rebalances, 1)

    def consumer_rebalanced(self) -> None:
        self._note(self.consumer_rebalances, 1)

    def share_rebalanced(self) -> None:
        self._note(self.share_rebalances, 1)

    def streams_rebalanced(self) -> None:
        self._note(self.streams_rebalances, 1)

    def _note(self, counted: Counted, number: int) -> None:
        if number:
            counted.note(self._clock.monotonic_ms(), number)
