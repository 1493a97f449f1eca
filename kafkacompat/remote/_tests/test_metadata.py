"""Values of tiered storage, and the states that segments and deletions pass through."""

from __future__ import annotations

from itertools import product

import pytest

from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
    deletion_may_follow,
    leader_epochs,
    may_follow,
)

PARTITION = TopicIdPartition(bytes(15) + b"\x07", "t", 3)


def segment(start: int = 0, end: int = 99, *epochs: tuple[int, int]) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, bytes(15) + b"\x09"),
        start,
        end,
        50,
        1,
        60,
        1000,
        epochs or ((0, start),),
    )


def test_a_segment_is_copied_and_then_deleted() -> None:
    copying, copied, deleting, deleted = RemoteLogSegmentState
    steps = {
        (before, after)
        for before, after in product((None, *RemoteLogSegmentState), RemoteLogSegmentState)
        if may_follow(before, after)
    }
    assert steps == {
        (None, copying),
        (copying, copying),
        (copying, copied),
        (copying, deleting),
        (copied, copied),
        (copied, deleting),
        (deleting, deleting),
        (deleting, deleted),
        (deleted, deleted),
    }


def test_a_partition_is_marked_and_then_deleted() -> None:
    marked, started, finished = RemotePartitionDeleteState
    steps = {
        (before, after)
        for before, after in product((None, *RemotePartitionDeleteState), RemotePartitionDeleteState)
        if deletion_may_follow(before, after)
    }
    assert steps == {
        (None, marked),
        (marked, marked),
        (marked, started),
        (started, started),
        (started, finished),
        (finished, finished),
    }


def test_what_no_segment_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="from offset -1"):
        segment(-1, 5)
    with pytest.raises(ValueError, match="from offset 5 to 4"):
        segment(5, 4)
    with pytest.raises(ValueError, match="no leader epochs"):
        RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, bytes(16)), 0, 1, 0, 0, 0, 0, ())


def test_an_update_replaces_the_state_and_what_the_store_has_kept() -> None:
    before = segment()
    update = RemoteLogSegmentMetadataUpdate(
        before.remote_log_segment_id, 77, b"here", RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 2
    )
    after = before.with_update(update)
    assert (after.state, after.custom_metadata, after.event_timestamp_ms, after.broker_id) == (
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        b"here",
        77,
        2,
    )
    assert (after.start_offset, after.segment_size_in_bytes) == (0, 1000)
    other = RemoteLogSegmentMetadataUpdate(
        RemoteLogSegmentId(PARTITION, bytes(16)), 77, None, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 2
    )
    with pytest.raises(ValueError, match="an update of"):
        before.with_update(other)


def test_an_epoch_ends_where_the_next_one_in_the_segment_begins() -> None:
    copied = segment(10, 99, *leader_epochs([(4, 50), (2, 10)]))
    assert copied.segment_leader_epochs == ((2, 10), (4, 50))
    assert copied.end_offset_of_epoch(2) == 49
    assert copied.end_offset_of_epoch(4) == 99
