"""Requests to other nodes: one connection and one request in flight per node, and batching meanwhile.

It collects the items for each node and sends all of them as one request when the last one is answered, as Kafka's
InterBrokerSendThreads do for markers and verifications.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.tasks import Tasks, pause

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage

Item = TypeVar("Item")
Answer = TypeVar("Answer")

Waiting = dict[Item, Deferred[Answer]]

QUEUED_MAX = 10_000
"""Queued items per node. Further items are lost at once. Their senders are told, and retry or report an error to a
client."""
RESUMED_COST = 200
"""The cost of what an item's answer resumes: a produce whose transaction was verified is appended."""


class NodeLost(Exception):
    """The node has no address, or too many items wait for it."""


class Requests(Protocol):
    """The part of net.Channel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class InterBrokerSender(Generic[Item, Answer]):
    """An item is compared by identity."""

    def __init__(
        self,
        tasks: Tasks,
        channel: Callable[[int], Requests | None],
        timeout_ms: int,
        make_request: Callable[[list[Item]], Any],
        read_response: Callable[[Any], Answer],
    ) -> None:
        """`channel` returns the channel to a node, or None without an address. `read_response` returns what every item of a
        request is answered with."""
        self._tasks = tasks
        self._channel = channel
        self._timeout_ms = timeout_ms
        self._make_request = make_request
        self._read_response = read_response
        self._queues: dict[int, Waiting[Item, Answer]] = {}
        """By node, while a request to it is in flight: the items of the next one."""
        self._in_flight: dict[int, Waiting[Item, Answer]] = {}
        self._closed = False

    def ask(self, node_id: int, item: Item) -> Deferred[Answer]:
        """What the node answers to the request that the item goes with. Fails with NodeLost, or as the channel does."""
        answer: Deferred[Answer] = Deferred()
        queue = self._queues.get(node_id)
        if self._closed or (queue is not None and len(queue) >= QUEUED_MAX):
            waiting = 0 if queue is None else len(queue)
            answer.fail(NodeLost(f"{waiting} wait for node {node_id}"))
        elif queue is not None:
            queue[item] = answer
        else:
            self._queues[node_id] = {item: answer}
            self._tasks.start(f"sending requests to node {node_id}", self._send(node_id))
        return answer

    def withdraw(self, node_id: int, item: Item, error: Exception) -> None:
        """Answer an item that still waits to be sent with this failure, and do not send it."""
        answer = self._queues.get(node_id, {}).pop(item, None)
        if answer is not None:
            answer.fail(error)

    def close(self) -> None:
        """Stop sending. Waiting items are lost."""
        self._closed = True
        for waiting in (*self._in_flight.values(), *self._queues.values()):
            _fail(waiting, NodeLost("the node stops"))
            waiting.clear()

    async def _send(self, node_id: int) -> None:
        """One request after another, while something waits for the node. If that fails, for example for want of memory, all that
        waits is lost: whatever is asked later would wait behind it for ever."""
        try:
            await self._send_all(node_id)
        except Exception:
            for waiting in (self._in_flight.pop(node_id, {}), self._queues.pop(node_id, {})):
                _fail(waiting, NodeLost(f"the requests to node {node_id} were broken off"))
            raise

    async def _send_all(self, node_id: int) -> None:
        while asked := self._queues[node_id]:
            self._queues[node_id] = {}
            self._in_flight[node_id] = asked
            outcome: Deferred[Answer] = Deferred()
            try:
                outcome.resolve(self._read_response(await self._request(node_id, list(asked))))
            except Exception as error:
                outcome.fail(error)
            for at, item in enumerate(list(asked)):
                if at:
                    await pause(RESUMED_COST)
                if item in asked:  # the node has not stopped
                    outcome.pass_to(asked.pop(item))
        del self._queues[node_id], self._in_flight[node_id]

    def _request(self, node_id: int, items: list[Item]) -> Deferred[Any]:
        channel = self._channel(node_id)
        if channel is None:
            raise NodeLost(f"node {node_id} has no address")
        try:
            request = self._make_request(items)
        except Exception as error:
            # These items are lost. Later items must not wait for an answer that never comes.
            report("making a request to another node", error)
            raise
        return channel.request(request, self._timeout_ms)


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


def _fail(waiting: Waiting[Any, Any], error: Exception) -> None:
    for answer in waiting.values():
        answer.fail(error)
