from __future__ import annotations

import pytest

from kafkacompat.share._tests.leader import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    GAP,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Leader,
    batches_of,
    invalid_request,
    invalid_state,
)
from kafkacompat.share.acknowledgement import OFFSETS_A_PIECE, UNITS_A_STEP, Acknowledgement, Refused
from kafkacompat.share.service import WriteState
from kafkacompat.share.share_partition import SharePartition
from kafkacompat.share.values import SUCCEEDED, AcknowledgementBatch, PendingWrite
from kafkacompat.tasks import at_once
from kafkacompat.wire.one_by_one import OneByOne, Run

NOT_IN_CACHE = invalid_state("Batch record not found. The request batch offsets are not found in the cache.")
FIRST_IS_PAST = invalid_request(
    "Batch record not found. The first offset in request is past acquired records."
)
LAST_IS_PAST = invalid_request("Batch record not found. The last offset in request is past acquired records.")
BATCH_NOT_ACQUIRED = invalid_state(
    "The batch cannot be acknowledged. The batch is not in the acquired state."
)
OFFSET_NOT_ACQUIRED = invalid_state("The offset cannot be acknowledged. The offset is not acquired.")


@pytest.fixture
def leader() -> Leader:
    """Member "a" holds 0-4 and 5-9, member "b" holds 10-14."""
    leader = Leader()
    leader.fetch((0, 4))
    leader.fetch((5, 9))
    leader.fetch((10, 14), member="b")
    return leader


class TestWhatIsWritten:
    @pytest.mark.parametrize(
        ("kind", "state"),
        [(ACCEPT, ACKNOWLEDGED), (REJECT, ARCHIVED), (GAP, ARCHIVED), (RELEASE, AVAILABLE)],
    )
    def test_a_batch(self, leader: Leader, kind: int, state: int) -> None:
        write = leader.acknowledge(0, 4, kind)
        complete = 5 if state != AVAILABLE else 0
        assert write.state == WriteState(2, 7, 0, complete, [(0, 4, state, 1)])  # type: ignore[list-item]
        leader.written(write)
        assert leader.offsets == ((5, 14) if complete else (0, 14))
        assert leader.partition.delivery_complete_count == 0

    def test_each_offset(self, leader: Leader) -> None:
        write = leader.acknowledge(0, 4, ACCEPT, GAP, RELEASE, REJECT, ACCEPT)
        assert batches_of(write) == [
            (0, 0, ACKNOWLEDGED, 1),
            (1, 1, ARCHIVED, 1),
            (2, 2, AVAILABLE, 1),
            (3, 3, ARCHIVED, 1),
            (4, 4, ACKNOWLEDGED, 1),
        ]
        assert write.state.delivery_complete_count == 4
        leader.written(write)
        assert leader.offsets == (2, 14)
        assert leader.partition.delivery_complete_count == 2
        assert leader.partition.next_fetch_offset() == 2

    def test_neighbours_with_one_state_are_one_batch(self, leader: Leader) -> None:
        assert batches_of(leader.acknowledge(0, 9, ACCEPT)) == [(0, 9, ACKNOWLEDGED, 1)]

    def test_a_part_of_a_batch(self, leader: Leader) -> None:
        leader.finish(1, 3, ACCEPT)
        assert leader.runs[:3] == [(0, 0, ACQUIRED, 1), (1, 3, ACKNOWLEDGED, 1), (4, 4, ACQUIRED, 1)]
        assert leader.offsets == (0, 14)
        leader.finish(0, 0, ACCEPT)
        assert leader.offsets == (4, 14)

    def test_parts_of_two_batches(self, leader: Leader) -> None:
        leader.finish(3, 6, *[REJECT] * 4)
        assert leader.runs[:4] == [
            (0, 2, ACQUIRED, 1),
            (3, 4, ARCHIVED, 1),
            (5, 6, ARCHIVED, 1),
            (7, 9, ACQUIRED, 1),
        ]

    def test_many_batches_of_one_request(self, leader: Leader) -> None:
        write = leader.ask((0, 1, [ACCEPT]), (3, 3, [REJECT]), (5, 9, [RELEASE]))
        assert isinstance(write, PendingWrite)
        assert batches_of(write) == [(0, 1, ACKNOWLEDGED, 1), (3, 3, ARCHIVED, 1), (5, 9, AVAILABLE, 1)]

    def test_a_release_at_the_delivery_limit_archives(self) -> None:
        leader = Leader(0, [(0, 9, AVAILABLE, 4)])
        leader.fetch((0, 9))
        assert batches_of(leader.acknowledge(0, 0, RELEASE)) == [(0, 0, ARCHIVED, 5)]

    def test_one_by_one(self) -> None:
        leader = Leader()
        leader.fetch((0, 99))
        for offset in range(99, -1, -1):
            assert leader.offsets == (0, 99)
            leader.finish(offset, offset, ACCEPT)
            assert len(leader.runs) <= 2
        assert leader.offsets == (100, 100)


