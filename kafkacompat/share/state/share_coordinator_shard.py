"""One shard of the share coordinator: all share-partitions of one partition of `__share_group_state`.

It has their states and replays records. Operations decide which record a request writes, and what its answer is. The runtime
replays the record before the next operation of the same share-partition. Follows Kafka's ShareCoordinatorShard, with its
errors in its order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult, HasMachine, Reply
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_OFFSET, Uuid
from kafkacompat.share.service import (
    UNKNOWN_DELIVERY_COMPLETE_COUNT,
    ReadState,
    ShareError,
    SharePartitionKey,
    StateSummary,
    WriteState,
)
from kafkacompat.share.state.batches import NO_BATCHES, are_sound, combine, combining
from kafkacompat.share.state.records import (
    FIRST_EPOCH,
    ShareGroupOffset,
    ShareRecord,
    ShareState,
    ShareUpdate,
    changed,
    decode_in_steps,
    decode_record,
    encode_record,
    first_of,
    initial_offset,
    merged,
)
from kafkacompat.wire.errors import ErrorCode, error_text

K = TypeVar("K", bound=Hashable)
NOTHING_YET = (1 << 63) - 1
T = TypeVar("T")
Decision = tuple[ShareRecord | None, T]
"""The record to write, if any, and the answer."""
WRITTEN_BATCHES_MAX = 5_000
"""Batches of one write. Kafka has no bound. An in-flight window of 2,000 records, its default, has no more than that."""
STATE_BATCHES_MAX = 10_000
"""Batches of one share-partition. Kafka is bounded by the size of a record only, and writes no state beyond it again."""
NEGATIVE_PARTITION = ShareError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
NEGATIVE_LEADER_EPOCH = ShareError(ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
NEGATIVE_STATE_EPOCH = ShareError(ErrorCode.INVALID_REQUEST, "The state epoch cannot be a negative number.")
READ_UNINITIALIZED = ShareError(
    ErrorCode.INVALID_REQUEST, "Read operation on uninitialized share partition not allowed."
)
WRITE_UNINITIALIZED = ShareError(
    ErrorCode.INVALID_REQUEST, "Write operation on uninitialized share partition not allowed."
)
UNSOUND_BATCHES = ShareError(ErrorCode.INVALID_REQUEST, "A state batch ends before it begins.")
TOO_MANY_BATCHES = ShareError(
    ErrorCode.UNKNOWN_SERVER_ERROR, "The share partition has too many state batches."
)
DONE = ShareError()


@dataclass(frozen=True, slots=True)
class Environment:
    """What the operations know of the node. `partition_count` is that of a topic, None if it does not exist."""

    partition_count: Callable[[Uuid], int | None]
    updates_per_snapshot: int
    cold_interval_ms: int


class ShareCoordinatorShard:
    __slots__ = ("env", "offsets", "states")

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.offsets: ShareCoordinatorOffsetsManager[SharePartitionKey] = ShareCoordinatorOffsetsManager()

    # --- coordinator.core.Machine

    def encode(self, record: ShareRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareRecord | None:
        return decode_record(key, value)

    def replay(self, record: ShareRecord, offset: int, producer_id: int) -> None:
        value = record.value
        if isinstance(value, ShareUpdate):
            state = self.states.get(record.key)
            self._take_update(
                record.key, value, first_of(value) if state is None else merged(state.offset, value)
            )
        else:
            self._take_snapshot(record.key, value, offset)

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        record = yield from decode_in_steps(key, value)
        if record is None:
            return False
        update = record.value
        state = self.states.get(record.key)
        if state is None or not isinstance(update, ShareUpdate):
            self.replay(record, offset, producer_id)
            return True
        start_offset = state.offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset
        batches = yield from combining(state.offset.batches, update.batches.items, start_offset)
        self._take_update(record.key, update, changed(state.offset, update, batches))
        return True

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> Generator[int, None, None]:
        """No transaction writes to this topic. As in Kafka a marker in it is ignored."""
        yield from ()

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[ShareRecord, None] | None]:
        return iter(())

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        return iter(())

    def take_apart(self) -> Iterator[int]:
        while self.states:
            self.states.popitem()
            yield 1

    # --- replay

    def _take_snapshot(self, key: SharePartitionKey, value: ShareGroupOffset | None, offset: int) -> None:
        if value is None:
            self.states.pop(key, None)
        else:
            state = self.states.get(key)
            if state is None:
                state = self.states[key] = ShareState(value)
            else:
                state.offset = value
                if state.updates >= self.env.updates_per_snapshot:
                    state.updates = 0
            state.leader_epoch = max(state.leader_epoch, value.leader_epoch)
            state.state_epoch = max(state.state_epoch, value.state_epoch)
        self.offsets.update_state(key, offset, value is None)

    def _take_update(self, key: SharePartitionKey, update: ShareUpdate, offset: ShareGroupOffset) -> None:
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = ShareState(offset)
        state.offset = offset
        state.updates += 1
        state.leader_epoch = max(state.leader_epoch, update.leader_epoch)


def machine_of(shard: HasMachine) -> ShareCoordinatorShard:
    """The share-partitions of a shard of the share coordinator."""
    machine = shard.machine
    assert isinstance(machine, ShareCoordinatorShard)
    return machine


class ShareCoordinatorOffsetsManager(Generic[K]):
    __slots__ = ("_last_redundant", "_offsets")

    def __init__(self) -> None:
        self._offsets: OrderedDict[K, int] = OrderedDict()
        """The offset of each share-partition's latest snapshot."""
        self._last_redundant = NOTHING_YET

    def __len__(self) -> int:
        return len(self._offsets)

    def update_state(self, key: K, offset: int, is_delete: bool) -> None:
        """A snapshot or a tombstone of a share-partition is in the log."""
        self._offsets[key] = offset
        self._offsets.move_to_end(key)
        self._last_redundant = next(iter(self._offsets.values()))
        if is_delete:
            del self._offsets[key]

    def last_redundant_offset(self) -> int | None:
        """No record below this offset is needed. None while nothing can be removed."""
        offset = self._last_redundant
        return None if offset <= 0 or offset == NOTHING_YET else offset


