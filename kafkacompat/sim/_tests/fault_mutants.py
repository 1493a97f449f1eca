"""Planted bugs that only a node's environment shows: its clock, its threads, its death within a step."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.coordinator.core import LoadFailure
from kafkacompat.coordinator.loading import Loader
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.sim._tests.cluster_mutants import Plant
from kafkacompat.sim._tests.seeds import SeenAt


def heartbeats_go_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """When the clock is set back, heartbeats stop."""
    original = BrokerLifecycleManager.start

    class WallClock:
        def __init__(self, clock: Any) -> None:
            self.monotonic_ms = clock.now_ms
            self.now_ms = clock.now_ms

    def start(self: Any, *arguments: Any) -> Any:
        self._clock = WallClock(self._clock)
        return original(self, *arguments)

    patch.setattr(BrokerLifecycleManager, "start", start)


def a_load_ends_at_the_first_read_that_fails(patch: pytest.MonkeyPatch) -> None:
    """The groups or transactions of the partition are served no more until its leader changes."""

    async def read_again_later(self: Any, error: Exception) -> None:
        raise LoadFailure(str(error)) from error

    patch.setattr(Loader, "_read_again_later", read_again_later)


FAULT_MUTANTS: tuple[Plant, ...] = (
    heartbeats_go_by_the_wall_clock,
    a_load_ends_at_the_first_read_that_fails,
)
FAULT_MUTANTS_SEEN_AT: dict[str, SeenAt] = {
    "heartbeats_go_by_the_wall_clock": (18, 16),
    "a_load_ends_at_the_first_read_that_fails": (11, 32),
}
