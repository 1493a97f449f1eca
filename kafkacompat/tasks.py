"""The one way to wait: carries out coroutines that await Deferred values and pauses, over the ports' timers.

What answers at once is a plain function. Pure code that does much is a generator that yields what it has cost (`Work`). What waits
is an `async def`, given to `Tasks.start` or `Tasks.run`:

- `await deferred` goes on where the value is given, in the same step of the loop. So whoever gives a value sees its effects when
  the call returns, as with a callback.
- `await pause(cost)` goes on at once until the task has done as much as one turn of the loop may cost, then in a later turn.
- `await in_turns(work)` carries out a `Work`, with such a pause at each of its costs.
- `async with limit:` waits for a place, where only so many may be in progress (`Limit`).
- `await tasks.sleep(ms)` waits for a time of the clock, and `await wake_up.wait(ms)` also for a call (`WakeUp`).

Between two awaits nothing else runs. After one, everything may have changed.

It knows no loop and no threads, so it is the same in a node and in the simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from heapq import merge
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.faults import forget_locals, report

if TYPE_CHECKING:
    from kafkacompat.ports import Timers

T = TypeVar("T")

TURN_COST = 4_000
"""Estimated microseconds after which a turn ends: a fifth of the 20 ms that a step of the loop may take, because the
estimates are for an idle machine."""


Work: TypeAlias = Generator[int, None, T]
"""Pure code that does much. It yields after each little piece the cost of that piece: estimated microseconds on an idle machine.
There everything may change. It knows neither turns nor who carries it out."""


class Cancelled(Exception):
    """The failure of a task that was cancelled."""


class Overloaded(Exception):
    """Too many wait for a place already."""


@coroutine
def pause(cost: int = TURN_COST) -> Generator[int, None, None]:
    """Let others run if the task has done enough. `cost`: microseconds of what was done since the last pause, on an idle
    machine. By default the task goes on in a later turn."""
    yield cost


@coroutine
def in_turns(work: Work[T]) -> Work[T]:
    """The value of a work, which pauses where it has cost enough. It ends with the task."""
    return (yield from work)


def at_once(work: Work[T] | Coroutine[Any, None, T]) -> T:
    """The value of a work or a coroutine that is known to be short, or whose caller blocks nobody: without pauses. All values
    that it awaits must be there."""
    send = work.send
    while True:
        try:
            waits_for = send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        if type(waits_for) is not int:
            raise RuntimeError("what is carried out at once waits for a value that is not there")


class Pace:
    """Counts how much of a piece of a work is done, in units that the work chooses. One Pace is passed through all loops of a
    work, because each loop may be short although the whole piece is long."""

    __slots__ = ("_done", "_most")

    def __init__(self, most: int) -> None:
        """`most`: the number of units in one piece."""
        self._most = most
        self._done = 0

    def is_over(self, more: int = 1) -> bool:
        """Count `more` units. Return whether the piece is over, so that its cost is to be yielded; the next one then begins."""
        self._done += more
        if self._done < self._most:
            return False
        self._done = 0
        return True


def pieces(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Slices of at most `size` items, in order."""
    return [items[start : start + size] for start in range(0, len(items), size)]


SORTED_A_STEP = 2_000
"""Items of a long list that are sorted, or merged, in one step. A pair takes up to a microsecond."""
SORTED_US = 2_000


def sorted_in_steps(items: Iterable[Any]) -> Work[list[Any]]:
    """`sorted(items)`, which would be one step, however many they are: pieces are sorted, and then merged."""
    every = list(items)
    if len(every) <= SORTED_A_STEP:
        return sorted(every)
    parts: list[list[Any]] = []
    for piece in pieces(every, SORTED_A_STEP):
        parts.append(sorted(piece))
        yield SORTED_US
    ordered: list[Any] = []
    for each in merge(*parts):
        ordered.append(each)
        if len(ordered) % SORTED_A_STEP == 0:
            yield SORTED_US
    return ordered


