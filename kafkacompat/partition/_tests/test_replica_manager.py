"""Appends, waits for replication and roles: the partition manager over real logs on a memory disk."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from conftest import Faults
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import MetadataImage
from kafkacompat.ids import OFFSETS_TOPIC, TopicPartition
from kafkacompat.log._tests.disks import refusing
from kafkacompat.log._tests.logs import index_files
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.kit import (
    LedPartitions,
    batch_of,
    broker_epoch,
    broker_image,
    failing,
    image_of,
    partition_image,
    topic_image,
    with_partitions,
)
from kafkacompat.records.batch import BatchCorrupt, iterate_batches
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode

T0 = TopicPartition("t", 0)


def two_replicas(**fields: object) -> LedPartitions:
    return LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2), **fields)}))  # type: ignore[arg-type]


def test_append_moves_the_high_watermark_of_a_lone_replica() -> None:
    world = LedPartitions(topic_image("t"))
    result = world.produce("t", 0, b"a", b"b")
    assert (result.error, result.base_offset, result.last_offset) == (ErrorCode.NONE, 0, 1)
    assert result.log_start_offset == 0
    assert world.log().high_watermark == 2


def test_append_is_stamped_with_the_leader_epoch() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=7)}))
    world.produce()
    assert world.log().latest_epoch() == 7
    (batch,) = world.batches()
    assert next(iterate_batches(batch)).leader_epoch == 7


def test_append_to_unknown_or_foreign_partitions() -> None:
    world = LedPartitions(
        topic_image("t", {0: partition_image(), 1: partition_image(replicas=(1, 2), leader=2, epoch=4)})
    )
    assert world.produce("nope").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.produce("t", 5).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    foreign = world.produce("t", 1)
    assert foreign.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (foreign.leader_id, foreign.leader_epoch) == (2, 4)


def test_a_coordinator_may_remove_records_of_its_topic_and_a_client_may_not() -> None:
    name = TopicPartition("__share_group_state", 0)
    world = LedPartitions(topic_image(name.topic))
    world.manager.append(name, batch_of(b"a", b"b"), -1, 13, True)
    refused = world.manager.delete_records({name: 1}, 1_000).result()
    assert refused == {name: (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)}
    removed = world.manager.delete_records({name: 1}, 1_000, of_internal_topics=True).result()
    assert removed == {name: (ErrorCode.NONE, 1)}


def test_internal_topics_are_refused_to_clients() -> None:
    world = LedPartitions(topic_image(OFFSETS_TOPIC))
    assert world.produce(OFFSETS_TOPIC).error is ErrorCode.INVALID_TOPIC_EXCEPTION
    allowed = world.manager.append(TopicPartition(OFFSETS_TOPIC, 0), batch_of(b"x"), -1, 13, True)
    assert allowed.error is ErrorCode.NONE


def test_zstd_needs_version_seven() -> None:
    world = LedPartitions(topic_image("t"))
    batch = batch_of(b"x", compression=4)
    assert world.manager.append(T0, batch, 1, 6, False).error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert world.manager.append(T0, batch, 1, 7, False).error is ErrorCode.NONE


def test_too_large_and_keyless_in_a_compacted_topic() -> None:
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(max_message_bytes=80)
    assert world.produce("t", 0, b"x" * 100).error is ErrorCode.MESSAGE_TOO_LARGE
    world.log().config = LogConfig(cleanup_policy=("compact",))
    refused = world.produce("t", 0, b"x", key=None)
    assert refused.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.record_errors] == [0]


def test_an_active_segment_whose_indexes_cannot_be_rebuilt_sends_producers_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = LedPartitions(topic_image("t"))
    damage = BatchCorrupt("a batch with the length -7")
    monkeypatch.setattr(UnifiedLog, "append_as_leader", failing(world.log(), "append_as_leader", damage))
    assert world.produce().error is ErrorCode.KAFKA_STORAGE_ERROR


def test_disk_failure_is_a_storage_error_and_nothing_moved() -> None:
    world = LedPartitions(topic_image("t"))
    world.disk.failing = ".log"
    assert world.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log().high_watermark == 0
    world.disk.failing = None
    assert world.produce().base_offset == 0


def test_acks_all_needs_min_isr_before_the_append() -> None:
    world = two_replicas(isr=(1,))
    world.log().config = LogConfig(min_insync_replicas=2)
    assert world.produce(acks=-1).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.log().log_end_offset == 0
    stored = world.produce(acks=1)
    assert stored.error is ErrorCode.NONE
    assert world.log().high_watermark == 0  # since 4.0 it does not move below min ISR


def test_effective_min_isr_is_bounded_by_the_replicas() -> None:
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(min_insync_replicas=3)
    assert world.produce(acks=-1).error is ErrorCode.NONE
    assert world.manager.when_replicated({T0: 1}, 1000) is None


def test_replicated_at_once_with_one_replica() -> None:
    world = LedPartitions(topic_image("t"))
    world.produce(acks=-1)
    assert world.manager.when_replicated({T0: 1}, 1000) is None


def test_produce_waits_for_the_follower() -> None:
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    assert not waiting.done
    core = world.manager.by_name[T0]
    world.manager.follower_fetched(core, 2, 0)
    assert not waiting.done
    world.manager.follower_fetched(core, 2, 1)
    assert waiting.result() == {T0: ErrorCode.NONE}
    assert world.log().high_watermark == 1


def test_timeout_answers_request_timed_out_and_keeps_the_data() -> None:
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.time.advance(999)
    assert not waiting.done
    world.time.advance(1)
    assert waiting.result() == {T0: ErrorCode.REQUEST_TIMED_OUT}
    assert world.manager.wakeups.produces.expirations == 1
    assert world.log().log_end_offset == 1


def test_isr_that_shrank_after_the_append_is_told() -> None:
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    assert waiting.result() == {T0: ErrorCode.NONE}
    world.log().config = LogConfig(min_insync_replicas=2)
    world.publish(
        with_partitions(
            world.image, "t", {0: replace(partition_image(replicas=(1, 2), isr=(1,)), partition_epoch=1)}
        )
    )
    after = world.manager.when_replicated({T0: 1}, 1000)
    assert after is not None
    assert after.result() == {T0: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


def test_lost_leadership_ends_the_wait() -> None:
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), leader=2, epoch=1)}))
    assert waiting.result() == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.manager.log(T0) is None


def test_a_leader_that_stays_leader_in_the_next_epoch_goes_on_waiting_for_replicas() -> None:
    """As when a reassignment has removed a replica. A producer that is told otherwise repeats records that are in the log."""
    replicas = partition_image(replicas=(1, 2))
    world = LedPartitions(topic_image("t", {0: replicas}), brokers=[broker_image(1), broker_image(2)])
    world.produce(acks=-1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    deleted = world.manager.delete_records({T0: 1}, 60_000)
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 2}, 60_000)
    assert waiting is not None
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), epoch=1)}))
    assert not waiting.done
    assert not deleted.done
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 2, 1)
    assert waiting.result() == {T0: ErrorCode.NONE}
    assert deleted.result() == {T0: (ErrorCode.NONE, 1)}


def test_who_waits_for_replicas_is_not_told_of_what_was_written_instead_since_another_one_has_led() -> None:
    """Many wait, so this one is looked at in a later turn, when this node leads again."""
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.manager.wakeups.budget.left_us = 0
    led_by_another = partition_image(replicas=(1, 2), leader=2, epoch=1)
    world.publish(with_partitions(world.image, "t", {0: led_by_another}))
    world.log().truncate_to(0)
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(1, 2), epoch=2)}))
    world.produce(acks=-1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    assert world.log().high_watermark == 1
    assert not waiting.done
    world.time.advance(0)
    assert waiting.result() == {T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_who_waits_for_replicas_is_not_told_of_what_was_written_to_a_topic_that_was_made_again() -> None:
    """Many wait, so this one is looked at in a later turn, when there is another topic of that name."""
    partitions = {0: partition_image(replicas=(1, 2), epoch=3)}
    world = LedPartitions(topic_image("t", partitions), brokers=[broker_image(1), broker_image(2)])
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.manager.wakeups.budget.left_us = 0
    world.publish(image_of(brokers=[broker_image(1), broker_image(2)]))
    again = topic_image("t", {0: partition_image(replicas=(1, 2))}, 1)
    world.publish(image_of(again, brokers=[broker_image(1), broker_image(2)]))
    core = world.manager.core(T0)
    assert core is not None
    assert not waiting.done
    world.time.advance(0)
    assert waiting.result() == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_who_waits_for_deletions_is_told_nothing_of_a_topic_that_was_made_again() -> None:
    """Many wait, so this one is looked at in a later turn, when there is another topic of that name."""
    brokers = [broker_image(1), broker_image(2)]
    world = LedPartitions(topic_image("t", {0: partition_image(replicas=(1, 2))}), brokers=brokers)
    world.produce(acks=-1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    deleted = world.manager.delete_records({T0: 1}, 1000)
    world.manager.wakeups.budget.left_us = 0
    world.publish(image_of(brokers=brokers))
    world.publish(image_of(topic_image("t", {0: partition_image(replicas=(1, 2))}, 1), brokers=brokers))
    assert world.manager.core(T0) is not None
    assert not deleted.done
    world.time.advance(0)
    assert deleted.result() == {T0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


def test_who_waits_for_replicas_of_a_deleted_topic_is_told_that_it_is_unknown() -> None:
    replicas = partition_image(replicas=(1, 2))
    world = LedPartitions(topic_image("t", {0: replicas}), brokers=[broker_image(1), broker_image(2)])
    world.produce(acks=-1)
    world.manager.follower_fetched(world.manager.by_name[T0], 2, 1)
    deleted = world.manager.delete_records({T0: 1}, 60_000)
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 2}, 60_000)
    assert waiting is not None
    assert not deleted.done
    world.publish(image_of())
    assert waiting.result() == {T0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert deleted.result() == {T0: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}


def test_an_isr_shrink_lets_the_high_watermark_go_on() -> None:
    world = two_replicas()
    world.produce(acks=-1)
    waiting = world.manager.when_replicated({T0: 1}, 1000)
    assert waiting is not None
    world.publish(
        with_partitions(
            world.image, "t", {0: replace(partition_image(replicas=(1, 2), isr=(1,)), partition_epoch=1)}
        )
    )
    assert waiting.result() == {T0: ErrorCode.NONE}


def waiting_for_a_replica_about_to_join() -> LedPartitions:
    """The ISR is this node alone. As in Kafka its records wait for another replica that has just caught up."""
    replicas = partition_image(replicas=(1, 2), isr=(1,))
    world = LedPartitions(topic_image("t", {0: replicas}), brokers=[broker_image(1), broker_image(2)])
    core = world.manager.core(T0)
    assert core is not None
    assert world.manager.follower_fetched(core, 2, 0, 0, broker_epoch(2)) is ErrorCode.NONE
    world.produce("t", 0, b"v", acks=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    assert world.log().high_watermark == 0
    return world


def test_records_do_not_wait_for_a_replica_whose_broker_is_gone() -> None:
    """The image with the fenced broker need not change the partition."""
    world = waiting_for_a_replica_about_to_join()
    waiting = world.manager.when_replicated({T0: 1}, 60_000)
    assert waiting is not None
    world.publish(replace(world.image, brokers={1: broker_image(1), 2: broker_image(2, fenced=True)}))
    assert waiting.result() == {T0: ErrorCode.NONE}


def test_a_repeated_batch_looks_whether_a_replica_is_still_waited_for() -> None:
    """An idempotent producer repeats its batch, and nothing else may come."""
    world = waiting_for_a_replica_about_to_join()
    world.time.advance(30_001)
    world.produce("t", 0, b"v", acks=-1, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (world.log().log_end_offset, world.log().high_watermark) == (1, 1)


def test_a_replica_that_stands_still_is_not_waited_for_longer_than_its_lag_may_be() -> None:
    world = waiting_for_a_replica_about_to_join()
    core = world.manager.core(T0)
    assert core is not None
    assert world.manager.hosted.advance_if_waiting(core)
    assert world.log().high_watermark == 0
    world.time.advance(30_001)
    assert world.manager.hosted.advance_if_waiting(core)
    assert world.log().high_watermark == 1
    assert not world.manager.hosted.advance_if_waiting(core)


def test_an_answer_that_brings_about_the_next_ones_is_given_once() -> None:
    """The caller that waited for the first append appends again, as a coordinator does. By then this node is alone in
    the ISR. So the watermark moves within that append and answers the second caller while the first answer is still
    being given."""
    world = two_replicas()
    both = []
    for end in (1, 2):
        world.produce(acks=-1)
        waiting = world.manager.when_replicated({T0: end}, 1000)
        assert waiting is not None
        both.append(waiting)
    both[0].on_done(lambda _: world.produce(acks=-1))
    world.publish(
        with_partitions(
            world.image, "t", {0: replace(partition_image(replicas=(1, 2), isr=(1,)), partition_epoch=1)}
        )
    )
    assert [waiting.result() for waiting in both] == [{T0: ErrorCode.NONE}] * 2
    assert world.log().high_watermark == 3


def test_flush_messages_answers_after_the_sync_and_one_sync_serves_many() -> None:
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(flush_messages=2)
    world.produce()
    assert world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False) is None
    world.produce()
    first = world.manager.when_flushed({T0: 2}, 60_000, is_replicated=False)
    world.produce("t", 0, b"a", b"b")
    second = world.manager.when_flushed({T0: 4}, 60_000, is_replicated=False)
    assert first is not None
    assert second is not None
    assert len(world.workers.submitted) == 1
    world.workers.run()
    assert first.result() == {T0: ErrorCode.NONE}
    assert not second.done
    world.workers.run()
    assert second.result() == {T0: ErrorCode.NONE}
    assert world.log().recovery_point == 4
    assert world.manager.when_flushed({T0: 4}, 60_000, is_replicated=False) is None


def test_a_failed_sync_is_a_storage_error() -> None:
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(flush_messages=1)
    world.disk.lost_syncs["/t-0/"] = OSError(errno.EIO, "broken")
    world.produce()
    waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert waiting is not None
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_sync_that_cannot_begin_after_another_fails_only_those_who_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = LedPartitions(topic_image("t"))
    log = world.log()
    log.config = LogConfig(flush_messages=1)
    world.produce()
    first = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    world.produce()
    second = world.manager.when_flushed({T0: 2}, 60_000, is_replicated=False)
    assert first is not None
    assert second is not None
    error = FileNotFoundError(errno.ENOENT, "deleted meanwhile")
    monkeypatch.setattr(UnifiedLog, "begin_flush", failing(log, "begin_flush", error))
    world.workers.run()
    world.workers.run()
    assert first.result() == {T0: ErrorCode.NONE}
    assert second.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert world.manager.when_flushed({T0: 2}, 60_000, is_replicated=False) is None


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), MemoryError(), BatchCorrupt("an index")])
def test_a_sync_that_cannot_begin_keeps_no_later_produce_waiting(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LedPartitions(topic_image("t"))
    log = world.log()
    log.config = LogConfig(flush_messages=1)
    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "begin_flush", failing(log, "begin_flush", error))
        assert world.produce().error is ErrorCode.NONE
    waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert waiting is not None
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    world.produce()
    following = world.manager.when_flushed({T0: 2}, 60_000, is_replicated=False)
    assert following is not None
    world.workers.run()
    assert following.result() == {T0: ErrorCode.NONE}


@pytest.mark.parametrize("method", ["begin_flush", "finish_flush"])
def test_a_bug_in_a_sync_keeps_no_later_produce_waiting(
    method: str, monkeypatch: pytest.MonkeyPatch, faults: Faults
) -> None:
    world = LedPartitions(topic_image("t"))
    log = world.log()
    log.config = LogConfig(flush_messages=1)
    bug = KeyError("a bug")
    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, method, failing(log, method, bug))
        world.produce()
        waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
        assert waiting is not None
        world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert faults.take() == [bug]
    world.produce()
    following = world.manager.when_flushed({T0: 2}, 60_000, is_replicated=False)
    assert following is not None
    world.workers.run()
    assert following.result() == {T0: ErrorCode.NONE}


def test_a_failed_sync_of_a_deleted_topic_says_nothing_about_the_one_made_anew() -> None:
    world = LedPartitions(topic_image("t"))
    log = world.log()
    log.config = LogConfig(flush_messages=1)
    world.disk.lost_syncs["/t-0"] = OSError(errno.EIO, "the disk lost it")
    world.produce()
    waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert waiting is not None
    world.publish(image_of(topic_image("t", generation=1)))
    assert world.log() is not log
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert world.log_manager.directories[0].online
    assert world.produce().error is ErrorCode.NONE


def test_the_sync_that_a_topic_made_anew_waits_for_is_of_its_own_log() -> None:
    """A sync of the deleted topic's log is still running."""
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(flush_messages=1)
    world.produce()
    world.publish(image_of(topic_image("t", generation=1)))
    log = world.log()
    log.config = LogConfig(flush_messages=1)
    world.produce()
    waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert waiting is not None
    world.workers.run()
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.NONE}
    assert log.recovery_point == log.log_end_offset


