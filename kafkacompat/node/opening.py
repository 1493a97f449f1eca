"""Holds requests that describe the cluster while the listeners are open but the broker is still fenced.

A broker listens before it is unfenced, so that clients that are sent to it can connect. Until then an image may
contain no unfenced broker, and a client that gets an empty broker list does not ask again for minutes. Requests whose
answer depends on the brokers in the cluster are therefore held. They are answered when the image shows this broker
unfenced, when the time limit is over, or when the node stops. Apache Kafka opens its ports later instead.

This module knows no APIs and no connections: api/serve decides which requests to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_EPOCH

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.tasks import Tasks

REQUESTS_HELD_MAX = 10_000
"""One for each connection. Further requests are answered at once, from the current image."""
ANSWERED_AT_ONCE = 20
"""Held requests that are answered in one step of the loop."""

T = TypeVar("T")


class Opening:
    """Call `begin` when the listeners open and the broker epoch is known, and `on_image` with every image from then on."""

    __slots__ = ("_epoch", "_held", "_node_id", "_tasks", "is_open")

    def __init__(self, node_id: int, tasks: Tasks) -> None:
        self._node_id = node_id
        self._tasks = tasks
        self._epoch = NO_EPOCH
        self._held: dict[Deferred[Any], Callable[[], Deferred[Any]]] = {}
        """The promised answers, with the functions that produce them, oldest first."""
        self.is_open = False
        """True once no request is held any more."""

    def begin(self, broker_epoch: int, bound_ms: int, overdue: Callable[[], None]) -> None:
        """Hold requests for at most `bound_ms`. `overdue` is called if this broker is still fenced then."""
        self._epoch = broker_epoch
        self._tasks.start("requests held until the broker is unfenced", self._open_after(bound_ms, overdue))

    async def _open_after(self, bound_ms: int, overdue: Callable[[], None]) -> None:
        await self._tasks.sleep(bound_ms)
        if not self.is_open:
            overdue()
            self.open()

    def on_image(self, image: MetadataImage) -> None:
        own = image.brokers.get(self._node_id)
        if own is not None and own.epoch >= self._epoch > NO_EPOCH and not own.fenced:
            self.open()

    def open(self) -> None:
        """Answer all held requests and hold no more. Also called when the node stops."""
        if not self.is_open:
            self.is_open = True
            self._tasks.start("requests that were held", self._answer_held())

    def hold(self, answer: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Return the result of `answer`, which is called when requests are no longer held."""
        if self.is_open or len(self._held) >= REQUESTS_HELD_MAX:
            return answer()
        owed: Deferred[T] = Deferred()
        self._held[owed] = answer
        owed.when_abandoned = lambda: self._let_go(owed)
        return owed

    def _let_go(self, owed: Deferred[Any]) -> None:
        self._held.pop(owed, None)

    async def _answer_held(self) -> None:
        while self._held:
            for owed in list(self._held)[:ANSWERED_AT_ONCE]:
                answer = self._held.pop(owed, None)
                if answer is not None:
                    answer().pass_to(owed)
            await self._tasks.sleep(0)
