"""The remote log manager on the real log: copies, deletions and reads, and what a store that fails leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.log._tests.logs import NOW_MS, batch_of, marker
from kafkacompat.log.log_segment import LogSegment
from kafkacompat.log.producer_snapshots import decode_snapshot
from kafkacompat.log.replay import made_snapshot
from kafkacompat.ports import LogRefused, TimestampOffset, WorkersBusy
from kafkacompat.records.batch import iterate_batches, stamp_offset_and_epoch
from kafkacompat.records.read import records_of
from kafkacompat.remote import manager_core
from kafkacompat.remote._tests.manager_kit import PARTITION, REMADE, TIERED, MemoryStorage, Tier
from kafkacompat.remote.manager import TAKEN_OVER_AFTER_MS
from kafkacompat.remote.manager_core import UNFINISHED_KEPT_MS
from kafkacompat.remote.metadata import (
    CompactedMark,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    mark_bytes,
)
from kafkacompat.remote.metadata_cache import RemoteLogMetadataCache
from kafkacompat.remote.ports import IndexType, RemoteStorageException, RetriableRemoteStorageException
from kafkacompat.remote.remote_index_cache import RemoteIndexCache
from kafkacompat.tasks import TURN_COST, Limit, Overloaded
from kafkacompat.wire.errors import ErrorCode

MARKED, STARTED, FINISHED = (each.name for each in RemotePartitionDeleteState)


def run(tier: Tier, coroutine: Any) -> Any:
    task = tier.manager._tasks.run("a test", coroutine)
    tier.settle()
    return task.result()


def read(
    tier: Tier, offset: int, max_bytes: int = 1 << 20, *, committed: bool = False, least_one: bool = True
) -> Any:
    return run(
        tier,
        tier.manager.read(
            tier.core, offset, max_bytes, minimum_one_batch=least_one, read_committed=committed
        ),
    )


def offsets_in(records: bytes) -> list[int]:
    found = []
    for header in iterate_batches(records):
        batch = records[header.position : header.position + header.size]
        found += [offset for offset, _ in records_of(batch, header)]
    return found


def tiered(segments: int = 4) -> Tier:
    """All closed segments are copied, and are not local any more."""
    tier = Tier()
    tier.fill(segments)
    tier.lead()
    tier.log.enforce_retention(NOW_MS)
    return tier


def failing(operation: str, error: type[Exception], times: int = 1) -> Any:
    left = [times]

    def fail(called: str) -> None:
        if called == operation and left[0]:
            left[0] -= 1
            raise error("of the store")

    return fail


# Copies


def test_a_leader_copies_its_closed_segments_and_lets_them_go() -> None:
    tier = tiered()
    assert tier.starts() == [0, 10, 20]
    assert tier.metadata.roles == ["leader"]
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"] * 3
    assert tier.log.highest_offset_in_remote_storage == 29
    assert (tier.log.log_start_offset, tier.log.local_log_start_offset) == (0, 30)


def test_a_copy_has_its_epochs_and_the_checkpoint_up_to_its_end() -> None:
    tier = Tier()
    tier.fill(1, epoch=0)
    tier.fill(1, epoch=3)
    tier.fill(1, epoch=3)
    tier.core.leader_epoch = 3
    tier.lead()
    first, second = sorted(
        tier.metadata.cache.list_all_remote_log_segments(), key=lambda each: each.start_offset
    )
    assert first.segment_leader_epochs == ((0, 0),)
    assert second.segment_leader_epochs == ((3, 10),)
    parts = tier.storage.segments[second.remote_log_segment_id.id]
    assert parts[IndexType.LEADER_EPOCH] == b"0\n2\n0 0\n3 10\n"
    assert second.max_timestamp_ms == NOW_MS + 19
    assert second.segment_size_in_bytes == len(parts["log"])
    assert second.txn_idx_empty


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    """Retention by time would take them for very old ones."""
    tier = Tier(replace(TIERED, retention_ms=3_600_000))
    for _ in range(2):
        tier.log.append_as_leader(batch_of([b"x"], -1), 0, NOW_MS)
        tier.log.roll(tier.log.log_end_offset, NOW_MS)
    tier.log.set_high_watermark(2)
    for segment in tier.log.segments:
        segment.modified_ms = NOW_MS
    tier.lead()
    tier.pass_on()
    assert tier.starts() == [0, 1]
    assert tier.log.log_start_offset == 0


def test_a_follower_copies_nothing_and_learns_what_is_copied() -> None:
    tier = tiered()
    tier.core.is_leader, tier.core.leader_epoch = False, 1
    tier.log.highest_offset_in_remote_storage = -1
    tier.fill(2)
    tier.lead()
    assert tier.metadata.roles == ["leader", "follower"]
    assert tier.starts() == [0, 10, 20]
    assert tier.log.highest_offset_in_remote_storage == 29


def test_nothing_is_done_before_the_metadata_is_loaded() -> None:
    tier = Tier()
    tier.metadata.ready = False
    tier.fill()
    tier.lead()
    assert tier.storage.calls == []
    tier.metadata.ready = True
    tier.pass_on(500)
    assert tier.starts() == [0, 10, 20]


def test_later_segments_are_copied_with_the_next_pass() -> None:
    tier = tiered()
    tier.fill(1)
    tier.settle()
    assert tier.starts() == [0, 10, 20]
    tier.pass_on()
    assert tier.starts() == [0, 10, 20, 30]


def test_many_segments_are_copied_pass_after_pass() -> None:
    tier = Tier()
    tier.fill(150)
    tier.lead()
    tier.settle(400)
    assert len(tier.starts()) == 149


def test_a_lag_keeps_segments_back() -> None:
    tier = Tier(replace(TIERED, remote_copy_lag_ms=60_975, local_retention_bytes=-1))
    tier.fill()
    tier.time.advance(1000)
    tier.lead()
    assert tier.starts() == []
    tier.pass_on()
    assert tier.starts() == []
    tier.pass_on()
    assert tier.starts() == [0, 10]


@pytest.mark.parametrize("lag_ms", [-1, 10**9])
def test_an_open_lag_in_bytes_lets_go_what_local_retention_would_delete(lag_ms: int) -> None:
    tier = Tier(replace(TIERED, remote_copy_lag_ms=lag_ms, remote_copy_lag_bytes=-1))
    tier.fill()
    kept = sum([each.size for each in tier.log.segments[2:]])
    tier.log.config = replace(tier.log.config, local_retention_bytes=kept)
    tier.time.advance(1000)
    tier.lead()
    assert tier.starts() == [0, 10]
    assert tier.log.enforce_retention(NOW_MS) == 2


def test_an_open_lag_in_time_lets_go_what_local_retention_would_delete() -> None:
    tier = Tier(replace(TIERED, remote_copy_lag_ms=-1, local_retention_bytes=-1, local_retention_ms=60_975))
    tier.fill()
    tier.time.advance(1000)
    tier.lead()
    assert tier.starts() == []
    tier.pass_on()
    tier.pass_on()
    assert tier.starts() == [0, 10]


def test_a_copy_that_fails_is_deleted_and_tried_again() -> None:
    tier = Tier()
    tier.storage.fail = failing("copy", RemoteStorageException)
    tier.fill(2)
    tier.lead()
    assert tier.metadata.states == [
        "COPY_SEGMENT_STARTED",
        "DELETE_SEGMENT_STARTED",
        "DELETE_SEGMENT_FINISHED",
    ]
    assert tier.log.highest_offset_in_remote_storage == -1
    assert tier.log.enforce_retention(NOW_MS) == 0
    tier.pass_on()
    assert tier.starts() == [0]
    assert tier.log.highest_offset_in_remote_storage == 9


def test_a_copy_whose_failure_passes_is_left_for_the_next_pass_and_deleted_then() -> None:
    tier = Tier()
    tier.storage.fail = failing("copy", RetriableRemoteStorageException)
    tier.fill(2)
    tier.lead()
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED"]
    tier.pass_on()
    assert len(tier.metadata.cache.list_all_remote_log_segments()) == 2
    tier.pass_on(UNFINISHED_KEPT_MS)
    tier.pass_on()
    finished = [each.state for each in tier.metadata.cache.list_all_remote_log_segments()]
    assert finished == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    assert len(tier.storage.segments) == 1


def test_a_copy_that_ends_while_retention_looks_is_not_taken_for_one_that_was_never_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took more than an hour. Local retention deletes what was copied, so the records would be lost."""
    tier = Tier()
    tier.fill(4)
    tier.manager.role_taken(tier.core)
    tier.time.advance(0)
    while tier.metadata.states.count("COPY_SEGMENT_STARTED") < 3:
        tier.workers.run_one()
        tier.time.advance(0)
    upload, answer = tier.workers.submitted.pop()
    tier.pass_on(UNFINISHED_KEPT_MS)
    monkeypatch.setattr(manager_core, "LOOKUP_COST", TURN_COST)
    listed = tier.metadata.list_remote_log_segments
    is_looking: list[bool] = []

    def listing(partition: TopicIdPartition, leader_epoch: int | None = None) -> Any:
        is_looking.append(True)
        return listed(partition, leader_epoch)

    monkeypatch.setattr(tier.metadata, "list_remote_log_segments", listing)
    while not is_looking:
        tier.time.fire_next()
    answer.resolve(upload())
    tier.settle()
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"] * 3
    assert tier.log.highest_offset_in_remote_storage == 29
    tier.log.enforce_retention(NOW_MS)
    assert offsets_in(read(tier, 20).records) == list(range(20, 30))


