"""The process that process.py starts: cleanings, asked for by lines of JSON on standard input, answered on standard output.

Duty: carry out CleaningWork for the other end. Must not know: brokers. Ends when its input does, when a cleaning has failed, or
when none was asked for in a while.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kafkacompat.log.cleaner.lines import job_from_json, read_line, write_line
from kafkacompat.log.cleaner.work import UNREADABLE, CleaningWork
from kafkacompat.log.disk import RealDisk
from kafkacompat.ports import SyncFailed

ASK_EVERY_BYTES = 1 << 19
"""Bytes moved on one leave; a throttle of less a second still works, in larger steps."""

REST_S = 30
"""After a cleaning the next one may come for so long: twice log.cleaner.backoff.ms as it is by default."""
REST_MOST_BYTES = 64 << 20
"""A process that holds more after a cleaning does not wait for the next one."""


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


class Broker:
    """The other end: what it asks for, and its leave to move bytes, which is what CleaningWork calls. One leave is asked for ahead,
    so that nobody waits while nothing is held back.
    """

    def __init__(self) -> None:
        self._moved = 0
        self._waits_for_leave = False
        self._request: dict[str, Any] | None = None

    def __call__(self, size: int) -> None:
        self._moved += size
        if self._moved >= ASK_EVERY_BYTES:
            self._take_leave()
            tell({"moves": self._moved})
            self._waits_for_leave = True
            self._moved = 0

    def request(self) -> dict[str, Any]:
        self._take_leave()
        request, self._request = self._request, None
        return ask() if request is None else request

    def _take_leave(self) -> None:
        """An empty line; the next request may come before it."""
        while self._waits_for_leave:
            line = ask()
            if line:
                self._request = line
            else:
                self._waits_for_leave = False


def clean(request: dict[str, Any], broker: Broker) -> None:
    """One job. Each group is cleaned while the one before it takes its place."""
    work = CleaningWork(RealDisk(), job_from_json(request), broker)
    work.build_map()
    bounds, first = [], 0
    for group in work.groups:
        bounds.append((first, first + len(group)))
        first += len(group)
    answer: dict[str, Any] = {"groups": bounds, "end_offset": work.end_offset}
    for group in work.groups:
        tell(answer | {"stats": stats_of(work)})
        answer = {"suffixes": work.clean_group(group)}
        if broker.request() != {"group": group[0].base_offset}:
            raise ValueError("a group was asked for that is not the next")
    tell(answer | {"stats": stats_of(work)})


def stats_of(work: CleaningWork) -> tuple[int, int, int]:
    return work.stats.map_bytes_read, work.stats.bytes_read, work.stats.bytes_written


def serve() -> None:
    broker = Broker()
    request = broker.request()
    while True:
        clean(request, broker)
        if broker.request() != {"rest": True}:
            raise ValueError("something was asked for of a cleaning that is done")
        if resident_bytes() > REST_MOST_BYTES:
            return
        # The kernel ends a process that has waited for so long.
        signal.alarm(REST_S)
        request = broker.request()
        signal.alarm(0)


def be_the_first_to_go() -> None:
    """Where memory runs short the kernel is to end this process, which loses nothing, and not the broker."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"1000")
    except OSError:
        return  # another system, or one that hides it


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def _trace() -> str:
    import traceback

    return traceback.format_exc()


def main() -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # The broker decides about its end; a signal to it alone would leave a cleaning half done for nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_the_first_to_go()
    try:
        serve()
    except Gone:
        return 0
    except Exception as error:
        answer: dict[str, Any] = {"error": "bug", "text": _trace()}
        if isinstance(error, UNREADABLE):
            answer = {"error": "unreadable", "text": str(error)}
        elif isinstance(error, MemoryError):
            answer = {"error": "memory"}
        elif isinstance(error, OSError):
            kind = "sync" if isinstance(error, SyncFailed) else "os"
            answer = {"error": kind, "errno": error.errno, "text": str(error)}
        try:
            tell(answer)
        except Gone:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
