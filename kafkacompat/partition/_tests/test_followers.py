"""How a follower handles each answer of its leader: append, truncate, delay, or fetch again."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import values_in
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log._tests.test_tiered import open_tiered
from kafkacompat.log.producer_snapshots import encode_snapshot
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.partition import list_offsets
from kafkacompat.partition._tests.cluster import T0, Cluster, values_of
from kafkacompat.partition._tests.kit import batch_of
from kafkacompat.partition.fetch_session_handler import FetchSettings
from kafkacompat.partition.following import (
    BATCHES_AT_ONCE,
    FIRST_BACKOFF_MS,
    Fetched,
    FollowerFetches,
    append_fetched,
    take_earliest,
    take_latest,
)
from kafkacompat.partition.partition import Partition
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt, stamp_offset_and_epoch
from kafkacompat.tasks import TURN_COST
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

BACKOFF_MS = 1000


def followed(partitions: int = 1) -> tuple[list[Partition], FollowerFetches]:
    """Node 2 follows node 1. Its real fetcher is disconnected, so that answers come only from the test."""
    cluster = Cluster((1, 2), partitions=partitions)
    cluster.cut = {frozenset((1, 2))}
    cluster.drain()
    cluster.tick()
    cluster.drain()
    found = [cluster.nodes[2].manager.core(TopicPartition("t", index)) for index in range(partitions)]
    cores = [core for core in found if core is not None]
    fetches = FollowerFetches(2, lambda: 12, FetchSettings(backoff_ms=BACKOFF_MS))
    for core in cores:
        fetches.add(core)
    return cores, fetches


def batch(offset: int, value: bytes = b"v", epoch: int = 0) -> bytes:
    made = batch_of(value)
    stamp_offset_and_epoch(made, offset, epoch)
    return bytes(made)


def answer(core: Partition, *, session_id: int = 7, index: int = 0, **fields: Any) -> FetchResponse:
    row = PartitionData(
        partition_index=index, **{"records": b"", "high_watermark": 0, "log_start_offset": 0, **fields}
    )
    topics = [FetchableTopicResponse(topic_id=core.topic_id, partitions=[row])]
    return FetchResponse(session_id=session_id, responses=topics)


def asked_for(fetches: FollowerFetches, now_ms: int = 0) -> list[tuple[int, int]]:
    """(partition, offset) of the partitions in the next request."""
    request = fetches.build(now_ms)
    assert request is not None
    return [(one.partition, one.fetch_offset) for topic in request.topics for one in topic.partitions]


def test_a_session_names_only_what_changed() -> None:
    cores, fetches = followed(3)
    request = fetches.build(0)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 12)  # type: ignore[union-attr]
    assert len(request.topics[0].partitions) == 3
    fetches.take(answer(cores[1], index=1, records=batch(0), high_watermark=0), 0)
    request = fetches.build(0)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert [(one.partition, one.fetch_offset) for one in request.topics[0].partitions] == [(1, 1)]
    fetches.take(FetchResponse(session_id=7), 0)
    fetches.remove(cores[0])
    request = fetches.build(0)
    assert request is not None
    assert (request.session_epoch, request.topics) == (2, [])
    assert request.forgotten_topics_data[0].partitions == [0]


@pytest.mark.parametrize(
    ("error", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_a_lost_session_begins_anew_with_everything(error: ErrorCode, session_id: int) -> None:
    cores, fetches = followed(2)
    fetches.build(0)
    fetches.take(answer(cores[0]), 0)
    fetches.build(0)
    fetches.take(FetchResponse(error_code=error), 0)
    request = fetches.build(0)
    assert request is not None
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert len(request.topics[0].partitions) == 2


def test_a_leader_that_gives_no_session_is_asked_for_everything_each_time() -> None:
    cores, fetches = followed(2)
    fetches.build(0)
    fetches.take(answer(cores[0], session_id=0), 0)
    assert asked_for(fetches) == [(0, 0), (1, 0)]


def test_without_a_session_partitions_that_were_left_out_of_a_full_response_are_named_first() -> None:
    cores, fetches = followed(3)
    for last in range(3):
        first, *others = asked_for(fetches)
        fetches.take(answer(cores[first[0]], session_id=0, index=first[0], records=batch(0)), 0)
        assert asked_for(fetches) == [*others, (last, 1)]


def test_records_watermark_and_start_are_taken_over() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    outcome = fetches.take(
        answer(core, records=batch(0, b"a") + batch(1, b"b"), high_watermark=9, log_start_offset=1), 0
    )
    log = core.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1, 2, 2)
    assert outcome.advanced == [core]
    assert asked_for(fetches) == [(0, 2)]


def test_one_that_is_added_again_is_asked_for_again_though_nothing_has_changed() -> None:
    """A log in a new directory takes no high watermark before its name is durable, and the leader sends each one only
    once."""
    (core,), fetches = followed()
    fetches.build(0)
    fetches.take(answer(core, records=batch(0)), 0)
    assert asked_for(fetches) == [(0, 1)]
    core.log.is_durable = False
    fetches.take(answer(core, high_watermark=1), 0)
    assert core.log.high_watermark == 0
    core.log.is_durable = True
    fetches.add(core)
    assert asked_for(fetches) == [(0, 1)]
    fetches.take(answer(core, high_watermark=1), 0)
    assert core.log.high_watermark == 1
    assert asked_for(fetches) == []


def test_a_cut_off_last_batch_is_asked_for_again() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    fetches.take(answer(core, records=batch(0, b"a") + batch(1, b"b")[:-1]), 0)
    assert asked_for(fetches) == [(0, 1)]


@pytest.mark.parametrize("records", [batch(0)[:-1] + b"?", batch(5)[:30] + batch(5)[:30] + batch(5)])
def test_damaged_records_are_not_stored_and_asked_for_later(records: bytes) -> None:
    (core,), fetches = followed()
    fetches.build(0)
    fetches.take(answer(core, records=records), 0)
    assert core.log.log_end_offset == 0
    assert fetches.build(BACKOFF_MS - 1) is None
    assert asked_for(fetches, BACKOFF_MS) == [(0, 0)]


def test_answers_to_an_older_question_are_passed_over() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    core.log.append_as_follower(batch(0), 0)
    fetches.take(answer(core, records=batch(0)), 0)
    assert core.log.log_end_offset == 1
    assert asked_for(fetches) == [(0, 1)]


def test_a_fenced_epoch_waits_for_the_metadata_and_for_nothing_else() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    fetches.take(answer(core, error_code=ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert fetches.build(10**9) is None
    assert fetches.next_due_ms() is None
    fetches.add(core)
    assert asked_for(fetches) == [(0, 0)]


def test_a_leader_that_has_not_heard_yet_is_asked_soon_and_then_less_and_less() -> None:
    (core,), fetches = followed()
    now_ms, waits = 0, []
    for _ in range(8):
        assert fetches.build(now_ms) is not None
        fetches.take(answer(core, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
        due_ms = fetches.next_due_ms()
        assert due_ms is not None
        waits.append(due_ms - now_ms)
        now_ms = due_ms
    assert waits == [FIRST_BACKOFF_MS << turn for turn in range(6)] + [BACKOFF_MS, BACKOFF_MS]


def test_other_errors_delay_only_their_partition() -> None:
    cores, fetches = followed(2)
    fetches.build(0)
    fetches.take(answer(cores[0], error_code=ErrorCode.KAFKA_STORAGE_ERROR), 0)
    request = fetches.build(0)
    assert request is not None
    assert request.forgotten_topics_data[0].partitions == [0]
    fetches.take(FetchResponse(session_id=7), 0)
    assert fetches.next_due_ms() == BACKOFF_MS
    assert asked_for(fetches, BACKOFF_MS) == [(0, 0)]


def test_a_lost_connection_delays_all() -> None:
    _, fetches = followed(2)
    fetches.build(0)
    fetches.lost(0)
    assert fetches.build(BACKOFF_MS - 1) is None
    assert asked_for(fetches, BACKOFF_MS) == [(0, 0), (1, 0)]


def diverging(log_epochs: list[int], epoch: int, end: int) -> tuple[int, int]:
    """(log end, latest epoch) after a log with one record in each of these epochs got a diverging epoch."""
    (core,), fetches = followed()
    core.leader_epoch = 99
    fetches.add(core)
    for offset, each in enumerate(log_epochs):
        core.log.append_as_follower(batch(offset, epoch=each), 99)
    core.log.set_high_watermark(1)
    fetches.build(0)
    told = EpochEndOffset(epoch=epoch, end_offset=end)
    fetches.take(answer(core, diverging_epoch=told, high_watermark=50), 0)
    assert core.log.high_watermark == min(1, core.log.log_end_offset)
    return core.log.log_end_offset, core.log.latest_epoch()


@pytest.mark.parametrize(
    ("log_epochs", "epoch", "end", "left"),
    [
        ([1, 1, 2, 2], 2, 3, (3, 2)),  # the epoch ended earlier at the leader
        ([1, 1, 3, 3], 2, 4, (2, 1)),  # an epoch we do not have: back to the end of our largest smaller one
        ([1, 1, 3, 3], 1, 1, (1, 1)),
        ([1, 1, 3, 3], 1, 9, (2, 1)),  # our epoch ended earlier than the leader's
        ([2, 2], 1, 5, (0, -1)),  # all our epochs are later than the leader's
    ],
)
def test_where_histories_part_is_decided_as_in_kafka(
    log_epochs: list[int], epoch: int, end: int, left: tuple[int, int]
) -> None:
    assert diverging(log_epochs, epoch, end) == left


def test_a_log_that_parts_at_its_start_ends_there_and_not_at_the_leaders_start() -> None:
    """Its leader deleted records before it lost the leadership. All of them were committed, and no offset may be
    reused."""
    (core,), fetches = followed()
    for offset in range(4):
        core.log.append_as_follower(batch(offset), 0)
    core.log.set_high_watermark(3)
    core.log.increment_log_start_offset(3)
    fetches.build(0)
    outcome = fetches.take(answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=3)), 0)
    assert outcome.out_of_range == []
    assert (core.log.log_start_offset, core.log.log_end_offset, core.log.high_watermark) == (3, 3, 3)


def test_a_log_that_parts_below_its_start_begins_where_the_leader_does() -> None:
    (core,), fetches = followed()
    for offset in range(4):
        core.log.append_as_follower(batch(offset), 0)
    core.log.set_high_watermark(3)
    core.log.increment_log_start_offset(3)
    fetches.build(0)
    outcome = fetches.take(answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=2)), 0)
    assert [each.core for each in outcome.out_of_range] == [core]
    assert core.log.log_end_offset == 4, "until the leader's start is known"


def test_a_divergence_that_changes_nothing_is_not_asked_about_at_once() -> None:
    (core,), fetches = followed()
    core.log.append_as_follower(batch(0), 0)
    fetches.build(0)
    fetches.take(answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=5)), 0)
    assert core.log.log_end_offset == 1
    assert fetches.build(0) is None


def test_damage_in_one_log_ends_the_following_of_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, fetches = followed(2)
    fetches.build(0)
    damage = BatchCorrupt("crc")

    def truncate_to(*_: Any, **__: Any) -> None:
        raise damage

    monkeypatch.setattr(type(cores[0].log), "truncate_to", truncate_to)
    response = answer(cores[0], diverging_epoch=EpochEndOffset(epoch=0, end_offset=0))
    response.responses += answer(cores[1], index=1, records=batch(0)).responses
    outcome = fetches.take(response, 0)
    assert [(each.name, problem) for each, problem in outcome.failed] == [(T0, damage)]
    assert cores[1].log.log_end_offset == 1
    assert asked_for(fetches, 10**9) == [(1, 1)]
    fetches.add(cores[0])
    assert (0, 0) in asked_for(fetches)


def test_a_follower_that_lacks_memory_for_an_answer_asks_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    cores, fetches = followed(2)
    append_fetched(cores[0], many(2), 0)
    fetches.build(0)

    def no_memory(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "truncate_to", no_memory)
        patch.setattr(UnifiedLog, "append_as_follower", no_memory)
        response = answer(cores[0], diverging_epoch=EpochEndOffset(epoch=0, end_offset=1))
        response.responses += answer(cores[1], index=1, records=batch(0)).responses
        outcome = fetches.take(response, 0)
    assert outcome.failed == []
    assert fetches.build(0) is None
    assert asked_for(fetches, BACKOFF_MS) == [(0, 2), (1, 0)]


def test_a_log_that_was_cut_before_memory_ran_out_is_fetched_when_its_checkpoints_are_true(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (core,), fetches = followed()
    append_fetched(core, many(4), 0)
    fetches.build(0)
    truncate_to = UnifiedLog.truncate_to

    def cut_and_out_of_memory(log: UnifiedLog, offset: int, **_: Any) -> None:
        truncate_to(log, offset)
        raise MemoryError

    monkeypatch.setattr(UnifiedLog, "truncate_to", cut_and_out_of_memory)
    outcome = fetches.take(answer(core, diverging_epoch=EpochEndOffset(epoch=0, end_offset=1)), 0)
    (waiting,) = outcome.truncated
    assert fetches.build(BACKOFF_MS) is None
    fetches.resolved(waiting)
    assert asked_for(fetches, BACKOFF_MS) == [(0, 1)]


def test_out_of_range_is_settled_by_the_leaders_offsets() -> None:
    (core,), fetches = followed()
    for offset in range(3):
        core.log.append_as_follower(batch(offset), 0)
    fetches.build(0)
    outcome = fetches.take(answer(core, error_code=ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    (waiting,) = outcome.out_of_range
    assert fetches.build(10 * BACKOFF_MS) is None, "until the leader's offsets are known"
    assert not take_latest(core, 8)
    take_earliest(core, 2)
    assert core.log.log_end_offset == 3, "it reaches into the leader's log and goes on from its own end"
    assert take_latest(core, 2)
    assert core.log.log_end_offset == 2
    take_earliest(core, 6)
    assert (core.log.log_start_offset, core.log.log_end_offset) == (6, 6)
    fetches.resolved(waiting)
    assert asked_for(fetches) == [(0, 6)]


def test_the_first_batch_of_an_empty_log_may_begin_before_it() -> None:
    """The leader's log begins inside a batch, and it sends whole batches."""
    (core,), fetches = followed()
    core.log.truncate_fully_and_start_at(1)
    fetches.build(0)
    three = batch_of(b"a", b"b", b"c")
    stamp_offset_and_epoch(three, 0, 0)
    fetches.take(answer(core, records=bytes(three), high_watermark=3, log_start_offset=1), 0)
    assert (core.log.log_start_offset, core.log.log_end_offset) == (1, 3)
    assert values_of(core.log, 3)[2] == b"c"
    assert core.topic_partition == T0


