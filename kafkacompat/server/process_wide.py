"""What changes the whole process, so that only the program's main module calls it: the signals that stop a node, and when Python
looks for garbage in cycles.

Signals are handled from the first moment of the process to the last. They are counted and passed to a callback. The signals are
SIGTERM, SIGINT (Ctrl-C), and SIGHUP (the terminal was closed) unless the process was started to outlive its terminal (nohup).
No signal ends the process directly. Before a callback is set, the start thus ends in order. After the node has stopped, the
exit status thus still reports the clean stop.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

THRESHOLDS = (30_000, 2, 600)
"""A pass takes 75 ns for each object that it looks at, and the loop waits. Each pass over young objects looks at 30,000 more
than were freed, each over those that have outlived one at four times as many. A request may make a million. A pass over
everything comes once for so many of the latter, and only if a quarter more objects have outlived them."""


def collect_seldom() -> None:
    """From the first line on: a start makes hardly anything but what stays."""
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def while_importing() -> Iterator[None]:
    """Look for no garbage in this block, and exclude what it makes from garbage collection: modules stay. A pass over those of
    a node takes a twentieth of its start."""
    gc.disable()
    try:
        yield
    finally:
        keep_long_lived()
        gc.enable()


def keep_long_lived() -> None:
    """Exclude all present objects from garbage collection, so that its runs stay short.

    Called after the imports, and repeatedly while very much is loaded. A garbage cycle that exists at that moment is
    never freed.
    """
    gc.freeze()


def keep_what_was_loaded() -> None:
    """Once everything is loaded: exclude it from garbage collection, and give the system back what the C library holds free.
    Loading modules leaves some MB of that, in an arena of each thread."""
    import ctypes

    keep_long_lived()
    with suppress(OSError, AttributeError):  # a C library other than glibc has no such call
        ctypes.CDLL(None).malloc_trim(0)


def freeze_long_lived() -> None:
    """After start: free the garbage of the start, and exclude the rest from garbage collection."""
    gc.collect()
    gc.freeze()


class StopSignals:
    def __init__(self) -> None:
        self.count = 0
        self._told = 0
        self._tell: Callable[[], None] | None = None

    def listen(self) -> None:
        """Handle the signals until the process ends. This changes the whole process, so only the program's main module
        calls it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)

    def tell(self, callback: Callable[[], None] | None) -> None:
        """Call back for every signal, including earlier ones. None removes the callback.

        The callback runs between any two steps of the main thread, so it should only set a flag or schedule work.
        """
        self._tell = callback
        self._pass_on()

    def _note(self, number: int, frame: object) -> None:
        self.count += 1
        self._pass_on()

    def _pass_on(self) -> None:
        # Another signal may interrupt this loop. It then sees the updated count.
        while self._tell is not None and self._told < self.count:
            self._told += 1
            self._tell()