def test_a_sync_that_a_deleted_topic_still_waits_for_changes_no_file_of_the_one_made_anew() -> None:
    """Of both topics the files have the same paths. A sync that begins would complete the indexes of its log first."""
    world = LedPartitions(topic_image("t"))
    config = LogConfig(index_interval_bytes=1)
    world.log_configs["t"] = replace(config, flush_messages=1)
    world.publish(image_of(topic_image("t", generation=1)))
    world.settle()
    for _ in range(6):
        world.produce()
    waiting = world.manager.when_flushed({T0: 6}, 60_000, is_replicated=False)
    assert waiting is not None
    world.log_configs["t"] = config
    world.publish(image_of(topic_image("t", generation=2)))
    log = world.log()
    for _ in range(9):
        world.produce("t", 0, b"v" * 100)
    log.flush()
    files = index_files(world.disk, log.directory)
    assert files[f"{0:020d}.index"]
    world.workers.run()
    world.workers.run()
    assert index_files(world.disk, log.directory) == files
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_produce_whose_directory_fails_before_it_waits_is_told_that_the_sync_has_failed() -> None:
    """Another partition of the same request may have met the broken disk."""
    world = LedPartitions(topic_image("t"))
    world.log().config = LogConfig(flush_messages=1)
    world.produce()
    world.manager.hosted.storage_failed(world.manager.by_name[T0], OSError(errno.EIO, "broken"))
    waiting = world.manager.when_flushed({T0: 1}, 60_000, is_replicated=False)
    assert waiting is not None
    world.disk.lost_syncs["/t-0"] = OSError(errno.EIO, "the disk lost it")
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_produce_waits_for_no_sync_of_a_deleted_topic_of_the_same_name() -> None:
    """That one fails, and the producer would append its records again."""
    world = LedPartitions(topic_image("t"))
    world.log_configs["t"] = LogConfig(flush_messages=2)
    world.publish(image_of(topic_image("t", generation=1)))
    world.settle()
    world.disk.lost_syncs["/t-0"] = OSError(errno.EIO, "the disk lost it")
    for _ in range(4):
        world.produce()
    waiting = world.manager.when_flushed({T0: 4}, 60_000, is_replicated=True)
    assert waiting is not None
    world.publish(image_of(topic_image("t", generation=2)))
    world.produce()
    assert world.manager.when_flushed({T0: 1}, 60_000, is_replicated=True) is None
    world.workers.run()
    world.workers.run()
    assert waiting.result() == {T0: ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_failed_append_is_a_storage_error_and_the_partition_goes_with_its_directory() -> None:
    world = LedPartitions(topic_image("t"))
    world.disk.refuse = refusing("write", "/data/a/t-0", errno.ENOSPC)
    assert world.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.refuse = None
    assert world.produce().error is ErrorCode.NONE
    world.disk.refuse = refusing("write", "/data/a/t-0", errno.EIO)
    assert world.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.produce().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.manager.leader_error(T0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not world.log_manager.directories[0].online


def test_an_error_of_a_deleted_topics_log_ends_no_directory_of_the_one_made_anew() -> None:
    """A fetcher tells of it after it has taken the rest of an answer, in later turns of the loop."""
    first, second = (bytes(15) + bytes([0x77 + at]) for at in (0, 1))
    image = replace(partition_image(), directories=(first,))
    world = LedPartitions(topic_image("t", {0: image}), directories=2)
    deleted = world.manager.by_name[T0]
    again = topic_image("t", {0: replace(image, directories=(second,))}, generation=1)
    world.publish(image_of(again))
    assert world.manager.core(T0) is not deleted
    world.manager.hosted.storage_failed(deleted, OSError(errno.EIO, "a disk is broken"))
    assert [each.online for each in world.log_manager.directories] == [True, True]
    assert world.produce().error is ErrorCode.NONE


@pytest.mark.parametrize("offline", [False, True])
def test_partitions_of_the_first_image_are_new_unless_an_offline_directory_may_have_them(
    offline: bool,
) -> None:
    world = LedPartitions(directories=2)
    if offline:
        world.log_manager.fail_directory(world.log_manager.directories[1], OSError(errno.EIO, "broken"))
    world.manager.on_image(MetadataImage(), image_of(topic_image("t")))
    assert world.log_manager.asked_as_new == {T0: not offline}
    world.publish(image_of(topic_image("later")))
    assert world.log_manager.asked_as_new[TopicPartition("later", 0)]


def test_unknown_epoch_is_undefined_without_an_error() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=3)}))
    world.produce()
    assert world.manager.end_offset_for_epoch(T0, -1, 3) == (ErrorCode.NONE, 3, 1)
    assert world.manager.end_offset_for_epoch(T0, -1, 9) == (ErrorCode.NONE, -1, -1)
    assert world.manager.end_offset_for_epoch(T0, 2, 3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


def delete(world: LedPartitions, offset: int, partition: TopicPartition = T0) -> tuple[ErrorCode, int]:
    return world.manager.delete_records({partition: offset}, 1000).result()[partition]


def test_delete_records() -> None:
    world = LedPartitions(topic_image("t"), topic_image(OFFSETS_TOPIC))
    for _ in range(3):
        world.produce()
    assert delete(world, 2) == (ErrorCode.NONE, 2)
    assert delete(world, 1) == (ErrorCode.NONE, 2)
    assert delete(world, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(world, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(world, -1) == (ErrorCode.NONE, 3)
    assert delete(world, 0, TopicPartition("no", 0)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(world, 0, TopicPartition(OFFSETS_TOPIC, 0)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    world.log().config = LogConfig(cleanup_policy=("compact",))
    assert delete(world, 0) == (ErrorCode.POLICY_VIOLATION, -1)
    world.log().config = LogConfig(cleanup_policy=())
    assert delete(world, 0) == (ErrorCode.NONE, 3)


def test_images_make_and_drop_logs() -> None:
    world = LedPartitions(topic_image("t", 2))
    assert set(world.log_manager.logs) == {T0, TopicPartition("t", 1)}
    world.publish(with_partitions(world.image, "t", {index: partition_image() for index in range(3)}))
    assert world.produce("t", 2).error is ErrorCode.NONE
    world.publish(MetadataImage(offset=200))
    assert world.log_manager.deleted == [TopicPartition("t", index) for index in range(3)]
    assert world.produce().error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_anew_gets_a_new_log() -> None:
    world = LedPartitions(topic_image("t"))
    world.produce()
    old = world.log()
    world.publish(image_of(topic_image("t", generation=1)))
    assert world.log() is not old
    assert world.log().topic_id == topic_image("t", generation=1).id
    assert world.produce().base_offset == 0


def test_a_partition_moved_away_is_dropped() -> None:
    world = LedPartitions(topic_image("t"))
    world.publish(with_partitions(world.image, "t", {0: partition_image(replicas=(2,), leader=2, epoch=1)}))
    assert world.log_manager.deleted == [T0]
    assert world.produce().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_older_image_changes_nothing() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=5)}))
    core = world.manager.by_name[T0]
    assert not core.become(partition_image(leader=2, epoch=4), 0)
    assert core.is_leader


def test_a_log_that_cannot_be_opened_is_a_storage_error_and_the_others_live() -> None:
    world = LedPartitions()
    world.disk.refuse = refusing("make_directory create write_atomic", "/data/a/t-0", errno.ENOSPC)
    world.publish(image_of(topic_image("t", 2)))
    assert world.produce("t", 0).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.produce("t", 1).error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("key", "reached"),
    [
        ((ConfigResourceType.TOPIC, "t"), {"t"}),
        ((ConfigResourceType.BROKER, ""), {"t", "u"}),
        ((ConfigResourceType.GROUP, "t"), set()),
    ],
)
def test_changed_settings_reach_the_logs_they_concern(key: tuple[int, str], reached: set[str]) -> None:
    world = LedPartitions(topic_image("t"), topic_image("u"))
    changed = LogConfig(retention_ms=7)
    world.log_configs = {"t": changed, "u": changed}
    world.publish(replace(world.image, configs={key: {"retention.ms": "7"}}))
    assert {topic for topic in ("t", "u") if world.log(topic).config is changed} == reached


