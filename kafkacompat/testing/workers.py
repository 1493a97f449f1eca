"""The workers of a node whose disk is memory. Its jobs wait for no disk, so they run in the node's own loop, each in a turn of its
own: without the switches between threads, and in an order that is always the same.

A job that a slow disk holds up is carried out at once, and its value comes later. So the loop goes on meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TypeVar

import trio

from kafkacompat.deferred import Deferred
from kafkacompat.net.job_queue import Waits
from kafkacompat.net.workers import TERMS, worker_pools
from kafkacompat.ports import WorkerPools
from kafkacompat.ports.process import SameWorkers

T = TypeVar("T")
IN_THREADS = frozenset(duty for duty, terms in TERMS.items() if terms.waits is not Waits.DISK)
_thread = threading.local()
"""`held_ms`: how long the present job of a LoopWorkers is held up. It is missing outside of one."""


def may_be_held_up() -> bool:
    """Whether only the present job or thread would wait, and not a whole loop."""
    return hasattr(_thread, "held_ms") or not trio.lowlevel.in_trio_run()


def hold_up(ms: int) -> None:
    """Let the present job take so much longer, in real time. Outside of a job in a loop, the caller waits."""
    if hasattr(_thread, "held_ms"):
        _thread.held_ms += ms
    else:
        time.sleep(ms / 1000)


class LoopWorkers:
    """ports.Workers, as a pool of one thread: the values come in the order of the jobs."""

    def __init__(self, nursery: trio.Nursery, token: trio.lowlevel.TrioToken) -> None:
        self._nursery = nursery
        self._token = token
        self._is_open = True
        self._held: deque[tuple[int, Callable[[], None]]] = deque()
        """What is told when the time is over: behind a job that is held up, others wait."""

    def submit(self, function: Callable[[], T]) -> Deferred[T]:
        deferred: Deferred[T] = Deferred()

        def run() -> None:
            if not self._is_open:
                return
            _thread.held_ms = 0
            try:
                tell = partial(deferred.resolve, function())
            except Exception as error:
                tell = partial(deferred.fail, error)
            finally:
                held_ms = _thread.held_ms
                del _thread.held_ms
            if held_ms or self._held:
                self._tell_later(held_ms, tell)
            else:
                tell()

        self._token.run_sync_soon(run)
        return deferred

    def _tell_later(self, ms: int, tell: Callable[[], None]) -> None:
        self._held.append((ms, tell))
        if len(self._held) == 1:
            self._nursery.start_soon(self._tell_in_order)

    async def _tell_in_order(self) -> None:
        while self._held:
            ms, tell = self._held[0]
            await trio.sleep(ms / 1000)
            self._held.popleft()
            if self._is_open:
                tell()

    def close(self) -> None:
        """The node is gone: what waits is not carried out, and nobody is told."""
        self._is_open = False


def loop_pools(
    nursery: trio.Nursery, token: trio.lowlevel.TrioToken
) -> tuple[WorkerPools, Callable[[], None]]:
    """The pools, and what ends them. Each runs in the loop but those of IN_THREADS."""
    duties = {each.name for each in fields(WorkerPools)} - IN_THREADS - {"log_sync"}
    syncs = LoopWorkers(nursery, token)
    loops = {duty: LoopWorkers(nursery, token) for duty in duties}

    def close() -> None:
        for each in (syncs, *loops.values()):
            each.close()

    return replace(worker_pools(nursery), log_sync=SameWorkers(syncs), **loops), close
