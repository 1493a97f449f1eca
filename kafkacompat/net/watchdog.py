"""Watches the event loop from a thread. Code that blocks the loop longer than a limit is logged with its stack, and
counted.

The thread asks the loop for a sign of life at an interval, so it costs the loop's own work nothing. A stall is
measured from the question on, so one that begins between two questions is measured too short. The wall time is how
long everything waited. The CPU time of the loop's thread shows whether the loop computed, or waited for the machine, a
disk or a lock.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Protocol

INTERVAL_S = 0.05
"""Seconds between an answer and the next question."""
LIMIT_S = 0.1
"""A loop that does not answer for this long has stalled."""
FRAMES_MAX = 12
"""The innermost stack frames that are logged."""
UNSEEN = "a call that kept the interpreter's lock"

_log = logging.getLogger(__name__)


class Sign(Protocol):
    """The loop's answer to a question."""

    def __call__(self) -> None: ...


class LoopWatchdog:
    """Call `start` and `stop` in the loop's thread. The counters may be read from anywhere."""

    def __init__(
        self,
        ask: Callable[[Sign], object],
        *,
        on_stall: Callable[[float, float, str], None] | None = None,
        interval_s: float = INTERVAL_S,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`ask` makes the loop call a sign, from any thread. It raises RuntimeError once the loop has ended.

        `on_stall` is called with the wall and CPU seconds and the stack's text, in the watching thread. Without it
        they are logged.
        """
        self.stalls = 0
        self.longest_s = 0.0
        self._ask = ask
        self._on_stall = on_stall or _log_stall
        self._interval_s = interval_s
        self._limit_s = limit_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop_thread = threading.get_ident()
        # The CPU clock of the calling thread, which the watching thread may read. If there is none, the process's.
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        cpu_clock: int = time.CLOCK_PROCESS_CPUTIME_ID if of_thread is None else of_thread(loop_thread)
        self._thread = threading.Thread(
            target=self._watch, args=(loop_thread, cpu_clock), name="loop watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. The thread ends by itself and is not waited for."""
        self._stopped.set()

    def _watch(self, loop_thread: int, cpu_clock: int) -> None:
        while not self._stopped.wait(self._interval_s):
            question = _Question(cpu_clock)
            try:
                self._ask(question)
            except RuntimeError:
                return
            stack = UNSEEN
            if not question.answered.wait(self._limit_s):
                stack = _stack_of(loop_thread)
                while not question.answered.wait(self._interval_s):
                    if self._stopped.is_set():
                        return
            if question.wall_s >= self._limit_s and not self._stopped.is_set():
                self.stalls += 1
                self.longest_s = max(self.longest_s, question.wall_s)
                self._on_stall(question.wall_s, question.cpu_s, stack)


class _Question:
    """Created in the watching thread, called in the loop's."""

    __slots__ = ("_asked_cpu_s", "_asked_s", "_cpu_clock", "answered", "cpu_s", "wall_s")

    def __init__(self, cpu_clock: int) -> None:
        self.answered = threading.Event()
        self._cpu_clock = cpu_clock
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self._asked_s = time.monotonic()
        self._asked_cpu_s = time.clock_gettime(cpu_clock)

    def __call__(self) -> None:
        self.wall_s = time.monotonic() - self._asked_s
        self.cpu_s = time.clock_gettime(self._cpu_clock) - self._asked_cpu_s
        self.answered.set()


def _stack_of(thread: int) -> str:
    frame: FrameType | None = sys._current_frames().get(thread)
    if frame is None:
        return UNSEEN
    return "".join(traceback.format_stack(frame)[-FRAMES_MAX:]).rstrip()


def _log_stall(wall_s: float, cpu_s: float, stack: str) -> None:
    _log.warning(
        "the event loop stood still for %.0f ms, computing for %.0f ms of it, in:\n%s",
        wall_s * 1000,
        cpu_s * 1000,
        stack,
    )
