"""What the commands print: tables, progress on standard error, failures in one line. Knows no broker."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkacompat.cli.failure import CommandFailed

PROGRESS_INTERVAL_S = 0.5

Command = Callable[[Any], int]


def failing_clearly(command: Command) -> Command:
    """Turns a failure into one line on standard error and exit status 1; an interrupt into 130."""

    @functools.wraps(command)
    def wrapped(arguments: Any) -> int:
        try:
            return command(arguments)
        except CommandFailed as failure:
            print(f"kafkacompat: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
        except BrokenPipeError:
            return 0

    return wrapped


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell."""
    cells = [tuple(titles), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class Progress:
    """A line on standard error that shows how much is done and how fast; silent where nobody looks."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.monotonic()
        self._shown = self._started
        self._visible = sys.stderr.isatty()

    def update(self, count: int, size: int) -> None:
        now = time.monotonic()
        if self._visible and now - self._shown >= PROGRESS_INTERVAL_S:
            self._shown = now
            self._show(count, size, now)

    def finish(self, count: int, size: int) -> None:
        if self._visible:
            self._show(count, size, time.monotonic())
            print(file=sys.stderr)

    def _show(self, count: int, size: int, now: float) -> None:
        rate = size / max(now - self._started, 1e-6) / 1e6
        print(
            f"\r{self._what}: {count:,} records, {size / 1e6:,.1f} MB, {rate:,.1f} MB/s ",
            end="",
            file=sys.stderr,
        )
        sys.stderr.flush()
