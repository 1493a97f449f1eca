"""The state of one share-partition, as the coordinator remembers it, and the records of `__share_group_state`, as Kafka writes
them: snapshots (type 0) and updates (type 1).

Both have the share-partition as key, and values of version 0. A tombstone is a snapshot without a value.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from kafkacompat.coordinator.core import STEP_COST, LoadFailure
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_OFFSET
from kafkacompat.share.service import UNKNOWN_DELIVERY_COMPLETE_COUNT, SharePartitionKey, StateBatch
from kafkacompat.share.state.batches import Batches, are_sound, combine, taking
from kafkacompat.tasks import at_once
from kafkacompat.wire.codec import decode, encode, steps_decoder
from kafkacompat.wire.codec_source import STEP_UNITS
from kafkacompat.wire.errors import WireError
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages import share_snapshot_value, share_update_value
from kafkacompat.wire.messages.share_snapshot_key import ShareSnapshotKey
from kafkacompat.wire.messages.share_snapshot_value import ShareSnapshotValue
from kafkacompat.wire.messages.share_update_key import ShareUpdateKey
from kafkacompat.wire.messages.share_update_value import ShareUpdateValue

FIRST_EPOCH = 0
NO_TIMESTAMP = 0
NOT_SEEN = -(1 << 31)
"""Lower than any epoch."""


SNAPSHOT, UPDATE = 0, 1
VERSION = 0
VALUES: dict[int, type[Message]] = {SNAPSHOT: ShareSnapshotValue, UPDATE: ShareUpdateValue}
_SNAPSHOT_KEY, _UPDATE_KEY = SNAPSHOT.to_bytes(2, "big"), UPDATE.to_bytes(2, "big")
_VALUE_VERSION = VERSION.to_bytes(2, "big")
LOADED_BATCHES_MAX = 100_000
"""Batches that a loaded record may have. Kafka writes half of them into a record of the default size."""


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """A whole state: the value of a snapshot."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches
    create_timestamp: int = NO_TIMESTAMP
    write_timestamp: int = NO_TIMESTAMP
    """Later than the creation if it was written again because the share-partition is cold."""


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A change since the last snapshot. -1 as leader epoch or start offset leaves it as it is."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Batches


class ShareState:
    """What is known of one share-partition.

    The highest epochs are kept apart from the state, because a new initialisation resets the leader epoch but must not
    let an older leader in again.
    """

    __slots__ = ("leader_epoch", "offset", "state_epoch", "updates")

    def __init__(self, offset: ShareGroupOffset) -> None:
        self.offset = offset
        self.leader_epoch = NOT_SEEN
        """The highest so far."""
        self.state_epoch = NOT_SEEN
        """The highest so far in a snapshot."""
        self.updates = 0
        """Updates since the last snapshot that was written because there were enough of them. Other snapshots do not
        reset it."""


def initial_offset(snapshot_epoch: int, state_epoch: int, start_offset: int, now_ms: int) -> ShareGroupOffset:
    """The lag can be told from a start offset onwards: then no records of it are complete yet."""
    return ShareGroupOffset(
        snapshot_epoch,
        state_epoch,
        FIRST_EPOCH,
        start_offset,
        UNKNOWN_DELIVERY_COMPLETE_COUNT if start_offset == NO_OFFSET else 0,
        Batches(),
        now_ms,
        now_ms,
    )


def first_of(update: ShareUpdate) -> ShareGroupOffset:
    """The state after an update whose snapshot is no longer in the log."""
    return ShareGroupOffset(
        update.snapshot_epoch,
        FIRST_EPOCH,
        update.leader_epoch,
        update.start_offset,
        update.delivery_complete_count,
        update.batches,
    )


def merged(offset: ShareGroupOffset, update: ShareUpdate) -> ShareGroupOffset:
    """The state after an update."""
    start_offset = offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset
    return changed(offset, update, combine(offset.batches, update.batches.items, start_offset))


def changed(offset: ShareGroupOffset, update: ShareUpdate, batches: Batches) -> ShareGroupOffset:
    """The state after an update whose batches are combined already."""
    return ShareGroupOffset(
        offset.snapshot_epoch,
        offset.state_epoch,
        offset.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
        offset.start_offset if update.start_offset == NO_OFFSET else update.start_offset,
        update.delivery_complete_count,
        batches,
        offset.create_timestamp,
        offset.write_timestamp,
    )


