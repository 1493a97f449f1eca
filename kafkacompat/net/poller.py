"""Which connections have received bytes or can send again: one set of sockets for all of them.

It waits for the set, with trio or in trio's place (loop_wait.py), and gives ready connections their turns. A trio task per socket
would cost too much: registering a socket for every wait and switching tasks takes about as long as a small request, or a piece of a
large reply. A socket stays registered while it is read. Sending is waited for only while a full socket delays output,
because a socket that accepts more is always ready.

- Under load the loop's thread stays here for a while. If requests follow each other closely, as the last few did, it
  polls repeatedly for SPIN_S, because waking a sleeping core costs more than a small request. Polling has to pay: it is left
  while it is in vain too often.
- In trio's place it then waits in the kernel until a connection or the loop has something to do. It does not look again before:
  if a connection has become ready meanwhile, the wait returns at once. Of several pollers one waits there, and lets the others
  serve.
- With trio it waits in the kernel for at most LINGER_S, also if requests are further apart, and does not go through the loop. After
  a longer pause it does neither. If the last requests before the pause came one soon after the other, it does wait in the kernel,
  because those after it may come so too.
- It returns to the loop after BUSY_S and one turn at the latest, however many connections are ready. So the loop's
  other tasks (timers, workers' results, new connections) are not delayed. In trio's place it returns as soon as
  the loop has something to do, and after BUSY_S only if connections are left without a turn. Those are the first ones next time.
"""

from __future__ import annotations

import logging
import select
import selectors
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import trio

from kafkacompat.net.loop_wait import Guest, LoopWait, WaitsInPlace, descriptor_of_the_loop

SPIN_S = 0.00006
LINGER_S = 0.0002
REWARDED_MIN = 8
"""After this many waits in a row that each brought a request, the next one is polled for without sleeping first. Polling in
vain costs about as much as this many sleeps do, so it takes as many waits from the row. So the requests of a few clients that come
together are not polled for, nor those that are mostly further apart than SPIN_S."""
REWARDED_MAX = 2 * REWARDED_MIN
AT_ONCE_S = 0.00001
"""A wait that returns sooner was none: the request came while others had their turns."""
BUSY_S = 0.001
EVENTS_MAX = 256
"""Connections taken from the set at once."""
SELECTABLE_MAX = 1024
"""select(2) cannot wait for descriptors from here on."""


READ = 1
WRITE = 4
"""The events waited for and reported: the bits of poll(2), which may report others for a failed socket."""
_NOT_WRITE = ~WRITE
_NOT_READ = ~READ

_log = logging.getLogger(__name__)


class Reader(Protocol):
    """The owner of a socket. It may be called for events it does not wait for when the socket has failed. Never waits,
    never raises."""

    def readable(self) -> None:
        """There are bytes, or the end."""
        ...

    def writable(self) -> None:
        """The socket accepts bytes again."""
        ...


class SocketSet(Protocol):
    def fileno(self) -> int: ...

    def add(self, fd: int, events: int) -> None: ...

    def change(self, fd: int, events: int) -> None: ...

    def remove(self, fd: int) -> None: ...

    def ready(self) -> list[tuple[int, int]]:
        """The sockets that are ready for the requested events, or have failed, with their events."""
        ...

    def wait(self, most_s: float) -> list[tuple[int, int]]:
        """The same, as soon as there are any. None after that many seconds."""
        ...

    def close(self) -> None: ...


class EpollSet:
    """For Linux."""

    __slots__ = ("_epoll", "_poll")

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll

    def fileno(self) -> int:
        return self._epoll.fileno()

    def add(self, fd: int, events: int) -> None:
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        self._epoll.unregister(fd)

    def ready(self) -> list[tuple[int, int]]:
        return self._poll(0, EVENTS_MAX)

    def wait(self, most_s: float) -> list[tuple[int, int]]:
        return self._poll(most_s, EVENTS_MAX)

    def close(self) -> None:
        self._epoll.close()