class Limit:
    """At most so many are in progress at a time, which bounds their memory. The others wait in order, until there are too many.

    `async with limit:` raises Overloaded if too many wait. Whoever had to wait goes on in a later turn than the one before it."""

    __slots__ = ("_active", "_active_max", "_waiting", "_waiting_max")

    def __init__(self, active_max: int, waiting_max: int | None = None) -> None:
        """`waiting_max`: None if what waits has a bound elsewhere."""
        self._active = 0
        self._active_max = active_max
        self._waiting_max = waiting_max
        self._waiting: deque[Deferred[None]] = deque()

    def resize(self, active_max: int) -> None:
        """Let so many be in progress from now on. Those beyond a lower number come to their end."""
        if active_max != self._active_max:
            self._active_max = active_max
            self._let_in()

    async def __aenter__(self) -> None:
        if self._active < self._active_max:
            self._active += 1
            return
        if self._waiting_max is not None and len(self._waiting) >= self._waiting_max:
            raise Overloaded(f"{len(self._waiting)} wait for a place")
        place: Deferred[None] = Deferred()
        place.when_abandoned = lambda: self._waiting.remove(place)
        self._waiting.append(place)
        await place
        try:
            await pause()
        except BaseException:  # the task was cancelled
            self._give_back()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._give_back()

    def _give_back(self) -> None:
        self._active -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._active < self._active_max:
            self._active += 1
            self._waiting.popleft().resolve(None)