def test_a_segment_that_is_truncated_meanwhile_is_no_copy() -> None:
    tier = Tier()
    tier.fill(2)
    tier.manager.role_taken(tier.core)
    tier.time.advance(0)
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED"]
    tier.log.truncate_to(5)
    tier.settle()
    assert tier.metadata.states[1:3] == ["DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"]
    assert tier.starts() == []
    assert not tier.storage.segments


def test_a_leader_that_is_none_any_more_finishes_no_copy() -> None:
    tier = Tier()
    tier.fill(2)
    tier.manager.role_taken(tier.core)
    tier.time.advance(0)
    tier.core.is_leader, tier.core.leader_epoch = False, 1
    tier.lead()
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED"]
    assert tier.log.highest_offset_in_remote_storage == -1


def test_a_copy_that_another_leader_has_deleted_does_not_count() -> None:
    """The other leader took it for an attempt that had failed. Local retention must not delete what only this copy had."""
    tier = Tier()
    tier.fill(2)

    def ignored(update: Any) -> Deferred[None]:
        return Deferred.of(None)

    tier.metadata.update_remote_log_segment_metadata = ignored  # type: ignore[method-assign]
    tier.lead()
    assert tier.storage.calls == ["copy"]
    assert tier.log.highest_offset_in_remote_storage == -1


def test_a_part_of_a_compacted_log_that_a_newer_leader_has_copied_meanwhile_is_not_copied() -> None:
    """A newer leader may have cleaned its copy since. What this one copies would bring back the records that are gone."""
    tier = Tier(replace(TIERED, cleanup_policy=("compact",)))
    tier.fill(2)
    tier.log.cleaned_to = tier.log.log_end_offset
    record = tier.metadata.add_remote_log_segment_metadata

    def recorded_later(metadata: RemoteLogSegmentMetadata) -> Deferred[None]:
        newer = replace(metadata, remote_log_segment_id=RemoteLogSegmentId(PARTITION, b"n" * 16), broker_id=2)
        tier.metadata.cache.add_copy_in_progress_segment(newer)
        tier.metadata.cache.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(
                newer.remote_log_segment_id,
                NOW_MS,
                mark_bytes(CompactedMark(newer.end_offset + 1, leader_epoch=1)),
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
                2,
            )
        )
        return record(metadata)

    tier.metadata.add_remote_log_segment_metadata = recorded_later  # type: ignore[method-assign]
    tier.lead()
    assert tier.metadata.states[:1] == ["COPY_SEGMENT_STARTED"]
    assert "copy" not in tier.storage.calls
    (left,) = tier.metadata.cache.list_all_remote_log_segments()
    assert left.broker_id == 2


def test_custom_metadata_that_is_too_large_ends_the_copies() -> None:
    tier = Tier()
    tier.storage.custom = bytes(129)
    tier.fill()
    tier.lead()
    tier.pass_on()
    assert tier.storage.calls == ["copy", "delete"]


def test_custom_metadata_is_kept() -> None:
    tier = Tier()
    tier.storage.custom = b"kept"
    tier.fill(2)
    tier.lead()
    assert [each.custom_metadata for each in tier.metadata.cache.list_all_remote_log_segments()] == [b"kept"]


