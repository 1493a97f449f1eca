"""ListOffsets: special timestamps, and what a client may see."""

from __future__ import annotations

from typing import Any

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests import logs
from kafkacompat.partition._tests.kit import LedPartitions, partition_image, topic_image, with_partitions
from kafkacompat.ports import TimestampOffset
from kafkacompat.wire.errors import ErrorCode

OPEN_TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
T0 = TopicPartition("t", 0)


def look_up(
    world: LedPartitions, timestamp_ms: int, *, committed: bool = False, epoch: int = -1, replica: int = -1
) -> tuple[int, ...]:
    asked = world.manager.list_offset(T0, timestamp_ms, committed, epoch, replica)
    found = world.found(asked)
    return (found.error, found.timestamp_ms, found.offset, found.leader_epoch)


def test_list_offset_special_values() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=3)}))
    for index in range(4):
        world.produce(**(OPEN_TRANSACTION if index == 2 else {}))
        world.time.ms += 10
    world.log().increment_log_start_offset(1)
    start = 1_700_000_000_000
    assert look_up(world, -1) == (0, -1, 4, 3)
    assert look_up(world, -1, committed=True) == (0, -1, 2, 3)
    assert look_up(world, -2) == (0, -1, 1, 3)
    assert look_up(world, -4) == (0, -1, 1, 3)
    assert look_up(world, -5) == (0, -1, -1, -1)
    assert look_up(world, -6) == (0, -1, -1, -1)
    assert look_up(world, -3) == (0, start + 30, 3, 3)
    assert look_up(world, 0) == (0, start + 10, 1, 3)
    assert look_up(world, start + 11) == (0, start + 20, 2, 3)
    assert look_up(world, -7)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_no_match_and_matches_beyond_what_may_be_read_are_minus_one() -> None:
    world = LedPartitions(topic_image("t"))
    assert look_up(world, -3) == (0, -1, -1, -1)
    world.produce()
    assert look_up(world, world.time.now_ms() + 1) == (0, -1, -1, -1)
    world = LedPartitions(topic_image("t"))
    world.produce(**OPEN_TRANSACTION)
    assert look_up(world, 0, committed=True) == (0, -1, -1, -1)


def test_offsets_about_the_remote_storage_are_minus_one_for_clients_at_the_end_of_what_may_be_read() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2))}))
    log: Any = world.log()
    log.is_tiered = True
    assert look_up(world, -6) == (0, -1, -1, -1)
    world.produce()
    assert look_up(world, -6) == (0, -1, -1, -1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    assert look_up(world, -6) == (0, -1, 0, 0)
    log.note_copied_to(0)
    assert look_up(world, -5) == (0, -1, 0, 0)
    assert look_up(world, -6) == (0, -1, -1, -1)
    assert look_up(world, -6, replica=2) == (0, -1, 1, 0)  # an empty follower begins there
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), epoch=1)}))
    assert look_up(world, -5) == (0, -1, 0, 0)
    assert look_up(world, -6)[0] == ErrorCode.OFFSET_NOT_AVAILABLE


def test_the_epoch_is_the_records_not_the_current_one() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=1)}))
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=2)}))
    assert look_up(world, 0)[3] == 1
    assert look_up(world, -1)[3] == 2


def test_list_offset_is_fenced_by_epoch() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=3)}))
    assert look_up(world, -1, epoch=2)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert look_up(world, -1, epoch=4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert look_up(world, -1, epoch=3)[0] == ErrorCode.NONE


def test_offsets_are_not_available_until_the_high_watermark_reached_the_epoch() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2))}))
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), epoch=1)}))
    assert look_up(world, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert look_up(world, -2)[0] == ErrorCode.NONE
    assert look_up(world, -1, replica=2) == (0, -1, 1, 1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    assert look_up(world, -1) == (0, -1, 1, 1)


def test_timestamp_beyond_the_high_watermark_is_hidden() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2))}))
    world.produce()
    assert logs.look_up(world.log(), 0) == TimestampOffset(world.time.now_ms(), 0, 0)
    assert look_up(world, 0) == (0, -1, -1, -1)