class SelectorSet:
    """For other systems whose selector has a descriptor (kqueue)."""

    __slots__ = ("_selector",)

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def fileno(self) -> int:
        return int(self._selector.fileno())  # epoll and kqueue have one

    def add(self, fd: int, events: int) -> None:
        self._selector.register(fd, self._translated(events))

    def change(self, fd: int, events: int) -> None:
        self._selector.modify(fd, self._translated(events))

    def remove(self, fd: int) -> None:
        self._selector.unregister(fd)

    def ready(self) -> list[tuple[int, int]]:
        return self.wait(0)

    def wait(self, most_s: float) -> list[tuple[int, int]]:
        return [
            (
                key.fd,
                (READ if events & selectors.EVENT_READ else 0)
                | (WRITE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in self._selector.select(most_s)
        ]

    def _translated(self, events: int) -> int:
        return (selectors.EVENT_READ if events & READ else 0) | (
            selectors.EVENT_WRITE if events & WRITE else 0
        )

    def close(self) -> None:
        self._selector.close()


class _Nested:
    """The wait of a poller's task while another poller waits in the loop's place, and lets it serve."""

    __slots__ = ("_fd", "_owner", "_poller", "_task")

    def __init__(self, poller: Poller, owner: WaitsInPlace, fd: int) -> None:
        """`fd`: the poller's set."""
        self._poller = poller
        self._owner = owner
        self._fd = fd
        self._task: trio.lowlevel.Task | None = None

    async def until_dismissed(self) -> None:
        """Raises OSError if the system cannot add a set to the other one."""
        self._owner.add_guest(self._fd, self)
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def readable(self) -> None:
        self._poller.serve_as_guest()

    def writable(self) -> None:
        """Nothing is written to a set."""

    def dismissed(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _give_up(self, _raise_cancel: Callable[[], None]) -> trio.lowlevel.Abort:
        self._task = None
        self._owner.remove(self._fd)
        return trio.lowlevel.Abort.SUCCEEDED


class Poller:
    """Call `run` in its own task, and `close` when no connection is left."""

    __slots__ = (
        "_after_all",
        "_after_each",
        "_guests",
        "_has_removed",
        "_last_end_s",
        "_left",
        "_lingering_paid",
        "_may_linger",
        "_readers",
        "_rewarded",
        "_set",
        "_wait",
        "serving",
    )

    def __init__(
        self,
        after_each: Callable[[float], object],
        after_all: Callable[[], None],
        sockets: SocketSet | None = None,
        wait: LoopWait | None = None,
    ) -> None:
        """`after_each` is called after all ready connections had their turn or the time is over, with the time at
        which the loop needs its turn. It returns whether it has more to do. `after_all` is called before the loop gets its turn.
        With `wait` it waits in the loop's place, if it can."""
        self._after_each = after_each
        self._after_all = after_all
        self.serving = False
        """True while turns are given: work that they leave is handled before the loop continues."""
        self._set = sockets or (EpollSet() if hasattr(select, "epoll") else SelectorSet())
        self._readers: dict[int, Reader] = {}
        self._left: list[tuple[int, int]] = []
        """Connections that were ready when the loop's turn came. They check their own state."""
        self._may_linger = self._set.fileno() < SELECTABLE_MAX
        self._last_end_s = 0.0
        self._lingering_paid = False
        """Whether a wait brought a request in the last call of `serve`."""
        self._has_removed = False
        """Whether a connection has ended in these turns. Its client may connect anew, which only the loop sees."""
        self._rewarded = 0
        """Waits in a row that brought a request, less those that polling in vain has cost."""
        self._wait = wait
        self._guests: dict[int, Guest] = {}

    def add(self, fd: int, reader: Reader, events: int) -> None:
        """Call the method for each of `events` whenever the socket is ready for it."""
        self._set.add(fd, events)
        self._readers[fd] = reader

    def add_guest(self, fd: int, guest: Guest) -> None:
        """As `add`, while it waits in the loop's place. Waits for bytes."""
        self.add(fd, guest, READ)
        self._guests[fd] = guest

    def change(self, fd: int, events: int) -> None:
        """Wait for other events, at least one."""
        self._set.change(fd, events)

    def remove(self, fd: int) -> None:
        """Call it before the socket is closed."""
        del self._readers[fd]
        self._guests.pop(fd, None)
        self._has_removed = True
        self._set.remove(fd)

    def close(self) -> None:
        self._set.close()

    async def run(self) -> None:
        if self._wait is not None:
            await self._run_in_place(self._wait)
        is_told = False
        while True:
            owner = None if self._wait is None else self._wait.owner
            if owner is not None:
                try:
                    await _Nested(self, owner, self._set.fileno()).until_dismissed()
                    continue
                except OSError as error:
                    if not is_told:
                        is_told = True
                        _log.warning("the loop wakes for each request, a set cannot be waited for: %s", error)
            await trio.lowlevel.wait_readable(self._set.fileno())
            while self.serve():
                # Sleeping before the next request comes would cost more than the loop's turn.
                await trio.lowlevel.checkpoint()

    async def _run_in_place(self, wait: LoopWait) -> None:
        """Until another poller waits in the loop's place. Returns at once where nobody can."""
        loop = await descriptor_of_the_loop()
        if loop is None:
            return
        try:
            self._set.add(loop, READ)
        except OSError as error:
            _log.warning("the loop wakes for each request, its set cannot be waited for: %s", error)
            return
        wait.begin(self)
        self._readers[loop] = wait
        try:
            while wait.owner is self:
                await wait.turn_of_the_loop()
                if (
                    wait.owner is self
                ):  # or another poller has begun in this turn. It is ready, and would be waited for here
                    self._serve_in_place(wait)
        finally:
            wait.end(self)
            self.remove(loop)
            while self._guests:  # what one is told may remove others
                fd, guest = self._guests.popitem()
                self.remove(fd)
                guest.dismissed()

    def serve(self) -> bool:
        """Give turns to ready connections until none is ready or BUSY_S is over. Returns whether the loop must have its turn
        before more are served."""
        began_s = monotonic()
        lingers = self._may_linger and (self._lingering_paid or began_s - self._last_end_s < LINGER_S)
        until_s = began_s + BUSY_S
        ready = self._set.ready
        self.serving = True
        self._has_removed = False
        self._lingering_paid = False
        time_ended_it = True
        while monotonic() < until_s:
            fds, self._left = self._left or ready(), []
            if not fds and lingers and not self._has_removed:
                fds = self._linger()
            if not fds:
                time_ended_it = False
                break
            self._give_turns(fds, until_s)
        self._last_end_s = monotonic()
        self.serving = False
        self._after_all()
        return time_ended_it

    def serve_as_guest(self) -> None:
        """Give turns to those that are ready. The rest is still ready, so the poller in the loop's place calls again."""
        self.serving = True
        fds, self._left = self._left or self._set.ready(), []
        self._give_turns(fds, monotonic() + BUSY_S)
        self.serving = False
        self._after_all()

    def _give_turns(self, fds: list[tuple[int, int]], until_s: float) -> object:
        """Give each of these its turn, as far as time allows. Returns whether there is more to do without another look at the
        sockets."""
        readers, left = self._readers, len(fds)
        for fd, events in fds:
            left -= 1
            reader = readers.get(fd)
            if reader is None:
                continue  # removed by an earlier connection's turn
            if events & _NOT_READ:
                reader.writable()
            if events & _NOT_WRITE:
                reader.readable()
            if left and monotonic() >= until_s:
                self._left = fds[-left:]
                break
        return self._after_each(until_s)

    def _serve_in_place(self, wait: LoopWait) -> None:
        """Give turns, fire timers, and sleep, until the loop needs its turn."""
        rest, ready, sleep = wait.rest, self._set.ready, self._set.wait
        self.serving = True  # nothing else runs while it sleeps
        wait.fire_due()  # requests may follow each other for ever
        fds, self._left = self._left or ready(), []
        rest.began_s = now_s = monotonic()
        while True:
            has_more = self._give_turns(fds, now_s + BUSY_S)
            if wait.loop_is_due or self._left:
                break
            now_s = monotonic()
            idle_s = wait.idle_until_s - now_s
            if idle_s <= 0:
                idle_s = wait.idle_s(now_s)
            if idle_s <= 0 and not wait.fire_due():
                break
            if idle_s <= 0 or has_more:
                fds = ready()
                rest.began_s = now_s = monotonic()
                continue
            if self._rewarded >= REWARDED_MIN:
                fds = self._spin()
                rest.began_s = now_s = monotonic()
                if fds:
                    continue
            rest.is_resting = True
            fds = sleep(idle_s)
            rest.began_s = woke_s = monotonic()
            rest.is_resting = False
            if not fds or woke_s - now_s >= LINGER_S:
                self._rewarded = 0
            elif woke_s - now_s >= AT_ONCE_S and self._rewarded < REWARDED_MAX:
                self._rewarded += 1
            now_s = woke_s
        self.serving = False
        self._after_all()

    def _spin(self) -> list[tuple[int, int]]:
        """The next ready connections. None if nothing comes soon."""
        ready = self._set.ready
        fds = ready()
        if fds:  # they came while others had their turns
            return fds
        until_s = monotonic() + SPIN_S
        while not fds and monotonic() < until_s:
            fds = ready()
        self._rewarded = min(self._rewarded + 1, REWARDED_MAX) if fds else self._rewarded - REWARDED_MIN
        return fds

    def _linger(self) -> list[tuple[int, int]]:
        """The next ready connections, at once or after a sleep in the kernel. None if nothing comes."""
        fds = self._spin() if self._rewarded >= REWARDED_MIN else []
        if not fds:
            if select.select([self._set.fileno()], (), (), LINGER_S)[0]:
                fds = self._set.ready()
            self._rewarded = min(self._rewarded + 1, REWARDED_MAX) if fds else 0
        if fds:
            self._lingering_paid = True
        return fds