def test_a_missing_producer_snapshot_is_made_anew() -> None:
    tier = Tier()
    tier.log.append_as_leader(batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    tier.fill(2)
    tier.log._snapshots.remove(1)
    tier.lead()
    first = min(tier.metadata.cache.list_all_remote_log_segments(), key=lambda each: each.start_offset)
    assert len(tier.storage.segments[first.remote_log_segment_id.id][IndexType.PRODUCER_SNAPSHOT]) > 50


def test_nothing_is_copied_if_the_role_ends_while_a_snapshot_is_made() -> None:
    tier = Tier()
    tier.log.append_as_leader(batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    tier.fill(2)
    tier.log._snapshots.remove(1)
    submit = tier.workers.submit

    def end_role(job: Any) -> Deferred[Any]:
        if getattr(job, "func", None) is made_snapshot:
            tier.core.leader_epoch += 1
        return submit(job)

    tier.workers.submit = end_role  # type: ignore[method-assign]
    tier.lead()
    assert tier.core.leader_epoch == 1
    assert not tier.metadata.states


def test_a_segment_without_a_snapshot_is_copied_while_the_disk_is_full() -> None:
    """Only by that its place becomes free."""
    tier = Tier()
    tier.log.append_as_leader(batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW_MS)
    tier.fill(2)
    tier.log._snapshots.remove(1)
    tier.disk.failing = ".snapshot"
    tier.lead()
    assert tier.starts() == [0, 1]
    first = min(tier.metadata.cache.list_all_remote_log_segments(), key=lambda each: each.start_offset)
    (producer,) = decode_snapshot(
        tier.storage.segments[first.remote_log_segment_id.id][IndexType.PRODUCER_SNAPSHOT]
    )
    assert producer.producer_id == 7


def test_copies_wait_for_their_quota() -> None:
    tier = Tier(**{"remote.log.manager.copy.max.bytes.per.second": "10"})
    tier.fill(4)
    tier.lead()
    assert tier.starts() == [0]
    tier.pass_on(200_000)
    assert tier.starts() == [0, 10, 20]


def test_disabled_copies_leave_retention_at_work() -> None:
    tier = tiered()
    tier.log.config = replace(TIERED, remote_log_copy_disable=True, retention_ms=1, local_retention_bytes=-2)
    tier.manager.role_taken(tier.core)
    tier.fill(1)
    tier.pass_on()
    assert tier.starts() == []
    assert tier.log.log_start_offset == 30


# Deletions


def test_retention_deletes_copies_and_moves_the_log_start_before() -> None:
    tier = tiered()
    tier.log.config = replace(TIERED, retention_ms=29_985)
    starts: list[int] = []
    tier.storage.fail = lambda operation: starts.append(tier.log.log_start_offset)
    tier.pass_on()
    assert tier.starts() == [10, 20]
    assert starts == [10]
    assert tier.moved == [tier.core]
    assert tier.log.epoch_entries == [(0, 0)]


@pytest.mark.parametrize("is_copying", [True, False])
def test_retention_by_size_counts_once_what_is_local_and_copied(is_copying: bool) -> None:
    """A node that has started does not know yet up to where its log is copied."""
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    size = tier.log.size_bytes()
    tier.log.highest_offset_in_remote_storage = -1
    tier.log.config = replace(TIERED, retention_bytes=size, remote_log_copy_disable=not is_copying)
    tier.manager._copies = Limit(0)  # other partitions are copied first
    tier.core.leader_epoch = 1
    tier.lead()
    assert tier.starts() == [0, 10, 20]
    assert tier.log.log_start_offset == 0


def test_a_pass_looks_at_no_local_segment_that_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill(40)
    tier.lead()
    assert len(tier.starts()) == len(tier.log.segments) - 1 == 39
    size: Any = LogSegment.size
    looked_at: list[LogSegment] = []

    def counted(segment: LogSegment) -> int:
        looked_at.append(segment)
        found: int = size.__get__(segment)
        return found

    monkeypatch.setattr(LogSegment, "size", property(counted, size.__set__))
    tier.pass_on()
    assert 0 < len(looked_at) < 10


def test_retention_by_size_lets_nothing_go_for_the_local_segments_below_the_copies() -> None:
    """A start after kill -9 has an old log start: it has segments again that retention had let go, and whose copies are
    gone."""
    tier = Tier(replace(TIERED, local_retention_bytes=-2))
    tier.fill(4)
    tier.lead()
    size = tier.log.segments[0].size
    settings = replace(tier.log.config, retention_bytes=3 * size)
    tier.log.config = settings
    tier.pass_on()
    assert (tier.starts(), tier.log.log_start_offset) == ([10, 20], 10)
    tier.log = tier.core.log = tier.open_log(settings, log_start_offset=0)
    tier.log.set_high_watermark(40)
    tier.core.leader_epoch = 1
    tier.lead()
    for _ in range(3):
        tier.pass_on()
    assert (tier.starts()[-2:], tier.log.log_start_offset) == ([10, 20], 10)


def test_delete_records_frees_copies() -> None:
    tier = tiered()
    tier.log.increment_log_start_offset(20)
    tier.pass_on()
    assert tier.starts() == [20]
    assert tier.moved == []


def test_a_deletion_that_fails_is_repeated() -> None:
    tier = tiered()
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    tier.log.increment_log_start_offset(10)
    tier.pass_on()
    assert RemoteLogSegmentState.DELETE_SEGMENT_STARTED in [
        each.state for each in tier.metadata.cache.list_all_remote_log_segments()
    ]
    tier.pass_on()
    assert tier.starts() == [10, 20]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The start offsets of copies that no store deletes, like a file system whose files are locked."""
    offsets: set[int] = set()
    delete = MemoryStorage.delete_log_segment_data

    def refuse(storage: MemoryStorage, metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.start_offset in offsets:
            raise RemoteStorageException("the file is locked")
        delete(storage, metadata)

    monkeypatch.setattr(MemoryStorage, "delete_log_segment_data", refuse)
    return offsets


def test_a_copy_that_the_store_keeps_holds_up_no_deletion_of_another(
    kept: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    tier = tiered()
    kept.add(0)
    tier.log.increment_log_start_offset(20)
    tier.pass_on()
    assert tier.starts() == [0, 20]
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        f"[RemoteLogManager partition={PARTITION}] the file is locked"
    ]
    tier.log.increment_log_start_offset(30)
    tier.pass_on()
    assert tier.starts() == [0]
    kept.clear()
    tier.pass_on()
    assert tier.starts() == []


def test_a_copy_of_a_deleted_topic_that_the_store_keeps_holds_up_no_deletion_of_another(
    kept: set[int],
) -> None:
    tier = tiered()
    kept.add(0)
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.settle()
    assert tier.starts() == [0]
    assert tier.metadata.deletion == [(MARKED, 3), (STARTED, 3)]
    kept.clear()
    tier.pass_on()
    assert tier.starts() == []
    assert tier.metadata.deletion[2:] == [(FINISHED, 0)]


def test_the_leader_of_a_deleted_topic_deletes_its_copies() -> None:
    tier = tiered()
    tier.storage.fail = failing("delete", RemoteStorageException, times=2)
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.settle()
    for _ in range(3):
        tier.pass_on()
    assert tier.starts() == []
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]
    assert tier.metadata.deletion == [
        (MARKED, 3),
        (STARTED, 3),
        (FINISHED, 0),
    ]


@pytest.mark.parametrize("problem", [WorkersBusy, MemoryError, OSError])
def test_a_deletion_of_a_topic_is_repeated_whatever_has_failed(problem: type[Exception]) -> None:
    tier = tiered()
    tier.storage.fail = failing("delete", problem, times=2)
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.settle()
    for _ in range(3):
        tier.pass_on()
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]
    assert tier.metadata.deletion == [(MARKED, 3), (STARTED, 3), (FINISHED, 0)]


@pytest.mark.parametrize("problem", [WorkersBusy, MemoryError, OSError])
def test_disabling_deletes_the_copies_whatever_has_failed(problem: type[Exception]) -> None:
    tier = tiered()
    tier.storage.fail = failing("delete", problem, times=2)
    tier.log.config = replace(TIERED, remote_storage_enable=False, remote_log_delete_on_disable=True)
    tier.manager.role_taken(tier.core)
    for _ in range(3):
        tier.pass_on()
    assert tier.starts() == []
    assert not tier.storage.segments


def left_by(tier: Tier, node_id: int) -> RemotePartitionDeleteMetadata:
    """A deletion that this node has begun."""
    return RemotePartitionDeleteMetadata(
        PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, NOW_MS, node_id
    )


def after_a_restart() -> Tier:
    """The topic was deleted, and the node ended before its copies were."""
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=False, was_leader=True)
    tier.metadata.roles.clear()
    return tier


def test_a_node_goes_on_with_its_own_deletion_after_a_restart() -> None:
    tier = after_a_restart()
    for _ in range(2):
        tier.manager.deletion_is_begun(left_by(tier, 1))
    tier.settle()
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]
    assert tier.metadata.deletion == [(STARTED, 3), (FINISHED, 0)]


def test_a_node_goes_on_with_the_deletion_of_another_one_that_has_ended() -> None:
    tier = after_a_restart()
    tier.manager.deletion_is_begun(left_by(tier, 2))
    for _ in range(2):
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert tier.starts() == [0, 10, 20]
    tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert not tier.storage.segments
    assert tier.metadata.deletion == [(STARTED, 3), (FINISHED, 0)]


def test_a_deletion_of_which_only_the_last_step_is_missing_is_finished() -> None:
    tier = after_a_restart()
    for _ in range(3):
        delete_first_copy(tier)
    tier.manager.deletion_is_begun(left_by(tier, 2))
    for _ in range(3):
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert tier.metadata.deletion == [(STARTED, 0), (FINISHED, 0)]


def test_a_deletion_that_another_node_finishes_is_left_to_it() -> None:
    tier = after_a_restart()
    tier.manager.deletion_is_begun(left_by(tier, 2))
    tier.metadata.is_unfinished = False
    for _ in range(4):
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert (tier.metadata.deletion, tier.metadata.roles, tier.starts()) == ([], [], [0, 10, 20])


def test_a_deletion_in_progress_is_not_begun_twice() -> None:
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.manager.deletion_is_begun(left_by(tier, 1))
    tier.settle()
    assert tier.storage.calls.count("delete") == 3


def test_a_copy_whose_record_comes_late_is_deleted_too() -> None:
    tier = after_a_restart()
    late = replace(
        min(tier.metadata.cache.list_all_remote_log_segments(), key=lambda each: each.start_offset),
        remote_log_segment_id=RemoteLogSegmentId(PARTITION, b"late".ljust(16)),
        state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
    )

    def come(operation: str) -> None:
        if operation == "delete" and late.remote_log_segment_id.id not in tier.storage.segments:
            tier.storage.segments[late.remote_log_segment_id.id] = {}
            tier.metadata.cache.add_copy_in_progress_segment(late)

    tier.storage.fail = come
    tier.manager.deletion_is_begun(left_by(tier, 1))
    tier.settle()
    assert len(tier.storage.segments) == 1
    tier.storage.fail = lambda operation: None
    tier.pass_on()
    assert not tier.storage.segments
    assert tier.metadata.deletion == [(STARTED, 3), (FINISHED, 0)]


def test_a_topic_without_copies_leaves_no_mark() -> None:
    tier = Tier()
    tier.lead()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.settle()
    assert (tier.metadata.deletion, tier.metadata.roles) == ([], ["leader", "stopped"])


def test_a_replica_that_goes_leaves_the_copies() -> None:
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=False, was_leader=True)
    tier.pass_on()
    assert tier.starts() == [0, 10, 20]
    assert tier.metadata.roles == ["leader", "stopped"]


def delete_first_copy(tier: Tier) -> None:
    """As another node does."""
    first = min(tier.metadata.cache.list_all_remote_log_segments(), key=lambda each: each.start_offset)
    for state in (
        RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
        RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
    ):
        tier.metadata.cache.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(first.remote_log_segment_id, NOW_MS, None, state, 2)
        )
    del tier.storage.segments[first.remote_log_segment_id.id]


def test_a_follower_deletes_the_copies_of_a_deleted_topic_that_its_leader_leaves() -> None:
    """The leader has ended before it had deleted all."""
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=False)
    tier.pass_on(TAKEN_OVER_AFTER_MS)
    delete_first_copy(tier)
    tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert tier.starts() == [10, 20]
    tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert tier.starts() == []
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]


def test_copies_that_could_not_be_listed_for_want_of_memory_are_deleted_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=False)
    with monkeypatch.context() as patched:
        patched.setattr(type(tier.metadata), "list_remote_log_segments", lacks_memory)
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    for _ in range(3):
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]


def lacks_memory(*_: object) -> Any:
    raise MemoryError


def test_a_follower_leaves_the_copies_of_a_deleted_topic_to_its_leader() -> None:
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=False)
    for _ in range(3):
        delete_first_copy(tier)
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert "delete" not in tier.storage.calls
    assert tier.metadata.roles == ["leader", "stopped"]


def test_a_node_that_ends_takes_no_deletion_over() -> None:
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=False)
    tier.manager.close()
    for _ in range(4):
        tier.pass_on(TAKEN_OVER_AFTER_MS)
    assert tier.starts() == [0, 10, 20]


def disabled(tier: Tier) -> None:
    tier.log.config = replace(TIERED, remote_storage_enable=False, remote_log_delete_on_disable=True)
    tier.manager.role_taken(tier.core)


def test_the_next_leader_deletes_what_is_left_when_tiering_is_disabled() -> None:
    """The leader has ended before it had deleted all. The next one, or that one's next start, has not copied anything."""
    tier = tiered()
    tier.manager.gone(tier.core, is_deleted=False, was_leader=True)
    tier.metadata.roles.clear()
    tier.core.is_leader = False
    disabled(tier)
    tier.pass_on()
    assert (tier.starts(), tier.metadata.roles) == ([0, 10, 20], [])
    tier.core.is_leader, tier.core.leader_epoch = True, 1
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    for _ in range(3):
        tier.manager.role_taken(tier.core)
        tier.pass_on()
    assert tier.starts() == []
    assert not tier.storage.segments
    assert tier.metadata.roles == ["leader", "stopped"]


def test_a_follower_that_leads_after_tiering_was_disabled_deletes_the_copies() -> None:
    tier = tiered()
    tier.core.is_leader = False
    tier.manager.role_taken(tier.core)
    disabled(tier)
    tier.pass_on()
    assert tier.starts() == [0, 10, 20]
    tier.core.is_leader = True
    tier.manager.role_taken(tier.core)
    tier.pass_on()
    assert tier.starts() == []


def test_tiering_that_is_enabled_and_disabled_again_deletes_again() -> None:
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    for _ in range(2):
        disabled(tier)
        tier.pass_on()
        assert tier.starts() == []
        tier.log.config = TIERED
        tier.lead()
        assert tier.starts() == [0, 10, 20]


def test_a_copy_in_progress_of_a_deleted_topic_is_deleted_when_it_is_stored() -> None:
    tier = Tier()
    tier.fill(2)
    tier.manager.role_taken(tier.core)
    for _ in range(3):
        tier.time.advance(0)
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED"]
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    for _ in range(5):
        tier.time.advance(0)
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED", "DELETE_SEGMENT_STARTED"]
    jobs = [job.func.__name__ for job, _ in tier.workers.submitted]  # type: ignore[attr-defined]
    assert "delete_log_segment_data" not in jobs  # another thread could do it first
    tier.settle()
    assert tier.storage.calls == ["copy", "delete"]
    assert tier.storage.segments == {}


def test_a_topic_that_is_remade_waits_for_no_hanging_copy_of_the_deleted_one() -> None:
    tier = Tier()
    tier.fill(2)
    tier.manager.role_taken(tier.core)
    for _ in range(3):
        tier.time.advance(0)
    ((hanging, answer),) = [
        job
        for job in tier.workers.submitted
        if job[0].func.__name__ == "copy_log_segment_data"  # type: ignore[attr-defined]
    ]
    tier.workers.submitted.remove((hanging, answer))
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    core = tier.remade()
    tier.manager.role_taken(core)
    tier.settle()
    remade = tier.metadata.caches[REMADE]
    states = [each.state for each in remade.list_all_remote_log_segments()]
    assert states == [RemoteLogSegmentState.COPY_SEGMENT_FINISHED] * 2
    assert core.log.highest_offset_in_remote_storage == 19
    kept = dict(tier.storage.segments)
    # The store answers at last: what it has of the deleted topic goes, and nothing else.
    answer.resolve(hanging())
    tier.settle()
    tier.pass_on()
    assert tier.storage.segments == kept
    assert tier.starts() == []
    assert len(remade.list_all_remote_log_segments()) == 2


def test_disabling_deletes_the_copies() -> None:
    tier = tiered()
    tier.log.config = replace(TIERED, remote_storage_enable=False, remote_log_delete_on_disable=True)
    tier.manager.role_taken(tier.core)
    tier.settle()
    assert tier.starts() == []
    assert tier.log.log_start_offset == 30


def test_what_was_deleted_when_tiering_was_disabled_is_copied_again() -> None:
    """Records that are only local by now must not be taken for copied ones, or local retention deletes the last copy."""
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    assert tier.starts() == [0, 10, 20]
    tier.log.config = replace(TIERED, remote_storage_enable=False, remote_log_delete_on_disable=True)
    tier.manager.role_taken(tier.core)
    tier.settle()
    assert tier.starts() == []
    tier.log.config = TIERED
    tier.manager.role_taken(tier.core)
    tier.time.advance(0)
    assert tier.log.enforce_retention(NOW_MS) == 0
    tier.settle()
    assert tier.starts() == [0, 10, 20]
    assert tier.log.highest_offset_in_remote_storage == 29


def test_a_deletion_that_goes_on_ends_when_tiering_is_enabled_again() -> None:
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    tier.log.config = replace(TIERED, remote_storage_enable=False, remote_log_delete_on_disable=True)
    tier.manager.role_taken(tier.core)
    tier.settle()
    assert tier.metadata.states[-1] == "DELETE_SEGMENT_STARTED"
    tier.log.config = TIERED
    tier.manager.role_taken(tier.core)
    tier.settle()
    tier.pass_on()
    tier.pass_on()
    assert tier.starts() == [0, 10, 20]
    assert len(tier.storage.segments) == 3


def test_a_node_that_a_partition_has_left_deletes_nothing_of_it_any_more() -> None:
    """The store fails while tiering is disabled. The partition moves, tiering is enabled again, and the next leader copies."""
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    disabled(tier)
    tier.settle()
    assert tier.metadata.states[-1] == "DELETE_SEGMENT_STARTED"
    tier.manager.gone(tier.core, is_deleted=False, was_leader=True)
    assert tier.metadata.roles == ["leader", "leader", "stopped"]
    cache, states = tier.metadata.cache, RemoteLogSegmentState
    for at, each in enumerate(cache.list_all_remote_log_segments(), 100):
        copy = RemoteLogSegmentId(PARTITION, bytes(15) + bytes([at]))
        cache.add_copy_in_progress_segment(
            replace(each, remote_log_segment_id=copy, broker_id=2, state=states.COPY_SEGMENT_STARTED)
        )
        cache.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(copy, NOW_MS, None, states.COPY_SEGMENT_FINISHED, 2)
        )
    for _ in range(3):
        tier.pass_on()
    left = [each.state for each in cache.list_all_remote_log_segments() if each.broker_id == 2]
    assert left == [states.COPY_SEGMENT_FINISHED] * 3


def test_a_node_that_a_deleted_topic_has_left_goes_on_to_delete_it() -> None:
    tier = tiered()
    tier.storage.fail = failing("delete", RetriableRemoteStorageException)
    disabled(tier)
    tier.settle()
    tier.manager.gone(tier.core, is_deleted=True, was_leader=True)
    tier.pass_on()
    assert tier.starts() == []
    assert not tier.storage.segments


def test_a_copy_that_is_gone_is_made_again_before_local_retention_deletes() -> None:
    """A deletion of another leader does not lower the highest offset that was ever copied."""
    tier = Tier(replace(TIERED, local_retention_bytes=-1))
    tier.fill()
    tier.lead()
    gone = next(
        each for each in tier.metadata.cache.list_all_remote_log_segments() if each.start_offset == 10
    )
    states = RemoteLogSegmentState
    for state in (states.DELETE_SEGMENT_STARTED, states.DELETE_SEGMENT_FINISHED):
        tier.metadata.cache.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(gone.remote_log_segment_id, NOW_MS, None, state, 2)
        )
    assert tier.metadata.highest_offset_for_epoch(gone.topic_id_partition, 0) == 29
    tier.core.is_leader, tier.core.leader_epoch = False, 1
    tier.lead()
    assert tier.log.highest_offset_in_remote_storage == 9
    tier.core.is_leader, tier.core.leader_epoch = True, 2
    tier.lead()
    tier.pass_on()
    assert tier.starts() == [0, 10, 20]
    assert tier.log.highest_offset_in_remote_storage == 29
    tier.log.config = TIERED
    tier.log.enforce_retention(NOW_MS)
    assert offsets_in(read(tier, 10).records) == list(range(10, 20))


