"""Finds exceptions that a node's parts log with a traceback. They are unexpected: the broker continues, but the
simulation fails.

Exceptions caused by refusing disks are excluded, because disks fail in simulations. A planted bug counts as noticed
also if it is logged without a traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafkacompat.sim.faults.pools import Unforeseen


class Listener(logging.Handler):
    def __init__(self, found: Callable[[BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self._found(error)
        for named in record.args if isinstance(record.args, tuple) else ():
            if isinstance(named, Unforeseen):
                self._found(named)


@contextmanager
def heard(found: Callable[[BaseException], None]) -> Iterator[None]:
    """`found` gets each exception that is logged, also if logging is disabled."""
    logger, listener = logging.getLogger("kafkacompat"), Listener(found)
    level, propagate = logger.level, logger.propagate
    if level > logging.ERROR:
        logger.setLevel(logging.ERROR)
        logger.propagate = False
    logger.addHandler(listener)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
        logger.propagate = propagate
