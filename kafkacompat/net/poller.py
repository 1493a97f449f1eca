"""Which connections have received bytes or can send again: one set of sockets for all of them.

It waits for the set with trio, and gives ready connections their turns. A trio task per socket would cost too much:
registering a socket for every wait and switching tasks takes about as long as a small request, or a piece of a large
reply. A socket stays registered while it is read. Sending is waited for only while a full socket delays output,
because a socket that accepts more is always ready.

- Under load the loop's thread stays here for a while. If requests follow each other closely, as the last few did, it
  polls repeatedly for SPIN_S, because waking a sleeping core costs more than a small request.
- After that, or if requests are further apart, it waits in the kernel for at most LINGER_S, and does not go through
  the loop.
- After a longer pause it does neither, so a quiet broker uses no CPU. If the last requests before the pause came one
  soon after the other, it does wait in the kernel, because those after it may come so too.
- It returns to the loop after BUSY_S and one turn at the latest, however many connections are ready. So the loop's
  other tasks (timers, workers' results, new connections) are not delayed. Connections without a turn are the first
  ones next time.
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import trio

SPIN_S = 0.00006
LINGER_S = 0.0002
REWARDED_MIN = 8
"""After this many waits in a row that each brought a request, the next one is polled for without sleeping first. A row
ends with polling in vain, which costs about as much as this many sleeps do. So the requests of a few clients that come
together are not polled for."""
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
        return [
            (
                key.fd,
                (READ if events & selectors.EVENT_READ else 0)
                | (WRITE if events & selectors.EVENT_WRITE else 0),
            )
            for key, events in self._selector.select(0)
        ]

    def _translated(self, events: int) -> int:
        return (selectors.EVENT_READ if events & READ else 0) | (
            selectors.EVENT_WRITE if events & WRITE else 0
        )

    def close(self) -> None:
        self._selector.close()


class Poller:
    """Call `run` in its own task, and `close` when no connection is left."""

    __slots__ = (
        "_after_all",
        "_after_each",
        "_has_removed",
        "_last_end_s",
        "_left",
        "_lingering_paid",
        "_may_linger",
        "_readers",
        "_rewarded",
        "_set",
        "serving",
    )

    def __init__(
        self,
        after_each: Callable[[float], None],
        after_all: Callable[[], None],
        sockets: SocketSet | None = None,
    ) -> None:
        """`after_each` is called after all ready connections had their turn or the time is over, with the time at
        which the loop needs its turn. `after_all` is called before the loop gets it."""
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
        """Waits in a row that brought a request."""

    def add(self, fd: int, reader: Reader, events: int) -> None:
        """Call the method for each of `events` whenever the socket is ready for it."""
        self._set.add(fd, events)
        self._readers[fd] = reader

    def change(self, fd: int, events: int) -> None:
        """Wait for other events, at least one."""
        self._set.change(fd, events)

    def remove(self, fd: int) -> None:
        """Call it before the socket is closed."""
        del self._readers[fd]
        self._has_removed = True
        self._set.remove(fd)

    def close(self) -> None:
        self._set.close()

    async def run(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._set.fileno())
            while self.serve():
                # Sleeping before the next request comes would cost more than the loop's turn.
                await trio.lowlevel.checkpoint()

    def serve(self) -> bool:
        """Give turns to ready connections until none is ready or BUSY_S is over. Returns whether the time ended it."""
        began_s = monotonic()
        lingers = self._may_linger and (self._lingering_paid or began_s - self._last_end_s < LINGER_S)
        until_s = began_s + BUSY_S
        ready, readers = self._set.ready, self._readers
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
            for at, (fd, events) in enumerate(fds, 1):
                reader = readers.get(fd)
                if reader is None:
                    continue  # removed by an earlier connection's turn
                if events & _NOT_READ:
                    reader.writable()
                if events & _NOT_WRITE:
                    reader.readable()
                if at < len(fds) and monotonic() >= until_s:
                    self._left = fds[at:]
                    break
            self._after_each(until_s)
        self._last_end_s = monotonic()
        self.serving = False
        self._after_all()
        return time_ended_it

    def _linger(self) -> list[tuple[int, int]]:
        """The next ready connections, at once or after a sleep in the kernel. None if nothing comes."""
        ready = self._set.ready
        fds: list[tuple[int, int]] = []
        if self._rewarded >= REWARDED_MIN:
            until_s = monotonic() + SPIN_S
            while not fds and monotonic() < until_s:
                fds = ready()
        if not fds and select.select([self._set.fileno()], (), (), LINGER_S)[0]:
            fds = ready()
        if fds:
            self._rewarded += 1
            self._lingering_paid = True
        else:
            self._rewarded = 0
        return fds
