"""Time that moves by hand, and channels whose every answer the test gives."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred


class HandTimer:
    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class HandTime:
    """Clock and Timers; `pass_ms` fires what is due, in order."""

    def __init__(self) -> None:
        self.time_ms = 1_000
        self._order = 0
        self._heap: list[tuple[int, int, HandTimer]] = []

    def now_ms(self) -> int:
        return self.time_ms + 10_000_000

    def monotonic_ms(self) -> int:
        return self.time_ms

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> HandTimer:
        self._order += 1
        timer = HandTimer(monotonic_ms, callback)
        heapq.heappush(self._heap, (monotonic_ms, self._order, timer))
        return timer

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> HandTimer:
        return self.call_at(self.time_ms + delay_ms, callback)

    @property
    def waiting(self) -> list[int]:
        """Milliseconds until each timer that is set."""
        return sorted(due - self.time_ms for due, _, timer in self._heap if timer.callback is not None)

    def pass_ms(self, milliseconds: int) -> None:
        end_ms = self.time_ms + milliseconds
        while self._heap and self._heap[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._heap)
            self.time_ms = max(self.time_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        self.time_ms = end_ms


class HandChannel:
    def __init__(self, key: tuple[str, int, str], sent: list[Sent]) -> None:
        self.key = key
        self._sent = sent

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        sent = Sent(self.key, message, timeout_ms)
        self._sent.append(sent)
        return sent.answer


class Sent:
    """One request on a channel; `answer` is the test's to give."""

    def __init__(self, key: tuple[str, int, str], message: Any, timeout_ms: int) -> None:
        self.key = key
        self.message = message
        self.timeout_ms = timeout_ms
        self.answer: Deferred[Any] = Deferred()


class HandChannels:
    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def get(self, host: str, port: int, purpose: str) -> HandChannel:
        return HandChannel((host, port, purpose), self.sent)
