"""What is read of the topic of remote log metadata, and when a partition is ready."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafkacompat.deferred import Deferred
from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from kafkacompat.remote.metadata_follower import MetadataFollower, Read
from kafkacompat.remote.ports import (
    RemoteResourceNotFoundException,
    RemoteStorageNotReadyException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.records import encode_record

ONE, TWO = (TopicIdPartition(bytes(15) + bytes([each]), "t", 0) for each in (1, 2))


def segment(partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    start = 10 * number
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, bytes([1]) * 15 + bytes([number])),
        start,
        start + 9,
        0,
        0,
        0,
        1,
        ((0, start),),
    )


def finished(partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment(partition, number).remote_log_segment_id,
        1,
        None,
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        0,
    )


LOG = [
    encode_record(each)
    for number in range(3)
    for partition in (ONE, TWO)
    for each in (segment(partition, number), finished(partition, number))
]
"""Twelve records, in turns of the two partitions."""


class Topic:
    """The topic's only partition, and a follower of it."""

    def __init__(self, log: Sequence[bytes | None] = LOG, start: int = 0) -> None:
        self.log = list(log)
        self.start = start
        self.follower = MetadataFollower(1)

    def tell_limits(self, *among: TopicIdPartition) -> None:
        self.follower.limits_are(0, self.start, len(self.log), among or self.follower.users_of(0))

    def read(self, most: int = 100) -> list[str]:
        offset = self.follower.offsets()[0]
        assert offset is not None
        end = min(len(self.log), offset + most)
        records = [Read(at, self.log[at]) for at in range(offset, end)]
        return self.follower.take(0, offset, records, end)

    def copied(self, partition: TopicIdPartition) -> int:
        """How many copies may be read."""
        known = self.follower.cache_of(partition).list_all_remote_log_segments()
        return sum(each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for each in known)


def test_a_partition_is_ready_when_everything_is_read_that_was_there() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    assert topic.follower.offsets() == {0: None}
    topic.tell_limits()
    topic.read(11)
    assert not topic.follower.is_ready(ONE)
    with pytest.raises(RemoteStorageNotReadyException):
        topic.follower.cache_of(ONE)
    topic.read(1)
    assert topic.follower.is_ready(ONE)
    assert topic.copied(ONE) == 3
    with pytest.raises(RemoteResourceNotFoundException):
        topic.follower.cache_of(TWO)


def test_a_topic_without_records_is_ready_at_once() -> None:
    topic = Topic([])
    topic.follower.add([ONE])
    topic.tell_limits()
    assert topic.follower.is_ready(ONE)


def test_a_topic_whose_records_are_deleted_is_read_from_where_it_begins() -> None:
    topic = Topic(start=4)
    topic.follower.add([ONE])
    topic.tell_limits()
    assert topic.follower.offsets() == {0: 4}
    topic.read()
    assert topic.copied(ONE) == 2


def test_the_topic_is_read_again_for_a_partition_that_comes_later() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.read()
    topic.follower.add([ONE, TWO])
    assert topic.follower.offsets() == {0: None}
    assert topic.follower.is_ready(ONE)
    assert not topic.follower.is_ready(TWO)
    topic.tell_limits()
    topic.read()
    assert topic.copied(ONE) == topic.copied(TWO) == 3


def test_limits_that_were_asked_for_before_a_partition_came_do_not_count() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.follower.add([TWO])
    topic.tell_limits(ONE)
    assert topic.follower.offsets() == {0: None}


def test_what_was_read_from_another_place_does_not_count() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.read()
    topic.follower.add([TWO])
    topic.log.append(encode_record(segment(TWO, 5)))
    topic.follower.take(0, 12, [Read(12, topic.log[12])], 13)  # was on its way
    topic.tell_limits()
    topic.read()
    assert topic.copied(TWO) == 3
    assert len(topic.follower.cache_of(TWO)) == 4


def test_whoever_records_a_step_waits_until_it_is_read() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    read = topic.follower.when_read(ONE, 9)
    topic.read(9)
    assert not read.done
    topic.read(1)
    assert read.done
    assert topic.follower.when_read(ONE, 9).done
    gone = topic.follower.when_read(ONE, 50)
    topic.follower.remove([ONE, TWO])
    for each in (gone, topic.follower.when_read(ONE, 1)):
        with pytest.raises(RemoteResourceNotFoundException):
            each.result()
    assert topic.follower.offsets() == {}


def test_a_partition_that_comes_while_records_are_taken_gets_all_of_them() -> None:
    """Whoever waited for a step goes on at once, and may name another partition."""
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.follower.when_read(ONE, 5).on_done(lambda _: topic.follower.add([TWO]))
    topic.read()
    assert topic.follower.offsets() == {0: None}
    topic.tell_limits()
    topic.read()
    assert topic.copied(ONE) == topic.copied(TWO) == 3


def test_a_waiter_that_has_given_up_is_passed_over() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    given_up: Deferred[None] = topic.follower.when_read(ONE, 4)
    given_up.fail(RuntimeError("in time"))
    topic.read()
    assert topic.follower.is_ready(ONE)


def test_who_has_given_up_is_forgotten_while_nothing_is_read() -> None:
    """Records may be taken while they cannot be read: the topic's log may be damaged, or its leader hang."""
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    first = topic.follower.when_read(ONE, 9)
    for offset in range(100):
        topic.follower.when_read(ONE, offset).fail(RuntimeError("in time"))
    last = topic.follower.when_read(ONE, 9)
    assert len(topic.follower._users[ONE].waiting) == 2
    topic.read()
    assert first.done
    assert last.done


