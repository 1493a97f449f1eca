"""The process that process.py starts: one cleaning, asked for by lines of JSON on standard input, answered on standard output.

Duty: carry out CleaningWork for the other end. Must not know: brokers. Ends when its input does.
"""

from __future__ import annotations

import signal
import sys
import traceback
from typing import Any

from kafkacompat.log.cleaner.process import job_from_json, read_line, write_line
from kafkacompat.log.cleaner.work import UNREADABLE, CleaningWork
from kafkacompat.log.disk import RealDisk

ASK_EVERY_BYTES = 1 << 19
"""Bytes moved on one leave; a throttle of less a second still works, in larger steps."""


class Gone(Exception):
    """Nobody is at the other end any more."""


def ask() -> dict[str, Any]:
    request = read_line(sys.stdin.buffer)
    if request is None:
        raise Gone
    return request


def tell(answer: dict[str, Any]) -> None:
    try:
        write_line(sys.stdout.buffer, answer)
    except BrokenPipeError:
        raise Gone from None


class Leave:
    """What CleaningWork calls with the bytes it moves."""

    def __init__(self) -> None:
        self._moved = 0

    def __call__(self, size: int) -> None:
        self._moved += size
        if self._moved >= ASK_EVERY_BYTES:
            tell({"moves": self._moved})
            ask()
            self._moved = 0


def serve() -> None:
    work = CleaningWork(RealDisk(), job_from_json(ask()), Leave())
    work.build_map()
    groups, first = [], 0
    for group in work.groups:
        groups.append((first, first + len(group)))
        first += len(group)
    answer: dict[str, Any] = {"groups": groups, "end_offset": work.end_offset}
    by_base = {group[0].base_offset: group for group in work.groups}
    while True:
        stats = work.stats
        tell(answer | {"stats": (stats.map_bytes_read, stats.bytes_read, stats.bytes_written)})
        answer = {"suffixes": work.clean_group(by_base[ask()["group"]])}


def main() -> int:
    # The broker decides about its end; a signal to it alone would leave a cleaning half done for nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve()
    except Gone:
        return 0
    except Exception as error:
        answer: dict[str, Any] = {"error": "bug", "text": traceback.format_exc()}
        if isinstance(error, UNREADABLE):
            answer = {"error": "unreadable", "text": str(error)}
        elif isinstance(error, OSError):
            answer = {"error": "os", "errno": error.errno, "text": str(error)}
        try:
            tell(answer)
        except Gone:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
