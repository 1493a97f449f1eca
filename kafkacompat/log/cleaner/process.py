"""A cleaning's work in a process of its own, so that it takes no time from the loop's thread: opening records is Python's work, and
of that one interpreter does one thing at a time.

Duty: the same doors as CleaningWork, and lines of JSON through two pipes behind them. Must not know: what cleaning is. The other
end is __main__.py. It asks before it moves bytes, which paces it, and ends when nobody answers: a killed broker leaves no cleaner
behind. One that has done its work waits for the next log for a while, since its start takes as long as cleaning 30 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafkacompat
from kafkacompat.log.cleaner.job import CleaningJob, SegmentFile
from kafkacompat.log.cleaner.lines import job_to_json, read_line, write_line
from kafkacompat.log.cleaner.work import CleanerStats, CleaningStopped
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.work import Pace

COMMAND = (sys.executable, "-S", "-P", "-m", "kafkacompat.log.cleaner")
"""Without looking for packages anew: `child_environment` says where they are."""
STOP_TIMEOUT_S = 5.0


class ProcessLost(CleaningStopped):
    """The process ended by itself, or could not be started."""


def child_environment() -> dict[str, str]:
    here = str(Path(kafkacompat.__file__).parents[1])
    return dict(os.environ, PYTHONPATH=os.pathsep.join([here, *filter(None, sys.path)]))


class Child:
    """A process of the cleaner. Blocks; one thread at a time."""

    def __init__(self) -> None:
        """OSError when it cannot be started."""
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=child_environment(),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The next line that it says after this one; None when it has ended."""
        assert self._process.stdout is not None
        # It works ahead: one that has ended may have said why before it was asked.
        self.say(request)
        return read_line(self._process.stdout)

    def say(self, request: dict[str, Any]) -> bool:
        assert self._process.stdin is not None
        try:
            write_line(self._process.stdin, request)
        except BrokenPipeError:
            return False
        return True

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Its exit status, once it has closed its end."""
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it. Blocks shortly."""
        self._process.kill()
        self._process.communicate(timeout=STOP_TIMEOUT_S)


class IdleChildren:
    """Children that have done their work and not ended yet; any thread."""

    def __init__(self, most: int = 1) -> None:
        self._most = most
        self._children: deque[Child] = deque()

    def take(self) -> Child | None:
        while self._children:
            try:
                child = self._children.pop()
            except IndexError:
                return None
            if not child.ended():
                return child
            child.kill()
        return None

    def put(self, child: Child) -> None:
        if len(self._children) < self._most and child.say({"rest": True}):
            self._children.append(child)
        else:
            child.kill()

    def reap(self) -> None:
        """Let go of those that have ended."""
        child = self.take()
        if child is not None:
            self._children.append(child)

    def close(self) -> None:
        while (child := self.take()) is not None:
            child.kill()


class CleaningProcess:
    """`build_map`, `clean_group`, then `finish` or `close`: any thread, one at a time. Raises what CleaningWork raises, and
    ProcessLost.
    """

    def __init__(self, job: CleaningJob, pace: Pace, idle: IdleChildren) -> None:
        self._job = job
        self._pace = pace
        self._idle = idle
        self._child: Child | None = None
        self.groups: list[list[SegmentFile]] = []
        self.end_offset = job.first_dirty_offset
        self.stats = CleanerStats()

    def build_map(self) -> None:
        request = job_to_json(self._job)
        answer = None
        self._child = self._idle.take()
        if self._child is not None:
            answer = self._child.exchange(request)
            if answer is None:
                # It had waited long enough just now.
                self.close()
        if self._child is None:
            try:
                self._child = Child()
            except OSError as error:
                raise ProcessLost(f"no process for it: {error}") from error
            answer = self._child.exchange(request)
        answer = self._answer(answer)
        self.groups = [
            [SegmentFile(*segment) for segment in self._job.segments[first:end]]
            for first, end in answer["groups"]
        ]
        self.end_offset = answer["end_offset"]

    def clean_group(self, group: Sequence[SegmentFile]) -> list[str]:
        assert self._child is not None
        answer = self._answer(self._child.exchange({"group": group[0].base_offset}))
        return [str(suffix) for suffix in answer["suffixes"]]

    def finish(self) -> None:
        """Nothing more is to be cleaned: leave the process to the next log."""
        child, self._child = self._child, None
        if child is not None:
            self._idle.put(child)

    def close(self) -> None:
        """End the process. Blocks shortly."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    def _answer(self, answer: dict[str, Any] | None) -> dict[str, Any]:
        """The answer to a request, of which this is the first line; what the process wants to move meanwhile is paced."""
        child = self._child
        assert child is not None
        while answer is not None and "moves" in answer:
            self._pace(answer["moves"])
            answer = child.exchange({})
        if answer is None:
            raise ProcessLost(f"the cleaner's process ended with {child.wait()}")
        if "error" in answer:
            raise _error_of(answer)
        self.stats.map_bytes_read, self.stats.bytes_read, self.stats.bytes_written = answer["stats"]
        return answer


def _error_of(answer: dict[str, Any]) -> Exception:
    if answer["error"] == "unreadable":
        return BatchCorrupt(answer["text"])
    if answer["error"] == "os":
        return OSError(answer["errno"], answer["text"])
    return RuntimeError(answer["text"])
