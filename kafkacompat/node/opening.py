"""The moment in which a broker's listeners are open and it does not take part yet: what describes the cluster waits.

A broker listens before it is unfenced, so that whoever is sent to it finds it there. Until then an image may name no broker at
all, and a client that is told so does not ask again for minutes. So requests whose answer rests on who takes part are held until
the image shows this broker unfenced, the bound is over or the node stops. Apache Kafka opens its ports after that.

Pure but for timers. It knows no APIs and no connections: api/serve asks, and knows which requests to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_EPOCH

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Timers

REQUESTS_HELD_MAX = 10_000
"""One a connection; a request beyond is answered at once, from what is known."""
ANSWERED_AT_ONCE = 20
"""So many held requests are answered in one step of the loop."""

T = TypeVar("T")


class Opening:
    """`begin` when the listeners open and this life's epoch is known; `on_image` with every image from then on."""

    __slots__ = ("_epoch", "_held", "_node_id", "_timers", "is_open")

    def __init__(self, node_id: int, timers: Timers) -> None:
        self._node_id = node_id
        self._timers = timers
        self._epoch = NO_EPOCH
        self._held: dict[Deferred[Any], Callable[[], Deferred[Any]]] = {}
        """The answers that are owed, with what gives them, in order of asking."""
        self.is_open = False
        """Nothing is held any more."""

    def begin(self, broker_epoch: int, bound_ms: int, overdue: Callable[[], None]) -> None:
        """`overdue` is told when this broker is not unfenced after `bound_ms`, and nothing is held from then on."""
        self._epoch = broker_epoch

        def bound() -> None:
            if not self.is_open:
                overdue()
                self.open()

        self._timers.call_after(bound_ms, bound)

    def on_image(self, image: MetadataImage) -> None:
        own = image.brokers.get(self._node_id)
        if own is not None and own.epoch >= self._epoch > NO_EPOCH and not own.fenced:
            self.open()

    def open(self) -> None:
        """For good. Also of a node that stops, which answers whoever waits."""
        if not self.is_open:
            self.is_open = True
            self._answer_some()

    def hold(self, answer: Callable[[], Deferred[T]]) -> Deferred[T]:
        """What `answer` gives, as soon as nothing is held any more."""
        if self.is_open or len(self._held) >= REQUESTS_HELD_MAX:
            return answer()
        owed: Deferred[T] = Deferred()
        self._held[owed] = answer
        owed.when_abandoned = lambda: self._let_go(owed)
        return owed

    def _let_go(self, owed: Deferred[Any]) -> None:
        self._held.pop(owed, None)

    def _answer_some(self) -> None:
        for owed in list(self._held)[:ANSWERED_AT_ONCE]:
            answer = self._held.pop(owed, None)
            if answer is not None:
                answer().pass_to(owed)
        if self._held:
            self._timers.call_after(0, self._answer_some)
