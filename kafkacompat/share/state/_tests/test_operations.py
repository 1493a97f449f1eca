"""The five operations on one share-partition: their records, their errors in Kafka's order, and how snapshots and updates
alternate."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateBatch,
    StateSummary,
    WriteState,
)
from kafkacompat.share.state.batches import NO_BATCHES, Batches
from kafkacompat.share.state.records import ShareGroupOffset, ShareUpdate
from kafkacompat.share.state.share_coordinator_shard import (
    DONE,
    STATE_BATCHES_MAX,
    WRITTEN_BATCHES_MAX,
    Environment,
    Initialization,
    ShareCoordinatorShard,
    cold_snapshots,
    delete_state,
    initialize_state,
    is_written_again,
    read_state,
    read_state_summary,
    tombstones_of_topics,
    write_state,
)
from kafkacompat.wire.errors import ErrorCode as E

TOPIC, ABSENT = bytes(15) + b"\x07", bytes(15) + b"\x08"
KEY = SharePartitionKey("g", TOPIC, 0)
NEGATIVE = SharePartitionKey("g", TOPIC, -1)
BEYOND = SharePartitionKey("g", TOPIC, 2)
NOW = 1_000_000


class Shard:
    """A machine whose records are replayed at once, with the offsets of a log."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.partitions = {TOPIC: 2}
        self.env = Environment(self.partitions.get, updates_per_snapshot, cold_interval_ms=1_000)
        self.machine = ShareCoordinatorShard(self.env)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = NOW

    def do(self, operation: Any, asked: Any, key: SharePartitionKey = KEY) -> tuple[Any, Any]:
        """The value of the record, or None without one, and the answer."""
        record, answer = operation(self.machine, key, asked, self.now_ms)
        if record is None:
            return None, answer
        assert record.key == key
        self.take(record)
        return "tombstone" if record.value is None else record.value, answer

    def take(self, record: Any) -> None:
        self.log.append(self.machine.encode(record))
        self.machine.replay(record, len(self.log) - 1, -1)

    def reloaded(self) -> ShareCoordinatorShard:
        machine = ShareCoordinatorShard(self.env)
        for offset, (key, value) in enumerate(self.log):
            record = machine.decode(key, value)
            assert record is not None
            machine.replay(record, offset, -1)
        return machine


def written(
    *batches: StateBatch, leader: int = 0, state: int = 0, start: int = 0, count: int = 0
) -> WriteState:
    return WriteState(state, leader, start, count, batches)


def error(answer: Any) -> tuple[E, str | None]:
    told: ShareError = answer if isinstance(answer, ShareError) else answer.error
    return told.code, told.message


ASKED: list[tuple[Any, Any]] = [
    (initialize_state, Initialization(0, 0)),
    (read_state, 0),
    (write_state, written()),
    (delete_state, None),
    (read_state_summary, 0),
]


@pytest.mark.parametrize(("operation", "asked"), ASKED)
def test_a_negative_partition_is_refused(operation: Any, asked: Any) -> None:
    record, answer = Shard().do(operation, asked, NEGATIVE)
    assert record is None
    assert error(answer) == (E.INVALID_REQUEST, "The partition id cannot be a negative number.")


