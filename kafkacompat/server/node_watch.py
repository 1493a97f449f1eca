"""A node that may be watched: whose token opens it, and where its requests are seen.

The token is the right. The listener for scrapers authenticates nobody, so no entry of an ACL could be looked up there, and the
protocol has no request by which a client of a Kafka listener could watch. Who may read the file is the node's own user, or root.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kafkacompat.exchanges.exchange import WatchedDispatcher
from kafkacompat.exchanges.watching import Watchers, shown
from kafkacompat.faults import report
from kafkacompat.server.node_state import NodeState

if TYPE_CHECKING:
    from kafkacompat.exchanges.watching import Entry, Selection
    from kafkacompat.server.node_metrics import NodeMetrics
    from kafkacompat.server.raft_server import KafkaRaftServer
    from kafkacompat.server.services import NodeServices

TOKEN_BYTES = 32
TOKEN_CHARACTERS_MIN, TOKEN_CHARACTERS_MAX = 16, 512


class BadTokenFile(Exception):
    """The text names the file, and nothing that is in it."""


class NodeWatch:
    """Implements metrics.watch_page.Watched. All calls are in the loop's thread."""

    def __init__(self, services: NodeServices, node: KafkaRaftServer, metrics: NodeMetrics) -> None:
        self._services = services
        self._node = node
        self._metrics = metrics
        self._state = NodeState(node, services.config.node_id)
        self.watchers = Watchers(self._look, report)

    def why_not(self) -> str | None:
        return "the node starts" if self._metrics.stalls is None else None

    def shown(self, entry: Entry, selection: Selection) -> dict[str, Any] | None:
        return shown(entry, selection, self._state)

    def _look(self, somebody: bool) -> None:
        """While nobody watches, connections call the node's own dispatchers."""
        for part in (self._node.broker, self._node.controller):
            if part is None or part.socket_server is None:
                continue
            dispatcher = part.admitted
            if somebody:
                services = self._services
                dispatcher = WatchedDispatcher(
                    dispatcher, self.watchers.tell, services.clock, services.config.node_id
                )
            part.socket_server.redirect(dispatcher)


def token_of(path: str) -> str:
    """The token in a file that only its owner may read. A file that is not there is made. Raises BadTokenFile."""
    try:
        with suppress(FileExistsError):
            _make(path)
        # A named pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise BadTokenFile(f"{path} is no file")
        with open(descriptor, encoding="ascii") as file:
            token = file.read(2 * TOKEN_CHARACTERS_MAX).strip()
    except UnicodeDecodeError:
        raise BadTokenFile(f"{path} is no ASCII text") from None
    except OSError as problem:
        raise BadTokenFile(f"{path}: {problem.strerror}") from None
    if mode & 0o077:
        raise BadTokenFile(f"others than its owner may read {path}; chmod 600 {path}")
    if (
        not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX
        or not token.isprintable()
        or " " in token
    ):
        raise BadTokenFile(
            f"{path} has no token of {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} characters without blanks"
        )
    return token


def _make(path: str) -> None:
    """Readers find a whole token, or no file. FileExistsError if there is one: several nodes may have the same."""
    if os.path.lexists(path):
        raise FileExistsError
    made = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        os.link(made, path)
    finally:
        os.unlink(made)