class Initialization(NamedTuple):
    state_epoch: int
    start_offset: int


def error_of(code: ErrorCode) -> ShareError:
    return ShareError(code, error_text(code))


_UNKNOWN = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_FENCED_LEADER = error_of(ErrorCode.FENCED_LEADER_EPOCH)
_FENCED_STATE = error_of(ErrorCode.FENCED_STATE_EPOCH)


def _is_fenced(known_epoch: int, epoch: int) -> bool:
    """Whether a request of this epoch is from before what is known."""
    return epoch < known_epoch


def initialize_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: Initialization, now_ms: int
) -> Decision[ShareError]:
    """A new state, whatever was known before."""
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    if asked.state_epoch < 0:
        return None, NEGATIVE_STATE_EPOCH
    state = machine.states.get(key)
    if state is not None and _is_fenced(state.state_epoch, asked.state_epoch):
        return None, _FENCED_STATE
    if not _exists(machine, key):
        return None, _UNKNOWN
    snapshot_epoch = FIRST_EPOCH if state is None else state.offset.snapshot_epoch + 1
    value = initial_offset(snapshot_epoch, asked.state_epoch, asked.start_offset, now_ms)
    return ShareRecord(key, value), DONE


def read_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, leader_epoch: int, now_ms: int
) -> Decision[ReadState]:
    """The state. A leader of a newer epoch is recorded: from then on older leaders are fenced."""
    if key.partition < 0:
        return None, ReadState(NEGATIVE_PARTITION)
    if leader_epoch < 0:
        return None, ReadState(NEGATIVE_LEADER_EPOCH)
    state = machine.states.get(key)
    if state is None:
        return None, ReadState(READ_UNINITIALIZED)
    if _is_fenced(state.leader_epoch, leader_epoch):
        return None, ReadState(_FENCED_LEADER)
    if not _exists(machine, key):
        return None, ReadState(_UNKNOWN)
    offset = state.offset
    answer = ReadState(DONE, offset.state_epoch, offset.start_offset, offset.batches.items)
    if leader_epoch == state.leader_epoch:
        return None, answer
    write = WriteState(
        offset.state_epoch, leader_epoch, offset.start_offset, offset.delivery_complete_count, ()
    )
    return ShareRecord(key, _update_or_snapshot(machine, state, write, leader_epoch, now_ms)), answer


def write_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: WriteState, now_ms: int
) -> Decision[ShareError]:
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    if asked.leader_epoch < 0:
        return None, NEGATIVE_LEADER_EPOCH
    if asked.state_epoch < 0:
        return None, NEGATIVE_STATE_EPOCH
    state = machine.states.get(key)
    if state is None:
        return None, WRITE_UNINITIALIZED
    if _is_fenced(state.leader_epoch, asked.leader_epoch):
        return None, _FENCED_LEADER
    if _is_fenced(state.state_epoch, asked.state_epoch):
        return None, _FENCED_STATE
    if not _exists(machine, key):
        return None, _UNKNOWN
    batches = asked.batches
    if len(batches) > WRITTEN_BATCHES_MAX:
        return None, TOO_MANY_BATCHES
    if not are_sound(batches):
        return None, UNSOUND_BATCHES
    if _grows_too_large(state.offset, asked):
        return None, TOO_MANY_BATCHES
    leader_epoch = state.offset.leader_epoch  # only a read makes a newer one known
    return ShareRecord(key, _update_or_snapshot(machine, state, asked, leader_epoch, now_ms)), DONE