@pytest.mark.parametrize(("operation", "asked"), ASKED)
@pytest.mark.parametrize("gone", [False, True])
def test_an_unknown_partition_is_refused(operation: Any, asked: Any, gone: bool) -> None:
    shard = Shard()
    key = BEYOND
    shard.partitions[TOPIC] = 3
    shard.do(initialize_state, Initialization(0, 0), key)
    shard.partitions[TOPIC] = 2
    if gone:
        del shard.partitions[TOPIC]
    record, answer = shard.do(operation, asked, key)
    assert record is None
    assert error(answer) == (E.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def test_uninitialized_share_partitions() -> None:
    shard = Shard()
    assert error(shard.do(read_state, 0)[1]) == (
        E.INVALID_REQUEST,
        "Read operation on uninitialized share partition not allowed.",
    )
    assert error(shard.do(write_state, written())[1]) == (
        E.INVALID_REQUEST,
        "Write operation on uninitialized share partition not allowed.",
    )
    assert shard.do(delete_state, None) == (None, DONE)
    assert shard.do(read_state_summary, 5) == (None, StateSummary(DONE, 0, 0, -1, -1))


@pytest.mark.parametrize(("start", "complete"), [(-1, -1), (0, 0), (7, 0)])
def test_initialization_writes_a_snapshot(start: int, complete: int) -> None:
    shard = Shard()
    assert shard.do(initialize_state, Initialization(2, start)) == (
        ShareGroupOffset(0, 2, 0, start, complete, NO_BATCHES, NOW, NOW),
        DONE,
    )
    again, _ = shard.do(initialize_state, Initialization(3, 9))
    assert (again.snapshot_epoch, again.state_epoch, again.start_offset) == (1, 3, 9)


def test_an_older_state_epoch_is_fenced() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(5, 0))
    text = "The coordinator rejected the request because the state epoch did not match."
    for operation, asked in ((initialize_state, Initialization(4, 0)), (write_state, written(state=4))):
        record, answer = shard.do(operation, asked)
        assert record is None
        assert error(answer) == (E.FENCED_STATE_EPOCH, text)


def test_a_newer_leader_is_recorded_and_fences_older_ones() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(1, 10))
    record, answer = shard.do(read_state, 5)
    assert record == ShareUpdate(0, 5, 10, 0, NO_BATCHES)
    assert answer == ReadState(DONE, 1, 10, ())
    assert shard.do(read_state, 5) == (None, answer)
    text = "The leader epoch in the request is older than the epoch on the broker."
    for operation, asked in ((read_state, 4), (write_state, written(leader=4, state=1))):
        record, answer = shard.do(operation, asked)
        assert record is None
        assert error(answer) == (E.FENCED_LEADER_EPOCH, text)
    assert shard.do(read_state_summary, 0)[1].leader_epoch == 5


@pytest.mark.parametrize("is_known", [False, True])
def test_negative_epochs_are_refused_before_it_is_asked_what_is_known(is_known: bool) -> None:
    shard = Shard()
    if is_known:
        shard.do(initialize_state, Initialization(0, 0))
    of_leader = (E.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
    of_state = (E.INVALID_REQUEST, "The state epoch cannot be a negative number.")
    operations: list[tuple[Any, Any, tuple[E, str]]] = [
        (read_state, -1, of_leader),
        (write_state, written(leader=-1, state=-1), of_leader),
        (write_state, written(state=-1), of_state),
        (initialize_state, Initialization(-1, 0), of_state),
    ]
    for operation, asked, refusal in operations:
        record, answer = shard.do(operation, asked)
        assert (record, error(answer)) == (None, refusal)


@pytest.mark.parametrize("updates_per_snapshot", [0, 10])
def test_a_write_that_comes_late_moves_nothing_back(updates_per_snapshot: int) -> None:
    shard = Shard(updates_per_snapshot=updates_per_snapshot)
    shard.do(initialize_state, Initialization(0, 0))
    below, above = StateBatch(3, 4, 2, 1), StateBatch(8, 9, 2, 1)
    for start, count, expected in (
        (7, 2, (7, 2)),
        (3, 9, (7, 2)),
        (-1, 9, (7, 2)),
        (7, 1, (7, 2)),
        (7, 3, (7, 3)),
    ):
        record, _ = shard.do(write_state, written(below, above, start=start, count=count))
        assert (record.start_offset, record.delivery_complete_count) == expected
        assert record.batches.items == (above,)
    record, _ = shard.do(write_state, written(start=8, count=0))
    assert (record.start_offset, record.delivery_complete_count) == (8, 0)


def test_a_new_initialization_does_not_let_an_older_leader_in() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(1, 10))
    shard.do(read_state, 5)
    shard.do(initialize_state, Initialization(2, 20))
    assert shard.do(read_state_summary, 0)[1].leader_epoch == 0
    assert error(shard.do(read_state, 4)[1])[0] is E.FENCED_LEADER_EPOCH
    assert shard.do(read_state, 5)[0] is None  # known already


