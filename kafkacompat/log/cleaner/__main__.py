"""The process that process.py starts. It takes cleaning requests as lines of JSON on standard input and answers on
standard output.

It runs Cleaner for the broker. It ends when its input ends, when a cleaning has failed, or when no request has
come for a while.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kafkacompat.log.cleaner.cleaner import UNREADABLE, Cleaner, in_place
from kafkacompat.log.cleaner.job import SegmentFile, job_from_json, read_line, write_line
from kafkacompat.log.disk import RealDisk
from kafkacompat.ports import SyncFailed

ASK_EVERY_BYTES = 1 << 19
"""Bytes moved per permission. A throttle below this rate per second still works, in larger steps."""

REST_S = 30
"""Seconds to wait for the next cleaning: twice the default of log.cleaner.backoff.ms."""
REST_MOST_BYTES = 64 << 20
"""A process that uses more memory than this after a cleaning ends instead of waiting."""


class Gone(Exception):
    """The broker has closed the pipe."""


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
    """The broker at the other end: its requests, and its permissions to move bytes, which Cleaner asks for. One
    permission is requested ahead, so that an unthrottled cleaning never waits."""

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

    def stage(self, segment: SegmentFile) -> SegmentFile:
        self._take_leave()
        tell({"wants": segment})
        line = ask()
        if "staged" not in line:
            # The request for the group that is cleaned now.
            self._request, line = line, ask()
        return SegmentFile(*line["staged"])

    def request(self) -> dict[str, Any]:
        self._take_leave()
        request, self._request = self._request, None
        return ask() if request is None else request

    def _take_leave(self) -> None:
        """Read the permission, which is an empty line. The next request may arrive before it."""
        while self._waits_for_leave:
            line = ask()
            if line:
                self._request = line
            else:
                self._waits_for_leave = False


def clean(request: dict[str, Any], broker: Broker) -> None:
    """Run one job. Each group is cleaned while the broker swaps the previous one in."""
    job = job_from_json(request)
    work = Cleaner(RealDisk(), job, broker, stage=broker.stage if job.is_staged else in_place)
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


def stats_of(work: Cleaner) -> tuple[int, int, int, float]:
    stats = work.stats
    return stats.map_bytes_read, stats.bytes_read, stats.bytes_written, stats.map_utilization


def serve() -> None:
    broker = Broker()
    request = broker.request()
    while True:
        clean(request, broker)
        if broker.request() != {"rest": True}:
            raise ValueError("something was asked for of a cleaning that is done")
        if resident_bytes() > REST_MOST_BYTES:
            return
        # The alarm signal ends a process that has waited this long.
        signal.alarm(REST_S)
        request = broker.request()
        signal.alarm(0)


def be_the_first_to_go() -> None:
    """When memory is short, let the kernel kill this process first. It loses nothing, unlike the broker."""
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(b"1000")
    except OSError:
        return  # another operating system, or /proc is hidden


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
    # Only the broker ends this process. A signal meant for it alone would waste a half-done cleaning.
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
