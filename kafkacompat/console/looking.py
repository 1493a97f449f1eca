"""Looks at the cluster again and again, at a bounded pace, and goes on when the broker is away. Knows no view and no HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from kafkacompat.console.admin import ClusterClient
from kafkacompat.console.core.snapshot import ReplicaSize
from kafkacompat.console.failure import BrokerAway
from kafkacompat.console.reader import ResultReader
from kafkacompat.console.sizes import sizes_of
from kafkacompat.console.state import ConsoleState

LOOK_INTERVAL_S = 2.0
AWAY_INTERVAL_S = 1.0
LOOKS_PER_SIZES = 3

Clock = Callable[[], int]


def wall_clock_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


async def keep_looking(
    state: ConsoleState, client: ClusterClient, reader: ResultReader, clock: Clock
) -> None:
    """Feed the state and the reader until cancelled. Sizes are asked for on every LOOKS_PER_SIZES-th look."""
    limiter = trio.CapacityLimiter(1)
    sizes: tuple[ReplicaSize, ...] | None = None
    error = ""
    looks = 0
    while True:
        try:
            snapshot = await trio.to_thread.run_sync(client.look, clock(), limiter=limiter)
        except BrokerAway as away:
            state.away(clock(), str(away))
            looks = 0
            await trio.sleep(AWAY_INTERVAL_S)
            continue
        reader.follow(snapshot)
        state.looked(snapshot)
        state.sized(sizes, error)
        if looks % LOOKS_PER_SIZES == 0:
            sizes, error = await sizes_of(snapshot.nodes)
            state.sized(sizes, error)
        looks += 1
        await trio.sleep(LOOK_INTERVAL_S)