def test_a_new_leader_leaves_a_copy_that_the_former_one_may_still_finish() -> None:
    tier = Tier()
    tier.fill(2)
    tier.manager.role_taken(tier.core)
    tier.time.advance(0)
    tier.core.leader_epoch = 1
    tier.lead()
    assert tier.metadata.states == ["COPY_SEGMENT_STARTED"] * 2 + ["COPY_SEGMENT_FINISHED"]


def test_a_new_leader_finds_the_log_start() -> None:
    tier = tiered()
    tier.log.increment_log_start_offset(10)
    tier.pass_on()
    tier.log.log_start_offset = 0  # the checkpoint was not written
    tier.core.leader_epoch = 1
    tier.lead()
    assert tier.log.log_start_offset == 10


# Reads


def test_records_are_read_from_the_batch_that_has_the_offset_on() -> None:
    tier = tiered()
    assert offsets_in(read(tier, 3).records) == list(range(2, 10))
    assert offsets_in(read(tier, 10).records) == list(range(10, 20))
    assert offsets_in(read(tier, 19).records) == [18, 19]


def test_limits_leave_at_least_one_batch_where_asked() -> None:
    tier = tiered()
    one = len(read(tier, 0).records) // 5
    assert offsets_in(read(tier, 0, 1).records) == [0, 1]
    assert read(tier, 0, 1, least_one=False).records == b""
    assert offsets_in(read(tier, 0, 2 * one + 5).records) == [0, 1, 2, 3]


