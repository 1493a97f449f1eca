"""Output of the commands: tables, progress on standard error, failures in one line. Independent of brokers."""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from kafkacompat.failure import CommandFailed

PROGRESS_INTERVAL_S = 0.5
MOVE_LINE_INTERVAL_S = 5.0
BAR_WIDTH = 30
SIGNALLED = 128
"""The exit status of a process that a signal ended is this value plus the signal's number."""

Command = Callable[[Any], int]


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived, or the terminal was closed (SIGHUP)."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside this block SIGTERM and SIGHUP raise Terminated, so that the command cleans up as after an interrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        # A second signal ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        raise Terminated(number)

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_later() -> Iterator[None]:
    """Inside this block signals that would raise an exception wait. They arrive at its end."""
    arrived: list[int] = []
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):
            before[number] = signal.signal(number, lambda number, _: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in arrived:
            signal.raise_signal(each)


def failing_clearly(command: Command) -> Command:
    """Turn a failure into one line on standard error and exit status 1, and a signal into the status that shells use for it."""

    @functools.wraps(command)
    def wrapped(arguments: Any) -> int:
        try:
            return command(arguments)
        except CommandFailed as failure:
            print(f"kafkacompat: {failure}", file=sys.stderr)
            return 1
        except Terminated as terminated:
            return SIGNALLED + int(terminated.args[0])
        except KeyboardInterrupt:
            return SIGNALLED + signal.SIGINT
        except BrokenPipeError:
            return 0

    return wrapped


def print_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell."""
    for line in table_lines(titles, rows):
        print(line)


def table_lines(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of print_table."""
    cells = [tuple(titles), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(titles))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


class Screen:
    """Lines on a terminal that replace the previous ones. Not live if standard output is no terminal."""

    def __init__(self) -> None:
        self.is_live = sys.stdout.isatty()
        self._height = 0

    def show(self, lines: Sequence[str]) -> None:
        width = shutil.get_terminal_size().columns
        back = f"\x1b[{self._height}A\x1b[J" if self._height else ""
        print(back + "".join(f"{line[: width - 1]}\n" for line in lines), end="", flush=True)
        self._height = len(lines)


class Progress:
    """A line on standard error with the amount done and the rate. Silent if standard error is no terminal."""

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


class MoveProgress:
    """The progress of moving a known amount: a bar on standard error if that is a terminal, otherwise lines on standard output."""

    def __init__(self, size: int, count: int) -> None:
        """size is in bytes, count in replicas."""
        self._size, self._count = size, count
        self._started = time.monotonic()
        self._first_size: int | None = None
        self._said: tuple[int, float] | None = None
        self._visible = sys.stderr.isatty()

    def update(self, size: int, count: int) -> None:
        """Set the bytes and replicas that have been moved."""
        now = time.monotonic()
        if self._first_size is None:
            self._first_size = size
        moved = size - self._first_size
        text = progress_text(size, self._size, count, self._count, moved, now - self._started)
        if self._visible:
            print(f"\r{progress_bar(size, self._size)} {text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif self._said is None or count != self._said[0] or now - self._said[1] >= MOVE_LINE_INTERVAL_S:
            self._said = (count, now)
            print(text, flush=True)

    def finish(self) -> None:
        """Show that everything has been moved."""
        self.update(self._size, self._count)
        if self._visible:
            print(file=sys.stderr)


def progress_bar(size: int, whole: int) -> str:
    filled = BAR_WIDTH if whole == 0 else BAR_WIDTH * min(size, whole) // whole
    return f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}]"


def progress_text(size: int, whole: int, count: int, whole_count: int, moved: int, seconds: float) -> str:
    """Return moved and total bytes and replicas, the rate since the watch began, and the remaining time at that rate."""
    rate = moved / max(seconds, 1e-6)
    left = f", {max(whole - size, 0) / rate:,.0f} s left" if moved > 0 and size < whole else ""
    return f"{megabytes(size)} of {megabytes(whole)}, {count} of {whole_count} replicas, {megabytes(int(rate))}/s{left}"


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