def one_image_with(
    world: LedPartitions, min_insync_replicas: int, isr: tuple[int, ...], leader: int = 1, epoch: int = 0
) -> None:
    world.log_configs["t"] = LogConfig(min_insync_replicas=min_insync_replicas)
    changed = replace(
        partition_image(replicas=(1, 2), isr=isr, leader=leader, epoch=epoch), partition_epoch=1
    )
    image = with_partitions(world.image, "t", {0: changed})
    world.publish(replace(image, configs={(ConfigResourceType.TOPIC, "t"): {"min.insync.replicas": "?"}}))


def test_a_leader_left_alone_by_the_image_that_raises_the_min_isr_commits_nothing() -> None:
    """The controller uses the raised value: replicas that left the ISR stay eligible (KIP-966), and would lack the
    newly committed records."""
    world = two_replicas()
    world.produce()
    one_image_with(world, 2, isr=(1,))
    assert world.log().high_watermark == 0


def test_a_log_that_was_there_at_the_start_has_its_topics_settings_from_its_first_role_on() -> None:
    """Until then it has the node's settings, by which retention would delete a compacted topic's records."""
    world = LedPartitions(topic_image("t"))
    topic = topic_image("u")
    world.log_manager.get_or_create(TopicPartition("u", 0), topic.id, LogConfig())
    world.log_configs["u"] = LogConfig(cleanup_policy=("compact",))
    world.publish(image_of(topic_image("t"), topic))
    assert world.log("u").config is world.log_configs["u"]


def test_a_deposed_leader_commits_nothing_by_the_image_that_lowers_the_min_isr() -> None:
    """The setting was lowered under the new leader."""
    world = two_replicas(isr=(1,))
    world.log().config = LogConfig(min_insync_replicas=2)
    world.produce()
    one_image_with(world, 1, isr=(2,), leader=2, epoch=1)
    assert world.log().high_watermark == 0


def test_a_leader_commits_what_a_lowered_min_isr_allows() -> None:
    world = two_replicas(isr=(1,))
    world.log().config = LogConfig(min_insync_replicas=2)
    world.produce()
    one_image_with(world, 1, isr=(1,))
    assert world.log().high_watermark == 1
