"""Rejected and undeliverable records of a group with a dead-letter topic, from the request to the topic's log."""

from __future__ import annotations

from dataclasses import replace

from kafkacompat.ids import TopicPartition
from kafkacompat.partition._tests.kit import topic_image
from kafkacompat.ports import Buffer, FileSlice
from kafkacompat.records.batch import BatchHeader, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.share._tests.kit import ACCEPT, GROUP, REJECT, RELEASE, ShareLeader, taken
from kafkacompat.share.service import ReadState, ShareError, SharePartitionKey, StateBatch
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

QUEUE = "dlq.t"
LOCK_MS = 30_000


def world_with(records: int = 3, **overrides: str) -> ShareLeader:
    world = ShareLeader(
        topic_image("t", 1),
        topic_image(QUEUE, 1),
        errors_deadletterqueue_topic_name=QUEUE,
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit="2",
        **overrides,
    )
    enabled = {(int(ConfigResourceType.TOPIC), QUEUE): {"errors.deadletterqueue.group.enable": "true"}}
    world.publish(replace(world.image, configs={**world.image.configs, **enabled}))
    world.produce("t", 0, *[b"v%d" % number for number in range(records)])
    return world


def batch_of(data: Buffer, header: BatchHeader) -> bytes:
    return bytes(data[header.position : header.position + header.size])


def letters(world: ShareLeader) -> list[bytes | None]:
    """The values in the dead-letter topic."""
    world.time.advance(0)
    log = world.manager.log(TopicPartition(QUEUE, 0))
    assert log is not None
    if not log.log_end_offset:
        return []
    read = log.read(0, 1 << 20, log.log_end_offset, True).records
    data = read.read() if isinstance(read, FileSlice) else read
    return [
        record.value
        for header in iterate_batches(data)
        for _, record in records_of(batch_of(data, header), header)
    ]


def test_a_rejected_record_lies_in_the_topic_and_is_not_delivered_again() -> None:
    world = world_with()
    assert taken(world.fetched(epoch=0, partitions=[0]))
    world.fetched(epoch=1, partitions={0: [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, ACCEPT)]}, max_wait_ms=0)
    assert letters(world) == [b"v1"]
    assert world.core().start_offset == 3


def test_the_last_delivery_makes_a_dead_letter() -> None:
    world = world_with(1)
    world.fetched(epoch=0, partitions=[0])
    world.fetched(epoch=1, partitions={0: [(0, 0, RELEASE)]})
    assert letters(world) == []
    world.fetched(epoch=2, partitions={0: [(0, 0, RELEASE)]}, max_wait_ms=0)
    assert letters(world) == [b"v0"]
    assert world.core().start_offset == 1


def test_the_last_lock_that_ends_makes_a_dead_letter() -> None:
    world = world_with_a_last_delivery()
    world.time.advance(LOCK_MS)
    assert letters(world) == [b"v0"]


def test_a_deposed_leader_makes_no_dead_letters_of_locks_that_end() -> None:
    """Its successor delivers the record again, and may see it accepted."""
    world = world_with_a_last_delivery()
    world.persister.write_error = ShareError(ErrorCode.FENCED_LEADER_EPOCH)
    world.persister.is_held = True
    world.time.advance(LOCK_MS)
    assert letters(world) == []
    world.persister.answer_all()
    assert letters(world) == []


def world_with_a_last_delivery() -> ShareLeader:
    world = world_with(1)
    world.fetched(epoch=0, partitions=[0])
    assert taken(world.fetched(epoch=1, partitions={0: [(0, 0, RELEASE)]})) == {0: [(0, 0, 2)]}
    return world


def test_a_new_leader_writes_what_was_not_finished() -> None:
    world = world_with()
    key = SharePartitionKey(GROUP, world.topic_id(), 0)
    world.persister.states[key] = ReadState(start_offset=0, batches=[StateBatch(0, 1, 3, 1)])
    assert taken(world.fetched(epoch=0, partitions=[0])) == {0: [(2, 2, 1)]}
    assert letters(world) == [b"v0", b"v1"]
    assert world.core().start_offset == 2


def test_a_topic_that_takes_none_does_not_hold_up_the_group() -> None:
    world = world_with()
    world.configure(errors_deadletterqueue_topic_name="dlq.missing")
    world.fetched(epoch=0, partitions=[0])
    world.fetched(epoch=1, partitions={0: [(0, 2, REJECT)]}, max_wait_ms=0)
    assert letters(world) == []
    assert world.core().start_offset == 3


def test_unfinished_dead_letters_wait_for_no_other_record() -> None:
    world = world_with(2)
    key = SharePartitionKey(GROUP, world.topic_id(), 0)
    world.persister.states[key] = ReadState(start_offset=0, batches=[StateBatch(0, 1, 3, 1)])
    assert taken(world.fetched(epoch=0, partitions=[0], max_wait_ms=0)) == {}
    assert letters(world) == [b"v0", b"v1"]


def test_a_session_that_ends_while_a_letter_is_on_its_way_does_not_cause_a_second_one() -> None:
    """The state stays loaded until the record is archived. Otherwise the next load would write the letter again."""
    world = world_with(1)
    world.fetched(epoch=0, partitions=[0])
    key = SharePartitionKey(GROUP, world.topic_id(), 0)
    world.acknowledged("m", 1, {0: [(0, 0, REJECT)]})
    world.disconnect("m")
    assert letters(world) == [b"v0"]
    assert [each.delivery_state for each in world.persister.states[key].batches] == [4]
    assert world.shares.cache.count == 0
    world.fetched("n", epoch=0, partitions=[0], max_wait_ms=0)
    assert letters(world) == [b"v0"]


def test_a_letter_is_written_although_the_last_session_ends_before_the_rejection_is_written() -> None:
    world = world_with(1)
    world.fetched(epoch=0, partitions=[0])
    world.persister.is_held = True
    world.request_acknowledge("m", 1, {0: [(0, 0, REJECT)]})
    assert_a_letter_follows_the_last_session(world)


def test_a_last_session_that_ends_at_the_last_delivery_leaves_a_letter() -> None:
    world = world_with_a_last_delivery()
    world.persister.is_held = True
    assert_a_letter_follows_the_last_session(world)


def assert_a_letter_follows_the_last_session(world: ShareLeader) -> None:
    key = SharePartitionKey(GROUP, world.topic_id(), 0)
    world.disconnect("m")
    world.time.advance(0)
    world.persister.is_held = False
    world.persister.answer_all()
    assert letters(world) == [b"v0"]
    assert [each.delivery_state for each in world.persister.states[key].batches] == [4]
    assert world.shares.cache.count == 0


def test_a_request_that_rejects_many_single_records_writes_one_letter_in_each_turn() -> None:
    world = world_with(100)
    world.fetched(epoch=0, partitions=[0])
    batches = [(offset, offset, REJECT if offset % 2 else ACCEPT) for offset in range(100)]
    world.acknowledged("m", 1, {0: batches})
    log = world.manager.log(TopicPartition(QUEUE, 0))
    assert log is not None
    for count in range(1, 51):
        assert world.time.step()
        assert log.log_end_offset == count
    assert len(letters(world)) == 50
    assert world.core().start_offset == 100
