"""What a simulated process does one thing after another: a coroutine that waits for deferred values, and for nothing else.

It goes on within the event that gives the value. Knows nothing of what the coroutine does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from kafkacompat.deferred import Deferred

T = TypeVar("T")


class Errand(Generic[T]):
    """Begins at once. `ended` is told what came of it; a failure goes to whoever gave the value that led to it."""

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
        """It ends where it waits."""
        self._is_over = True
        self._steps.close()