class TestOneByOne:
    """A request with a batch for each offset changes what the batches would change one after the other."""

    def test_what_is_written(self, leader: Leader) -> None:
        write = leader.ask_one_by_one((1, [ACCEPT, ACCEPT, REJECT, RELEASE, ACCEPT, ACCEPT]))
        assert isinstance(write, PendingWrite)
        assert batches_of(write) == [
            (1, 2, ACKNOWLEDGED, 1),
            (3, 3, ARCHIVED, 1),
            (4, 4, AVAILABLE, 1),
            (5, 6, ACKNOWLEDGED, 1),
        ]
        leader.written(write)
        assert leader.runs == [
            (0, 0, ACQUIRED, 1),
            (1, 2, ACKNOWLEDGED, 1),
            (3, 3, ARCHIVED, 1),
            (4, 4, AVAILABLE, 1),
            (5, 6, ACKNOWLEDGED, 1),
            (7, 9, ACQUIRED, 1),
            (10, 14, ACQUIRED, 1),
        ]

    def test_a_whole_batch_has_been_treated_per_offset(self, leader: Leader) -> None:
        """So Kafka does not acquire it as a whole again, and refuses it in the words for offsets."""
        write = leader.ask_one_by_one((0, [RELEASE] * 5))
        assert isinstance(write, PendingWrite)
        leader.written(write)
        assert leader.ask((0, 4, [ACCEPT])) == OFFSET_NOT_ACQUIRED

    def test_a_batch_of_one_record_is_treated_as_a_whole(self) -> None:
        leader = Leader()
        for offset in range(4):
            leader.fetch((offset, offset))
        write = leader.ask_one_by_one((0, [RELEASE] * 4))
        assert isinstance(write, PendingWrite)
        leader.written(write)
        assert leader.ask((1, 1, [ACCEPT])) == BATCH_NOT_ACQUIRED

    def test_what_one_of_them_may_not(self, leader: Leader) -> None:
        """The first refusal counts, and everything is undone."""
        assert leader.ask_one_by_one((8, [ACCEPT] * 4)) == invalid_state(
            "Member is not the owner of batch record"
        )
        assert leader.ask_one_by_one((13, [ACCEPT] * 4), member="b") == FIRST_IS_PAST
        leader.finish(3, 3, ACCEPT)
        assert leader.ask_one_by_one((1, [ACCEPT] * 20)) == OFFSET_NOT_ACQUIRED
        assert leader.runs == [
            (0, 2, ACQUIRED, 1),
            (3, 3, ACKNOWLEDGED, 1),
            (4, 4, ACQUIRED, 1),
            (5, 9, ACQUIRED, 1),
            (10, 14, ACQUIRED, 1),
        ]

    def test_a_refusal_costs_no_more_than_what_it_names(self) -> None:
        """What comes before the record that is not held is not looked at record by record."""
        leader = Leader()
        leader.fetch((0, 1999))
        leader.finish(1998, 1998, ACCEPT)
        batches = OneByOne(AcknowledgementBatch, [Run(0, bytes([ACCEPT] * 2000))])
        asked = Acknowledgement(leader.partition._records, leader.settings, "a", 0)
        pieces: list[int] = []
        with pytest.raises(Refused, match="The offset is not acquired"):
            pieces.extend(asked._acknowledge_all(batches))
        assert len(pieces) == 2000 // OFFSETS_A_PIECE + 1

    def test_what_is_renewed_before_a_refusal_stays_renewed(self, leader: Leader) -> None:
        leader.now_ms = 10
        assert leader.ask_one_by_one((3, [RENEW, RENEW, ACCEPT]), (10, [ACCEPT])) == invalid_state(
            "Member is not the owner of batch record"
        )
        leader.expire(LOCK_MS)
        assert leader.runs[:3] == [(0, 2, AVAILABLE, 1), (3, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1)]

    def test_what_lies_below_the_start(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(3)
        write = leader.ask_one_by_one((1, [ACCEPT] * 5))
        assert isinstance(write, PendingWrite)
        assert batches_of(write) == [(3, 5, ACKNOWLEDGED, 1)]


class TestRefusals:
    def test_of_another_member(self, leader: Leader) -> None:
        assert leader.ask((10, 14, [ACCEPT])) == invalid_state("Member is not the owner of batch record")
        leader.finish(10, 10, ACCEPT, member="b")
        assert leader.ask((11, 14, [ACCEPT])) == invalid_state("Member is not the owner of offset")

    def test_what_nobody_holds(self, leader: Leader) -> None:
        leader.finish(0, 4, RELEASE)
        assert leader.ask((0, 4, [ACCEPT])) == BATCH_NOT_ACQUIRED
        leader.finish(5, 5, RELEASE)
        assert leader.ask((5, 5, [ACCEPT])) == OFFSET_NOT_ACQUIRED

    def test_twice(self, leader: Leader) -> None:
        leader.acknowledge(0, 4, ACCEPT)
        assert leader.ask((0, 4, [ACCEPT])) == BATCH_NOT_ACQUIRED
        leader.acknowledge(5, 5, ACCEPT)
        assert leader.ask((5, 5, [RELEASE])) == OFFSET_NOT_ACQUIRED

    def test_beyond_what_was_acquired(self, leader: Leader) -> None:
        assert leader.ask((15, 15, [ACCEPT])) == FIRST_IS_PAST
        assert leader.ask((10, 15, [ACCEPT]), member="b") == LAST_IS_PAST

    def test_between_batches(self) -> None:
        leader = Leader()
        leader.fetch((0, 4))
        leader.fetch((10, 14))
        assert leader.ask((6, 8, [ACCEPT])) == FIRST_IS_PAST
        assert leader.ask((3, 7, [ACCEPT])) == LAST_IS_PAST
        assert isinstance(leader.ask((3, 12, [ACCEPT])), PendingWrite)

    def test_before_everything_in_flight(self) -> None:
        leader = Leader(0)
        assert leader.ask((0, 4, [ACCEPT])) == NOT_IN_CACHE
        leader.fetch((5, 9))
        leader.partition._records.start_offset = 0
        assert leader.ask((0, 4, [ACCEPT])) == NOT_IN_CACHE

    def test_an_unknown_type(self, leader: Leader) -> None:
        assert leader.ask((0, 1, [1, 5])) == invalid_request("Invalid acknowledge type: [1, 5]")

    def test_the_whole_request_is_undone(self, leader: Leader) -> None:
        before = leader.runs
        leader.partition.take_wakeup()
        assert leader.ask((0, 4, [ACCEPT]), (5, 8, [1, 2, 3, 0]), (10, 14, [ACCEPT])) == invalid_state(
            "Member is not the owner of batch record"
        )
        assert leader.runs == before
        assert leader.partition.delivery_complete_count == 0
        assert not leader.partition.take_wakeup()
        assert batches_of(leader.acknowledge(0, 9, ACCEPT)) == [(0, 9, ACKNOWLEDGED, 1)]


class TestStartOffset:
    def test_below_it_nothing_happens(self, leader: Leader) -> None:
        leader.finish(0, 4, ACCEPT)
        assert leader.ask((0, 4, [ACCEPT])) == SUCCEEDED
        assert leader.ask((0, 4, [9])) == invalid_request("Invalid acknowledge type: [9]")

    def test_a_request_that_begins_below_it(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(7)
        assert batches_of(leader.acknowledge(0, 9, ACCEPT)) == [(7, 9, ACKNOWLEDGED, 1)]
        assert leader.partition.delivery_complete_count == 3

    def test_types_belong_to_their_offsets(self, leader: Leader) -> None:
        leader.partition.update_cache_and_offsets(7)
        assert batches_of(leader.acknowledge(5, 9, 1, 1, 2, 3, 1)) == [
            (7, 7, AVAILABLE, 1),
            (8, 8, ARCHIVED, 1),
            (9, 9, ACKNOWLEDGED, 1),
        ]

    def test_the_request_begins_before_everything_in_flight(self, leader: Leader) -> None:
        leader.finish(0, 4, ACCEPT)
        assert batches_of(leader.acknowledge(3, 9, ACCEPT)) == [(5, 9, ACKNOWLEDGED, 1)]


class TestRenewal:
    def test_a_batch(self, leader: Leader) -> None:
        leader.now_ms = 600
        assert leader.ask((0, 4, [RENEW])) == SUCCEEDED
        assert batches_of(leader.expire(LOCK_MS)) == [(5, 14, AVAILABLE, 1)]
        assert leader.expire(600 + LOCK_MS - 1) is None
        assert batches_of(leader.expire(600 + LOCK_MS)) == [(0, 4, AVAILABLE, 1)]

    def test_some_offsets(self, leader: Leader) -> None:
        leader.now_ms = 600
        write = leader.ask((0, 4, [RENEW, ACCEPT, RENEW, RELEASE, RENEW]))
        assert isinstance(write, PendingWrite)
        assert batches_of(write) == [(1, 1, ACKNOWLEDGED, 1), (3, 3, AVAILABLE, 1)]
        leader.written(write)
        assert batches_of(leader.expire(LOCK_MS)) == [(5, 14, AVAILABLE, 1)]
        assert [each[0] for each in batches_of(leader.expire(600 + LOCK_MS))] == [0, 2, 4]

    def test_not_if_the_group_forbids_it(self, leader: Leader) -> None:
        leader.configure(renew_acknowledge_enabled=False)
        forbidden = invalid_state("Renewing acquisition locks is not enabled for the group.")
        assert leader.ask((0, 4, [RENEW])) == forbidden
        assert leader.ask((0, 1, [ACCEPT, RENEW])) == forbidden
        assert leader.runs[0] == (0, 0, ACQUIRED, 1) or leader.runs[0] == (0, 4, ACQUIRED, 1)

    def test_a_lock_stays_when_the_renewal_is_refused(self, leader: Leader) -> None:
        leader.now_ms = 600
        assert leader.ask((0, 4, [RENEW]), (15, 15, [ACCEPT])) == FIRST_IS_PAST
        assert batches_of(leader.expire(LOCK_MS)) == [(5, 14, AVAILABLE, 1)]

    def test_the_duration_is_that_of_now(self, leader: Leader) -> None:
        leader.configure(record_lock_duration_ms=200)
        assert leader.ask((0, 4, [RENEW])) == SUCCEEDED
        assert leader.partition.next_lock_deadline_ms() == 200
        assert batches_of(leader.expire(200)) == [(0, 4, AVAILABLE, 1)]


class TestSteps:
    def steps_of(self, partition: SharePartition, batches: list[AcknowledgementBatch]) -> int:
        steps = partition.acknowledge_in_turns("a", batches, 0)
        return sum(1 for _ in steps)

    def test_a_few_hundred_records_take_one_step(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=10_000)
        leader.fetch((0, 1_999), most=5_000)
        batches = [AcknowledgementBatch(at, at, [1]) for at in range(400)]
        assert self.steps_of(leader.partition, batches) == 0

    def test_many_offsets_take_many(self) -> None:
        leader = Leader()
        leader.configure(max_record_locks=100_000)
        leader.fetch((0, 39_999), most=100_000)
        types = [1, 2] * 20_000
        assert self.steps_of(leader.partition, [AcknowledgementBatch(0, 39_999, types)]) >= 9

    def test_many_batches_below_the_start_offset_take_many(self) -> None:
        leader = Leader(100_000)
        batches = [AcknowledgementBatch(at, at, [1]) for at in range(3 * UNITS_A_STEP)]
        assert self.steps_of(leader.partition, batches) >= 2

    def test_others_may_come_between(self) -> None:
        """They see the records as pending."""
        leader = Leader()
        leader.configure(max_record_locks=100_000)
        leader.fetch((0, 9_999), most=100_000)
        types = [RELEASE, ACCEPT] * 5_000
        steps = leader.partition.acknowledge_in_turns("a", [AcknowledgementBatch(0, 9_999, types)], 0)
        next(steps)
        assert leader.fetch((0, 9_999), member="b") == []
        assert leader.ask((0, 0, [ACCEPT])) == OFFSET_NOT_ACQUIRED
        leader.partition.update_cache_and_offsets(9_000)
        write = at_once(steps)
        assert isinstance(write, PendingWrite)
        assert write.state.start_offset == 9_000
        leader.written(write)
        assert leader.partition.next_fetch_offset() == 9_000
