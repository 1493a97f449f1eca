"""Requests to other nodes: one connection and one request in flight per node, and batching meanwhile.

It collects the items for each node and sends all of them as one request when the last one is answered, as Kafka's
InterBrokerSendThreads do for markers and verifications.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

Item = TypeVar("Item")

QUEUED_MAX = 10_000
"""Queued items per node. Further items are lost at once. Their senders are told, and retry or report an error to a
client."""


class NodeLost(Exception):
    """The node has no address, or too many items wait for it."""


class Requests(Protocol):
    """The part of net.Channel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class _Queue(Generic[Item]):
    __slots__ = ("in_flight", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.in_flight: list[Item] = []


class NodeQueues(Generic[Item]):
    """`channel` returns the channel to a node, or None without an address. `answered` is called with each request's
    items and answer."""

    def __init__(
        self,
        channel: Callable[[int], Requests | None],
        timeout_ms: int,
        make_request: Callable[[list[Item]], Any],
        answered: Callable[[list[Item], Deferred[Any]], None],
    ) -> None:
        self._channel = channel
        self._timeout_ms = timeout_ms
        self._make_request = make_request
        self._answered = answered
        self._queues: dict[int, _Queue[Item]] = {}
        self._closed = False

    def put(self, node_id: int, item: Item) -> None:
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = _Queue()
        if len(queue.items) >= QUEUED_MAX or self._closed:
            self._answered([item], _failed(NodeLost(f"{len(queue.items)} wait for node {node_id}")))
            return
        queue.items.append(item)
        self._send(node_id, queue)

    def close(self) -> None:
        """Stop sending. Waiting items are lost."""
        self._closed = True
        for queue in self._queues.values():
            items, queue.in_flight, queue.items = queue.in_flight + queue.items, [], []
            if items:
                self._tell(items, _failed(NodeLost("the node stops")))

    def _send(self, node_id: int, queue: _Queue[Item]) -> None:
        if queue.in_flight or not queue.items or self._closed:
            return
        items, queue.items = queue.items, []
        channel = self._channel(node_id)
        if channel is None:
            self._tell(items, _failed(NodeLost(f"node {node_id} has no address")))
            return
        queue.in_flight = items

        def answered(done: Deferred[Any]) -> None:
            if self._closed:
                return
            queue.in_flight = []
            self._tell(items, done)
            self._send(node_id, queue)

        try:
            answer = channel.request(self._make_request(items), self._timeout_ms)
        except Exception as error:
            # These items are lost. Later items must not wait for an answer that never comes.
            report("making a request to another node", error)
            answer = _failed(error)
        answer.on_done(answered)

    def _tell(self, items: list[Item], done: Deferred[Any]) -> None:
        """Report the answer. An error of the receiver must not block the items that wait for the node."""
        try:
            self._answered(items, done)
        except Exception as error:
            report("taking the answer of another node", error)


def channels_to(
    channels: Any, image: Callable[[], MetadataImage], listener_name: str, purpose: str
) -> Callable[[int], Requests | None]:
    """A function for the channel to a broker over net.Channels, by the newest image."""

    def channel(node_id: int) -> Requests | None:
        broker = image().brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(listener_name)
        if endpoint is None:
            return None
        found: Requests = channels.get(endpoint.host, endpoint.port, purpose)
        return found

    return channel


def _failed(error: Exception) -> Deferred[Any]:
    answer: Deferred[Any] = Deferred()
    answer.fail(error)
    return answer
