"""The doors of what works beside the event loop for authentication."""

from __future__ import annotations

from typing import NamedTuple

from kafkacompat.ports import Clock, Timers, Workers


class Background(NamedTuple):
    workers: Workers
    timers: Timers
    clock: Clock
