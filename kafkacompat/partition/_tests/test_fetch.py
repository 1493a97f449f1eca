"""Fetch: limits, long poll, errors, and what each reader may see, over real logs on a memory disk."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import CoroutineType
from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.lookup import TimestampLookup
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition._tests.kit import (
    LISTENER,
    LedPartitions,
    batch_of,
    broker_image,
    failing,
    image_of,
    partition_image,
    topic_image,
    with_partitions,
)
from kafkacompat.partition.hosted_partitions import TAKEN_AT_ONCE_MAX
from kafkacompat.partition.service import FetchParameters, FetchRequestPartition
from kafkacompat.ports import FileSlice, IndexesRebuilt
from kafkacompat.records.batch import BatchCorrupt, stamp_offset_and_epoch, trusted_batch
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchResponse, PartitionData

BATCH = len(batch_of(b"value"))
PARTITION_MAX = 1 << 20
FOLLOWER = 0
"""Any id."""


def want(
    world: LedPartitions, partition: int = 0, offset: int = 0, topic: str = "t", **fields: Any
) -> FetchRequestPartition:
    known = world.image.topics.get(topic)
    return FetchRequestPartition(
        fields.pop("topic_id", known.id if known else b"?" * 16),
        topic if known else fields.pop("name", None),
        partition,
        offset,
        fields.pop("max_bytes", PARTITION_MAX),
        **fields,
    )


def parameters(**changes: Any) -> FetchParameters:
    fields: dict[str, Any] = {
        "replica_id": -1,
        "replica_epoch": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 25,
        "read_committed": False,
        "rack_id": "",
        "session_id": 0,
        "session_epoch": -1,
        "uses_topic_ids": True,
        "version": 17,
        "listener_name": LISTENER,
    }
    return FetchParameters(**{**fields, **changes})


def fetch(
    world: LedPartitions, *partitions: FetchRequestPartition, **changes: Any
) -> FetchResponse | Deferred[FetchResponse]:
    return world.engine.fetch(parameters(**changes), partitions, ())


def now(world: LedPartitions, *partitions: FetchRequestPartition, **changes: Any) -> FetchResponse:
    response = fetch(world, *partitions, **changes)
    assert isinstance(response, FetchResponse), "the fetch parked"
    return response


def parked(
    world: LedPartitions, *partitions: FetchRequestPartition, **changes: Any
) -> Deferred[FetchResponse]:
    response = fetch(world, *partitions, **changes)
    assert isinstance(response, Deferred), "the fetch was answered at once"
    assert not response.done
    return response


def rows(response: FetchResponse) -> list[PartitionData]:
    return [row for topic in response.responses for row in topic.partitions]


def one(response: FetchResponse) -> PartitionData:
    (row,) = rows(response)
    return row


def transactional(producer_id: int) -> dict[str, Any]:
    """The options of a transaction's first batch."""
    return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def bytes_of(row: PartitionData) -> bytes:
    return row.records.read() if isinstance(row.records, FileSlice) else bytes(row.records)


def sizes(response: FetchResponse) -> list[int]:
    return [len(row.records) for row in rows(response)]


def filled(partitions: int = 1, batches: int = 1) -> LedPartitions:
    world = LedPartitions(topic_image("t", partitions))
    for partition in range(partitions):
        for _ in range(batches):
            assert world.produce("t", partition).error is ErrorCode.NONE
    return world


