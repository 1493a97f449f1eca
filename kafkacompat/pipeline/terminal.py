"""Output for a person who may go away: `| head` ends first, and the Ctrl-C that ends a command also ends the `| tee`
behind it.

The command then ends as cleanly as after a request. Independent of the content.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import TextIO

from kafkacompat.pipeline.failure import PipelineFailed


class Terminal:
    """Writes to standard output and standard error, until one of them fails.

    Raises PipelineFailed, once, if the failure has another reason than a missing reader, such as a full disk.
    """

    __slots__ = ("_gone",)

    def __init__(self, gone: Callable[[], object]) -> None:
        """`gone` is called when there is no reader any more. All later output is discarded."""
        self._gone = gone

    def say(self, text: str, end: str = "\n") -> None:
        """Write to standard output and flush at once, even into a pipe."""
        self._write(sys.stdout, text, end)

    def warn(self, text: str) -> None:
        """Write to standard error."""
        self._write(sys.stderr, text, "\n")

    def _write(self, stream: TextIO, text: str, end: str) -> None:
        try:
            print(text, end=end, file=stream, flush=True)
        except UnicodeEncodeError:
            # A file's name may contain bytes that are no text.
            self._write(stream, text.encode("ascii", "backslashreplace").decode("ascii"), end)
        except OSError as error:
            # The buffered output is discarded too. Otherwise the interpreter would fail on it at exit.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            if not isinstance(error, ConnectionError) and error.errno != errno.EIO:
                # A full disk is not a missing reader, and must not lead to exit status 0.
                raise PipelineFailed(f"the output cannot be written: {error.strerror}") from None
            self._gone()