class ShareRecord(NamedTuple):
    key: SharePartitionKey
    value: ShareGroupOffset | ShareUpdate | None
    """None if the share-partition is deleted."""


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    group_id, topic_id, partition = record.key
    value = record.value
    if isinstance(value, ShareUpdate):
        key = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
        update = ShareUpdateValue(
            snapshot_epoch=value.snapshot_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=_told(share_update_value.StateBatch, value.batches.items),
        )
        return _UPDATE_KEY + encode(key, VERSION), _VALUE_VERSION + encode(update, VERSION)
    name = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
    snapshot_key = _SNAPSHOT_KEY + encode(name, VERSION)
    if value is None:
        return snapshot_key, None
    snapshot = ShareSnapshotValue(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
        state_batches=_told(share_snapshot_value.StateBatch, value.batches.items),
    )
    return snapshot_key, _VALUE_VERSION + encode(snapshot, VERSION)


def decode_record(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record. None for an unknown kind of key. Raises LoadFailure."""
    name = _key(key, value)
    if name is None or value is None:
        return None if name is None else ShareRecord(name[1], None)
    kind, found = name
    try:
        message: Any = decode(VALUES[kind], VERSION, value, 2)
    except WireError as error:
        raise _unreadable(key, error) from error
    batches = _batches(message.state_batches)
    if not are_sound(batches):
        raise LoadFailure(f"{found} has a batch that ends before it begins")
    return _record(found, kind, message, at_once(taking(batches)))


def decode_in_steps(key: bytes, value: bytes | None) -> Generator[int, None, ShareRecord | None]:
    """`decode_record` of a value that may have many batches, in steps that report their cost."""
    name = _key(key, value)
    if name is None or value is None:
        return None if name is None else ShareRecord(name[1], None)
    kind, found = name
    steps = steps_decoder(VALUES[kind], VERSION)(value, 2, LOADED_BATCHES_MAX)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: Any = end.value[0]
            break
        except WireError as error:
            raise _unreadable(key, error) from error
        yield STEP_COST
    named: list[StateBatch] = []
    for start in range(0, len(message.state_batches), STEP_UNITS):
        part = _batches(message.state_batches[start : start + STEP_UNITS])
        if not are_sound(part):
            raise LoadFailure(f"{found} has a batch that ends before it begins")
        named += part
        yield len(part)
    return _record(found, kind, message, (yield from taking(named)))


def _key(key: bytes, value: bytes | None) -> tuple[int, SharePartitionKey] | None:
    """The kind and the share-partition, with a value that can be read. None for what is passed over."""
    if len(key) < 2:
        raise LoadFailure(f"a key of {len(key)} bytes")
    kind = int.from_bytes(key[:2], "big", signed=True)
    if kind not in VALUES:
        return None
    try:
        name = decode(ShareSnapshotKey, VERSION, key, 2)  # keys of updates have the same fields
    except WireError as error:
        raise _unreadable(key, error) from error
    if value is None:
        # Kafka writes tombstones of snapshots only.
        return (
            (kind, SharePartitionKey(name.group_id, name.topic_id, name.partition))
            if kind == SNAPSHOT
            else None
        )
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) < 2 or version != VERSION:
        raise LoadFailure(f"value version {version} is not known (highest {VERSION})")
    return kind, SharePartitionKey(name.group_id, name.topic_id, name.partition)


def _record(key: SharePartitionKey, kind: int, message: Any, batches: Batches) -> ShareRecord:
    value: ShareGroupOffset | ShareUpdate
    if kind == UPDATE:
        value = ShareUpdate(
            message.snapshot_epoch,
            message.leader_epoch,
            message.start_offset,
            message.delivery_complete_count,
            batches,
        )
    else:
        value = ShareGroupOffset(
            message.snapshot_epoch,
            message.state_epoch,
            message.leader_epoch,
            message.start_offset,
            message.delivery_complete_count,
            batches,
            message.create_timestamp,
            message.write_timestamp,
        )
    return ShareRecord(key, value)


def _batches(told: Sequence[Any]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in told
    ]


def _unreadable(key: bytes, error: WireError) -> LoadFailure:
    return LoadFailure(f"a record with key {bytes(key[:64]).hex()} cannot be read: {error}")


def _told(kind: type[Any], batches: Sequence[StateBatch]) -> list[Any]:
    return [
        kind(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]