def test_a_write_does_not_make_a_newer_leader_known() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(0, 0))
    record, _ = shard.do(write_state, written(leader=9))
    assert record.leader_epoch == 0
    assert shard.do(read_state, 3)[1].error == DONE


def test_after_enough_updates_the_next_write_is_a_snapshot() -> None:
    shard = Shard(updates_per_snapshot=2)
    shard.do(initialize_state, Initialization(0, 0))
    first, second, third = StateBatch(0, 4, 2, 1), StateBatch(10, 19, 2, 1), StateBatch(5, 9, 2, 1)
    kinds = []
    for batch in (first, second, third, *[StateBatch(100 + each, 100 + each, 0, each) for each in range(4)]):
        shard.now_ms += 10
        record, _ = shard.do(write_state, written(batch, start=0, count=3))
        kinds.append(type(record))
        if batch == third:
            assert record == ShareGroupOffset(
                1, 0, 0, 0, 3, Batches((StateBatch(0, 19, 2, 1),)), shard.now_ms, shard.now_ms
            )
    assert kinds == [ShareUpdate, ShareUpdate, ShareGroupOffset] * 2 + [ShareUpdate]


def test_without_updates_every_write_is_a_snapshot() -> None:
    shard = Shard(updates_per_snapshot=0)
    shard.do(initialize_state, Initialization(0, 0))
    for epoch in range(1, 4):
        record, _ = shard.do(write_state, written())
        assert record.snapshot_epoch == epoch


def test_an_initialization_does_not_reset_the_count_of_updates() -> None:
    shard = Shard(updates_per_snapshot=2)
    shard.do(initialize_state, Initialization(0, 0))
    shard.do(write_state, written())
    shard.do(initialize_state, Initialization(0, 0))
    assert isinstance(shard.do(write_state, written())[0], ShareUpdate)
    assert isinstance(shard.do(write_state, written())[0], ShareGroupOffset)


def test_a_start_offset_drops_what_lies_below() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(0, 0))
    shard.do(write_state, written(StateBatch(0, 9, 2, 1), StateBatch(10, 14, 0, 1)))
    record, _ = shard.do(write_state, written(StateBatch(3, 6, 4, 2), StateBatch(20, 25, 0, 1), start=5))
    assert record.batches.items == (StateBatch(5, 6, 4, 2), StateBatch(20, 25, 0, 1))
    assert shard.do(read_state, 0)[1].batches == (
        StateBatch(5, 6, 4, 2),
        StateBatch(7, 9, 2, 1),
        StateBatch(10, 14, 0, 1),
        StateBatch(20, 25, 0, 1),
    )


def test_a_deleted_share_partition_is_uninitialized() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(5, 0))
    shard.do(read_state, 7)
    assert shard.do(delete_state, None) == ("tombstone", DONE)
    assert KEY not in shard.machine.states
    assert shard.do(initialize_state, Initialization(0, 0))[0].snapshot_epoch == 0
    assert shard.do(read_state, 0)[1].error == DONE


