"""This process's loggers, as the BROKER_LOGGER resource shows and changes them (KIP-412). Levels have Kafka's names.

Changes last until the process ends and affect no other node. The root logger is called "root".
"""

from __future__ import annotations

import logging

from kafkacompat.security.authorizer import AUDIT
from kafkacompat.wire.errors import ErrorCode

ROOT = "root"
PACKAGE = "kafkacompat"
TRACE = 5
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
SET = 0
DELETE = 1


class LoggerRefused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def level_name(level: int) -> str:
    """Return the name of the highest level that is at or below a number."""
    return max((value, name) for name, value in LEVELS.items() if value <= max(level, TRACE))[1]


def describe() -> dict[str, str]:
    """Return the effective level of each logger, sorted by name."""
    names = [
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
        and (name in (PACKAGE, AUDIT.name) or name.startswith(PACKAGE + "."))
    ]
    levels = {name: level_name(logging.getLogger(name).getEffectiveLevel()) for name in sorted(names)}
    levels[ROOT] = level_name(logging.root.level)
    return levels


def check(changes: list[tuple[str, int, str | None]]) -> None:
    """Raise LoggerRefused for the first (logger, operation, level) that is not possible."""
    known = describe()
    for name, operation, level in changes:
        if operation not in (SET, DELETE):
            raise LoggerRefused(ErrorCode.INVALID_REQUEST, "Levels of loggers can be set or deleted only.")
        if operation == SET and level is None:
            raise LoggerRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if name not in known:
            raise LoggerRefused(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == SET and level not in LEVELS:
            valid = ", ".join(LEVELS)
            text = f"Cannot set the log level of {name} to {level}: the levels are {valid}."
            raise LoggerRefused(ErrorCode.INVALID_CONFIG, text)
        if operation == DELETE and name == ROOT:
            raise LoggerRefused(ErrorCode.INVALID_REQUEST, "The level of the root logger cannot be removed.")


def apply(changes: list[tuple[str, int, str | None]]) -> None:
    """Apply changes that `check` accepted. A logger whose level is deleted has its parent's level again."""
    for name, operation, level in changes:
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(LEVELS[level] if operation == SET and level is not None else logging.NOTSET)