def many(count: int, start: int = 0, epoch: int = 0) -> bytes:
    return b"".join(batch(start + at, epoch=epoch) for at in range(count))


class Turns:
    """Takes an answer turn by turn, and counts the batches of each turn."""

    def __init__(self, fetches: FollowerFetches, cores: list[Partition], response: FetchResponse) -> None:
        self.outcome = Fetched.nothing()
        self.appended: list[int] = []
        self._cores = cores
        self._work = fetches.take_in_turns(response, 0, self.outcome)

    def _end(self) -> int:
        return sum(core.log.log_end_offset for core in self._cores)

    def one(self) -> bool:
        """What one turn of the loop does. Returns whether more is left."""
        before, left = self._end(), TURN_COST
        for cost in self._work:
            left -= cost
            if left <= 0:
                break
        self.appended.append(self._end() - before)
        return left <= 0

    def all(self) -> list[int]:
        while self.one():
            pass
        return self.appended


def test_very_many_small_batches_are_appended_with_the_loop_in_between() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    count = 2 * BATCHES_AT_ONCE + 10
    turns = Turns(fetches, [core], answer(core, records=many(count), high_watermark=count))
    assert turns.one()
    assert (core.log.log_end_offset, core.log.high_watermark) == (BATCHES_AT_ONCE, 0)
    assert turns.all() == [BATCHES_AT_ONCE, BATCHES_AT_ONCE, 10]
    assert core.log.high_watermark == count
    assert turns.outcome.advanced == [core]
    assert asked_for(fetches) == [(0, count)]


