"""Waiting for sockets in the place of trio's loop.

When a socket is ready, trio switches to the task that waits for it, which registers the socket again for its next wait. That
takes more than twice as long as a small request. So the task of a poller does not go back to the loop when nothing is ready. It
waits itself, in its own set. That set has the loop's set as a member, so the poller also wakes for everything that the loop waits
for, and then lets the loop have its turn.

It waits only while no other task of the loop is ready, and not beyond the loop's next deadline. The node's timers are no matter of
the loop meanwhile: the poller fires them. The loop takes all ready tasks
out of its queue and carries them out in any order. So an empty queue does not tell that no task is ready. It tells so when the
queue was empty before a turn of the loop, and nothing was put into it until the poller goes on (`turn_of_the_loop`).

trio has no name for its set. Linux tells which sets a process has, and what is in each (proc(5), fdinfo). Where that is not told,
nobody waits in the place of the loop.
"""

from __future__ import annotations

import math
import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Protocol

import trio

from kafkacompat.net.watchdog import LoopRest

WAIT_MAX_S = 3600.0
OWN_DESCRIPTORS = "/proc/self"
"""The folder with `fd` and `fdinfo`."""
EPOLL = "anon_inode:[eventpoll]"
_MEMBER = re.compile(rb"^tfd: *(\d+) ", re.MULTILINE)


class Guest(Protocol):
    """The owner of a socket that a poller reads while it waits in the loop's place."""

    def readable(self) -> None:
        """There are bytes, or the end. Never waits, never raises."""
        ...

    def writable(self) -> None: ...

    def dismissed(self) -> None:
        """It is removed, because the poller does not wait in the loop's place any more."""
        ...


class LentTimers(Protocol):
    """The timers of the node (runtime.TrioTimers)."""

    def lend(self, on_move: Callable[[], None]) -> None: ...

    def take_back(self) -> None: ...

    def next_s(self) -> float: ...

    def fire(self) -> bool: ...


class WaitsInPlace(Protocol):
    """The poller that waits in the loop's place."""

    def add_guest(self, fd: int, guest: Guest) -> None:
        """Call `readable` whenever the socket has bytes. Raises OSError if the system cannot add it to the set."""
        ...

    def remove(self, fd: int) -> None:
        """Call it before the socket is closed."""
        ...


class Bell:
    """Wakes the poller that waits in the loop's place, from any thread. It then calls those in `tells`, in the loop's thread."""

    def __init__(self) -> None:
        self.tells: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._fd: int | None = None
        """Of the poller that waits now. The lock is held wherever another thread could write to a closed one."""

    def ring(self) -> bool:
        """From any thread. False: no poller waits in the loop's place, and nobody is told."""
        with self._lock:
            if self._fd is None:
                return False
            os.eventfd_write(self._fd, 1)
            return True

    def hang_at(self, poller: WaitsInPlace) -> None:
        """From now on it wakes this poller."""
        try:
            fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:  # the limit of open files
            return
        try:
            poller.add_guest(fd, _HungBell(self, fd))
        except OSError:
            os.close(fd)
            return
        with self._lock:
            self._fd = fd

    def tell(self) -> None:
        for each in self.tells:
            each()

    def taken_down(self, fd: int) -> None:
        with self._lock:
            if self._fd == fd:
                self._fd = None
            os.close(fd)
        self.tell()  # it may have rung


