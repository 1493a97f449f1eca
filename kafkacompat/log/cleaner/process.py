"""A cleaning's work in a process of its own, so that it takes no time from the loop's thread: opening records is Python's work, and
of that one interpreter does one thing at a time.

Duty: the same doors as CleaningWork, and lines of JSON through two pipes behind them. Must not know: what cleaning is. The other
end is __main__.py. It asks before it moves bytes, which paces it, and ends when nobody answers: a killed broker leaves no cleaner
behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from kafkacompat.log.cleaner.filtering import LastRecord
from kafkacompat.log.cleaner.job import CleanerLimits, CleaningJob, SegmentFile
from kafkacompat.log.cleaner.work import CleanerStats, CleaningStopped
from kafkacompat.log.index import AbortedEntry
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.cleaner.work import Pace

ARGUMENTS = ("-m", "kafkacompat.log.cleaner")
STOP_TIMEOUT_S = 5.0


class ProcessLost(CleaningStopped):
    """The process ended by itself, or could not be started."""


class CleaningProcess:
    """`build_map`, `clean_group`, `close`: any thread, one at a time. Raises what CleaningWork raises, and ProcessLost."""

    def __init__(self, job: CleaningJob, pace: Pace) -> None:
        self._job = job
        self._pace = pace
        self._process: subprocess.Popen[bytes] | None = None
        self.groups: list[list[SegmentFile]] = []
        self.end_offset = job.first_dirty_offset
        self.stats = CleanerStats()

    def build_map(self) -> None:
        try:
            self._process = subprocess.Popen(
                [sys.executable, *ARGUMENTS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ProcessLost(f"no process for it: {error}") from error
        answer = self._ask(job_to_json(self._job))
        self.groups = [
            [SegmentFile(*segment) for segment in self._job.segments[first:end]]
            for first, end in answer["groups"]
        ]
        self.end_offset = answer["end_offset"]

    def clean_group(self, group: Sequence[SegmentFile]) -> list[str]:
        answer = self._ask({"group": group[0].base_offset})
        return [str(suffix) for suffix in answer["suffixes"]]

    def close(self) -> None:
        """End the process. Blocks shortly."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate(timeout=STOP_TIMEOUT_S)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; what the process wants to move meanwhile is paced."""
        while True:
            answer = self._exchange(request)
            if "moves" not in answer:
                break
            self._pace(answer["moves"])
            request = {}
        if "error" in answer:
            raise _error_of(answer)
        self.stats.map_bytes_read, self.stats.bytes_read, self.stats.bytes_written = answer["stats"]
        return answer

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_line(process.stdin, request)
            answer = read_line(process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise ProcessLost(f"the cleaner's process ended with {process.wait(STOP_TIMEOUT_S)}")
        return answer


def write_line(file: IO[bytes], value: dict[str, Any]) -> None:
    file.write(json.dumps(value).encode("ascii") + b"\n")
    file.flush()


def read_line(file: IO[bytes]) -> dict[str, Any] | None:
    """None at the end."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    value: dict[str, Any] = json.loads(line)
    return value


def _error_of(answer: dict[str, Any]) -> Exception:
    if answer["error"] == "unreadable":
        return BatchCorrupt(answer["text"])
    if answer["error"] == "os":
        return OSError(answer["errno"], answer["text"])
    return RuntimeError(answer["text"])


def job_to_json(job: CleaningJob) -> dict[str, Any]:
    return {
        "directory": job.directory,
        "segments": job.segments,
        "first_dirty_offset": job.first_dirty_offset,
        "round_end_offset": job.round_end_offset,
        "later_segments": job.later_segments,
        "aborted": job.aborted,
        "last_records": [(producer_id, *last) for producer_id, last in job.last_records.items()],
        "now_ms": job.now_ms,
        "delete_retention_ms": job.delete_retention_ms,
        "segment_bytes": job.segment_bytes,
        "segment_index_bytes": job.segment_index_bytes,
        "index_interval_bytes": job.index_interval_bytes,
        "limits": [job.limits.map_bytes, job.limits.load_factor, job.limits.io_bytes],
    }


def job_from_json(value: dict[str, Any]) -> CleaningJob:
    return CleaningJob(
        **value
        | {
            "segments": [SegmentFile(*segment) for segment in value["segments"]],
            "later_segments": [SegmentFile(*segment) for segment in value["later_segments"]],
            "aborted": [AbortedEntry(*entry) for entry in value["aborted"]],
            "last_records": {
                producer_id: LastRecord(offset, epoch) for producer_id, offset, epoch in value["last_records"]
            },
            "limits": CleanerLimits(*value["limits"]),
        }
    )
