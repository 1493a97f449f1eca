"""The line of connections that need a turn: each is in it once, and gets its turn in the order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

import trio

from kafkacompat.net.poller import BUSY_S

if TYPE_CHECKING:
    from kafkacompat.net.connection import Connection


class TurnLine:
    """`run` in its own task. The poller gives turns too, between two looks at its sockets."""

    def __init__(self) -> None:
        self._line: deque[Connection] = deque()
        self._taker: trio.lowlevel.Task | None = None
        """Set while `run` waits for the line to fill."""

    def add(self, connection: Connection) -> bool:
        """Returns False for a connection that is in the line already."""
        if connection.in_line:
            return False
        connection.in_line = True
        self._line.append(connection)
        return True

    async def run(self) -> None:
        while True:
            while self._line:
                self.give(monotonic() + BUSY_S)
                await trio.lowlevel.checkpoint()
            self._taker = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._forget_taker)

    def give(self, until_s: float) -> None:
        """Give a turn to each connection in the line, as far as time allows, but to at least one."""
        line = self._line
        for _ in range(len(line)):
            connection = line.popleft()
            connection.in_line = False
            connection.turn()
            if monotonic() >= until_s:
                return

    def wake(self) -> None:
        """Let `run` go on if the line is not empty."""
        if self._line:
            taker, self._taker = self._taker, None
            if taker is not None:
                trio.lowlevel.reschedule(taker)

    def _forget_taker(self, _raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        self._taker = None
        return trio.lowlevel.Abort.SUCCEEDED