def test_batches_are_bounded_and_sound() -> None:
    shard = Shard()
    shard.do(initialize_state, Initialization(0, 0))
    many = [StateBatch(2 * each, 2 * each, 2, 1) for each in range(WRITTEN_BATCHES_MAX + 1)]
    assert error(shard.do(write_state, written(*many))[1])[0] is E.UNKNOWN_SERVER_ERROR
    assert error(shard.do(write_state, written(StateBatch(5, 4, 0, 0)))[1])[0] is E.INVALID_REQUEST
    assert shard.do(write_state, written(*many[:-1]))[1] == DONE
    more = [StateBatch(each.first_offset + 100_000, each.last_offset + 100_000, 2, 1) for each in many]
    assert shard.do(write_state, written(*more[: STATE_BATCHES_MAX - WRITTEN_BATCHES_MAX]))[1] == DONE
    assert error(shard.do(write_state, written(StateBatch(1, 1, 4, 2)))[1])[0] is E.UNKNOWN_SERVER_ERROR
    # What changes the records that are known, and what joins them, does not make it larger.
    assert shard.do(write_state, written(StateBatch(2, 2, 4, 2)))[1] == DONE
    assert shard.do(write_state, written(StateBatch(5, 5, 2, 1)))[1] == DONE
    # A start offset makes room again, also with the records that it comes with.
    assert shard.do(write_state, written(StateBatch(1, 1, 4, 2), start=3))[1] == DONE
    (state,) = shard.machine.states.values()
    assert len(state.offset.batches.items) < STATE_BATCHES_MAX
    assert shard.do(write_state, written(start=1_000_000))[1] == DONE
    assert shard.do(write_state, written(StateBatch(1_000_000, 1_000_000, 4, 2)))[1] == DONE


# --- what no request asks for


def test_cold_share_partitions_are_snapshotted_and_everything_else_stays() -> None:
    shard = Shard()
    other = KEY._replace(partition=1)
    shard.do(initialize_state, Initialization(0, 0))
    shard.do(read_state, 4)
    shard.do(write_state, written(StateBatch(0, 4, 2, 1), leader=4))
    shard.now_ms += 600
    shard.do(initialize_state, Initialization(0, 0), other)
    shard.now_ms += 400
    (record,) = cold_snapshots(shard.machine, [KEY, other], shard.now_ms)
    assert (record.key, record.value) == (
        KEY,
        ShareGroupOffset(1, 0, 4, 0, 0, Batches((StateBatch(0, 4, 2, 1),)), NOW, NOW + 1_000),
    )
    assert not is_written_again(shard.machine, KEY)
    shard.take(record)
    assert is_written_again(shard.machine, KEY)
    assert cold_snapshots(shard.machine, [KEY, other], shard.now_ms) == []
    assert isinstance(shard.do(write_state, written(leader=4))[0], ShareUpdate)  # the third
    assert isinstance(shard.do(write_state, written(leader=4))[0], ShareGroupOffset)
    assert not is_written_again(shard.machine, KEY)


def test_a_snapshot_from_before_the_clock_was_set_back_is_cold() -> None:
    """Otherwise the log could not be pruned until the clock is there again."""
    shard = Shard()
    shard.do(initialize_state, Initialization(0, 0))
    shard.now_ms -= 500
    (record,) = cold_snapshots(shard.machine, [KEY], shard.now_ms)
    shard.take(record)
    assert cold_snapshots(shard.machine, [KEY], shard.now_ms) == []


def test_states_of_deleted_topics_are_deleted() -> None:
    shard = Shard()
    shard.partitions[ABSENT] = 1
    other = SharePartitionKey("h", ABSENT, 0)
    shard.do(initialize_state, Initialization(0, 0))
    shard.do(initialize_state, Initialization(0, 0), other)
    keys = list(shard.machine.states)
    (record,) = tombstones_of_topics(shard.machine, keys, {ABSENT})
    assert (record.key, record.value) == (other, None)
    shard.take(record)
    assert tombstones_of_topics(shard.machine, keys, {ABSENT}) == []


def test_an_update_without_its_snapshot_is_a_state_too() -> None:
    """Kafka's pruning never leaves one, but its loader takes it."""
    shard = Shard()
    shard.do(initialize_state, Initialization(6, 0))
    shard.do(read_state, 4)
    shard.log.pop(0)
    machine = shard.reloaded()
    assert machine.states[KEY].offset == ShareGroupOffset(0, 0, 4, 0, 0, NO_BATCHES)
    assert initialize_state(machine, KEY, Initialization(1, 0), NOW)[1] == DONE  # no state epoch is known