def test_an_offset_that_is_nowhere_is_out_of_range() -> None:
    tier = tiered()
    with pytest.raises(LogRefused) as refused:
        read(tier, 35)
    assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_indexes_are_fetched_once() -> None:
    tier = tiered()
    tier.storage.calls.clear()
    read(tier, 0)
    read(tier, 5)
    assert tier.storage.calls == ["fetch offset", "fetch", "fetch"]


def test_a_damaged_index_costs_only_time() -> None:
    tier = tiered()
    for parts in tier.storage.segments.values():
        parts[IndexType.OFFSET] = b"damaged"
    assert offsets_in(read(tier, 13).records) == list(range(12, 20))
    for parts in tier.storage.segments.values():
        parts[IndexType.OFFSET] = bytes([0, 0, 0, 1, 0, 0, 0, 3])
    assert offsets_in(read(tier, 23).records) == list(range(22, 30))


@pytest.mark.parametrize("position", [0, 8, 20, 70])
def test_damaged_records_are_not_passed_on(position: int) -> None:
    tier = tiered()
    for parts in tier.storage.segments.values():
        data = bytearray(parts["log"])
        data[position] ^= 0x55
        parts["log"] = bytes(data)
    with pytest.raises(RemoteStorageException):
        read(tier, 0)


