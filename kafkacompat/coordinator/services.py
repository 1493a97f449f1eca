"""What a coordinator of any kind has of its node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Clock, Timers, Workers
    from kafkacompat.tasks import Tasks


def _keep_nothing() -> None:
    """For nodes whose garbage collector needs no hint."""


@dataclass(frozen=True, slots=True)
class CoordinatorServices:
    node_id: int
    partitions: PartitionService
    clock: Clock
    timers: Timers
    tasks: Tasks
    workers: Workers | None
    """For loads. None: cold reads block (the simulator's disk has none)."""
    keep: Callable[[], None] = _keep_nothing
    """Called when many long-lived objects have been created (`server.garbage.keep_long_lived`)."""