def test_so_are_those_of_many_partitions() -> None:
    cores, fetches = followed(12)
    fetches.build(0)
    each = BATCHES_AT_ONCE // 4
    rows = [
        PartitionData(partition_index=index, records=many(each), high_watermark=0, log_start_offset=0)
        for index in range(12)
    ]
    topics = [FetchableTopicResponse(topic_id=cores[0].topic_id, partitions=rows)]
    appended = Turns(fetches, cores, FetchResponse(session_id=7, responses=topics)).all()
    assert sum(appended) == 12 * each
    assert max(appended) <= BATCHES_AT_ONCE + each


def test_truncations_of_many_partitions_take_many_steps() -> None:
    """Each may read again what producers have written."""
    cores, fetches = followed(12)
    for core in cores:
        append_fetched(core, many(4), 0)
    fetches.build(0)
    diverging = EpochEndOffset(epoch=0, end_offset=1)
    rows = [
        PartitionData(
            partition_index=index,
            diverging_epoch=diverging,
            high_watermark=0,
            log_start_offset=0,
            records=b"",
        )
        for index in range(12)
    ]
    topics = [FetchableTopicResponse(topic_id=cores[0].topic_id, partitions=rows)]
    changed = Turns(fetches, cores, FetchResponse(session_id=7, responses=topics)).all()
    assert sum(changed) == 12 * -3
    assert min(changed) >= 2 * -3


