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
    """Takes what the brokers' threads log, and lets all else go where it went before.

    It is the filter of each logger, because pytest adds its own handlers to loggers that do not propagate. As the handler above
    them it meets the loggers of modules that are imported later.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.logs: Mapping[str, BrokerLog] = {}
        """By the prefix of threads. Replaced as a whole, because threads read it."""
        self.filtered: set[logging.Logger] = set()
        self.level_before, self.propagated_before = logging.NOTSET, True
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"))

    def take(self, record: logging.LogRecord) -> bool:
        """Return False for a record of another thread."""
        log = self.logs.get((record.threadName or "").partition(" node ")[0])
        if log is None:
            return False
        log.add(self.format(record))
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if self.take(record):
            self.filter_logger(logging.getLogger(record.name))
        elif record.levelno >= (self.level_before or logging.getLogger().level):
            logging.getLogger().handle(record)

    def filter_logger(self, logger: logging.Logger) -> None:
        if logger not in self.filtered:
            self.filtered.add(logger)
            logger.addFilter(self.is_not_taken)

    def is_not_taken(self, record: logging.LogRecord) -> bool:
        return not self.take(record)

    def begin(self) -> None:
        logger = logging.getLogger(ROOT)
        self.level_before, self.propagated_before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        for name in list(logging.root.manager.loggerDict):
            if name.startswith(f"{ROOT}."):
                self.filter_logger(logging.getLogger(name))

    def end(self) -> None:
        logger = logging.getLogger(ROOT)
        logger.removeHandler(self)
        logger.setLevel(self.level_before)
        logger.propagate = self.propagated_before
        while self.filtered:
            self.filtered.pop().removeFilter(self.is_not_taken)


_router = _Router()
_lock = threading.Lock()


def keep_log(log: BrokerLog) -> None:
    """Keep the broker's lines from now on."""
    with _lock:
        if not _router.logs:
            _router.begin()
        _router.logs = {**_router.logs, log.prefix: log}


def end_log(log: BrokerLog) -> None:
    with _lock:
        if log.prefix not in _router.logs:
            return
        _router.logs = {prefix: each for prefix, each in _router.logs.items() if each is not log}
        if not _router.logs:
            _router.end()