def delete_state(
    machine: ShareCoordinatorShard, key: SharePartitionKey, asked: None, now_ms: int
) -> Decision[ShareError]:
    """A share-partition without state is deleted already."""
    if key.partition < 0:
        return None, NEGATIVE_PARTITION
    if not _exists(machine, key):
        return None, _UNKNOWN
    return None if key not in machine.states else ShareRecord(key, None), DONE


def read_state_summary(
    machine: ShareCoordinatorShard, key: SharePartitionKey, leader_epoch: int, now_ms: int
) -> Decision[StateSummary]:
    """Without a state this is not an error. The leader epoch fences nobody."""
    if key.partition < 0:
        return None, StateSummary(NEGATIVE_PARTITION)
    if not _exists(machine, key):
        return None, StateSummary(_UNKNOWN)
    state = machine.states.get(key)
    if state is None:
        return None, StateSummary(DONE, FIRST_EPOCH, FIRST_EPOCH, NO_OFFSET, UNKNOWN_DELIVERY_COMPLETE_COUNT)
    offset = state.offset
    return None, StateSummary(
        DONE, offset.state_epoch, offset.leader_epoch, offset.start_offset, offset.delivery_complete_count
    )


def _update_or_snapshot(
    machine: ShareCoordinatorShard, state: ShareState, write: WriteState, leader_epoch: int, now_ms: int
) -> ShareUpdate | ShareGroupOffset:
    """After enough updates a snapshot takes the place of the next one. A write that comes late moves nothing back: neither
    the start offset nor, at one start offset, the count of records that are done."""
    offset = state.offset
    start_offset = max(write.start_offset, offset.start_offset)
    delivery_complete_count = write.delivery_complete_count
    if write.start_offset == offset.start_offset:
        delivery_complete_count = max(delivery_complete_count, offset.delivery_complete_count)
    elif write.start_offset < offset.start_offset:
        delivery_complete_count = offset.delivery_complete_count
    if state.updates < machine.env.updates_per_snapshot:
        return ShareUpdate(
            offset.snapshot_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            combine(NO_BATCHES, write.batches, start_offset),
        )
    return ShareGroupOffset(
        offset.snapshot_epoch + 1,
        offset.state_epoch,
        leader_epoch,
        start_offset,
        delivery_complete_count,
        combine(offset.batches, write.batches, start_offset),
        now_ms,
        now_ms,
    )


def batches_if_due(machine: ShareCoordinatorShard, key: SharePartitionKey) -> int:
    """How many batches the state has if the next record of it is a snapshot, otherwise 0."""
    state = machine.states.get(key)
    if state is None or state.updates < machine.env.updates_per_snapshot:
        return 0
    return len(state.offset.batches.items)


def _grows_too_large(offset: ShareGroupOffset, write: WriteState) -> bool:
    """A state at its bound still takes what does not make it larger. Otherwise nothing could make it smaller again: the
    start offset comes with the write of the records before it."""
    before = len(offset.batches.items)
    if len(write.batches) + before <= STATE_BATCHES_MAX:
        return False
    start_offset = max(write.start_offset, offset.start_offset)
    after = len(combine(offset.batches, write.batches, start_offset).items)
    return after > max(before, STATE_BATCHES_MAX)


def _exists(machine: ShareCoordinatorShard, key: SharePartitionKey) -> bool:
    count = machine.env.partition_count(key.topic_id)
    return count is not None and key.partition < count


def is_written_again(machine: ShareCoordinatorShard, key: SharePartitionKey) -> bool:
    """Whether the latest snapshot of a share-partition was written because it is cold."""
    state = machine.states.get(key)
    return state is None or state.offset.create_timestamp != state.offset.write_timestamp


def is_cold(machine: ShareCoordinatorShard, key: SharePartitionKey, now_ms: int) -> bool:
    """Whether the latest snapshot of a share-partition is old, however many updates followed it. One of the future is from
    before the clock was set back."""
    state = machine.states.get(key)
    if state is None:
        return False
    return not 0 <= now_ms - state.offset.write_timestamp < machine.env.cold_interval_ms


def cold_snapshots(
    machine: ShareCoordinatorShard, keys: Iterable[SharePartitionKey], now_ms: int
) -> list[ShareRecord]:
    """Snapshots that let the log be pruned although these share-partitions have not changed for long.

    If all share-partitions of the shard are written again, nothing can be gained: the caller then skips the round.
    """
    records: list[ShareRecord] = []
    for key in keys:
        if not is_cold(machine, key, now_ms):
            continue
        offset = machine.states[key].offset
        value = replace(offset, snapshot_epoch=offset.snapshot_epoch + 1, write_timestamp=now_ms)
        records.append(ShareRecord(key, value))
    return records


def tombstones_of_topics(
    machine: ShareCoordinatorShard, keys: Iterable[SharePartitionKey], deleted: Collection[Uuid]
) -> list[ShareRecord]:
    return [ShareRecord(key, None) for key in keys if key.topic_id in deleted and key in machine.states]