@pytest.mark.parametrize("again", [False, True])
def test_nothing_more_is_appended_to_a_partition_that_is_taken_out_meanwhile(again: bool) -> None:
    (core,), fetches = followed()
    fetches.build(0)
    count = 2 * BATCHES_AT_ONCE
    turns = Turns(fetches, [core], answer(core, records=many(count), high_watermark=count))
    turns.one()
    fetches.remove(core)
    if again:
        fetches.add(core)
    turns.all()
    assert core.log.log_end_offset == BATCHES_AT_ONCE
    assert turns.outcome.advanced == []
    if again:
        assert asked_for(fetches) == [(0, BATCHES_AT_ONCE)]


def test_what_was_begun_with_a_partition_does_not_bring_it_back() -> None:
    """The partition is removed, or gets a new epoch, while its batches are appended. The next request must respect
    that."""
    cores, fetches = followed(3)
    fetches.build(0)
    count = 2 * BATCHES_AT_ONCE
    for core in cores[:2]:
        turns = Turns(
            fetches, [core], answer(core, records=many(count), index=core.topic_partition.partition)
        )
        turns.one()
        fetches.remove(core)
        if core is cores[1]:
            core.leader_epoch += 1
            fetches.add(core)
        turns.all()
    request = fetches.build(0)
    assert request is not None
    named = [(one.partition, one.current_leader_epoch) for one in request.topics[0].partitions]
    assert named == [(1, cores[1].leader_epoch)]
    assert request.forgotten_topics_data[0].partitions == [0]


