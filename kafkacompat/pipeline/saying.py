"""Lines for a person who may go away: `| head` ends first, and the Ctrl-C that ends a command ends the `| tee` behind it.

Then a command is to end as cleanly as when it is asked to. Knows nothing of what is said.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import TextIO

from kafkacompat.pipeline.failure import PipelineFailed


class Voice:
    """Standard output and standard error, until one of them takes nothing more.

    PipelineFailed, once, when that is for another reason than that nobody reads, as on a full disk.
    """

    __slots__ = ("_gone",)

    def __init__(self, gone: Callable[[], object]) -> None:
        """gone is called when nobody reads any more; what is said from then on goes nowhere."""
        self._gone = gone

    def say(self, text: str, end: str = "\n") -> None:
        """On standard output, at once even into a pipe."""
        self._write(sys.stdout, text, end)

    def warn(self, text: str) -> None:
        """On standard error."""
        self._write(sys.stderr, text, "\n")

    def _write(self, stream: TextIO, text: str, end: str) -> None:
        try:
            print(text, end=end, file=stream, flush=True)
        except UnicodeEncodeError:
            # The name of a file may be no text.
            self._write(stream, text.encode("ascii", "backslashreplace").decode("ascii"), end)
        except OSError as error:
            # What waits in the stream's buffer goes there too, else the interpreter's end would trip over it.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if not isinstance(error, ConnectionError) and error.errno != errno.EIO:
                # A full disk is no reader that went away, and no reason to end with status 0.
                raise PipelineFailed(f"what it says cannot be written: {error.strerror}") from None
            self._gone()
