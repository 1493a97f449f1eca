"""When Python looks for garbage in cycles, in a process that keeps most of what it makes.

All of this changes the whole process, so only the program's main module calls it.
"""

from __future__ import annotations

import gc

THRESHOLDS = (30_000, 2, 600)
"""A pass takes 75 ns for each object that it looks at, and the loop waits. Each pass over young objects looks at 30,000 more
than were freed, each over those that have outlived one at four times as many. A request may make a million. A pass over
everything comes once for so many of the latter, and only if a quarter more objects have outlived them."""


def collect_seldom() -> None:
    """From the first line on: a start makes hardly anything but what stays."""
    gc.set_threshold(*THRESHOLDS)


def keep_long_lived() -> None:
    """Exclude all present objects from garbage collection, so that its runs stay short.

    Called after the imports, and repeatedly while very much is loaded. A garbage cycle that exists at that moment is
    never freed.
    """
    gc.freeze()


def freeze_long_lived() -> None:
    """After start: free the garbage of the start, and exclude the rest from garbage collection."""
    gc.collect()
    gc.freeze()
