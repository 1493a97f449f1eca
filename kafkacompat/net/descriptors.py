"""Who may have the descriptors of this process: the node itself first, then its logs, then connections.

Clients open connections as they like, so these get what the others do not need. Otherwise they would take the last
descriptor, and the node could neither write a log nor hold an election. The limit of open files is asked each time,
because an operator may change it (prlimit).
"""

from __future__ import annotations

import resource
from collections.abc import Callable

NODE_MIN = 64
"""Kept for the node: its own sockets and locks, the metadata log, checkpoints, connections to other nodes. Connections
of other nodes may use half of it."""
LOGS_MIN = 192
"""Kept for logs that do not exist yet: the two topics of groups and transactions need 100."""
LOGS_SHARE = 8
"""Under a high limit, one of so many descriptors is kept for them."""
SMALL_LIMIT = 2 * (NODE_MIN + LOGS_MIN)
"""Below this limit connections get half, and the node an eighth."""


UNLIMITED = 2**31 - 1


def limit_of_the_process() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return UNLIMITED if limit == resource.RLIM_INFINITY else limit


class Descriptors:
    """How many are used and by whom, as far as that is counted: the node's few others are part of its reserve."""

    def __init__(
        self, files: Callable[[], int] = lambda: 0, limit: Callable[[], int] = limit_of_the_process
    ) -> None:
        """`files` counts the open files of logs."""
        self._files = files
        self._limit = limit
        self._logs: Callable[[], int] = lambda: 0
        self.connections: list[Callable[[], int]] = []
        """Each counts the connections of a socket server."""

    def count_logs(self, count: Callable[[], int]) -> None:
        """`count` returns the number of logs of the node. Each of them may need a descriptor at any time."""
        self._logs = count

    @property
    def limit(self) -> int:
        return self._limit()

    def reserves(self) -> tuple[int, int]:
        """(of the node, of new logs)."""
        limit = self.limit
        if limit < SMALL_LIMIT:
            return limit // 8, limit // 2 - limit // 8
        return NODE_MIN, max(LOGS_MIN, limit // LOGS_SHARE)

    def connected(self) -> int:
        return sum(count() for count in self.connections)

    def may_accept(self, is_of_a_node: bool) -> bool:
        """Whether there is room for one more connection. Those of other nodes may use what is kept for new logs, and
        half of what is kept for this node."""
        node, logs = self.reserves()
        return self._left(self.limit - (node // 2 if is_of_a_node else node + logs)) > 0

    def connections_left(self) -> int:
        """For how many more connections of clients there is room."""
        return max(0, self._left(self.limit - sum(self.reserves())))

    def _left(self, shared: int) -> int:
        """Of what logs and connections may have. Logs whose files are closed keep at most half of it: of thousands, few are
        used at a time."""
        return shared - self.connected() - max(self._files(), min(self._logs(), shared // 2))

    def files_max(self) -> int:
        """How many files logs may have open."""
        return self.limit - self.reserves()[0] - self.connected()

    def logs_left(self) -> int:
        """How many more logs there is room for."""
        return max(0, self.limit - self.reserves()[0] - self.connected() - max(self._files(), self._logs()))
