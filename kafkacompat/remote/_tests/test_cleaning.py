"""What is decided about the cleaning of a compacted topic's remote part, and which copies are read of it."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from kafkacompat.log._tests.logs import TOPIC_ID
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.cleaner.cleaner import CleaningStopped
from kafkacompat.remote.cleaning import Plan, Staging, epochs_of, first_dirty_offset, plan
from kafkacompat.remote.manager_core import copyable_up_to, covered_by, trusted_up_to, with_epochs_from
from kafkacompat.remote.metadata import (
    CompactedMark,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    mark_bytes,
    mark_of,
)
from kafkacompat.remote.metadata_cache import Piece, RemoteLogMetadataCache

PARTITION = TopicIdPartition(TOPIC_ID, "t", 0)
STARTED, FINISHED, DELETING, _ = RemoteLogSegmentState
UNLIMITED = 2**63 - 1


def copy(
    number: int, start: int, end: int, *, cleaned_to: int = -1, leader_epoch: int = 5, size: int = 100
) -> RemoteLogSegmentMetadata:
    """Of the offsets from start to end, exclusive."""
    mark = mark_bytes(CompactedMark(cleaned_to, leader_epoch))
    segment_id = RemoteLogSegmentId(PARTITION, number.to_bytes(16, "big"))
    return RemoteLogSegmentMetadata(
        segment_id, start, end - 1, 7, 1, 8, size, ((3, start),), custom_metadata=mark, state=FINISHED
    )


def pieces_of(*copies: RemoteLogSegmentMetadata) -> list[Piece]:
    return [Piece(each.start_offset, each.end_offset + 1, each) for each in copies]


def cache_of(*copies: RemoteLogSegmentMetadata) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for each in copies:
        cache.add_copy_in_progress_segment(replace(each, state=STARTED, custom_metadata=None))
        step(cache, each, FINISHED)
    return cache


def step(
    cache: RemoteLogMetadataCache, metadata: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
) -> None:
    cache.update_remote_log_segment_metadata(
        RemoteLogSegmentMetadataUpdate(metadata.remote_log_segment_id, 8, metadata.custom_metadata, state, 1)
    )


def shape(cache: RemoteLogMetadataCache) -> list[tuple[int, int, int]]:
    """Start, end and number of each piece."""
    return [
        (piece.start_offset, piece.next_offset, piece.metadata.remote_log_segment_id.id[-1])
        for piece in cache.pieces()
    ]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 10), (10, 20)], [(0, 10, 0), (10, 20, 1)]),
        ([(0, 10), (0, 10)], [(0, 10, 1)]),
        ([(0, 10), (10, 20), (0, 20)], [(0, 20, 2)]),
        ([(0, 20), (5, 10)], [(0, 5, 0), (5, 10, 1), (10, 20, 0)]),
        ([(0, 10), (10, 20), (5, 15)], [(0, 5, 0), (5, 15, 2), (15, 20, 1)]),
        ([(0, 10), (20, 30), (5, 40)], [(0, 5, 0), (5, 40, 2)]),
        ([(0, 10), (20, 30)], [(0, 10, 0), (20, 30, 1)]),
    ],
)
def test_the_copy_that_was_finished_last_is_read(
    ranges: list[tuple[int, int]], expected: list[tuple[int, int, int]]
) -> None:
    assert shape(cache_of(*(copy(at, *each) for at, each in enumerate(ranges)))) == expected


def test_a_copy_of_an_earlier_leader_does_not_hide_what_a_later_one_has_made() -> None:
    late = copy(2, 0, 30, leader_epoch=4)
    assert shape(cache_of(copy(1, 5, 10), late)) == [(0, 5, 2), (5, 10, 1), (10, 30, 2)]


def test_what_lies_below_a_deleted_copy_is_read_again() -> None:
    above = copy(1, 5, 10)
    cache = cache_of(copy(0, 0, 20), above)
    step(cache, above, DELETING)
    assert shape(cache) == [(0, 20, 0)]
    piece = cache.piece_at(19)
    assert piece is not None
    assert piece.metadata.start_offset == 0
    assert cache.piece_at(20) is None
    assert RemoteLogMetadataCache().piece_at(0) is None


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_those_of_the_whole_history(seed: int) -> None:
    """However they came about: of each offset, the last copy of the latest leader that has it."""
    rng = random.Random(seed)
    cache = RemoteLogMetadataCache()
    finished: list[RemoteLogSegmentMetadata] = []
    for number in range(60):
        if finished and rng.random() < 0.35:
            gone = finished.pop(rng.randrange(len(finished)))
            step(cache, gone, DELETING)
        elif finished and rng.random() < 0.1:
            step(cache, rng.choice(finished), FINISHED)
        else:
            start = rng.randrange(60)
            made = copy(number, start, start + rng.randrange(1, 30), leader_epoch=rng.randrange(3))
            cache.add_copy_in_progress_segment(replace(made, state=STARTED, custom_metadata=None))
            step(cache, made, FINISHED)
            finished.append(made)
        expected: dict[int, int] = {}
        for each in sorted(finished, key=lambda each: mark_of(each).leader_epoch):
            for offset in range(each.start_offset, each.end_offset + 1):
                expected[offset] = each.remote_log_segment_id.id[-1]
        found = {offset: number for start, end, number in shape(cache) for offset in range(start, end)}
        assert found == expected
        parts = shape(cache)
        assert parts == sorted(parts)
        assert all(
            (before[1], before[2]) != (after[0], after[2]) for before, after in itertools.pairwise(parts)
        )


def test_a_mark_is_read_as_it_was_written_and_without_one_the_last_epoch_counts() -> None:
    assert mark_of(copy(0, 0, 10, cleaned_to=40, leader_epoch=9)) == (40, 9)
    for custom in (None, b"", b"of a store"):
        assert mark_of(replace(copy(0, 0, 10), custom_metadata=custom)) == (-1, 3)


def test_no_records_of_later_epochs_are_expected_in_a_copy() -> None:
    made_in_5 = copy(0, 0, 30, leader_epoch=5)
    assert trusted_up_to(made_in_5, [(3, 0), (5, 10), (7, 20), (8, 25)]) == 20
    assert trusted_up_to(made_in_5, [(3, 0), (5, 10)]) == UNLIMITED


def test_a_log_is_copied_as_far_as_pieces_join_that_it_can_trust() -> None:
    pieces = pieces_of(copy(0, 0, 10), copy(1, 10, 20), copy(2, 25, 30))
    epochs = [(3, 0)]
    assert [covered_by(pieces, epochs, 100, start) for start in (0, 15, 20, 25, 40)] == [19, 19, 19, 29, 39]
    assert covered_by(pieces, [(3, 0), (6, 12)], 100, 0) == 11
    assert covered_by(pieces, epochs, 5, 0) == 4
    assert covered_by([], epochs, 5, 0) == -1


def test_a_segment_is_copied_only_when_all_is_clean_that_the_leader_began_with() -> None:
    assert copyable_up_to(10, 10) == 10
    assert copyable_up_to(10, 11) == -1


def test_the_first_epoch_begins_with_the_log() -> None:
    assert with_epochs_from([(4, 42), (6, 50)], 3) == [(4, 3), (6, 50)]
    assert with_epochs_from([(4, 2)], 3) == [(4, 2)]
    assert with_epochs_from([], 3) == []


@pytest.mark.parametrize(
    ("cleaned", "expected"),
    [
        ([30, 30, 30], 30),
        ([30, 30, -1], 20),
        ([20, 20, 90], 20),
        ([15, 15, 90], 15),
        ([-1, 90, 90], 0),
        ([90, 10, 90], 10),
        ([90, 14, 90], 14),
        ([90, 5, 90], 10),
        ([90, 90, 90], 30),
    ],
)
def test_a_part_is_clean_if_all_its_copies_were_cleaned_up_to_its_end(
    cleaned: list[int], expected: int
) -> None:
    copies = [copy(at, 10 * at, 10 * at + 10, cleaned_to=each) for at, each in enumerate(cleaned)]
    assert first_dirty_offset(pieces_of(*copies)) == expected


class TestPlan:
    clean, dirty = copy(0, 0, 10, cleaned_to=10), copy(1, 10, 20, cleaned_to=10)

    def plan(self, *copies: RemoteLogSegmentMetadata, ratio: float = 0.4, start: int = 0) -> Plan | None:
        read = [each for each in copies if each.state is FINISHED]
        return plan(pieces_of(*read), copies, (), [(3, 0)], start, ratio)

    def test_a_part_is_cleaned_when_enough_of_it_is_dirty(self) -> None:
        expected = Plan(pieces_of(self.clean, self.dirty), 10)
        assert self.plan(self.clean, self.dirty) == expected
        assert expected.end_offset == 20
        assert self.plan(self.clean, self.dirty, ratio=0.5) is None
        assert self.plan(self.clean, ratio=0.0) is None
        assert self.plan() is None

    def test_a_gap_ends_it(self) -> None:
        assert self.plan(self.clean, copy(2, 11, 20)) is None
        assert self.plan(self.dirty, copy(2, 30, 40)) == Plan(pieces_of(self.dirty), 10)

    def test_what_lies_below_the_log_start_is_left_alone(self) -> None:
        later = copy(2, 20, 30)
        assert self.plan(self.dirty, later, start=15) == Plan(pieces_of(self.dirty, later), 10)
        deleted_soon = self.plan(self.clean, self.dirty, later, start=15)
        assert deleted_soon is None

    def test_the_end_of_another_leaders_copy_is_waited_for(self) -> None:
        begun = replace(copy(2, 0, 20), state=STARTED)
        assert self.plan(self.clean, self.dirty, begun) is None
        own = plan(
            pieces_of(self.clean, self.dirty),
            [self.clean, self.dirty, begun],
            [begun.remote_log_segment_id],
            [(3, 0)],
            0,
            0.4,
        )
        assert own is not None
        assert self.plan(self.clean, self.dirty, replace(begun, state=DELETING)) is not None

    def test_what_is_not_read_any_more_is_deleted_first(self) -> None:
        copies = [self.clean, self.dirty, copy(2, 0, 10)]
        assert plan(pieces_of(self.clean, self.dirty), copies, (), [(3, 0)], 0, 0.4) is None

    def test_records_of_another_history_are_not_cleaned(self) -> None:
        pieces = pieces_of(self.dirty, copy(2, 20, 30))
        found = plan(pieces, [piece.metadata for piece in pieces], (), [(3, 0), (6, 25)], 0, 0.4)
        assert found == Plan(pieces_of(self.dirty), 10)


def test_the_epochs_of_pieces_join() -> None:
    first = replace(copy(0, 0, 20), segment_leader_epochs=((1, 0), (4, 15)))
    second = replace(copy(1, 10, 40), segment_leader_epochs=((2, 10), (4, 22), (6, 30)))
    assert epochs_of([Piece(0, 20, first), Piece(20, 40, second)]) == [(1, 0), (4, 15), (6, 30)]
    assert epochs_of([Piece(0, 12, first), Piece(12, 25, second)]) == [(1, 0), (2, 12), (4, 22)]


def test_a_cleaning_that_has_ended_makes_no_directory() -> None:
    """Its thread may begin when the partition is gone from the node."""
    disk = MemoryDisk()
    staging = Staging(disk, "/logs/t-0", pieces_of(copy(0, 0, 10)), lambda *_: iter(()), lambda size: None)
    staging.is_stopped = True
    with pytest.raises(CleaningStopped):
        staging.begin()
    assert not disk.exists("/logs/t-0/remote-cleaning")
