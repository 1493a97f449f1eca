from __future__ import annotations

import pytest

from kafkacompat.share._tests.leader import ACKNOWLEDGED, ARCHIVED, AVAILABLE, KEY, Leader
from kafkacompat.share.service import ReadState, ShareError, StateBatch
from kafkacompat.share.share_partition import SharePartition, needs_reset_offset
from kafkacompat.share.values import SUCCEEDED, AcquireMode, FetchedBatch, SharePartitionState, ShareSettings
from kafkacompat.wire.errors import ErrorCode

NAME = "g-AAAAAAAAAAAAAAAAAAAAAA:t-3"


@pytest.fixture
def partition() -> SharePartition:
    return SharePartition(KEY, "t", 7, ShareSettings)


def test_a_share_partition_is_initialized_once(partition: SharePartition) -> None:
    assert partition.begin_initialization() is None
    assert partition.state is SharePartitionState.INITIALIZING
    assert partition.begin_initialization() == ShareError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"Share partition is already initializing {NAME}"
    )
    assert partition.initialize(ReadState(state_epoch=4, start_offset=5), 0) == SUCCEEDED
    assert partition.state is SharePartitionState.ACTIVE
    assert partition.begin_initialization() == SUCCEEDED
    assert (partition.state_epoch, partition.start_offset, partition.end_offset) == (4, 5, 5)


def test_a_fenced_one_is_not_initialized(partition: SharePartition) -> None:
    partition.begin_initialization()
    partition.mark_fenced()
    assert partition.begin_initialization() == ShareError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"Share partition is fenced {NAME}"
    )
    partition.initialize(ReadState(start_offset=5), 0)
    assert partition.state is SharePartitionState.FENCED


def test_a_failed_one_is_not_initialized(partition: SharePartition) -> None:
    partition.begin_initialization()
    partition.fail()
    assert partition.begin_initialization() == ShareError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"Share partition failed to load {NAME}"
    )


def test_without_an_offset_the_group_begins_where_its_reset_says(partition: SharePartition) -> None:
    read = ReadState(start_offset=-1)
    assert needs_reset_offset(read)
    assert not needs_reset_offset(ReadState(start_offset=0))
    assert not needs_reset_offset(ReadState(ShareError(ErrorCode.INVALID_REQUEST)))
    partition.begin_initialization()
    partition.initialize(read, 33)
    assert partition.start_offset == partition.end_offset == partition.next_fetch_offset() == 33


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_persister_are_told_in_other_words(
    partition: SharePartition, code: ErrorCode, told: ErrorCode
) -> None:
    partition.begin_initialization()
    outcome = partition.initialize(ReadState(ShareError(code, "why")), 0)
    assert outcome == ShareError(told, "why")
    assert partition.state is SharePartitionState.FAILED


@pytest.mark.parametrize("code", [ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.UNSUPPORTED_VERSION])
def test_clients_do_not_hear_how_nodes_misunderstand_each_other(
    partition: SharePartition, code: ErrorCode
) -> None:
    partition.begin_initialization()
    assert partition.initialize(ReadState(ShareError(code, "why")), 0) == ShareError(
        ErrorCode.UNKNOWN_SERVER_ERROR, "Unable to complete operation due to server error."
    )


@pytest.mark.parametrize("batch", [StateBatch(4, 9, 0, 1), StateBatch(9, 8, 0, 1)])
def test_state_that_contradicts_itself_is_refused(partition: SharePartition, batch: StateBatch) -> None:
    partition.begin_initialization()
    assert partition.initialize(ReadState(start_offset=5, batches=[batch]), 0) == ShareError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"Failed to initialize the share partition {NAME}"
    )
    assert partition.state is SharePartitionState.FAILED


def test_an_unknown_record_state_is_refused(partition: SharePartition) -> None:
    partition.begin_initialization()
    assert partition.initialize(ReadState(start_offset=5, batches=[StateBatch(5, 5, 5, 1)]), 0) == ShareError(
        ErrorCode.UNKNOWN_SERVER_ERROR, "Unknown record state id: 5"
    )


def test_nothing_happens_before_it_is_active(partition: SharePartition) -> None:
    assert not partition.maybe_acquire_fetch_lock("f", 0)
    batches = [FetchedBatch(0, 9)]
    assert not partition.acquire("a", AcquireMode.BATCH_OPTIMIZED, 500, 500, 0, batches, (), False, 0).records