def test_a_truncated_segment_is_not_passed_on() -> None:
    tier = tiered()
    for parts in tier.storage.segments.values():
        parts["log"] = parts["log"][:-1]
    with pytest.raises(RemoteStorageException):
        read(tier, 0)


def test_records_of_another_segment_are_not_passed_on() -> None:
    tier = tiered()
    logs = [parts["log"] for parts in tier.storage.segments.values()]
    for parts in tier.storage.segments.values():
        parts["log"] = logs[0]
    assert offsets_in(read(tier, 0).records) == list(range(10))
    with pytest.raises(RemoteStorageException):
        read(tier, 10)


def test_reads_beyond_the_pending_tasks_are_refused() -> None:
    tier = tiered()
    reads = [
        tier.manager._tasks.run(
            "a test", tier.manager.read(tier.core, 0, 1, minimum_one_batch=True, read_committed=False)
        )
        for _ in range(111)
    ]
    assert reads[-1].has_failed
    with pytest.raises(Overloaded):
        reads[-1].result()
    tier.settle(400)
    assert all(each.done for each in reads)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("remote.log.manager.copier.thread.pool.size", "_copies"),
        ("remote.log.manager.expiration.thread.pool.size", "_deletions"),
        ("remote.log.reader.threads", "_reads"),
        ("remote.log.manager.follower.thread.pool.size", "_follower_states"),
    ],
)
def test_another_size_of_a_thread_pool_holds_with_the_next_image(name: str, limit: str) -> None:
    tier = Tier(**{name: "1"})
    tasks, end = tier.manager._tasks, Deferred[None]()
    begun: list[str] = []

    async def work() -> None:
        async with getattr(tier.manager, limit):
            begun.append(name)
            await end

    for _ in range(3):
        tasks.start("a job", work())
    tier.settle()
    assert len(begun) == 1
    settings: Any = tier.manager._settings
    tier.manager._settings = settings.with_overrides([{name: "2"}])[0]
    tier.manager.on_image()
    tier.settle()
    assert len(begun) == 2
    end.resolve(None)
    tier.settle()
    assert len(begun) == 3


