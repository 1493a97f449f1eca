"""Bugs of our own, met where many are served one after another: reported with the stack, and the others go on.

All such faults are told in this one way. Not for the quorum, replay, publication, or what a log or an ISR promises: whatever is
unexpected there halts the node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)

listeners: list[Callable[[BaseException], None]] = []
"""Told beside the log: tests and the simulator, of which none may pass over a fault."""


def report(what: str, error: BaseException) -> None:
    """Say that this failed for a reason that nobody expected."""
    logger.error("%s failed, which is a bug of kafkacompat; the others go on", what, exc_info=error)
    for listener in listeners:
        listener(error)


def forget_locals(trace: TracebackType | None, until: TracebackType | None = None) -> None:
    """Empty the frames that an error has just left. `until`: the trace that it had before.

    An error that somebody waits for leads to its trace, its trace to the frames, and one of them mostly to the error
    again. So the garbage collector would have to find what the frames know, which may be a hundred megabytes. It counts
    objects and comes seldom. Reports show the lines of a trace, and nothing of these values.

    To empty the frame of a coroutine or generator that waits ends it. So an error that one of them has caught is not raised
    again elsewhere, for example by a worker's job, unless its earlier trace is given."""
    while trace is not None and trace is not until:
        with suppress(RuntimeError):  # a frame that still runs
            trace.tb_frame.clear()
        trace = trace.tb_next


def for_each(items: Iterable[T], act: Callable[[T], object], what: str) -> None:
    """Act on every item; one that raises is reported and does not keep the next from its turn."""
    for item in items:
        try:
            act(item)
        except Exception as error:
            report(what, error)