def test_available_records_are_fetched_first() -> None:
    leader = Leader(5, [(5, 9, ARCHIVED, 2), (10, 14, AVAILABLE, 1), (15, 19, ACKNOWLEDGED, 1)])
    assert leader.offsets == (10, 19)
    assert leader.partition.next_fetch_offset() == 10
    assert leader.partition.delivery_complete_count == 5
    assert leader.fetch((10, 14)) == [(10, 14, 2)]


def test_everything_was_done() -> None:
    leader = Leader(5, [(5, 9, ARCHIVED, 2), (10, 14, ACKNOWLEDGED, 1)])
    assert leader.offsets == (15, 15)
    assert leader.partition.delivery_complete_count == 0
    assert leader.partition.in_flight_records() == 0
    assert leader.partition.next_fetch_offset() == 15


class TestGaps:
    """An earlier leader has delivered records of which it never wrote a state."""

    def test_a_gap_at_the_start_is_fetched(self) -> None:
        leader = Leader(10, [(15, 20, ACKNOWLEDGED, 1)])
        assert leader.offsets == (10, 20)
        assert leader.partition.next_fetch_offset() == 10
        assert leader.fetch((10, 20)) == [(10, 14, 1)]
        assert leader.offsets == (10, 20)
        assert leader.partition.next_fetch_offset() == 21

    def test_gaps_are_fetched_in_order_with_what_is_available(self) -> None:
        leader = Leader(0, [(5, 9, AVAILABLE, 1), (15, 19, ACKNOWLEDGED, 1), (25, 29, ARCHIVED, 1)])
        assert leader.fetch((0, 29), most=3) == [(0, 4, 1)]
        assert leader.partition.next_fetch_offset() == 5
        assert leader.fetch((0, 29), at=5) == [(5, 9, 2), (10, 14, 1), (20, 24, 1)]
        assert leader.partition.next_fetch_offset() == 30

    def test_the_start_offset_does_not_pass_a_gap(self) -> None:
        leader = Leader(0, [(0, 4, AVAILABLE, 1), (5, 9, ACKNOWLEDGED, 1), (15, 19, ACKNOWLEDGED, 1)])
        assert leader.fetch((0, 4)) == [(0, 4, 2)]
        leader.finish(0, 4, 1)
        assert leader.offsets == (5, 19)
        assert leader.partition.next_fetch_offset() == 10

    def test_the_start_offset_stops_at_the_first_gap(self) -> None:
        leader = Leader(0, [(0, 4, AVAILABLE, 1), (10, 14, ACKNOWLEDGED, 1)])
        assert leader.fetch((0, 4)) == [(0, 4, 2)]
        leader.finish(0, 4, 1)
        assert leader.offsets == (5, 14)
        assert leader.fetch((5, 9)) == [(5, 9, 1)]

    def test_what_the_log_lacks_after_the_end_is_no_gap(self) -> None:
        leader = Leader(0, [(5, 9, ACKNOWLEDGED, 1)])
        leader.fetch((0, 12))
        assert leader.offsets == (0, 12)
        leader.fetch((20, 22))
        assert leader.partition.next_fetch_offset() == 23
        leader.finish(0, 4, 1)
        leader.finish(10, 12, 1)
        assert leader.offsets == (20, 22)

    def test_a_gap_that_the_log_lacks_is_not_fetched_for_ever(self) -> None:
        leader = Leader(0, [(5, 9, ACKNOWLEDGED, 1), (12, 14, ACKNOWLEDGED, 1)])
        assert leader.fetch((5, 9), at=0) == []
        assert leader.partition.next_fetch_offset() == 10
        assert leader.fetch((12, 14), at=10) == []
        assert leader.partition.next_fetch_offset() == 15

    def test_after_a_gap_at_the_start_that_the_log_lacks_the_start_offset_moves_on(self) -> None:
        leader = Leader(0, [(5, 9, ACKNOWLEDGED, 1)])
        assert leader.fetch((5, 12), at=0) == [(10, 12, 1)]
        leader.finish(10, 12, 1)
        assert leader.offsets == (13, 13)

    def test_gaps_do_not_stop_a_share_partition_that_is_full(self) -> None:
        leader = Leader(0, [(1, 2, AVAILABLE, 1), (3, 300, ACKNOWLEDGED, 1)])
        leader.configure(max_record_locks=100)
        leader.fetch((0, 0))
        leader.fetch((0, 2), at=1)
        leader.finish(0, 2, 1)
        assert leader.partition.can_acquire_records()
        assert leader.offsets == (301, 301)

    def test_a_new_batch_of_the_log_in_a_gap_ends_where_known_records_begin(self) -> None:
        leader = Leader(10, [(15, 30, ACKNOWLEDGED, 1)])
        assert leader.fetch((10, 30), most=1) == [(10, 14, 1)]
