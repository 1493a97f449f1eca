"""The signals that ask a node to stop, from the first moment of its process to the last.

They are counted, and told to whoever takes care of them. SIGTERM, SIGINT (Ctrl-C), and SIGHUP (the terminal was closed) unless the
process was started to outlive its terminal (nohup). None of them ends the process by itself: not before anybody listens, so that
the start ends in order, and not after the node has stopped, so that a stop that went well is told by its exit status.
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
        """From now on, and until the process ends. Changes the whole process, so only the program's main module calls it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)

    def tell(self, callback: Callable[[], None] | None) -> None:
        """Call back for every signal, those included that came before; None: nobody is told any more.

        The callback is called between any two steps of the main thread, so it may do little more than leave word.
        """
        self._tell = callback
        self._pass_on()

    def _note(self, number: int, frame: object) -> None:
        self.count += 1
        self._pass_on()

    def _pass_on(self) -> None:
        # Another signal may come in between: it finds what this one has counted.
        while self._tell is not None and self._told < self.count:
            self._told += 1
            self._tell()
