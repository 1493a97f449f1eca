"""Nodes, here plain loops in threads, stand still while one of them looks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from kafkacompat.testing import standstill
from kafkacompat.testing.standstill import Standstill


class Loop:
    """Calls what it is told to call, in a thread."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self.is_over = False
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def soon(self, call: Callable[[], object]) -> bool:
        if not self.is_over:
            self._calls.put(call)
        return not self.is_over

    def end(self) -> None:
        self.is_over = True
        self._calls.put(None)
        self.thread.join()


def test_each_of_three_loops_looks_and_nothing_is_counted_meanwhile() -> None:
    still = Standstill()
    loops = {number: Loop() for number in range(3)}
    counted = [0, 0, 0]
    differ: list[tuple[list[int], list[int]]] = []
    looks = threading.Semaphore(0)

    def look() -> None:
        first = list(counted)
        for _ in range(200):
            pass
        differ.append((first, list(counted)))

    def turn(number: int, left: int) -> None:
        counted[number] += 1
        others = {other: loop.soon for other, loop in loops.items() if other != number}
        still.during(number, others, look)
        if left:
            loops[number].soon(lambda: turn(number, left - 1))
        else:
            looks.release()

    for number, loop in loops.items():
        loop.soon(lambda number=number: turn(number, 40))
    for _ in loops:
        assert looks.acquire(timeout=30)
    for loop in loops.values():
        loop.end()
    assert len(differ) == 3 * 41
    assert all(first == last for first, last in differ)
    assert counted == [41, 41, 41]


def test_a_loop_that_has_ended_is_not_waited_for() -> None:
    ended = Loop()
    ended.end()
    assert Standstill().during(1, {2: ended.soon}, lambda: "seen") == "seen"


def test_a_loop_that_never_stands_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "TIMEOUT_S", 0.01)
    still = Standstill()
    with pytest.raises(TimeoutError, match="do not stand still"):
        still.during(1, {2: lambda _: True}, lambda: None)
    assert still.during(1, {}, lambda: "again") == "again"
