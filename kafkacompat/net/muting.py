"""Connections of clients over their quota: muted for the throttle time (KIP-219)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kafkacompat.net.connection import Connection
    from kafkacompat.ports import Clock

MUTED_LOOK_MS = 60_000
"""How often a muted connection is looked at. It may have closed."""


def mute(connection: Connection, throttle_ms: int, nursery: trio.Nursery, clock: Clock) -> None:
    """Mute a connection for its throttle time, also while it grows."""
    now_ms = clock.monotonic_ms()
    is_muted = connection.muted_until_ms > now_ms
    connection.mute(now_ms + throttle_ms)
    if not is_muted:
        nursery.start_soon(_unmute_later, connection, clock)


async def _unmute_later(connection: Connection, clock: Clock) -> None:
    while not connection.closed:
        rest_ms = connection.muted_until_ms - clock.monotonic_ms()
        if rest_ms <= 0:
            connection.unmute()
            return
        await trio.sleep(min(rest_ms, MUTED_LOOK_MS) / 1000)