def test_a_follower_does_not_wait_for_the_reads_of_consumers() -> None:
    tier = tiered()
    tier.manager._reads = Limit(0, 0)
    assert run(tier, tier.manager.follower_state(tier.core, 0, 29, 40)).offset == 30


def test_aborted_transactions_are_found_over_the_border() -> None:
    """One transaction ends in its own segment, one in a later copy, one in the local files."""
    tier = Tier()
    log = tier.log

    def write(producer_id: int, *, end: bool = False) -> None:
        if end:
            log.append_as_leader(marker(producer_id, committed=False), 0, NOW_MS)
        else:
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": 0,
                "is_transactional": True,
            }
            log.append_as_leader(batch_of([b"x", b"y"], **options), 0, NOW_MS)
        log.set_high_watermark(log.log_end_offset)

    write(1)
    write(2)
    write(3)
    write(1, end=True)
    log.roll(log.log_end_offset, NOW_MS)
    write(2, end=True)
    log.roll(log.log_end_offset, NOW_MS)
    write(3, end=True)
    tier.lead()
    log.note_copied_to(tier.log.high_watermark)
    tier.fill(1)
    tier.pass_on()
    assert tier.starts() == [0, 7, 8]
    log.enforce_retention(NOW_MS)
    found = read(tier, 0, committed=True).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in found] == [(1, 0), (2, 2), (3, 4)]
    found = read(tier, 0, 1, committed=True).aborted_transactions
    assert [(each.producer_id, each.first_offset) for each in found] == [(1, 0)]
    assert read(tier, 0).aborted_transactions == []