def test_nothing_more_is_appended_to_a_log_that_was_cut_meanwhile() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    count = 2 * BATCHES_AT_ONCE
    turns = Turns(fetches, [core], answer(core, records=many(count), high_watermark=count))
    turns.one()
    core.log.truncate_to(5)
    turns.all()
    assert core.log.log_end_offset == 5
    assert asked_for(fetches) == [(0, 5)]


def test_what_follows_a_batch_of_a_later_epoch_is_left_out_step_or_not() -> None:
    (core,), fetches = followed()
    fetches.build(0)
    end = BATCHES_AT_ONCE - 1
    records = many(end) + batch(end, epoch=9) + many(20, end + 1)
    Turns(fetches, [core], answer(core, records=records, high_watermark=end)).all()
    assert core.log.log_end_offset == end


# A leader whose first segments are in the remote storage only


def tier_of(cluster: Cluster, *states: Any) -> Any:
    """Make both logs tiered. Node 2 has the state of remote segments that the test gives."""
    asked: list[tuple[int, int, int]] = []

    async def follower_state(core: Partition, epoch: int, offset: int, epoch_end_offset: int) -> Any:
        asked.append((epoch, offset, epoch_end_offset))
        state = left.pop(0) if left else None
        if isinstance(state, Exception):
            raise state
        return state

    left = list(states)
    for node in cluster.nodes.values():
        log: Any = node.log()
        log._has_remote_storage = True
        log.config = replace(log.config, remote_storage_enable=True, local_retention_bytes=1)
        if node.id == 2:
            tiering: Any = SimpleNamespace(
                role_taken=lambda core: None, gone=lambda core, **_: None, follower_state=follower_state
            )
            node.manager.hosted.tiering = tiering
    return asked


