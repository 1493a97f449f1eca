"""What is known of one partition's remote segments: the scenarios of Apache Kafka's cache, and a model of any order of events."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    may_follow,
)
from kafkacompat.remote.metadata_cache import RemoteLogMetadataCache

COPYING, COPIED, DELETING, DELETED = RemoteLogSegmentState
PARTITION = TopicIdPartition(bytes(15) + b"\x07", "t", 0)
Epochs = tuple[tuple[int, int], ...]


class Story:
    """A cache, and copies in it by number."""

    def __init__(self) -> None:
        self.cache = RemoteLogMetadataCache()
        self.count = 0

    def begin(
        self, start: int, end: int, *epochs: tuple[int, int], size: int = 10, txn_idx_empty: bool = False
    ) -> RemoteLogSegmentId:
        self.count += 1
        segment_id = RemoteLogSegmentId(PARTITION, self.count.to_bytes(16, "big"))
        assert self.cache.add_copy_in_progress_segment(
            RemoteLogSegmentMetadata(
                segment_id, start, end, -1, 0, 0, size, epochs or ((0, start),), txn_idx_empty=txn_idx_empty
            )
        )
        return segment_id

    def step(self, segment_id: RemoteLogSegmentId, *states: RemoteLogSegmentState) -> RemoteLogSegmentId:
        for state in states:
            assert self.update(segment_id, state)
        return segment_id

    def update(self, segment_id: RemoteLogSegmentId, state: RemoteLogSegmentState) -> bool:
        return self.cache.update_remote_log_segment_metadata(
            RemoteLogSegmentMetadataUpdate(segment_id, 1, None, state, 1)
        )

    def copy(
        self, start: int, end: int, *epochs: tuple[int, int], txn_idx_empty: bool = False
    ) -> RemoteLogSegmentId:
        return self.step(self.begin(start, end, *epochs, txn_idx_empty=txn_idx_empty), COPIED)

    def at(self, epoch: int, offset: int) -> RemoteLogSegmentId | None:
        found = self.cache.remote_log_segment_metadata(epoch, offset)
        return None if found is None else found.remote_log_segment_id

    def with_txn_index(self, epoch: int, offset: int) -> RemoteLogSegmentId | None:
        found = self.cache.next_segment_with_txn_index(epoch, offset)
        return None if found is None else found.remote_log_segment_id

    def listed(self, epoch: int) -> list[RemoteLogSegmentId]:
        return [each.remote_log_segment_id for each in self.cache.list_remote_log_segments(epoch)]

    def all(self) -> list[RemoteLogSegmentId]:
        return [each.remote_log_segment_id for each in self.cache.list_all_remote_log_segments()]


def test_segments_are_found_by_epoch_and_offset() -> None:
    story = Story()
    first = story.begin(0, 100, (0, 0), (1, 20), (2, 80))
    assert story.at(1, 40) is None
    assert [story.cache.highest_offset_for_epoch(epoch) for epoch in range(3)] == [None] * 3
    story.step(first, COPIED)
    second = story.copy(101, 200, (2, 101))
    third = story.copy(201, 300, (2, 201), (3, 240))
    fourth = story.copy(250, 400, (3, 250), (4, 370))
    assert story.at(1, 40) == first
    assert story.at(2, 110) == second
    assert story.at(3, 240) == third
    assert story.at(3, 250) == story.at(4, 375) == fourth
    assert story.at(1, 110) is None  # of an epoch that ended before
    assert story.at(4, 401) is None
    assert story.at(5, 301) is None
    assert story.at(2, 79) is None
    story.step(first, DELETING)
    assert story.at(0, 10) is None
    assert story.listed(0) == [first]
    story.step(first, DELETED)
    assert story.listed(0) == []
    assert [story.cache.highest_offset_for_epoch(epoch) for epoch in range(6)] == [
        19,
        79,
        239,
        369,
        400,
        None,
    ]
    assert story.all() == [second, third, fourth]


def test_a_copy_that_is_begun_is_only_listed() -> None:
    story = Story()
    begun = story.begin(0, 50)
    assert story.at(0, 0) is None
    assert story.listed(0) == story.all() == [begun]
    assert story.cache.remote_log_size(0) == 10


def test_a_copy_may_be_deleted_before_it_is_finished() -> None:
    story = Story()
    begun = story.step(story.begin(201, 300), DELETING)
    assert story.at(0, 250) is None
    assert story.listed(0) == story.all() == [begun]
    story.step(begun, DELETING, DELETED)
    assert not story.listed(0)
    assert len(story.cache) == 0


def test_steps_that_are_not_allowed_change_nothing() -> None:
    story = Story()
    copied = story.copy(0, 100)
    assert not story.update(copied, COPYING)
    assert not story.update(copied, DELETED)
    assert story.at(0, 5) == copied
    known = story.cache.remote_log_segment_metadata(0, 5)
    assert known is not None
    assert not story.cache.add_copy_in_progress_segment(known)  # of a state that is not the first
    story.step(copied, DELETING)
    assert not story.update(copied, COPIED)
    story.step(copied, DELETED)
    assert not story.update(copied, DELETED)
    assert not story.update(RemoteLogSegmentId(PARTITION, bytes(16)), COPIED)


def test_a_step_may_be_repeated() -> None:
    story = Story()
    copied = story.step(story.copy(0, 100), COPIED, COPIED)
    assert story.at(0, 5) == copied
    assert story.listed(0) == [copied]
    story.step(copied, DELETING, DELETING, DELETED)
    assert not story.listed(0)


def test_a_beginning_that_is_repeated_replaces_the_first() -> None:
    story = Story()
    begun = story.begin(0, 100, (0, 0), (1, 50))
    again = RemoteLogSegmentMetadata(begun, 0, 90, -1, 0, 0, 10, ((0, 0),))
    assert story.cache.add_copy_in_progress_segment(again)
    story.step(begun, COPIED, DELETING, DELETED)
    assert not story.listed(0)
    assert not story.listed(1)


def test_a_larger_copy_of_the_same_records_is_read_instead() -> None:
    story = Story()
    small = story.copy(10, 100)
    large = story.copy(5, 150)
    assert story.at(0, 11) == story.at(0, 120) == large
    later = story.copy(148, 155)
    assert story.at(0, 149) == later
    largest = story.copy(4, 200)
    assert {story.at(0, offset) for offset in (4, 11, 149, 200)} == {largest}
    assert story.listed(0) == [largest, large, small, later]
    assert story.cache.highest_offset_for_epoch(0) == 200


def test_the_later_one_of_equal_copies_is_read() -> None:
    story = Story()
    first, second = story.copy(10, 100), story.copy(10, 100)
    assert story.at(0, 11) == second
    assert story.listed(0) == [second, first]
    third = story.copy(10, 150)
    assert story.at(0, 11) == story.at(0, 111) == third


def test_a_copy_of_what_a_larger_one_has_hides_nothing() -> None:
    """An old leader finishes late, when the new one has copied more."""
    story = Story()
    late, inner = story.begin(0, 100), story.begin(50, 100)
    large = story.copy(0, 200)
    story.step(late, COPIED)
    story.step(inner, COPIED)
    assert {story.at(0, offset) for offset in (0, 60, 100, 150, 200)} == {large}
    assert set(story.listed(0)) == {large, late, inner}
    assert story.cache.highest_offset_for_epoch(0) == 200


def test_a_copy_that_is_superseded_can_be_deleted() -> None:
    story = Story()
    small = story.copy(10, 100)
    large = story.copy(10, 150)
    story.step(small, DELETING, DELETED)
    assert story.at(0, 50) == large
    assert story.listed(0) == [large]


def test_a_size_is_that_of_all_copies_of_the_epoch() -> None:
    story = Story()
    story.copy(0, 10, (0, 0))
    story.copy(11, 20, (0, 11), (1, 15))
    story.begin(21, 30, (1, 21))
    assert [story.cache.remote_log_size(epoch) for epoch in range(3)] == [20, 20, 0]


def test_the_next_segment_with_aborted_transactions() -> None:
    story = Story()
    story.copy(0, 99, (1, 0), txn_idx_empty=True)
    story.copy(100, 199, (1, 100), txn_idx_empty=True)
    with_index = story.copy(200, 299, (1, 200), (2, 250))
    empty = story.copy(300, 399, (2, 300), txn_idx_empty=True)
    after_gap = story.copy(401, 499, (2, 401))
    assert story.with_txn_index(1, 5) == story.with_txn_index(1, 200) == with_index
    assert story.with_txn_index(2, 250) == with_index
    assert story.with_txn_index(2, 300) is None  # offset 400 is not there
    assert story.with_txn_index(2, 401) == after_gap
    assert story.with_txn_index(2, 500) is None
    assert story.with_txn_index(3, 0) is None
    assert story.at(2, 300) == empty


def test_the_epoch_ends_where_its_records_do() -> None:
    story = Story()
    story.copy(0, 99, (1, 0), (2, 50), txn_idx_empty=True)
    story.copy(100, 199, (2, 100))
    assert story.with_txn_index(1, 0) is None
    assert story.with_txn_index(2, 50) is not None


class Counted(dict[Any, Any]):
    """Counts how often something is looked up."""

    lookups = 0

    def __getitem__(self, key: Any) -> Any:
        self.lookups += 1
        return super().__getitem__(key)


def test_a_deletion_looks_at_those_copies_only_that_have_the_same_offsets() -> None:
    story = Story()
    whole = story.copy(0, 99)
    copies = [story.copy(start, start + 9, (1, start)) for start in range(100, 3_000, 10)]
    again = story.copy(2_000, 2_499, (2, 2_000))
    story.cache._segments = counted = Counted(story.cache._segments)
    for each in (again, *copies[::-2], *copies[::2], whole):
        story.step(each, DELETING)
    assert not story.cache.pieces()
    assert counted.lookups <= 50 + len(copies)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("begin"), st.integers(0, 60), st.integers(0, 40), st.integers(0, 2)),
            st.tuples(
                st.just("step"), st.integers(0, 12), st.sampled_from(RemoteLogSegmentState), st.just(0)
            ),
        ),
        max_size=40,
    )
)
def test_whatever_happens_each_copy_is_known_until_it_is_deleted(
    events: list[tuple[str, int, int, int]],
) -> None:
    story = Story()
    known: list[RemoteLogSegmentId] = []
    states: dict[RemoteLogSegmentId, RemoteLogSegmentState] = {}
    limits: dict[RemoteLogSegmentId, tuple[int, int, Epochs]] = {}
    for what, one, two, three in events:
        if what == "begin":
            epochs = tuple((epoch, one + 5 * epoch) for epoch in range(three + 1) if 5 * epoch <= two)
            segment_id = story.begin(one, one + two, *epochs)
            known.append(segment_id)
            states[segment_id] = COPYING
            limits[segment_id] = (one, one + two, epochs)
        elif known:
            segment_id = known[one % len(known)]
            state = RemoteLogSegmentState(two)
            before = states.get(segment_id)
            allowed = before is not None and state is not COPYING and may_follow(before, state)
            assert story.update(segment_id, state) == allowed
            if allowed:
                states[segment_id] = state
            if states.get(segment_id) is DELETED:
                del states[segment_id]
    assert set(story.all()) == states.keys()
    for epoch in range(3):
        of_epoch = {each for each in states if epoch in dict(limits[each][2])}
        listed = story.listed(epoch)
        assert set(listed) == of_epoch
        assert len(listed) == len(of_epoch)
        assert listed == sorted(listed, key=lambda each: limits[each][0])
        for offset in range(0, 110, 3):
            found = story.at(epoch, offset)
            if found is not None:
                _, end, epochs = limits[found]
                assert states[found] is COPIED
                assert dict(epochs)[epoch] <= offset <= dict(epochs).get(epoch + 1, end + 1) - 1
