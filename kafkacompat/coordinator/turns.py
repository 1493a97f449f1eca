"""The operations of a shard, one after the other.

An append may advance the high watermark and so answer earlier writes. Whoever gets such an answer may ask for the next
operation at once, while the record of the present one is in the log and not yet replayed. It would decide on a state that
lacks the record, and be replayed before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class Turns:
    __slots__ = ("_is_going_on", "_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        """Whether an append is under way, or its replay."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_going_on = False

    def next(
        self, operation: Callable[P, Deferred[T]], *arguments: P.args, **options: P.kwargs
    ) -> Deferred[T]:
        """Carry the operation out now, or after the present one, in order. What it raises then fails the answer."""
        if self.is_taken:
            return self._later(partial(operation, *arguments, **options))
        try:
            return operation(*arguments, **options)
        finally:
            if self._waiting:
                self._go_on()

    def take(self, part: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        """Carry out the part of an operation in which no other one may begin."""
        self.is_taken = True
        try:
            return part(*arguments, **options)
        finally:
            self.is_taken = False

    def _later(self, operation: Callable[[], Deferred[T]]) -> Deferred[T]:
        answer: Deferred[T] = Deferred()

        def carry_out() -> None:
            try:
                given = operation()
            except Exception as error:
                answer.fail(error)
            else:
                given.pass_to(answer)

        self._waiting.append(carry_out)
        return answer

    def _go_on(self) -> None:
        if self.is_taken or self._is_going_on:
            return
        self._is_going_on = True
        try:
            while self._waiting:
                try:
                    self._waiting.popleft()()
                except Exception as error:
                    report("telling what a coordinator's operation has given", error)
        finally:
            self._is_going_on = False