def leader_without_its_first_segment() -> Cluster:
    """Of node 1 the log begins at 0, and its files at 2. Node 2 has nothing."""
    cluster = Cluster((1, 2))
    cluster.settle()
    cluster.cut = {frozenset((1, 2))}
    cluster.min_isr = 1
    for value in (b"0", b"1", b"2", b"3"):
        leader: Any = cluster.nodes[1].log()
        if leader.log_end_offset == 2:
            leader.roll(2, 0)
        cluster.nodes[1].append(value, acks=1)
    return cluster


def test_a_follower_begins_after_the_leaders_remote_segments() -> None:
    cluster = leader_without_its_first_segment()
    snapshot = encode_snapshot([])
    state = SimpleNamespace(offset=2, epochs=[(0, 0)], producer_snapshot=snapshot)
    asked = tier_of(cluster, None, state)
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    cluster.cut = set()
    cluster.settle(20_000)
    follower: Any = cluster.nodes[2].log()
    assert asked == [(0, 1, 4), (0, 1, 4)]  # what could not be read is asked for again
    assert (follower.log_start_offset, follower.local_log_start_offset, follower.log_end_offset) == (0, 2, 4)
    assert follower.epoch_entries == [(0, 0)]
    assert values_in(follower.read(2, 1 << 20, 4, True)) == [(2, b"2"), (3, b"3")]