class _HungBell:
    def __init__(self, bell: Bell, fd: int) -> None:
        self._bell = bell
        self._fd = fd

    def readable(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        self._bell.tell()

    def writable(self) -> None:
        """Not waited for."""

    def dismissed(self) -> None:
        self._bell.taken_down(self._fd)


class LoopWait(trio.abc.Instrument):
    """For one run of trio. One poller at a time waits in place of the loop: the last that began to."""

    def __init__(self, rest: LoopRest, timers: LentTimers | None = None) -> None:
        """`timers`: those that fire without a turn of the loop."""
        self.rest = rest
        self.owner: WaitsInPlace | None = None
        self.bell = Bell()
        self.loop_is_due = False
        """The loop's set has something."""
        self.idle_until_s = 0.0
        """There is nothing to do before, for the loop or for the timers, unless something happens. 0: they must be asked
        (`idle_s`)."""
        self._task: trio.lowlevel.Task | None = None
        self._others_are_ready = False
        self._deadline_s: float | None = None
        """The loop's next deadline, by time.monotonic. None: it must be asked."""
        self._timers = timers
        self._timer_s: float | None = None
        """When the next timer is due, by time.monotonic. None: they must be asked."""

    def begin(self, poller: WaitsInPlace) -> None:
        if self.owner is None:
            trio.lowlevel.add_instrument(self)
            if self._timers is not None:
                self._timers.lend(self._timers_have_moved)
        self.owner = poller
        self.bell.hang_at(poller)

    def end(self, poller: WaitsInPlace) -> None:
        if self.owner is poller:
            self.owner = None
            trio.lowlevel.remove_instrument(self)
            if self._timers is not None:
                self._timers.take_back()

    async def turn_of_the_loop(self) -> None:
        """Let the other tasks have a turn."""
        self._task = trio.lowlevel.current_task()
        self.loop_is_due = False
        self.idle_until_s = 0.0
        self._deadline_s = None
        self._others_are_ready = trio.lowlevel.current_statistics().tasks_runnable > 0
        await trio.lowlevel.checkpoint()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is not self._task:
            self._others_are_ready = True
            self.idle_until_s = 0.0

    def _timers_have_moved(self) -> None:
        self._timer_s = None
        self.idle_until_s = 0.0

    def idle_s(self, now_s: float) -> float:
        """For how long there is nothing to do unless something happens. Not positive: something may be to do now, for the loop or
        for the timers (`fire_due`)."""
        if self._others_are_ready:
            return 0.0
        if self._deadline_s is None:
            # The answer takes five times as long as a look at the set. Only in a turn of the loop deadlines move.
            left_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
            self._deadline_s = now_s + min(left_s, WAIT_MAX_S)
        if self._timer_s is None:
            self._timer_s = math.inf if self._timers is None else self._timers.next_s()
        self.idle_until_s = min(self._deadline_s, self._timer_s)
        return self.idle_until_s - now_s

    def fire_due(self) -> bool:
        """Fire the timers that are due, or a few of many. Returns whether some were, and the loop had nothing to do."""
        if self._timers is None:
            return False
        if self._timer_s is None:
            self._timer_s = self._timers.next_s()
        now_s = monotonic()
        if self._timer_s > now_s:
            return False
        self._timers_have_moved()
        self._timers.fire()
        return not self._others_are_ready and self._deadline_s is not None and self._deadline_s > now_s

    # A reader of the poller, for the loop's set.

    def readable(self) -> None:
        self.loop_is_due = True

    def writable(self) -> None:
        """Nothing is written to a set."""


async def descriptor_of_the_loop(folder: str = OWN_DESCRIPTORS) -> int | None:
    """The descriptor of the set in which trio's loop waits: the only set with a socket for which a task has waited. None: it is
    not told."""
    try:
        near, far = socket.socketpair()
    except OSError:  # the limit of open files
        return None
    with near, far:
        far.send(b"x")
        await trio.lowlevel.wait_readable(near)
        return _set_with(near.fileno(), folder)


def _set_with(member: int, folder: str) -> int | None:
    """The only set of this process that has a descriptor in it."""
    found = []
    try:
        descriptors = os.listdir(f"{folder}/fd")
    except OSError:
        return None
    for each in descriptors:
        # A thread may close it meanwhile.
        with suppress(OSError):
            if os.readlink(f"{folder}/fd/{each}") != EPOLL:
                continue
            with open(f"{folder}/fdinfo/{each}", "rb") as info:
                members = {int(number) for number in _MEMBER.findall(info.read())}
            if member in members:
                found.append(int(each))
    return found[0] if len(found) == 1 else None
