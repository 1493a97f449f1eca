"""One request in flight to each peer: which peers are ready, which request an answer belongs to, when to give up or
retry.

Pure. Follows Kafka's RequestManager: a request without an answer in time has failed, and a failed one is retried after
a backoff.
"""

from __future__ import annotations

from kafkacompat.raft.messages import Request


class ConnectionState:
    __slots__ = ("backoff_until_ms", "correlation_id", "deadline_ms", "node_id", "request")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.correlation_id = -1
        """-1: no request in flight."""
        self.request: Request | None = None
        self.deadline_ms = 0
        self.backoff_until_ms = 0

    def wake_ms(self) -> int:
        """When the next request may be sent, unless an answer comes earlier."""
        return self.deadline_ms if self.correlation_id >= 0 else self.backoff_until_ms


class RequestManager:
    """Bounded by the voters, bootstrap servers and leaders that this node has known."""

    __slots__ = (
        "_by_correlation",
        "_connections",
        "_next_correlation_id",
        "_request_timeout_ms",
        "_retry_backoff_ms",
    )

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._connections: dict[int, ConnectionState] = {}
        self._by_correlation: dict[int, ConnectionState] = {}
        self._next_correlation_id = 0
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms

    def get(self, node_id: int) -> ConnectionState:
        peer = self._connections.get(node_id)
        if peer is None:
            peer = self._connections[node_id] = ConnectionState(node_id)
        return peer

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        peer = self._connections.get(node_id)
        if peer is None:
            return True
        if peer.correlation_id >= 0:
            if now_ms < peer.deadline_ms:
                return False
            self._clear(peer)
            peer.backoff_until_ms = now_ms + self._retry_backoff_ms
        return now_ms >= peer.backoff_until_ms

    def on_request_sent(self, node_id: int, request: Request, now_ms: int) -> int:
        """Record a request. Returns its correlation id."""
        peer = self.get(node_id)
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        peer.correlation_id = correlation_id
        peer.request = request
        peer.deadline_ms = now_ms + self._request_timeout_ms
        self._by_correlation[correlation_id] = peer
        return correlation_id

    def on_response(self, correlation_id: int) -> tuple[int, Request] | None:
        """The peer and request of an answer. None if the answer is no longer expected."""
        peer = self._by_correlation.get(correlation_id)
        if peer is None or peer.request is None:
            return None
        request = peer.request
        self._clear(peer)
        return peer.node_id, request

    def back_off(self, node_id: int, now_ms: int) -> None:
        self.get(node_id).backoff_until_ms = now_ms + self._retry_backoff_ms

    def reset_all(self) -> None:
        """A new role sends other requests: drop the earlier ones and their answers."""
        self._by_correlation.clear()
        self._connections.clear()

    def _clear(self, peer: ConnectionState) -> None:
        self._by_correlation.pop(peer.correlation_id, None)
        peer.correlation_id = -1
        peer.request = None
