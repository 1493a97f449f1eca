"""Waiting for sockets in the place of trio's loop.

When a socket is ready, trio switches to the task that waits for it, which registers the socket again for its next wait. That
takes more than twice as long as a small request. So the task of a poller does not go back to the loop when nothing is ready. It
waits itself, in its own set. That set has the loop's set as a member, so the poller also wakes for everything that the loop waits
for, and then lets the loop have its turn.

It waits only while no other task of the loop is ready, and not beyond the loop's next deadline. The loop takes all ready tasks
out of its queue and carries them out in any order. So an empty queue does not tell that no task is ready. It tells so when the
queue was empty before a turn of the loop, and nothing was put into it until the poller goes on (`turn_of_the_loop`).

trio has no name for its set. Linux tells which sets a process has, and what is in each (proc(5), fdinfo). Where that is not told,
nobody waits in the place of the loop.
"""

from __future__ import annotations

import os
import re
import socket
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


class WaitsInPlace(Protocol):
    """The poller that waits in the loop's place."""

    def add_guest(self, fd: int, guest: Guest) -> None:
        """Call `readable` whenever the socket has bytes. Raises OSError if the system cannot add it to the set."""
        ...

    def remove(self, fd: int) -> None:
        """Call it before the socket is closed."""
        ...


class LoopWait(trio.abc.Instrument):
    """For one run of trio. One poller at a time waits in place of the loop: the last that began to."""

    def __init__(self, rest: LoopRest) -> None:
        self.rest = rest
        self.owner: WaitsInPlace | None = None
        self.loop_is_due = False
        """The loop's set has something."""
        self._task: trio.lowlevel.Task | None = None
        self._others_are_ready = False
        self._deadline_s: float | None = None
        """The loop's next deadline, by time.monotonic. None: it must be asked."""

    def begin(self, poller: WaitsInPlace) -> None:
        if self.owner is None:
            trio.lowlevel.add_instrument(self)
        self.owner = poller

    def end(self, poller: WaitsInPlace) -> None:
        if self.owner is poller:
            self.owner = None
            trio.lowlevel.remove_instrument(self)

    async def turn_of_the_loop(self) -> None:
        """Let the other tasks have a turn."""
        self._task = trio.lowlevel.current_task()
        self.loop_is_due = False
        self._deadline_s = None
        self._others_are_ready = trio.lowlevel.current_statistics().tasks_runnable > 0
        await trio.lowlevel.checkpoint()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is not self._task:
            self._others_are_ready = True

    def deadline_has_moved(self) -> None:
        """Outside of a turn of the loop, nothing moves deadlines but the node's timers (TrioTimers)."""
        self._deadline_s = None

    def idle_s(self) -> float:
        """For how long the loop has nothing to do unless something happens. Not positive: it may have something to do now."""
        if self._others_are_ready:
            return 0.0
        now_s = monotonic()
        if self._deadline_s is None:
            # The answer takes five times as long as a look at the set.
            left_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
            self._deadline_s = now_s + min(left_s, WAIT_MAX_S)
        return self._deadline_s - now_s

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
