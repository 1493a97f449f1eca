"""The signals that stop a node, handled from the first moment of its process to the last.

Signals are counted and passed to a callback. The signals are SIGTERM, SIGINT (Ctrl-C), and SIGHUP (the terminal was
closed) unless the process was started to outlive its terminal (nohup). No signal ends the process directly. Before a
callback is set, the start thus ends in order. After the node has stopped, the exit status thus still reports the clean
stop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable


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
