"""A sequence of actions of a simulated process: a coroutine that waits only for Deferred values.

It continues within the event that resolves the value. Independent of what the coroutine does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kafkacompat.deferred import Deferred

T = TypeVar("T")


class Errand(Generic[T]):
    """Starts at once. `ended` gets the result. An exception goes to the caller that resolved the value before it."""

    def __init__(self, steps: Coroutine[Deferred[Any], None, T], ended: Callable[[T], None]) -> None:
        self._steps = steps
        self._ended = ended
        self._is_over = False
        self._go_on()

    def _go_on(self, _: Deferred[Any] | None = None) -> None:
        if self._is_over:
            return
        try:
            waits_for = self._steps.send(None)
        except StopIteration as end:
            self._is_over = True
            self._ended(end.value)
        else:
            waits_for.on_done(self._go_on)

    def call_off(self) -> None:
        """End the coroutine where it waits."""
        self._is_over = True
        self._steps.close()