def test_records_that_are_broken_are_passed_over_and_told() -> None:
    topic = Topic([b"?", None, *LOG])
    topic.follower.add([ONE])
    topic.tell_limits()
    flaws = topic.read()
    assert [each.split(":")[0] for each in flaws] == ["partition 0, offset 0", "partition 0, offset 1"]
    assert topic.copied(ONE) == 3


def test_a_deleted_partition_is_not_known_any_more() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    for state in RemotePartitionDeleteState:
        topic.log.append(encode_record(RemotePartitionDeleteMetadata(ONE, state, 0, 0)))
    topic.tell_limits()
    topic.read(14)
    with pytest.raises(RemoteStorageNotReadyException):
        topic.follower.cache_of(ONE)
    topic.read()
    with pytest.raises(RemoteResourceNotFoundException):
        topic.follower.cache_of(ONE)


def test_deletions_that_are_not_finished_are_told_once() -> None:
    topic = Topic()
    states = RemotePartitionDeleteState
    steps = [
        RemotePartitionDeleteMetadata(ONE, states.DELETE_PARTITION_MARKED, 0, 0),
        RemotePartitionDeleteMetadata(TWO, states.DELETE_PARTITION_MARKED, 0, 1),
        RemotePartitionDeleteMetadata(TWO, states.DELETE_PARTITION_STARTED, 0, 2),
        RemotePartitionDeleteMetadata(ONE, states.DELETE_PARTITION_STARTED, 0, 0),
        RemotePartitionDeleteMetadata(ONE, states.DELETE_PARTITION_FINISHED, 0, 0),
    ]
    topic.log += map(encode_record, steps)
    follower = topic.follower
    follower.look_for_deletions([0])
    assert follower.offsets() == {0: None}
    topic.tell_limits()
    topic.read(13)
    assert follower.unfinished_deletions() == []
    topic.read()
    assert follower.unfinished_deletions() == [steps[2]]
    follower.look_for_deletions([0])
    follower.add([ONE])  # everything is read again
    topic.tell_limits()
    topic.read()
    assert follower.unfinished_deletions() == []
    assert (follower.is_unfinished(ONE), follower.is_unfinished(TWO)) == (False, True)
    again = RemotePartitionDeleteMetadata(ONE, states.DELETE_PARTITION_MARKED, 0, 3)
    topic.log.append(encode_record(again))
    topic.read()
    assert follower.unfinished_deletions() == [again]


def test_deletions_are_not_looked_for_any_more() -> None:
    topic = Topic()
    step = RemotePartitionDeleteMetadata(ONE, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 0, 1)
    topic.log.append(encode_record(step))
    topic.follower.look_for_deletions([0])
    topic.tell_limits()
    topic.follower.look_for_deletions([])
    assert topic.follower.offsets() == {}
    topic.follower.add([TWO])
    topic.tell_limits()
    topic.read()
    assert topic.follower.unfinished_deletions() == []
    assert not topic.follower.is_unfinished(ONE)
    topic.follower.look_for_deletions([0])
    topic.tell_limits()
    topic.read()
    assert topic.follower.unfinished_deletions() == [step]


def test_deletions_are_looked_for_in_what_is_followed_already() -> None:
    topic = Topic()
    step = RemotePartitionDeleteMetadata(TWO, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 0, 1)
    topic.log.append(encode_record(step))
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.read()
    topic.follower.look_for_deletions([0])
    topic.follower.remove([ONE])
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.read()
    assert topic.follower.unfinished_deletions() == [step]
    assert topic.copied(ONE) == 3
    assert topic.follower.offsets() == {0: len(topic.log)}


def test_an_empty_topic_has_no_deletions() -> None:
    topic = Topic([])
    topic.follower.look_for_deletions([0])
    topic.tell_limits()
    assert topic.follower.unfinished_deletions() == []


def test_an_offset_that_the_topic_does_not_have_starts_from_the_beginning() -> None:
    topic = Topic()
    topic.follower.add([ONE])
    topic.tell_limits()
    topic.read(6)
    topic.follower.is_out_of_range(0, 5)  # of an earlier read
    assert topic.follower.offsets() == {0: 6}
    topic.follower.is_out_of_range(0, 6)
    topic.tell_limits()
    topic.read()
    assert topic.copied(ONE) == 3


@pytest.mark.parametrize("left", [0, 8])
def test_records_in_the_place_of_those_that_the_topic_has_lost_are_read(left: int) -> None:
    """Its leader has lost its power, or the topic was made again. What is in the store stays known."""
    topic = Topic()
    follower = topic.follower
    follower.add([ONE, TWO])
    topic.tell_limits()
    topic.read()
    waiting = follower.when_read(ONE, 13)
    del topic.log[left:]
    follower.is_out_of_range(0, 12)
    topic.tell_limits()
    with pytest.raises(RetriableRemoteStorageException):
        waiting.result()
    assert (topic.copied(ONE), topic.copied(TWO)) == (3, 3)
    topic.log += [encode_record(segment(ONE, 7)), encode_record(finished(ONE, 7))]
    recorded = follower.when_read(ONE, left + 1)
    assert not recorded.done
    topic.read()
    assert recorded.done
    assert (topic.copied(ONE), topic.copied(TWO)) == (4, 3)