@pytest.mark.parametrize("knows", [True, False], ids=["leader-of-today", "earlier-leader"])
def test_an_empty_follower_may_begin_after_all_that_is_in_the_remote_storage(
    knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader still has files of a part of that. One of an earlier release does not know where it ends."""
    cluster = leader_without_its_first_segment()
    cluster.settings["follower.fetch.last.tiered.offset.enable"] = 1
    if not knows:
        monkeypatch.delitem(list_offsets.FIRST_VERSIONS, list_offsets.EARLIEST_PENDING_UPLOAD)
        monkeypatch.setattr(list_offsets, "EARLIEST_PENDING_UPLOAD", None)
    begin = 4 if knows else 2
    state = SimpleNamespace(offset=begin, epochs=[(0, 0)], producer_snapshot=encode_snapshot([]))
    asked = tier_of(cluster, state)
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    leader.roll(4, 0)
    cluster.nodes[1].append(b"4", acks=1)
    leader.note_copied_to(3)
    cluster.settle(20_000)  # what was under way is lost
    cluster.cut = set()
    cluster.settle(20_000)
    follower: Any = cluster.nodes[2].log()
    assert asked == [(0, begin - 1, 5)]
    assert leader.local_log_start_offset == 2
    assert (follower.log_start_offset, follower.local_log_start_offset, follower.log_end_offset) == (
        0,
        begin,
        5,
    )


def test_an_empty_follower_waits_until_its_leader_knows_what_is_in_the_remote_storage() -> None:
    cluster = leader_without_its_first_segment()
    cluster.settings["follower.fetch.last.tiered.offset.enable"] = 1
    asked = tier_of(
        cluster, SimpleNamespace(offset=4, epochs=[(0, 0)], producer_snapshot=encode_snapshot([]))
    )
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    leader.highest_offset_in_remote_storage = -1  # as after a start
    cluster.settle(20_000)  # what was under way is lost
    cluster.cut = set()
    cluster.settle(20_000)
    follower: Any = cluster.nodes[2].log()
    assert (asked, follower.log_end_offset) == ([], 0)
    leader.note_copied_to(3)
    cluster.settle(20_000)
    assert asked == [(0, 3, 4)]
    assert (follower.local_log_start_offset, follower.log_end_offset) == (4, 4)


def test_a_damaged_producer_snapshot_leaves_the_follower_as_it_is() -> None:
    cluster = leader_without_its_first_segment()
    tier_of(cluster, SimpleNamespace(offset=2, epochs=[(0, 0)], producer_snapshot=b"damaged"))
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    cluster.cut = set()
    cluster.settle(20_000)
    assert cluster.nodes[2].log().log_end_offset < 2


def test_a_remote_state_that_cannot_be_read_for_an_unknown_reason_is_asked_for_again(faults: Any) -> None:
    cluster = leader_without_its_first_segment()
    state = SimpleNamespace(offset=2, epochs=[(0, 0)], producer_snapshot=encode_snapshot([]))
    asked = tier_of(cluster, ZeroDivisionError("a bug"), state)
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    cluster.cut = set()
    cluster.settle(20_000)
    assert [type(error) for error in faults.take()] == [ZeroDivisionError]
    assert len(asked) == 2
    assert cluster.nodes[2].log().log_end_offset == 4


@pytest.mark.parametrize(
    "problem",
    [
        LogRefused(ErrorCode.KAFKA_STORAGE_ERROR, "its indexes are being rebuilt"),
        BatchCorrupt("a batch of a producer is damaged"),
        OSError(errno.EMFILE, "no descriptor is left"),
        MemoryError(),
    ],
    ids=["rebuilt", "damaged", "descriptors", "memory"],
)
def test_a_log_that_cannot_be_dropped_now_is_dropped_later(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetcher has nothing else to do, so nobody but the one who has failed would wake it up."""
    cluster = leader_without_its_first_segment()
    state = SimpleNamespace(offset=2, epochs=[(0, 0)], producer_snapshot=encode_snapshot([]))
    asked = tier_of(cluster, state, state)
    node = cluster.nodes[2]
    tiering: Any = node.manager.hosted.tiering
    read_at_once = tiering.follower_state

    async def follower_state(*question: Any) -> Any:
        await node.tasks.sleep(100)
        return await read_at_once(*question)

    tiering.follower_state = follower_state
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    problems = [problem]
    begin = UnifiedLog.start_after_remote_segment

    def refused_once(log: UnifiedLog, *facts: Any) -> bool:
        if problems:
            raise problems.pop()
        return begin(log, *facts)

    monkeypatch.setattr(UnifiedLog, "start_after_remote_segment", refused_once)
    cluster.cut = set()
    cluster.settle(20_000)
    assert len(asked) == 2
    assert node.log().log_end_offset == 4


def test_a_replica_that_leads_meanwhile_is_not_truncated_any_further() -> None:
    """A long log is dropped in several steps, and roles may change in between."""
    cluster = leader_without_its_first_segment()
    state = SimpleNamespace(offset=2, epochs=[(0, 0)], producer_snapshot=encode_snapshot([]))
    tier_of(cluster, state)
    leader: Any = cluster.nodes[1].log()
    leader.high_watermark = 4
    leader.note_copied_to(1)
    assert leader.enforce_retention(0) == 1
    calls: list[int] = []
    node = cluster.nodes[2]

    class LongLog:
        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(log, name, value)

        def start_after_remote_segment(self, *facts: Any) -> bool:
            calls.append(facts[0])
            if len(calls) == 1:
                node.replication.gone(core)
            return False

    log: Any = node.log()
    core: Any = node.manager.hosted.core(log.topic_partition)
    core.log = LongLog()
    cluster.cut = set()
    cluster.settle(2_000)
    assert calls == [2]


def test_a_tiered_replica_may_begin_within_a_batch_of_its_leader() -> None:
    """DeleteRecords has moved the leader's log start into a batch, of which nothing is in the remote storage."""
    log = open_tiered(MemoryDisk())
    core: Any = SimpleNamespace(log=log)
    take_earliest(core, 5)
    assert (log.local_log_start_offset, log.log_end_offset) == (5, 5)
    made = batch_of(b"3", b"4", b"5", b"6")
    stamp_offset_and_epoch(made, 3, 0)
    append_fetched(core, bytes(made), 0)
    assert (log.segments[0].base_offset, log.log_end_offset) == (3, 7)
