"""The times of a thread that the system counts."""

from __future__ import annotations

SCHEDULING = "/proc/thread-self/schedstat"
"""Of the reading thread, on Linux: ns on a processor, ns of waiting for one, and how often it got one."""


def waited_s(path: str = SCHEDULING) -> float:
    """How long the calling thread had something to do, and no processor was free for it: seconds since its start. 0 where
    the system does not tell."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
