"""What the nodes in this process log. It is kept for each broker, and goes to no handler of the test's own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping

LINES_MAX = 1_000
"""Of one broker. Older ones are dropped."""
ROOT = "kafkacompat"


class BrokerLog:
    """The lines of one broker. Its threads have names that begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.count = 0
        """Of all lines so far."""
        self._lines: deque[str] = deque(maxlen=LINES_MAX)

    def add(self, line: str) -> None:
        self._lines.append(line)
        self.count += 1

    def since(self, count: int) -> list[str]:
        """The lines that came after the first `count` ones."""
        lines = list(self._lines)
        return lines[max(0, len(lines) - (self.count - count)) :]

    def __str__(self) -> str:
        return "\n".join(self._lines)


class _Router(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.logs: Mapping[str, BrokerLog] = {}
        """By the prefix of threads. Replaced as a whole, because threads read it."""
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        prefix = (record.threadName or "").partition(" node ")[0]
        log = self.logs.get(prefix)
        if log is not None:
            log.add(self.format(record))
        elif record.levelno >= (_before[0] or logging.getLogger().level):
            logging.getLogger().handle(record)  # of no broker of a test: as without this handler


_router = _Router()
_lock = threading.Lock()
_before: tuple[int, bool] = logging.NOTSET, True


def keep(log: BrokerLog) -> None:
    """Keep the broker's lines from now on."""
    global _before
    with _lock:
        logger = logging.getLogger(ROOT)
        if not _router.logs:
            _before = logger.level, logger.propagate
            logger.addHandler(_router)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        _router.logs = {**_router.logs, log.prefix: log}


def end(log: BrokerLog) -> None:
    with _lock:
        _router.logs = {prefix: each for prefix, each in _router.logs.items() if each is not log}
        logger = logging.getLogger(ROOT)
        if not _router.logs and _router in logger.handlers:
            logger.removeHandler(_router)
            logger.setLevel(_before[0])
            logger.propagate = _before[1]