def test_a_read_tells_a_bounded_number_of_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be one for each few hundred bytes. The consumer gets the other records with its next fetches."""
    monkeypatch.setattr("kafkacompat.remote.manager.ABORTED_MAX", 5)
    tier = Tier()
    log = tier.log
    for sequence in range(12):
        log.append_as_leader(
            batch_of([b"x"], producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=True),
            0,
            NOW_MS,
        )
        log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
        log.set_high_watermark(log.log_end_offset)
        if sequence in (2, 11):
            log.roll(log.log_end_offset, NOW_MS)
    tier.lead()
    log.note_copied_to(tier.log.high_watermark)
    tier.fill(1)
    tier.pass_on()
    assert tier.starts() == [0, 6]
    log.enforce_retention(NOW_MS)
    offset, told = 0, []
    while offset < 24:
        found = read(tier, offset, committed=True)
        aborted = [each.first_offset for each in found.aborted_transactions]
        headers = list(iterate_batches(found.records))
        assert headers[0].base_offset == offset
        offset = headers[-1].last_offset + 1
        assert aborted == [each.base_offset for each in headers if not each.is_control]
        told.append(len(aborted))
    assert told == [3, 5, 4]


def test_a_read_that_begins_in_a_gap_tells_of_the_transaction_of_its_first_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound on aborted transactions could lie in what a compaction has left out, and the batch behind that would be taken for
    a committed one."""
    monkeypatch.setattr("kafkacompat.remote.manager.ABORTED_MAX", 2)
    tier = Tier()
    log = tier.log

    def records_of_producer(producer_id: int, sequence: int = 0) -> Any:
        return batch_of(
            [b"x"],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    for producer_id in (1, 2, 3):
        log.append_as_leader(records_of_producer(producer_id), 0, NOW_MS)
    behind_the_gap = bytearray(records_of_producer(9).buffer)
    stamp_offset_and_epoch(behind_the_gap, 10, 0)
    log.append_as_follower(bytes(behind_the_gap), 0)
    for producer_id in (1, 2, 3):
        log.append_as_leader(marker(producer_id, committed=False), 0, NOW_MS)
    log.append_as_leader(records_of_producer(9, 1), 0, NOW_MS)
    log.append_as_leader(marker(9, committed=False), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    tier.lead()
    log.note_copied_to(log.high_watermark)
    tier.fill(1)
    tier.pass_on()
    assert tier.starts() == [0]
    log.enforce_retention(NOW_MS)
    found = read(tier, 3, committed=True)
    assert [each.base_offset for each in iterate_batches(found.records)] == list(range(10, 16))
    told = {each.producer_id: each.first_offset for each in found.aborted_transactions}
    assert told[9] == 10


def test_offsets_are_found_by_time_below_the_local_start() -> None:
    tier = tiered()

    def found(timestamp_ms: int) -> TimestampOffset | None:
        result: TimestampOffset | None = run(tier, tier.manager.find_offset(tier.core, timestamp_ms))
        return result

    assert found(0) == TimestampOffset(NOW_MS, 0, 0)
    assert found(NOW_MS + 13) == TimestampOffset(NOW_MS + 13, 13, 0)
    assert found(NOW_MS + 29) == TimestampOffset(NOW_MS + 29, 29, 0)
    assert found(NOW_MS + 30) is None
    tier.log.increment_log_start_offset(15)
    assert found(0) == TimestampOffset(NOW_MS + 15, 15, 0)


def test_a_search_for_what_is_local_waits_for_no_store() -> None:
    """Clients look for recent times too, also while the store hangs."""
    tier = tiered()
    tier.manager._reads = Limit(0, 0)
    search = tier.manager._tasks.run("search", tier.manager.find_offset(tier.core, NOW_MS + 30))
    assert (search.done, search.result()) == (True, None)


def test_a_follower_gets_epochs_and_producers_of_the_segment_before_the_leaders_local_part() -> None:
    tier = tiered()
    state = run(tier, tier.manager.aux_state(tier.core, 0, 29, 40))
    assert (state.offset, state.epochs) == (30, [(0, 0)])
    log = tier.log
    assert log.start_after_remote_segment(state.offset, 0, state.epochs, state.producer_snapshot)
    with pytest.raises(RemoteStorageException):
        run(tier, tier.manager.aux_state(tier.core, 0, 35, 40))


def snapshot_at(tier: Tier, offset: int, *, epoch: int = 0) -> list[tuple[int, int, int]]:
    """Each producer that a follower begins with: its id, the end of its last batch, and the start of its open transaction."""
    state = run(tier, tier.manager.aux_state(tier.core, epoch, offset - 1, offset))
    assert (state.offset, state.epochs) == (offset, [(0, 0)])
    producers = decode_snapshot(state.producer_snapshot)
    return sorted(
        (each.producer_id, each.batches[-1].last_offset, each.transaction_first_offset) for each in producers
    )


def with_producers() -> Tier:
    """Three segments of twelve records, copied. 7 writes all but the markers, 8 begins at 2 and 14, and is ended at 10 and 22."""
    tier = Tier()
    log = tier.log
    for segment in range(4):
        if segment:
            log.roll(log.log_end_offset, NOW_MS)
        for batch in range(5):
            eight = batch == 1
            log.append_as_leader(
                batch_of(
                    [b"a", b"b"],
                    producer_id=8 if eight else 7,
                    producer_epoch=0,
                    base_sequence=2 * segment if eight else 8 * segment + 2 * (batch - (batch > 1)),
                    is_transactional=eight,
                ),
                0,
                NOW_MS,
            )
        log.append_as_leader(marker(8, committed=False), 0, NOW_MS)
        log.append_as_leader(batch_of([b"c"]), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    tier.lead()
    log.enforce_retention(NOW_MS)
    assert tier.starts() == [0, 12, 24]
    return tier


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (4, [(7, 1, -1), (8, 3, 2)]),
        (12, [(7, 9, -1), (8, 3, -1)]),
        (14, [(7, 13, -1), (8, 3, -1)]),
        (16, [(7, 13, -1), (8, 15, 14)]),
        (22, [(7, 21, -1), (8, 15, 14)]),
        (23, [(7, 21, -1), (8, 15, -1)]),
    ],
)
def test_a_follower_begins_within_a_copy_that_goes_on_with_another_history(
    offset: int, expected: list[tuple[int, int, int]]
) -> None:
    """Only up to there the leader of an unclean election has the same records."""
    assert snapshot_at(with_producers(), offset) == expected


def test_producers_within_a_copy_are_found_without_the_copy_before_it() -> None:
    tier = with_producers()
    tier.log.increment_log_start_offset(12)
    tier.pass_on()
    assert tier.starts() == [12, 24]
    assert snapshot_at(tier, 16) == [(7, 13, -1), (8, 15, 14)]


def test_producers_within_a_copy_are_found_where_the_copy_before_it_ends_behind_the_offset() -> None:
    tier = with_producers()
    states = RemoteLogSegmentState
    first, second, _ = tier.metadata.cache.list_all_remote_log_segments()
    cache = tier.metadata.caches[PARTITION] = tier.metadata.cache = RemoteLogMetadataCache()
    log = b"".join(tier.storage.segments[each.remote_log_segment_id.id]["log"] for each in (first, second))
    both = replace(
        second,
        remote_log_segment_id=RemoteLogSegmentId(PARTITION, b"both".ljust(16)),
        start_offset=0,
        segment_size_in_bytes=len(log),
        segment_leader_epochs=((0, 0),),
    )
    tier.storage.segments[b"both".ljust(16)] = {"log": log, IndexType.OFFSET: b""}
    for each in (both, second):
        cache.add_copy_in_progress_segment(replace(each, state=states.COPY_SEGMENT_STARTED))
        update = RemoteLogSegmentMetadataUpdate(
            each.remote_log_segment_id, NOW_MS, None, states.COPY_SEGMENT_FINISHED, 1
        )
        assert cache.update_remote_log_segment_metadata(update)
    assert snapshot_at(tier, 16) == [(7, 13, -1), (8, 15, 14)]


def test_a_damaged_snapshot_before_it_fails_the_state_of_a_follower() -> None:
    tier = with_producers()
    first = tier.metadata.cache.remote_log_segment_metadata(0, 0)
    assert first is not None
    tier.storage.segments[first.remote_log_segment_id.id][IndexType.PRODUCER_SNAPSHOT] = b"damaged"
    with pytest.raises(RemoteStorageException, match="the producers of"):
        snapshot_at(tier, 14)


def test_the_cache_of_indexes_is_bounded() -> None:
    tier = Tier(**{"remote.log.index.file.cache.total.size.bytes": "40"})
    tier.fill(9)
    tier.lead()
    tier.log.enforce_retention(NOW_MS)
    for offset in range(0, 80, 10):
        read(tier, offset)
        assert tier.manager.indexes.size_bytes <= 40


def test_a_lower_bound_of_the_cache_of_indexes_holds_from_the_next_index_on() -> None:
    tier = tiered(6)
    bound = [1000]
    indexes = RemoteIndexCache(tier.storage, lambda: bound[0])
    *others, last = tier.metadata.cache.list_all_remote_log_segments()
    for each in others:
        indexes.get(each, IndexType.TIMESTAMP)
    assert 40 < indexes.size_bytes <= 1000
    bound[0] = 40
    indexes.get(last, IndexType.TIMESTAMP)
    assert indexes.size_bytes <= 40


def test_closed_no_pass_begins() -> None:
    tier = tiered()
    tier.manager.close()
    tier.fill(1)
    tier.pass_on()
    assert tier.starts() == [0, 10, 20]


def test_after_an_unclean_election_nothing_of_the_other_history_is_read() -> None:
    """Epoch 0 was copied up to 29; this leader has it up to 13 and goes on with epoch 4."""
    tier = tiered()
    log = tier.log
    log.truncate_to(14)
    assert (log.log_start_offset, log.log_end_offset) == (0, 14)
    tier.core.leader_epoch = 4
    log.assign_epoch_start(4, 14)
    tier.fill(2, epoch=4)
    assert offsets_in(read(tier, 11).records) == [10, 11, 12, 13]
    assert read(tier, 12, 1).records != b""
    tier.lead()
    log.enforce_retention(NOW_MS)
    assert offsets_in(read(tier, 14).records) == list(range(14, 24))
    assert offsets_in(read(tier, 12).records) == [12, 13]


def test_a_search_by_time_passes_over_records_of_the_other_history() -> None:
    tier = tiered()
    log = tier.log
    log.truncate_to(14)
    tier.core.leader_epoch = 4
    log.assign_epoch_start(4, 14)
    tier.fill(2, epoch=4)
    tier.lead()
    log.enforce_retention(NOW_MS)
    assert log.local_log_start_offset == 24

    def found(timestamp_ms: int) -> TimestampOffset | None:
        result: TimestampOffset | None = run(tier, tier.manager.find_offset(tier.core, timestamp_ms))
        return result

    assert found(NOW_MS + 11) == TimestampOffset(NOW_MS + 11, 11, 0)
    assert found(NOW_MS + 16) == TimestampOffset(NOW_MS + 16, 16, 4)