class Task(Deferred[T]):
    """A coroutine that is carried out, and its value."""

    __slots__ = ("_coroutine", "_is_ending", "_left", "_tasks", "is_reported", "waits_for", "what")

    def __init__(
        self, tasks: Tasks, what: str, coroutine: Coroutine[Any, None, T], is_reported: bool
    ) -> None:
        super().__init__()
        self.what = what
        """For reports, and for whoever looks what a node is doing."""
        self.waits_for: Deferred[Any] | None = None
        """None while it runs, pauses or has ended."""
        self.is_reported = is_reported
        """Nobody waits for the value, so a failure is reported."""
        self._tasks = tasks
        self._coroutine = coroutine
        self._left = TURN_COST
        self._is_ending = False

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` has been called before its end. It may also fail with the Cancelled of a task that it waits for."""
        return self._is_ending

    def cancel(self) -> None:
        """End it at its present await, whose `finally` blocks run. It fails with Cancelled. Does nothing after its end.

        The value that it waits for is abandoned if nobody else waits for it. That ends what `Tasks.all` carries out, but not what
        `Tasks.run` does: another task goes on, and whoever wants its end must cancel it."""
        if self.done or self._is_ending:
            return
        self._is_ending = True
        if not self._coroutine.cr_running:  # type: ignore[attr-defined]  # which every coroutine has
            self._end()

    def go_on(self) -> None:
        """Carry it out until it waits, pauses or ends."""
        send = self._coroutine.send
        while True:
            try:
                waits_for = send(None)
            except StopIteration as end:
                self._tasks.remove(self)
                self.resolve(end.value)
                return
            except Exception as error:
                self._tasks.remove(self)
                if self.is_reported:
                    report(self.what, error)
                forget_locals_left(error)
                self.fail(error)
                return
            if self._is_ending:  # it was cancelled by what it called
                if type(waits_for) is not int and not waits_for.done:
                    self.waits_for = waits_for
                    waits_for.on_done(self._value_is_there)
                self._end()
                return
            if type(waits_for) is int:
                self._left -= waits_for
                if self._left <= 0:
                    self._left = TURN_COST
                    self._tasks.go_on_later(self)
                    return
            elif not waits_for.done:
                self.waits_for = waits_for
                waits_for.on_done(self._value_is_there)
                return

    def _value_is_there(self, _: Deferred[Any]) -> None:
        if not self.done:  # it was cancelled by another that waited for the same value
            self.waits_for = None
            self.go_on()

    def _end(self) -> None:
        waited_for, self.waits_for = self.waits_for, None
        if waited_for is not None:
            waited_for.forget(self._value_is_there)
        try:
            self._coroutine.close()
        except Exception as error:
            report(f"ending {self.what}", error)
        self._tasks.remove(self)
        self.fail(Cancelled(self.what))


def forget_locals_left(error: Exception) -> None:
    """Empty the frames that a task, or a part of it, has left with an error. Earlier ones belong to another task,
    which may have caught the error and go on."""
    earlier = error.__traceback__
    while earlier is not None and earlier.tb_frame.f_code is not _RESULT:
        earlier = earlier.tb_next
    forget_locals(error.__traceback__, earlier)


_RESULT = Deferred.result.__code__


class WakeUp:
    """What a loop with nothing to do waits for: a time, or somebody who has something for it."""

    __slots__ = ("_tasks", "_waited_for")

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._waited_for: Deferred[None] = Deferred.of(None)

    def wait(self, delay_ms: int | None = None) -> Deferred[None]:
        """Done after that time, or at the next `call`. None: only at a call."""
        self._waited_for = Deferred() if delay_ms is None else self._tasks.sleep(max(0, delay_ms))
        return self._waited_for

    def call(self) -> None:
        """The loop goes on before this returns. Does nothing while it does not wait."""
        if not self._waited_for.done:
            self._waited_for.abandon()
            self._waited_for.resolve(None)


class Started(Protocol):
    """What was started and nobody waits for: its failure is reported. It may be cancelled."""

    @property
    def done(self) -> bool: ...

    def on_done(self, callback: Callable[[Any], None]) -> None: ...

    def cancel(self) -> None: ...


class Tasks:
    """The tasks of a node. Those that have paused take turns, a piece in each turn of the loop."""

    __slots__ = ("_has_turn", "_paused", "_timers", "_unfinished")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._unfinished: dict[Task[Any], None] = {}
        self._paused: deque[Task[Any]] = deque()
        self._has_turn = False
        """A turn is planned, or in progress."""

    def __iter__(self) -> Iterator[Task[Any]]:
        """Those that have not ended, oldest first."""
        return iter(list(self._unfinished))

    def start(self, what: str, coroutine: Coroutine[Any, None, object]) -> Started:
        """Carry out what nobody waits for, at once until it first waits. If it fails, that is reported as a bug."""
        return self._begun(Task(self, what, coroutine, is_reported=True))

    def run(self, what: str, coroutine: Coroutine[Any, None, T]) -> Task[T]:
        """Carry out what the caller waits for, at once until it first waits. A failure is the caller's."""
        return self._begun(Task(self, what, coroutine, is_reported=False))

    def all(self, what: str, coroutines: Sequence[Coroutine[Any, None, T]]) -> Deferred[list[T]]:
        """Carry them out side by side. Their values in this order. If one fails, the others end, and so they do when nobody
        waits for the values any more."""
        together: Deferred[list[T]] = Deferred()
        tasks = [Task(self, what, each, is_reported=False) for each in coroutines]
        left = len(tasks)

        def cancel() -> None:
            nonlocal left
            left = 0
            for task in tasks:
                task.cancel()

        def one_is_over(done: Deferred[T]) -> None:
            nonlocal left
            if left == 0:  # it was cancelled here
                return
            left -= 1
            try:
                done.result()
            except Exception as error:
                cancel()
                together.fail(error)
            else:
                if left == 0:
                    together.resolve([task.result() for task in tasks])

        together.when_abandoned = cancel
        for task in tasks:
            self._unfinished[task] = None
            task.on_done(one_is_over)
        for task in tasks:
            if not task.done:  # an earlier one may have failed at once
                task.go_on()
        return together if tasks else Deferred.of([])

    def sleep(self, delay_ms: int) -> Deferred[None]:
        """Done after some milliseconds."""
        over: Deferred[None] = Deferred()
        over.when_abandoned = self._timers.call_after(delay_ms, lambda: over.resolve(None)).cancel
        return over

    def no_longer_than(self, delay_ms: int, answer: Deferred[Any]) -> Deferred[None]:
        """Done when the answer is there, whatever it is, or after some milliseconds. The answer is then abandoned, if nobody
        else waits for it."""
        over: Deferred[None] = Deferred()

        def there(_: Deferred[Any]) -> None:
            timer.cancel()
            over.resolve(None)

        def late() -> None:
            answer.forget(there)  # otherwise each who waits for it anew would leave something in memory
            over.resolve(None)

        def unwanted() -> None:
            timer.cancel()
            answer.forget(there)

        timer = self._timers.call_after(delay_ms, late)
        over.when_abandoned = unwanted
        answer.on_done(there)
        return over

    def remove(self, task: Task[Any]) -> None:
        """It has ended."""
        del self._unfinished[task]

    def go_on_later(self, task: Task[Any]) -> None:
        """In a later turn of the loop, after those that paused before."""
        self._paused.append(task)
        self._plan_turn()

    def _begun(self, task: Task[T]) -> Task[T]:
        self._unfinished[task] = None
        task.go_on()
        return task

    def _plan_turn(self) -> None:
        """If there is no memory for the timer, the next task that pauses plans the turn. Otherwise none would ever go on."""
        if not self._has_turn:
            self._timers.call_after(0, self._turn)
            self._has_turn = True

    def _turn(self) -> None:
        task = self._paused.popleft()
        try:
            if not task.done:
                task.go_on()
        finally:
            self._has_turn = False
            if self._paused:
                self._plan_turn()
