"""The messages between a broker and its cleaner's process: lines of JSON.

Both ends use these functions to write and read lines and to encode a job.
"""

from __future__ import annotations

import json
from typing import IO, Any

from kafkacompat.log.cleaner.filtering import LastRecord
from kafkacompat.log.cleaner.job import CleanerLimits, CleaningJob, SegmentFile
from kafkacompat.log.transaction_index import AbortedTxn


def write_line(file: IO[bytes], value: dict[str, Any]) -> None:
    file.write(json.dumps(value).encode("ascii") + b"\n")
    file.flush()


def read_line(file: IO[bytes]) -> dict[str, Any] | None:
    """The next message. None at the end of the input."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    value: dict[str, Any] = json.loads(line)
    return value


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
            "aborted": [AbortedTxn(*entry) for entry in value["aborted"]],
            "last_records": {
                producer_id: LastRecord(offset, epoch) for producer_id, offset, epoch in value["last_records"]
            },
            "limits": CleanerLimits(*value["limits"]),
        }
    )
