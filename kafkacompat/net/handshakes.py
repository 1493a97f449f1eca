"""TLS handshakes in progress: one step of one handshake per turn of the loop, and a time limit.

A step may take a millisecond of CPU time (an RSA signature). Between two steps everything else has a turn, however
many clients connect. So a thousand handshakes take at most half of the loop's time, and nothing waits longer than a
step.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from kafkacompat.ports import Clock

HANDSHAKE_MS_MAX = 30_000
"""librdkafka's limit for setting up a connection. Kafka closes an idle handshake after connections.max.idle.ms."""


class Handshaking(Protocol):
    """A connection with an unfinished handshake."""

    def shake_hands(self) -> None:
        """Continue the handshake. Never waits, never raises."""
        ...

    def too_slow(self, bound_ms: int) -> None:
        """The time limit has passed: close the connection and log it."""
        ...


class Handshakes:
    """Call `run` in its own task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines_ms: OrderedDict[Handshaking, int] = OrderedDict()
        """Connections with an unfinished handshake, in the order of their start."""
        self._line: deque[Handshaking] = deque()
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def began(self, connection: Handshaking) -> None:
        self._deadlines_ms[connection] = self._clock.monotonic_ms() + HANDSHAKE_MS_MAX
        self._news.set()

    def go_on_soon(self, connection: Handshaking) -> None:
        """Continue a handshake whose socket has news. The socket is not watched until the step is done, so it is in
        the line once."""
        self._line.append(connection)
        self._news.set()

    def ended(self, connection: Handshaking) -> None:
        """The handshake has succeeded, or the connection is closed."""
        self._deadlines_ms.pop(connection, None)

    async def run(self) -> None:
        while True:
            wait_s = self._end_the_slow()
            if self._line:
                self._line.popleft().shake_hands()
                await trio.lowlevel.checkpoint()
                continue
            self._news = trio.Event()
            with trio.move_on_after(wait_s):
                await self._news.wait()

    def _end_the_slow(self) -> float:
        """Close the connections past their time limit. Returns the seconds until the next limit."""
        now_ms = self._clock.monotonic_ms()
        while self._deadlines_ms:
            connection, deadline_ms = next(iter(self._deadlines_ms.items()))
            if now_ms < deadline_ms:
                return (deadline_ms - now_ms) / 1000
            connection.too_slow(HANDSHAKE_MS_MAX)
        return float("inf")
