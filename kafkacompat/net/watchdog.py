"""Watches the event loop from a thread. Code that blocks the loop longer than a limit is logged with its stack, and
counted.

The thread looks at an interval, and asks a busy loop for a sign of life. A loop that waits for events does not stand still, and is
not woken to say so: a quiet node stays asleep. A stall is measured from the begin of the step that the loop is in, which it
notes. So a step that takes as long as the limit is seen by one look at least. The wall time is how long everything waited. The CPU
time of the loop's thread shows whether the loop computed, or waited for the machine, a disk or a lock. What it computed between the
look before and the begin of the step may be counted too.

While a call keeps the interpreter's lock, in whatever thread, neither the loop nor the watching thread runs. So such a
stall is noticed when it is over: the watching thread wakes late, and no lack of a processor explains it. Its stack
cannot be seen. The one that is logged is of the moment after it, usually of the function that made the call.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple, Protocol

import trio

SCHEDULING = "/proc/thread-self/schedstat"
"""Of the reading thread, on Linux: ns on a processor, ns of waiting for one, and how often it got one."""
LINE_BYTES_MAX = 100


def waited_s(path: str = SCHEDULING) -> float:
    """How long the calling thread had something to do, and no processor was free for it: seconds since its start. 0 where
    the system does not tell."""
    with reading_waited(path) as read:
        return read()


@contextmanager
def reading_waited(path: str = SCHEDULING) -> Iterator[Callable[[], float]]:
    """Yield what gives `waited_s` of the thread that enters this block, for a thread that asks often: the file stays open."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield float
        return

    def read() -> float:
        try:
            return int(os.pread(file, LINE_BYTES_MAX, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0

    try:
        yield read
    finally:
        os.close(file)


INTERVAL_S = 0.1
"""Seconds between an answer and the next look. Each wakes a thread, so an idle node pays for nearly nothing else as often."""
LIMIT_S = 0.1
"""A step of the loop that takes this long is a stall."""
THREAD_RETRY_S = 1.0
"""Delay before a retry if the system cannot start a thread."""
FRAMES_MAX = 12
"""The innermost stack frames that are logged."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_FRAME = re.compile(r'^  File "(.+)", line ([0-9]+), in (.+)$', re.MULTILINE)
"""A frame in the text of Python's traceback."""
UNSEEN = "a place that was not seen: a call kept the interpreter's lock, or no processor was free for the watching thread"
AFTERWARDS = "a call that kept the interpreter's lock, or a pause of the whole process; right after it the loop was in:"

_log = logging.getLogger(__name__)


class Sign(Protocol):
    """The loop's answer to a question."""

    def __call__(self) -> None: ...


class LoopRest(trio.abc.Instrument):
    """Knows whether the loop waits for events or for a timer, or since when it is in its present step. Add it to the loop as an
    instrument. Any thread may look."""

    def __init__(self) -> None:
        self.is_resting = False
        self.began_s = 0.0
        """When the present step began, by time.monotonic. A poller has steps of its own between two turns of the loop."""

    def before_io_wait(self, timeout: float) -> None:
        self.is_resting = timeout > 0

    def after_io_wait(self, timeout: float) -> None:
        self.began_s = time.monotonic()
        self.is_resting = False


class Moment(NamedTuple):
    """What the clocks show, in seconds."""

    wall_s: float
    loop_cpu_s: float
    """What the loop's thread has computed."""
    waited_s: float
    """For how long the watching thread was ready to run, and no processor was free."""


class Stall(NamedTuple):
    wall_s: float
    cpu_s: float


def kept_from_running(answered: Moment, woke: Moment, interval_s: float, limit_s: float) -> Stall | None:
    """The stall between the loop's last answer and the time at which the watching thread woke from its pause of `interval_s`.
    None if the thread was not late, or was late for want of a processor, which says nothing about the loop."""
    late_s = woke.wall_s - answered.wall_s - interval_s
    if late_s - (woke.waited_s - answered.waited_s) < limit_s:
        return None
    return Stall(late_s, min(woke.loop_cpu_s - answered.loop_cpu_s, late_s))


def step_began(answered: Moment, woke: Moment, began_s: float) -> tuple[float, float]:
    """When the step began in which the loop is as the watching thread wakes, and what the loop's thread had computed by then, at
    least. `began_s`: as the loop tells it. It has answered since then, or was at rest, at `answered`."""
    began_s = min(max(began_s, answered.wall_s), woke.wall_s)
    return began_s, max(answered.loop_cpu_s, woke.loop_cpu_s - (woke.wall_s - began_s))


class LoopWatchdog:
    """Call `start` and `stop` in the loop's thread. The counters may be read from anywhere."""

    def __init__(
        self,
        ask: Callable[[Sign], object],
        rest: LoopRest,
        *,
        on_stall: Callable[[float, float, str], None] | None = None,
        interval_s: float = INTERVAL_S,
        limit_s: float = LIMIT_S,
        waited_s: Callable[[], float] | None = None,
    ) -> None:
        """`ask` makes the loop call a sign, from any thread. It raises RuntimeError once the loop has ended. `rest` tells
        when it need not be asked.

        `on_stall` is called with the wall and CPU seconds and the stack's text, in the watching thread. Without it
        they are logged. `waited_s`: how long the calling thread has waited for a processor. Without it the system
        tells.
        """
        self.stalls = 0
        self.longest_s = 0.0
        self._ask = ask
        self._rest = rest
        self._on_stall = on_stall or _log_stall
        self._interval_s = interval_s
        self._limit_s = limit_s
        self._waited_s = waited_s
        self._stopped = False
        self._thread: threading.Thread | None = None

    async def begin(self) -> None:
        """`start` as soon as the system has a thread for it. Call it in the loop. The node serves without it."""
        is_told = False
        while not self._stopped:
            try:
                self.start()
            except (RuntimeError, MemoryError) as error:
                if not is_told:
                    is_told = True
                    _log.error(
                        "no thread watches the event loop, which is tried again: %s",
                        str(error) or repr(error),
                    )
                await trio.sleep(THREAD_RETRY_S)
            else:
                return

    def start(self) -> None:
        loop_thread = threading.get_ident()
        # The CPU clock of the calling thread, which the watching thread may read. If there is none, the process's.
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        cpu_clock: int = time.CLOCK_PROCESS_CPUTIME_ID if of_thread is None else of_thread(loop_thread)
        self._thread = threading.Thread(
            target=self._run, args=(loop_thread, cpu_clock), name="loop watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. The thread ends by itself and is not waited for."""
        self._stopped = True

    def _run(self, loop_thread: int, cpu_clock: int) -> None:
        with reading_waited() as read_waited:
            waited_s = self._waited_s or read_waited

            def now() -> Moment:
                return Moment(time.monotonic(), time.clock_gettime(cpu_clock), waited_s())

            while True:
                try:
                    self._watch(loop_thread, cpu_clock, now)
                    return
                except MemoryError:  # it passes, and the next stall is told again
                    time.sleep(self._interval_s)

    def _watch(self, loop_thread: int, cpu_clock: int, now: Callable[[], Moment]) -> None:
        answered = now()
        while True:
            time.sleep(self._interval_s)
            if self._stopped:
                return
            woke = now()
            stall = kept_from_running(answered, woke, self._interval_s, self._limit_s)
            if stall is not None:
                self._tell(stall, f"{AFTERWARDS}\n{_stack_of(loop_thread)}")
            if self._rest.is_resting:
                # To tell a stall took time, which is not another one.
                answered = woke if stall is None else now()
                continue
            if stall is not None:
                woke = answered = now()
            question = _Question(cpu_clock, *step_began(answered, woke, self._rest.began_s))
            try:
                self._ask(question)
            except RuntimeError:
                return
            stack = UNSEEN
            if not question.answered.wait(max(question.began_s + self._limit_s - time.monotonic(), 0)):
                stack = _stack_of(loop_thread)
                while not question.answered.wait(self._interval_s):
                    if self._stopped:
                        return
            if question.wall_s >= self._limit_s:
                self._tell(Stall(question.wall_s, question.cpu_s), stack)
                # To tell it may take long, for it reads the stack's files and writes to the log.
                answered = now()
            else:
                # The thread may have waited for a processor before the answer. A stall is then missed, none is made up.
                answered = Moment(question.answered_s, question.answered_cpu_s, woke.waited_s)

    def _tell(self, stall: Stall, stack: str) -> None:
        if self._stopped:
            return
        self.stalls += 1
        self.longest_s = max(self.longest_s, stall.wall_s)
        self._on_stall(stall.wall_s, stall.cpu_s, stack)


class _Question:
    """Created in the watching thread, called in the loop's."""

    __slots__ = (
        "_began_cpu_s",
        "_cpu_clock",
        "answered",
        "answered_cpu_s",
        "answered_s",
        "began_s",
        "cpu_s",
        "wall_s",
    )

    def __init__(self, cpu_clock: int, began_s: float, began_cpu_s: float) -> None:
        """The present step's begin, and what the loop's thread had computed by then."""
        self.answered = threading.Event()
        self._cpu_clock = cpu_clock
        self.wall_s = self.cpu_s = 0.0
        self.answered_s = self.answered_cpu_s = 0.0
        self.began_s = began_s
        self._began_cpu_s = began_cpu_s

    def __call__(self) -> None:
        self.answered_s, self.answered_cpu_s = time.monotonic(), time.clock_gettime(self._cpu_clock)
        self.wall_s = self.answered_s - self.began_s
        self.cpu_s = min(self.answered_cpu_s - self._began_cpu_s, self.wall_s)
        self.answered.set()


def _stack_of(thread: int) -> str:
    frame: FrameType | None = sys._current_frames().get(thread)
    if frame is None:
        return UNSEEN
    return "".join(traceback.format_stack(frame)[-FRAMES_MAX:]).rstrip()


def _log_stall(wall_s: float, cpu_s: float, stack: str) -> None:
    """The interop tests read these entries (interop_tests/harness/stalls.py), and fail when the loop computed."""
    times = f"the event loop stood still for {wall_s * 1000:.0f} ms, computing for {cpu_s * 1000:.0f} ms of it, in"
    brief = f"{times} {_place_in(stack)} (-v or --log-file: with the stack)"
    _log.warning("%s:\n%s", times, stack, extra={"brief": brief})


def _place_in(stack: str) -> str:
    """The innermost function of kafkacompat in a stack's text, or else of any module."""
    frames = _FRAME.findall(stack)
    own = [each for each in frames if each[0].startswith(_PACKAGE)]
    if not frames:
        return UNSEEN
    path, line, function = (own or frames)[-1]
    return f"{function} ({os.path.basename(path)}:{line})"
