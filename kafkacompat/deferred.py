"""A value that will be there later, for code that must not wait.

Cores and services hand out a Deferred instead of being coroutines; whoever owns a loop registers a callback.
All in one thread: callbacks run at once inside `resolve`, in order of registration. It knows no loop.
Whoever gives the value does not hear of those who wait for it: a callback that raises is reported, and the next one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from kafkacompat.faults import report

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Resolved once with a value or failed once with an exception; later attempts are a bug and raise."""

    __slots__ = ("_callbacks", "_error", "_value", "done", "when_abandoned")

    def __init__(self) -> None:
        self.done = False
        self.when_abandoned: Callable[[], None] | None = None
        """Set by whoever owes the value, to be told when nobody wants it any more; then it need not be given."""
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Deferred[T]], None]] | None = None

    @classmethod
    def of(cls, value: T) -> Deferred[T]:
        deferred: Deferred[T] = cls()
        deferred.done = True
        deferred._value = value
        return deferred

    def resolve(self, value: T) -> None:
        self._finish(value, None)

    def fail(self, error: BaseException) -> None:
        self._finish(None, error)

    def abandon(self) -> None:
        """Nobody wants the value any more: whoever owes it may stop working on it. The callbacks are kept."""
        if self.when_abandoned is not None:
            tell, self.when_abandoned = self.when_abandoned, None
            tell()

    def forget(self, callback: Callable[[Deferred[T]], None]) -> None:
        """Take a callback back. If it was the last one, nobody wants the value any more."""
        if self._callbacks is not None and callback in self._callbacks:
            self._callbacks.remove(callback)
            if not self._callbacks:
                self._callbacks = None
                self.abandon()

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def result(self) -> T:
        """The value; raises the failure. Only once `done`."""
        if not self.done:
            raise RuntimeError("the deferred value is not there yet")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # resolved with T

    def __await__(self) -> Generator[Deferred[T], None, T]:
        """In a coroutine that waits for nothing else: whoever carries it out is given this one to wait for. A loop's own
        coroutines wait as that loop has it (net.runtime.wait_for)."""
        if not self.done:
            yield self
        return self.result()

    def on_done(self, callback: Callable[[Deferred[T]], None]) -> None:
        """Call back when done, at once if it already is: then what the callback raises is the caller's."""
        if self.done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def pass_to(self, other: Deferred[T]) -> None:
        """Give the value, or the failure, to another one as soon as it is there."""

        def pass_on(done: Deferred[T]) -> None:
            try:
                value = done.result()
            except Exception as error:
                other.fail(error)
            else:
                other.resolve(value)

        self.on_done(pass_on)

    def unheeded(self, what: str, *expected: type[Exception]) -> None:
        """Nobody waits for the value. A failure is reported as a bug, unless it is one of those that are expected, because
        whoever owes the value deals with them."""

        def done(_: Deferred[T]) -> None:
            if self._error is not None and not isinstance(self._error, expected):
                report(what, self._error)

        self.on_done(done)

    def then(self, function: Callable[[T], U]) -> Deferred[U]:
        """The value passed through a function; a failure of either goes on."""
        following: Deferred[U] = Deferred()

        def step(done: Deferred[T]) -> None:
            try:
                value = function(done.result())
            except Exception as error:
                following.fail(error)
            else:
                following.resolve(value)

        self.on_done(step)
        return following

    def and_then(self, function: Callable[[T], Deferred[U]]) -> Deferred[U]:
        """As `then`, with a function whose value comes later."""
        following: Deferred[U] = Deferred()

        def step(done: Deferred[Deferred[U]]) -> None:
            try:
                inner = done.result()
            except Exception as error:
                following.fail(error)
            else:
                inner.pass_to(following)

        self.then(function).on_done(step)
        return following

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        if self.done:
            raise RuntimeError("the deferred value was given twice")
        self.done = True
        # It mostly leads back here by way of whoever owes the value: a cycle, which only the collector would find.
        self.when_abandoned = None
        self._value = value
        self._error = error
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception as error:
                    report("using a value that was waited for", error)


def gather(answers: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """All values in the order given, once the last is there; the first failure in that order goes on."""
    return when_all_done(answers).then(lambda _: [answer.result() for answer in answers])


def when_all_done(answers: Sequence[Deferred[Any]]) -> Deferred[None]:
    """Once the last is there, whatever became of them: callbacks that each had before have run by then."""
    together: Deferred[None] = Deferred()
    open_ones = [answer for answer in answers if not answer.done]
    left = len(open_ones)

    def one_done(_: Deferred[Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            together.resolve(None)

    if left == 0:
        together.resolve(None)
    for answer in open_ones:
        answer.on_done(one_done)
    return together