def test_what_is_there_is_answered_at_once() -> None:
    world = filled()
    row = one(now(world, want(world)))
    assert row.error_code == 0
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (1, 1, 0)
    assert bytes_of(row) == world.batches()[0]
    assert row.preferred_read_replica == -1
    assert row.diverging_epoch is None


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (BatchCorrupt("a batch with the length -7"), ErrorCode.CORRUPT_MESSAGE),
        (OSError(5, "Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_disk_that_fails_one_partition_fails_no_other(
    failure: Exception, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = filled(partitions=2)

    def fail(*_: Any) -> Any:
        raise failure

    for name in ("aborted_transactions", "read"):
        monkeypatch.setattr(UnifiedLog, name, failing(world.log(), name, failure))
        broken, whole = rows(now(world, want(world), want(world, partition=1), read_committed=True))
        assert (broken.error_code, whole.error_code) == (code, 0)
    monkeypatch.setattr(TimestampLookup, "_largest", fail)
    broken, whole = rows(now(world, want(world), want(world, partition=1)))
    assert (broken.error_code, whole.error_code) == (code, 0)
    assert bytes_of(whole) == world.batches(partition=1)[0]
    assert world.found(world.manager.list_offset(TopicPartition("t", 0), 5, False, -1, -1)).error is code


def test_readers_up_to_version_5_are_told_of_a_failed_disk_as_of_another_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They do not know KAFKA_STORAGE_ERROR, and would give up instead of asking for the leader."""
    world = filled()
    monkeypatch.setattr(UnifiedLog, "read", failing(world.log(), "read", OSError(5, "Input/output error")))
    codes = {
        version: one(now(world, want(world), version=version, uses_topic_ids=False)).error_code
        for version in (4, 5, 6)
    }
    assert codes == {
        4: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        5: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        6: ErrorCode.KAFKA_STORAGE_ERROR,
    }


def test_aborted_transactions_are_absent_empty_or_sorted() -> None:
    world = LedPartitions(topic_image("t"))
    world.produce(**transactional(4))
    world.produce()
    assert one(now(world, want(world))).aborted_transactions is None
    assert one(now(world, want(world), read_committed=True, max_wait_ms=0)).aborted_transactions == []
    world.produce(**transactional(9))
    for producer_id in (9, 4):
        world.log().append_as_leader(marker(producer_id, committed=False), 0, 0)
    world.log().set_high_watermark(5)
    listed = one(now(world, want(world), read_committed=True)).aborted_transactions
    assert listed is not None
    assert [(abort.producer_id, abort.first_offset) for abort in listed] == [(4, 0), (9, 2)]
    first = one(now(world, want(world, max_bytes=BATCH), read_committed=True)).aborted_transactions
    assert first is not None
    assert [(abort.producer_id, abort.first_offset) for abort in first] == [(4, 0)], "not of this slice"
    empty = one(now(world, want(world, offset=5), read_committed=True, max_wait_ms=0))
    assert empty.aborted_transactions == []
    assert empty.records == b""


def log_with_a_gap(log: UnifiedLog) -> None:
    """What compaction leaves: a record of an aborted transaction (4) at 0, one of another (9) at 10, and their markers."""
    data = [batch_of(b"value", **transactional(each)) for each in (4, 9)]
    ends = [marker(each, committed=False).buffer for each in (4, 9)]
    for offset, batch in zip((0, 10, 11, 12), (*data, *ends), strict=True):
        stamped = bytearray(batch)
        stamp_offset_and_epoch(stamped, offset, 0)
        log.append_as_follower(bytes(stamped), 0)
    log.set_high_watermark(log.log_end_offset)


def test_a_read_in_a_gap_before_which_very_many_transactions_were_aborted_goes_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound of the first ones lies at the batch behind the gap: nothing is below it."""
    monkeypatch.setattr("kafkacompat.partition.fetch.ABORTED_MAX", 1)
    world = LedPartitions(topic_image("t"))
    log_with_a_gap(world.log())
    row = one(now(world, want(world, offset=1), read_committed=True))
    assert row.records
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()] == [
        (4, 0),
        (9, 10),
    ]


@pytest.mark.parametrize("partitions", [5, 600])
def test_an_answer_names_a_bounded_number_of_aborted_transactions(
    partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few transactions over hundreds of partitions make tens of thousands."""
    monkeypatch.setattr("kafkacompat.partition.fetch.ABORTED_MAX", 10)
    world = filled(partitions)
    world.settle()
    for partition in range(5):
        log = world.log("t", partition)
        for number in range(7):
            batch = batch_of(b"value", **{**transactional(4), "base_sequence": number})
            log.append_as_leader(trusted_batch(batch), 0, 0)
            log.append_as_leader(marker(4, committed=False), 0, 0)
        log.set_high_watermark(log.log_end_offset)
    offsets = dict.fromkeys(range(partitions), 1)
    for _ in range(6):
        # A consumer asks again for those that it got nothing of before the others.
        asked = [want(world, each, offset=offsets[each]) for each in range(partitions)]
        answer = fetch(world, *asked, read_committed=True)
        response = at_once(answer.__await__()) if isinstance(answer, CoroutineType) else answer
        assert isinstance(response, FetchResponse)
        named = 0
        for row in rows(response):
            told = [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()]
            offset = offsets[row.partition_index]
            batches = len(bytes_of(row)) // BATCH
            assert len(told) <= 7
            assert bool(told) == bool(row.records)
            named += len(told)
            offsets[row.partition_index] = min(offset + 2 * len(told), 15)
            assert batches >= len(told)
        assert named <= 10
        if all(offsets[each] == 15 for each in range(5)):
            break
    assert [offsets[each] for each in range(5)] == [15] * 5


def test_read_committed_waits_at_the_start_for_a_transaction_begun_in_what_was_deleted() -> None:
    """The fetch is neither answered in a busy loop nor sent to an offset out of range."""
    world = filled()
    core = world.manager.core(("t", 0))
    assert core is not None
    log = core.log = open_log(MemoryDisk())
    for options in ({}, transactional(7), {}, {}):
        log.append_as_leader(trusted_batch(batch_of(b"value", **options)), 0, 0)
    log.set_high_watermark(4)
    log.increment_log_start_offset(3)
    for offset in (1, 2):
        assert one(now(world, want(world, offset=offset), read_committed=True)).error_code == 1
    latest = world.found(world.manager.list_offset(TopicPartition("t", 0), -1, True, -1, -1))
    assert (latest.error, latest.offset) == (ErrorCode.NONE, 3)
    answer = parked(world, want(world, offset=3), read_committed=True)
    log.append_as_leader(marker(7, committed=True), 0, 0)
    assert not answer.done
    assert world.produce().error is ErrorCode.NONE
    assert one(answer.result()).last_stable_offset == 6


def test_read_committed_stops_at_the_last_stable_offset() -> None:
    world = filled(batches=2)
    world.produce(**transactional(7))
    assert sizes(now(world, want(world), read_committed=True)) == [2 * BATCH]
    assert sizes(now(world, want(world))) == [3 * BATCH]


def test_min_bytes_counts_only_what_is_committed() -> None:
    world = filled()
    world.produce(**transactional(7))
    world.produce()
    parked(world, want(world), read_committed=True, min_bytes=2 * BATCH)
    assert sizes(now(world, want(world), min_bytes=2 * BATCH)) == [3 * BATCH]


def test_offset_inside_a_batch_gives_the_whole_batch() -> None:
    world = LedPartitions(topic_image("t"))
    world.produce("t", 0, b"a", b"b", b"c")
    row = one(now(world, want(world, offset=1)))
    assert bytes_of(row) == world.batches()[0]


def test_the_first_batch_comes_whole_whatever_the_limits() -> None:
    world = filled(batches=2)
    assert sizes(now(world, want(world, max_bytes=0))) == [BATCH]
    assert sizes(now(world, want(world, max_bytes=BATCH - 1))) == [BATCH]
    assert sizes(now(world, want(world), max_bytes=0)) == [BATCH]
    world.engine.max_bytes = 1
    assert sizes(now(world, want(world))) == [BATCH]


def test_limits_hold_after_the_first_batch() -> None:
    world = filled(partitions=3, batches=2)
    wanted = [want(world, partition) for partition in range(3)]
    assert sizes(now(world, *wanted)) == [2 * BATCH] * 3
    # Within a partition the end may be cut off. Once the budget is used, the other partitions get nothing.
    assert sizes(now(world, *wanted, max_bytes=2 * BATCH + BATCH // 2)) == [2 * BATCH, 0, 0]
    assert sizes(now(world, *wanted, max_bytes=3 * BATCH)) == [2 * BATCH, BATCH, 0]
    small = [want(world, partition, max_bytes=BATCH - 1) for partition in range(3)]
    assert sizes(now(world, *small)) == [BATCH, 0, 0]


def test_the_exception_goes_to_the_first_partition_that_has_data() -> None:
    world = filled(partitions=2)
    assert sizes(now(world, want(world, 0, offset=1), want(world, 1), max_bytes=1)) == [0, BATCH]


def test_out_of_range_only_outside_start_and_end() -> None:
    world = filled(batches=3)
    world.log().increment_log_start_offset(1)
    for offset, error in [(0, 1), (1, 0), (2, 0), (3, 0), (4, 1), (-1, 1)]:
        row = one(now(world, want(world, offset=offset), max_wait_ms=0))
        assert row.error_code == error, offset
        if error:
            assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)


def two_replicas() -> LedPartitions:
    return LedPartitions(
        topic_image("t", {0: partition_image(replicas=(1, FOLLOWER), epoch=2)}),
        brokers=[broker_image(1), broker_image(FOLLOWER)],
    )


def test_between_high_watermark_and_end_is_empty_and_at_once() -> None:
    world = two_replicas()
    world.produce()
    world.produce()
    row = one(now(world, want(world, offset=1)))
    assert (row.error_code, row.records, row.high_watermark) == (0, b"", 0)
    parked(world, want(world, offset=0))


def test_a_follower_reads_to_the_log_end_and_moves_the_high_watermark() -> None:
    world = two_replicas()
    world.produce()
    consumer = parked(world, want(world))
    assert sizes(now(world, want(world), replica_id=FOLLOWER)) == [BATCH]
    assert not consumer.done
    fetch(world, want(world, offset=1), replica_id=FOLLOWER)
    assert world.log().high_watermark == 1
    assert sizes(consumer.result()) == [BATCH]


def test_what_is_appended_while_a_followers_fetch_is_read_is_in_its_answer() -> None:
    """The fetch that advances one partition's high watermark is checked again before it waits. A coordinator that
    waited for that has meanwhile appended to another partition, of which the follower had everything when the fetch
    came."""
    partitions = {index: partition_image(replicas=(1, FOLLOWER), epoch=2) for index in range(2)}
    world = LedPartitions(topic_image("t", partitions), brokers=[broker_image(1), broker_image(FOLLOWER)])
    both = [want(world, 0), want(world, 1)]
    full = session_fetch(world, 0, 0, both, replica_id=FOLLOWER, max_wait_ms=0)
    assert isinstance(full, FetchResponse)
    session = full.session_id
    session_fetch(world, session, 1, replica_id=FOLLOWER, max_wait_ms=0)
    waiting = session_fetch(world, session, 2, replica_id=FOLLOWER)
    assert isinstance(waiting, Deferred)
    world.produce("t", 1)
    assert [row.partition_index for row in rows(waiting.result())] == [1]
    replicated = world.manager.when_replicated({TopicPartition("t", 1): 1}, 1000)
    assert replicated is not None
    replicated.on_done(lambda _: world.produce("t", 0))
    answer = session_fetch(world, session, 3, [want(world, 1, offset=1)], replica_id=FOLLOWER)
    assert world.log("t", 0).log_end_offset == 1
    assert isinstance(answer, FetchResponse)
    assert [(row.partition_index, len(row.records)) for row in rows(answer)] == [(1, 0), (0, BATCH)]


def test_a_replica_that_is_not_assigned_is_refused() -> None:
    world = two_replicas()
    assert one(now(world, want(world), replica_id=9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    fenced = one(now(world, want(world, current_leader_epoch=2), replica_id=9))
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_epochs_fence() -> None:
    world = two_replicas()
    assert one(now(world, want(world, current_leader_epoch=1))).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert one(now(world, want(world, current_leader_epoch=3))).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_current_leader_only_with_stale_leaders_and_from_version_16() -> None:
    world = LedPartitions(
        topic_image("t", {0: partition_image(replicas=(1, FOLLOWER), leader=FOLLOWER, epoch=4)}),
        brokers=[broker_image(1), broker_image(FOLLOWER)],
    )
    response = now(world, want(world, current_leader_epoch=3))
    row = one(response)
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader is not None
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (FOLLOWER, 4)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
        (FOLLOWER, f"host-{FOLLOWER}", 9000 + FOLLOWER)
    ]
    old = now(world, want(world, current_leader_epoch=3), version=15)
    assert one(old).current_leader is None
    assert old.node_endpoints == []
    assert one(now(world, want(world), version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one(now(world, want(world), version=11, max_wait_ms=0)).error_code == ErrorCode.NONE


def test_divergence_is_told_with_watermarks_and_without_records() -> None:
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=1)}))
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=3)}))
    world.produce()
    row = one(now(world, want(world, offset=2, last_fetched_epoch=1)))
    assert row.diverging_epoch is not None
    assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (1, 1)
    assert row.records == b""
    assert row.high_watermark == 2
    between = one(now(world, want(world, offset=1, last_fetched_epoch=2)))
    assert between.diverging_epoch is not None
    unknown = one(now(world, want(world, offset=1, last_fetched_epoch=9)))
    assert unknown.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert sizes(now(world, want(world, offset=1, last_fetched_epoch=1))) == [BATCH]
    # Without a read Kafka answers null in place of the list, for any isolation level.
    committed = one(now(world, want(world, offset=2, last_fetched_epoch=1), read_committed=True))
    assert committed.diverging_epoch is not None
    assert committed.aborted_transactions is None


def test_an_offset_below_the_log_start_is_out_of_range_whatever_the_epoch_was() -> None:
    """A follower that is told of a divergence truncates and asks again, but has nothing that the leader has."""
    world = LedPartitions(topic_image("t", {0: partition_image(epoch=1)}))
    world.produce()
    world.publish(with_partitions(world.image, "t", {0: partition_image(epoch=3)}))
    world.produce()
    world.produce()
    assert world.log().increment_log_start_offset(2)
    below = one(now(world, want(world, offset=1, last_fetched_epoch=2)))
    assert (below.error_code, below.diverging_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    within = one(now(world, want(world, offset=2, last_fetched_epoch=2)))
    assert within.diverging_epoch is not None


@pytest.mark.parametrize("committed", [False, True])
def test_a_refused_partition_has_no_aborted_transactions_and_an_unknown_one_has_an_empty_list(
    committed: bool,
) -> None:
    world = filled()
    refused = one(now(world, want(world, offset=9), read_committed=committed))
    assert (refused.error_code, refused.aborted_transactions) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    fenced = one(now(world, want(world, current_leader_epoch=9), read_committed=committed))
    assert (fenced.error_code, fenced.aborted_transactions) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)
    for asked, code in (
        (want(world, topic="no"), ErrorCode.UNKNOWN_TOPIC_ID),
        (want(world, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        unknown = one(now(world, asked, read_committed=committed, max_wait_ms=0))
        assert (unknown.error_code, unknown.aborted_transactions) == (code, [])


def test_zstd_topics_are_served_to_old_versions_as_kafka_4_3_does() -> None:
    """Older brokers refused zstd below version 10. Version 4.3 sends the batches (observed on a running broker)."""
    world = filled()
    world.log().config = LogConfig(compression_type="zstd")
    row = one(now(world, want(world), version=9, uses_topic_ids=False))
    assert (row.error_code, len(row.records)) == (0, BATCH)


def test_unknown_ids_and_names_do_not_end_the_wait_of_others_but_alone_they_do() -> None:
    world = LedPartitions(topic_image("t"))
    assert one(now(world, want(world, topic="gone"))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    by_name = one(now(world, want(world, topic="gone", name="gone"), uses_topic_ids=False))
    assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one(now(world, want(world, partition=4))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    waiting = parked(world, want(world), want(world, topic="gone"))
    world.time.advance(500)
    assert [row.error_code for row in rows(waiting.result())] == [0, ErrorCode.UNKNOWN_TOPIC_ID]


def test_any_error_is_answered_at_once() -> None:
    world = filled(partitions=2)
    response = now(world, want(world, 0, offset=1), want(world, 1, offset=99))
    assert [row.error_code for row in rows(response)] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]


def test_long_poll_answers_at_max_wait_with_nothing() -> None:
    world = filled()
    waiting = parked(world, want(world, offset=1), max_wait_ms=300)
    world.time.advance(299)
    assert not waiting.done
    world.time.advance(1)
    assert sizes(waiting.result()) == [0]
    assert len(world.engine.purgatory) == 0


def test_no_wait_no_partitions_no_min_bytes_are_answered_at_once() -> None:
    world = filled()
    assert sizes(now(world, want(world, offset=1), max_wait_ms=0)) == [0]
    assert sizes(now(world, want(world, offset=1), min_bytes=0)) == [0]
    assert rows(now(world)) == []


def test_an_append_wakes_those_who_wait_for_its_partition_only() -> None:
    world = filled(partitions=2)
    first = parked(world, want(world, 0, offset=1))
    second = parked(world, want(world, 1, offset=1))
    both = parked(world, want(world, 0, offset=1), want(world, 1, offset=1))
    world.produce("t", 0)
    assert sizes(first.result()) == [BATCH]
    assert sizes(both.result()) == [BATCH, 0]
    assert not second.done
    assert len(world.engine.purgatory) == 1


def test_min_bytes_are_summed_over_partitions() -> None:
    world = filled(partitions=2)
    waiting = parked(world, want(world, 0, offset=1), want(world, 1, offset=1), min_bytes=2 * BATCH)
    world.produce("t", 0)
    assert not waiting.done
    world.produce("t", 1)
    assert sizes(waiting.result()) == [BATCH, BATCH]


@pytest.mark.parametrize(
    "problem",
    [
        IndexesRebuilt(ErrorCode.KAFKA_STORAGE_ERROR),
        OSError(24, "too many open files"),
        BatchCorrupt("a batch with the length -7"),
    ],
)
def test_a_size_that_cannot_be_told_ends_the_wait(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer that woke the fetch gets no error because of it."""
    world = filled()
    waiting = parked(world, want(world, offset=1), min_bytes=10 * BATCH)
    monkeypatch.setattr(UnifiedLog, "readable_bytes", failing(world.log(), "readable_bytes", problem))
    world.produce()
    assert sizes(waiting.result()) == [BATCH]


def test_min_bytes_count_each_partition_up_to_its_limit_only() -> None:
    world = filled()
    waiting = parked(world, want(world, offset=1, max_bytes=10), min_bytes=BATCH)
    world.produce()
    world.produce()
    assert not waiting.done
    world.time.advance(500)
    assert sizes(waiting.result()) == [BATCH]


def test_min_bytes_above_the_servers_limit_do_not_wait_for_ever() -> None:
    world = filled()
    world.engine.max_bytes = BATCH
    assert sizes(now(world, want(world), min_bytes=10**9)) == [BATCH]


def test_held_wakeups_show_all_partitions_of_one_produce_at_once() -> None:
    world = filled(partitions=2)
    waiting = parked(world, want(world, 0, offset=1), want(world, 1, offset=1))
    world.manager.hold_wakeups()
    world.produce("t", 0)
    world.produce("t", 1)
    assert not waiting.done
    world.manager.release_wakeups()
    assert sizes(waiting.result()) == [BATCH, BATCH]


def test_a_roll_to_a_new_segment_ends_the_wait() -> None:
    world = filled()
    world.log().config = LogConfig(internal_segment_bytes=2 * BATCH)
    waiting = parked(world, want(world, offset=1), min_bytes=10 * BATCH)
    world.produce()
    assert not waiting.done
    world.produce()
    assert sizes(waiting.result()) == [BATCH]


def test_lost_leadership_and_deletion_end_the_wait() -> None:
    world = LedPartitions(
        topic_image("t", {0: partition_image(replicas=(1, FOLLOWER), isr=(1,))}), topic_image("u")
    )
    moved = parked(world, want(world, current_leader_epoch=0))
    stays = parked(world, want(world))
    deleted = parked(world, want(world, topic="u"))
    world.publish(
        with_partitions(
            world.image, "t", {0: partition_image(replicas=(1, FOLLOWER), leader=FOLLOWER, epoch=1)}
        )
    )
    assert one(moved.result()).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert not stays.done  # it reads from the follower that this node is now (KIP-392)
    topics = {"t": world.image.topics["t"]}
    world.publish(
        type(world.image)(
            offset=300, topics=topics, topics_by_id={topic.id: topic for topic in topics.values()}
        )
    )
    assert one(deleted.result()).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("values", [(b"a",), (b"a", b"b"), (b"a", b"b", b"c")])
def test_a_fetch_by_id_that_waits_gets_no_records_of_a_topic_made_anew(values: tuple[bytes, ...]) -> None:
    """A request for several partitions meets the new role of this one, appends, and wakes those who wait once."""
    many = topic_image("many", TAKEN_AT_ONCE_MAX)
    world = LedPartitions(many, topic_image("t"))
    for _ in range(2):
        world.produce()
    world.settle()
    waiting = parked(world, want(world, offset=2), max_wait_ms=60_000)
    world.publish(image_of(topic_image("t", generation=1)))
    assert not waiting.done
    world.manager.hold_wakeups()
    assert world.produce("t", 0, *values).error is ErrorCode.NONE
    world.manager.release_wakeups()
    assert one(waiting.result()).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_many_waiters_share_one_timer_and_all_that_are_due_are_served() -> None:
    world = filled()
    waiting = [parked(world, want(world, offset=1), max_wait_ms=100 + wait) for wait in (50, 0, 0, 10)]
    assert len(world.time.pending()) == 1
    world.time.advance(100)
    assert [one_wait.done for one_wait in waiting] == [False, True, True, False]
    world.time.advance(50)
    assert all(one_wait.done for one_wait in waiting)
    assert world.time.pending() == []


def session_fetch(
    world: LedPartitions,
    session_id: int,
    epoch: int,
    partitions: Sequence[FetchRequestPartition] = (),
    **changes: Any,
) -> FetchResponse | Deferred[FetchResponse]:
    return world.engine.fetch(
        parameters(session_id=session_id, session_epoch=epoch, **changes), partitions, ()
    )


def test_an_incremental_fetch_parks_and_answers_with_its_id_and_no_topics() -> None:
    world = filled()
    full = session_fetch(world, 0, 0, [want(world, offset=1)], max_wait_ms=0)
    assert isinstance(full, FetchResponse)
    waiting = session_fetch(world, full.session_id, 1)
    assert isinstance(waiting, Deferred)
    world.time.advance(500)
    empty = waiting.result()
    assert (empty.session_id, empty.responses) == (full.session_id, [])
    again = session_fetch(world, full.session_id, 2)
    assert isinstance(again, Deferred)
    world.produce()
    assert sizes(again.result()) == [BATCH]


def test_session_errors_are_top_level_with_id_zero() -> None:
    world = filled()
    response = session_fetch(world, 5, 3)
    assert isinstance(response, FetchResponse)
    assert (response.error_code, response.session_id, response.responses) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        0,
        [],
    )


def test_an_unknown_id_in_a_session_yields_the_error_until_it_is_known() -> None:
    world = LedPartitions()
    late = topic_image("late")
    asked = FetchRequestPartition(late.id, None, 0, 0, 100)
    full = session_fetch(world, 0, 0, [asked])
    assert isinstance(full, FetchResponse)
    assert one(full).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    second = session_fetch(world, full.session_id, 1)
    assert isinstance(second, FetchResponse)
    assert one(second).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    world.publish(
        type(world.image)(
            offset=1, topics={"late": late}, topics_by_id={late.id: late}, brokers=world.image.brokers
        )
    )
    world.settle()
    world.produce("late")
    third = session_fetch(world, full.session_id, 2)
    assert isinstance(third, FetchResponse)
    assert sizes(third) == [BATCH]
    assert third.responses[0].topic_id == late.id


def test_a_topic_that_is_known_later_is_read_in_a_session_by_whoever_may_read_it() -> None:
    world = LedPartitions()
    late = topic_image("late")
    asked = FetchRequestPartition(late.id, None, 0, 0, 100)
    may_read = {"late": False}

    def fetched(session_id: int, epoch: int, partitions: Sequence[FetchRequestPartition] = ()) -> Any:
        return session_fetch(
            world,
            session_id,
            epoch,
            partitions,
            may_read=lambda name: name is None or may_read[name],
        )

    full = fetched(0, 0, [asked])
    assert one(full).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    world.publish(
        type(world.image)(
            offset=1, topics={"late": late}, topics_by_id={late.id: late}, brokers=world.image.brokers
        )
    )
    world.settle()
    world.produce("late")
    refused = one(fetched(full.session_id, 1))
    assert (refused.error_code, len(refused.records)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    may_read["late"] = True
    assert sizes(fetched(full.session_id, 2)) == [BATCH]


def test_records_of_a_deleted_topic_go_to_nobody_who_might_not_read_it() -> None:
    """Its id was not known when the session was told of it, and its log is still there when a waiting fetch is answered."""
    last = TAKEN_AT_ONCE_MAX
    own, late = topic_image("own"), topic_image("late", last + 1)
    world = LedPartitions(own)
    topics = {"own": own, "late": late}

    def publish(offset: int, *names: str) -> None:
        by_name = {name: topics[name] for name in names}
        by_id = {each.id: each for each in by_name.values()}
        world.publish(
            type(world.image)(offset=offset, topics=by_name, topics_by_id=by_id, brokers=world.image.brokers)
        )

    def may_read(name: str | None) -> bool:
        return name is None or name == "own"

    wanted = [FetchRequestPartition(late.id, None, last, 0, 100), want(world, topic="own")]
    full = session_fetch(world, 0, 0, wanted, may_read=may_read, max_wait_ms=0)
    assert isinstance(full, FetchResponse)
    publish(1, "own", "late")
    world.settle()
    world.produce("late", last)
    waiting = session_fetch(world, full.session_id, 1, may_read=may_read)
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    publish(2, "own")
    assert world.manager.by_id.get((late.id, last)) is not None
    world.produce("own")
    told = {
        (topic.topic_id, row.error_code): len(row.records)
        for topic in waiting.result().responses
        for row in topic.partitions
    }
    assert told == {(own.id, ErrorCode.NONE): BATCH, (late.id, ErrorCode.UNKNOWN_TOPIC_ID): 0}


def test_fair_order_in_a_session_serves_the_starved_first() -> None:
    world = filled(partitions=3)
    wanted = [want(world, partition) for partition in range(3)]
    full = session_fetch(world, 0, 0, wanted, max_bytes=0)
    assert isinstance(full, FetchResponse)
    order = []
    for epoch in range(1, 5):
        response = session_fetch(world, full.session_id, epoch, max_bytes=0)
        assert isinstance(response, FetchResponse)
        order += [row.partition_index for row in rows(response) if len(row.records)]
    assert sorted(order[:3]) == [0, 1, 2]


def test_partitions_of_one_topic_stand_together() -> None:
    world = LedPartitions(topic_image("t", 2), topic_image("u"))
    response = now(world, want(world, 0), want(world, 1), want(world, topic="u"), max_wait_ms=0)
    assert [(topic.topic, len(topic.partitions)) for topic in response.responses] == [("t", 2), ("u", 1)]
    assert response.responses[0].topic_id == world.image.topics["t"].id


def test_by_name_fetches_find_partitions_by_name() -> None:
    world = filled()
    row = one(now(world, want(world), uses_topic_ids=False, version=12))
    assert len(row.records) == BATCH
    assert world.manager.core(TopicPartition("t", 0)) is not None


def test_a_fetch_whose_client_went_away_waits_no_more() -> None:
    world = filled()
    waiting = session_fetch(world, 0, 0, [want(world, offset=1)])
    assert isinstance(waiting, Deferred)
    assert len(world.engine.purgatory) == 1
    waiting.abandon()
    assert len(world.engine.purgatory) == 0
    world.produce()
    world.time.advance(500)
    assert not waiting.done


def test_a_fetch_that_waited_leaves_nothing_to_the_collector() -> None:
    """Otherwise each record for a waiting consumer would leave twenty objects, and the garbage collector would block
    all requests for tens of milliseconds."""
    world = filled()

    def wait_and_be_answered(offset: int) -> None:
        waiting = parked(world, want(world, offset=offset))
        world.produce()
        assert sizes(waiting.result()) == [BATCH]

    def wait_and_go_away(offset: int) -> None:
        parked(world, want(world, offset=offset)).abandon()

    wait_and_be_answered(1)
    for wait in (wait_and_be_answered, wait_and_go_away):
        gc.collect()
        gc.disable()
        try:
            wait(2 if wait is wait_and_be_answered else 3)
            world.time.advance(1000)
            assert gc.collect() == 0, wait
        finally:
            gc.enable()
