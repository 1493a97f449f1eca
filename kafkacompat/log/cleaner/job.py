"""The input of a cleaning: segments, offsets and settings. Plain values, so they may cross threads, and processes as lines of JSON:
both ends of the pipes to a cleaner's process use these functions to write and read lines and to encode a job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

from kafkacompat.log.cleaner.filtering import LastRecord
from kafkacompat.log.index import MAX_RELATIVE_OFFSET, AbortedTxn

GROUPED_AT_ONCE = 16
"""The most segments of a group, because one step of the loop renames all their files. A later cleaning joins segments
that are still small."""


class SegmentFile(NamedTuple):
    """A closed segment. `end_offset` is the base of the next one."""

    stem: str
    base_offset: int
    end_offset: int
    size: int


class CleanerLimits(NamedTuple):
    """The limits of one thread. Kafka's log.cleaner.dedupe.buffer.size and io.buffer.size are divided by the threads."""

    map_bytes: int
    load_factor: float
    io_bytes: int


class CleaningJob(NamedTuple):
    """One cleaning. Offsets are absolute, sizes in bytes. Made by the log cleaner, and by RemoteLogManager for the remote part."""

    directory: str
    segments: Sequence[SegmentFile]
    """The segments from the log's first one up to the last one that ends at or below `round_end_offset`."""
    first_dirty_offset: int
    round_end_offset: int
    """Base of the first segment that is not cleaned."""
    later_segments: Sequence[SegmentFile]
    """The closed segments after those. They may contain the markers of cleaned transactions."""
    aborted: Sequence[AbortedTxn]
    """Aborted transactions that end in the active segment, whose index file is still incomplete."""
    last_records: dict[int, LastRecord]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    limits: CleanerLimits
    keeps_deletes: bool = False
    """Tombstones and markers stay, because what they delete may be in the remote storage."""
    is_staged: bool = False
    """The segments are not in the directory. Each is fetched when it is read, and may be gone again after that."""


def group_segments(
    segments: Sequence[SegmentFile],
    index_sizes: Sequence[tuple[int, int]],
    *,
    segment_bytes: int,
    index_bytes: int,
) -> list[list[SegmentFile]]:
    """Groups of neighbouring segments that fit into one segment by size, by index sizes (bytes of the offset and time
    index of each) and by range of offsets. A group has at most GROUPED_AT_ONCE segments."""
    groups: list[list[SegmentFile]] = []
    size = offsets = times = 0
    for segment, (offset_index, time_index) in zip(segments, index_sizes, strict=True):
        size += segment.size
        offsets += offset_index
        times += time_index
        if (
            groups
            and len(groups[-1]) < GROUPED_AT_ONCE
            and size <= segment_bytes
            and offsets <= index_bytes
            and times <= index_bytes
            and (
                not segment.size or segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, offsets, times = segment.size, offset_index, time_index
    return groups


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
    return job._asdict() | {
        "last_records": [(producer_id, *last) for producer_id, last in job.last_records.items()],
        "limits": job.limits._asdict(),
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
            "limits": CleanerLimits(**value["limits"]),
        }
    )
