"""A node's settings and its doors out: all that reaches a node, and all by which it acts, comes and goes through them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kafkacompat.config import ServerConfig
from kafkacompat.ports import Clock, Disk, Network, Random, Timers, WorkerPools


@dataclass(frozen=True, slots=True)
class NodeDoors:
    """What every part of a node is built with: the command's are of the system, the simulator's are its own."""

    config: ServerConfig
    clock: Clock
    timers: Timers
    random: Random
    disk: Disk
    workers: WorkerPools
    network: Network
    monotonic_s: Callable[[], float]
    """What bounds a step of the loop by the time it takes."""
    keep: Callable[[], None]
    """Told while very much is loaded that what is there lives long."""
    halt: Callable[[BaseException], None]
    """End the process at once and leave the files: what is on the disk, or what the quorum agreed on, is unknown."""
