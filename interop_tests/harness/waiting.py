"""Waits with a limit: every wait of the suite names the condition that it waits for, and a maximum time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TIMEOUT_S = 60.0
"""Longer than any successful operation takes on a busy machine. Only a failure waits for so long."""


def wait_until(
    probe: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S, interval_s: float = 0.05
) -> T:
    """Call probe until it returns a true value, and return that value. AssertionError after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {timeout_s} s still waiting until {what}; last answer: {value!r}")
        time.sleep(interval_s)


def wait_without_error(
    probe: Callable[[], T],
    what: str,
    errors: tuple[type[BaseException], ...],
    timeout_s: float = TIMEOUT_S,
    interval_s: float = 0.05,
) -> T:
    """Call probe until it no longer raises one of errors, and return its value. AssertionError after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return probe()
        except errors as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"after {timeout_s} s {what} still fails: {error!r}") from error
        time.sleep(interval_s)
