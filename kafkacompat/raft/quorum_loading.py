"""What a start loads from the disk: the newest snapshot, the log's shape, the voters in it, the stored election state.

It reads and checks. As in Kafka, the log is truncated only if a newer snapshot is ahead of it. Roles are unknown here.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft.batches import BrokenBatch, core_batch, headers
from kafkacompat.raft.contracts import MetadataLog, MetadataLogProblem
from kafkacompat.raft.election_state import (
    QUORUM_STATE_FILE,
    BrokenElectionState,
    ElectionState,
    parse_election_state,
)
from kafkacompat.raft.log_shape import BOOTSTRAP_SNAPSHOT, LogShape
from kafkacompat.raft.snapshot import BrokenSnapshot, SnapshotContent
from kafkacompat.raft.voter_set import VoterSet, VoterSetHistory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.ports import Disk
    from kafkacompat.raft.snapshot_store import SnapshotStore

READ_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class LoadedQuorum:
    shape: LogShape
    voters: VoterSetHistory
    snapshot_id: OffsetAndEpoch | None
    """The newest snapshot. None if there is only the 0-0 snapshot."""
    content: SnapshotContent | None
    """Its content, or that of the 0-0 snapshot."""
    bytes_since_snapshot: int
    batches_since_snapshot: int
    last_timestamp_ms: int


def read_election(disk: Disk, directory: str) -> ElectionState | None:
    path = posixpath.join(directory, QUORUM_STATE_FILE)
    if not disk.exists(path):
        return None
    try:
        return parse_election_state(disk.read_bytes(path))
    except BrokenElectionState as error:
        raise MetadataLogProblem(f"{path}: {error}") from error


def load_quorum(
    log: MetadataLog, store: SnapshotStore, static_voters: VoterSet, note: Callable[[str], None]
) -> LoadedQuorum:
    """Raises MetadataLogProblem if log and snapshots do not fit together. Nothing of the log counts as durable yet."""
    store.drop_parts()
    contents = _readable_snapshots(log, store, note)
    bootstrap = contents.pop(BOOTSTRAP_SNAPSHOT, None)
    newest = max(contents, default=None)
    if newest is None and log.log_start_offset > 0:
        raise MetadataLogProblem(
            f"{store.directory}: the log begins at {log.log_start_offset}, but no snapshot reaches that far"
        )
    if newest is not None and (newest.offset > log.log_end_offset or newest.epoch > log.latest_epoch()):
        log.truncate_fully_and_start_at(newest.offset)
        store.drop_older(newest)
        contents = {newest: contents[newest]}
    if 0 < log.log_start_offset < min(contents, default=BOOTSTRAP_SNAPSHOT).offset:
        # Only whole segments are deleted. The rest below the oldest snapshot looks like earlier records.
        oldest = min(contents)
        log.set_high_watermark(oldest.offset)
        log.drop_below(oldest.offset)
    start = log.log_start_offset
    below = [each for each in contents if each.offset <= start]
    base = max(below, default=None)
    shape = LogShape(
        start,
        start,
        snapshots=[(each, store.size(each)) for each in contents],
        base_epoch=base.epoch if base is not None else 0,
    )
    voters = _first_voters(static_voters, bootstrap)
    if base is not None and contents[base].voters:
        voters.reset(base.offset - 1, VoterSet(contents[base].voters), contents[base].kraft_version)
    size, count, timestamp_ms = _read_log(log, store.directory, shape, voters, newest)
    content = contents[newest] if newest is not None else bootstrap
    if size == 0 and content is not None:
        timestamp_ms = content.last_contained_timestamp_ms
    return LoadedQuorum(shape, voters, newest, content, size, count, timestamp_ms)


def _readable_snapshots(
    log: MetadataLog, store: SnapshotStore, note: Callable[[str], None]
) -> dict[OffsetAndEpoch, SnapshotContent]:
    """The readable snapshots that are not older than the log's start. A broken one is left out, unless the log begins
    at it."""
    contents: dict[OffsetAndEpoch, SnapshotContent] = {}
    for each in store.found():
        if each != BOOTSTRAP_SNAPSHOT and each.offset < log.log_start_offset:
            continue
        try:
            contents[each] = store.read(each)
        except BrokenSnapshot as error:
            if each.offset <= log.log_start_offset and each.offset > 0:
                raise MetadataLogProblem(f"{store.path(each)}: {error}") from error
            note(f"{store.path(each)} is left aside: {error}")
    return contents


def _first_voters(static_voters: VoterSet, bootstrap: SnapshotContent | None) -> VoterSetHistory:
    if bootstrap is not None and bootstrap.voters:
        return VoterSetHistory(VoterSet(bootstrap.voters), bootstrap.kraft_version)
    return VoterSetHistory(static_voters)


def _read_log(
    log: MetadataLog, directory: str, shape: LogShape, voters: VoterSetHistory, newest: OffsetAndEpoch | None
) -> tuple[int, int, int]:
    """Extend shape and voters to the log's end. Returns (bytes and batches after the newest snapshot, last timestamp)."""
    size, count, timestamp_ms = 0, 0, 0
    offset = shape.start
    counted_from = newest.offset if newest is not None else 0
    try:
        while offset < log.log_end_offset:
            records = log.read(offset, READ_CHUNK_BYTES, log.log_end_offset, True).records
            view = memoryview(records if isinstance(records, bytes) else records.read())
            before = offset
            for header in headers(view):
                if header.last_offset < offset:
                    continue
                batch = core_batch(view, header, voters.latest, voters.kraft_version, None)
                offset = batch.end_offset
                shape.append(batch.epoch, offset)
                if batch.voters is not None:
                    voters.add_at(offset - 1, batch.voters, batch.kraft_version)
                if offset > counted_from:
                    size += header.size
                    count += 1
                timestamp_ms = header.max_timestamp_ms
            if offset == before:
                raise MetadataLogProblem(f"{directory}: no whole batch at offset {offset}")
    except (BrokenBatch, ValueError) as error:
        raise MetadataLogProblem(f"{directory}, near offset {offset}: {error}") from error
    return size, count, timestamp_ms
