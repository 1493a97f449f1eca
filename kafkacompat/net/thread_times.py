"""The times of a thread that the system counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
