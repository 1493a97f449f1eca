"""Runs a cleaning in a separate process, so that it takes no time from the loop's thread: opening records runs Python
code, and one interpreter executes one thread at a time.

CleaningProcess has the interface of Cleaner and exchanges lines of JSON through two pipes with __main__.py. The
process asks for permission before it moves bytes, which paces it. It ends when nothing answers, so a killed broker
leaves no cleaner behind. After its work it waits a while for the next log, because starting a process takes as long as
cleaning 30 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kafkacompat
from kafkacompat.log.cleaner.cleaner import CleanerStats, CleaningStopped, in_place
from kafkacompat.log.cleaner.job import CleaningJob, SegmentFile, job_to_json, read_line, write_line
from kafkacompat.ports import SyncFailed
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.cleaner import Pace, Stage

COMMAND = (sys.executable, "-S", "-P", "-m", "kafkacompat.log.cleaner")
"""The command skips the search for installed packages. `child_environment` gives their path."""
STOP_TIMEOUT_S = 5.0


class ProcessLost(CleaningStopped):
    """The process ended by itself, or could not be started."""


def child_environment() -> dict[str, str]:
    here = str(Path(kafkacompat.__file__).parents[1])
    return dict(os.environ, PYTHONPATH=os.pathsep.join([here, *filter(None, sys.path)]))


class Child:
    """A process of the cleaner. Blocks; one thread at a time."""

    def __init__(self) -> None:
        """Raises OSError if the process cannot be started."""
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
        """Send a request and return the next line of the process. None if it has ended."""
        assert self._process.stdout is not None
        # The process works ahead. If it has ended, it may have sent its error before this request.
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

    def how_it_ended(self) -> str:
        """How the process ended, after it has closed its pipe. Blocks shortly."""
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "does not answer"
        if status == -signal.SIGKILL:
            return "was killed by SIGKILL, as by the kernel when memory is short"
        return f"was killed by signal {-status}" if status < 0 else f"ended with {status}"

    def interrupt(self) -> None:
        """Kill the process without waiting for its end. Any thread."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the process and wait until it is gone, because another one may get its files. Blocks as long as the
        kernel needs."""
        self._process.kill()
        self._process.communicate()


class Children:
    """The processes of a cleaner: the working ones, and one that waits for the next log. Any thread."""

    def __init__(self, idle_most: int = 1) -> None:
        self._idle_most = idle_most
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._closed = False

    def start(self) -> Child:
        """Start a process. Raises OSError if that fails, and CleaningStopped after `interrupt`."""
        child = Child()
        with self._lock:
            self._busy.add(child)
            closed = self._closed
        if closed:
            self.end(child)
            raise CleaningStopped("the node stops")
        return child

    def take(self) -> Child | None:
        """Take the waiting process. None if there is none."""
        while True:
            with self._lock:
                if not self._idle or self._closed:
                    return None
                child = self._idle.pop()
                self._busy.add(child)
            if not child.ended():
                return child
            self.end(child)

    def put(self, child: Child) -> None:
        """Return a process after its work. Blocks shortly if the process is not needed."""
        with self._lock:
            wanted = not self._closed and len(self._idle) < self._idle_most
            if wanted:
                self._busy.discard(child)
                self._idle.append(child)
        if not (wanted and child.say({"rest": True})):
            with self._lock:
                if child in self._idle:
                    self._idle.remove(child)
            self.end(child)

    def end(self, child: Child) -> None:
        """Kill a process that has failed or whose work is not needed. Blocks until it is gone."""
        child.kill()
        with self._lock:
            self._busy.discard(child)

    def reap(self) -> None:
        """Drop processes that have ended while they waited."""
        with self._lock:
            ended = [child for child in self._idle if child.ended()]
            self._idle = [child for child in self._idle if child not in ended]
        for child in ended:
            child.kill()

    def interrupt(self) -> None:
        """Stop all processes, because the node stops. Their readers see the end at once, and no new process starts.
        Does not block."""
        with self._lock:
            self._closed = True
            children = [*self._busy, *self._idle]
        for child in children:
            child.interrupt()

    def close(self) -> None:
        """Kill the waiting process. Blocks shortly."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()


class CleaningProcess:
    """Call `build_map`, `clean_group`, then `finish` or `close`, from any thread, one at a time. Raises what
    Cleaner raises, and ProcessLost."""

    def __init__(self, job: CleaningJob, pace: Pace, children: Children, stage: Stage = in_place) -> None:
        self._stage = stage
        self._job = job
        self._pace = pace
        self._children = children
        self._child: Child | None = None
        self.groups: list[list[SegmentFile]] = []
        self.end_offset = job.first_dirty_offset
        self.stats = CleanerStats()

    def build_map(self) -> None:
        request = job_to_json(self._job)
        answer = None
        self._child = self._children.take()
        if self._child is not None:
            answer = self._child.exchange(request)
            if answer is None:
                # The waiting process has just ended by its alarm.
                self.close()
        if self._child is None:
            try:
                self._child = self._children.start()
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
        """Leave the process to the next log."""
        child, self._child = self._child, None
        if child is not None:
            self._children.put(child)

    def close(self) -> None:
        """Kill the process. Blocks shortly."""
        child, self._child = self._child, None
        if child is not None:
            self._children.end(child)

    def _answer(self, answer: dict[str, Any] | None) -> dict[str, Any]:
        """The answer to a request. `answer` is the first line of the process; moves that it announces before the
        answer are paced, and segments that it wants are put into their place."""
        child = self._child
        assert child is not None
        while answer is not None and ("moves" in answer or "wants" in answer):
            if "moves" in answer:
                self._pace(answer["moves"])
                answer = child.exchange({})
            else:
                answer = child.exchange({"staged": self._stage(SegmentFile(*answer["wants"]))})
        if answer is None:
            raise ProcessLost(f"the cleaner's process {child.how_it_ended()}")
        if "error" in answer:
            raise _error_of(answer)
        stats = self.stats
        stats.map_bytes_read, stats.bytes_read, stats.bytes_written, stats.map_utilization = answer["stats"]
        return answer


def _error_of(answer: dict[str, Any]) -> Exception:
    if answer["error"] == "unreadable":
        return BatchCorrupt(answer["text"])
    if answer["error"] == "sync":
        return SyncFailed(answer["errno"], answer["text"])
    if answer["error"] == "os":
        return OSError(answer["errno"], answer["text"])
    if answer["error"] == "memory":
        return MemoryError("the cleaner's process has no memory")
    return RuntimeError(answer["text"])
