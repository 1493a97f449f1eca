"""Ports that stay a test's own: no other process is given them while its broker restarts."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

FREE_PORT = re.compile(r"(?<=:)0(?=,|\s|$)")
"""The port of a listener that leaves the choice to the system."""


class ReservedPorts:
    """A bound socket that does not listen keeps a port from everybody who does not name it. Connections to it are refused."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def reserve(self, host: str = "127.0.0.1") -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        reserved = socket.socket(family, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
        self._sockets.append(reserved)
        return int(reserved.getsockname()[1])

    def in_listeners(self, listeners: str) -> str:
        """The listeners with a port of their own for each port 0."""
        return FREE_PORT.sub(lambda _: str(self.reserve()), listeners)

    @property
    def numbers(self) -> list[int]:
        """In the order in which they were reserved."""
        return [int(each.getsockname()[1]) for each in self._sockets]

    def release(self) -> None:
        while self._sockets:
            self._sockets.pop().close()


class GivenPorts(ReservedPorts):
    """Ports that another process has reserved, in the order in which it has done so."""

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self._given = iter(numbers)

    def reserve(self, host: str = "127.0.0.1") -> int:
        return next(self._given)
