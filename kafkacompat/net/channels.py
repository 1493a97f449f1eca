"""All connections of this node to others: one channel for each host, port and purpose.

Two purposes never share a connection, so that a long fetch does not delay a heartbeat (as in Kafka, which has a
network client for each).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.net.dialing import probe
from kafkacompat.net.failures import (
    ChannelError,
    ChannelFull,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedByPeer,
)
from kafkacompat.net.settings import ChannelSettings
from kafkacompat.ports import Clock, ProbeResult, Timers
from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from kafkacompat.net.channel import Channel
    from kafkacompat.net.loop_wait import LoopWait

__all__ = [
    "ChannelError",
    "ChannelFull",
    "Channels",
    "ConnectionLost",
    "RequestTimedOut",
    "UnsupportedByPeer",
]

CHANNELS_MAX = 4096
"""Bound of peers times purposes. Those at rest make room: peers may come and go for years, each with an address of its own. More
would be a leak in kafkacompat."""


class Channels:
    """`nursery` outlives every channel. The `timers` run in it."""

    def __init__(
        self,
        nursery: trio.Nursery,
        clock: Clock,
        timers: Timers,
        client_id: str,
        settings: ChannelSettings | None = None,
        security: ClientSecurity = NO_SECURITY,
        wait: LoopWait | None = None,
    ) -> None:
        self._nursery = nursery
        self._wait = wait
        self._clock = clock
        self._timers = timers
        self._client_id = client_id
        self._settings = settings or ChannelSettings()
        self._security = security
        self._channels: dict[tuple[str, int, str], Channel] = {}
        self._closed = False

    def get(self, host: str, port: int, purpose: str, *, client_id: str | None = None) -> Channel:
        """The channel of this purpose to this address, created (not connected) if necessary. `client_id` is used only
        at its creation.

        Raises RuntimeError if there are CHANNELS_MAX.
        """
        key = (host, port, purpose)
        channel = self._channels.get(key)
        if channel is None or channel.is_closed:
            self._forget(lambda each: each.is_closed)
            if len(self._channels) >= CHANNELS_MAX:
                self._forget(lambda each: each.is_at_rest)
            if len(self._channels) >= CHANNELS_MAX:
                raise RuntimeError(f"{CHANNELS_MAX} channels are open")
            # A sole node makes none.
            from kafkacompat.net.channel import Channel

            channel = Channel(
                host,
                port,
                client_id or self._client_id,
                self._nursery,
                self._clock,
                self._timers,
                self._settings,
                self._security,
                self._wait,
            )
            if self._closed:
                channel.close()
            else:
                self._channels[key] = channel
        return channel

    def probe(self, host: str, port: int, timeout_ms: int) -> Deferred[ProbeResult]:
        """The outcome of a plain connection attempt. Never fails."""
        result: Deferred[ProbeResult] = Deferred()
        self._nursery.start_soon(self._probe, host, port, timeout_ms, result)
        return result

    def close_all(self) -> None:
        """Close all channels for good. Channels requested later are closed ones."""
        self._closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def _forget(self, which: Callable[[Channel], bool]) -> None:
        for key in [key for key, channel in self._channels.items() if which(channel)]:
            del self._channels[key]

    async def _probe(self, host: str, port: int, timeout_ms: int, result: Deferred[ProbeResult]) -> None:
        try:
            found = await probe(host, port, timeout_ms)
        except BaseException:
            result.resolve(ProbeResult.UNREACHABLE)
            raise
        result.resolve(found)
