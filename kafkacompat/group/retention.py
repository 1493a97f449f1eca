"""Which offsets and groups have had their time, and what goes when a group or a topic is deleted.

Duty: name the tombstones. Must not know: the clock, the log, or when the sweep runs. Groups of kinds that are carried but not
served keep everything but offsets of topics that are gone. Follows KIP-211 and offsets.retention.minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.records import CommittedOffset, GroupMetadataRecord, GroupRecord, OffsetRecord
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.machine import GroupMachine

_S = ClassicGroupState

MAX_RECORDS_PER_SWEEP_BATCH = 1_000
"""A sweep may be split over batches, unlike every other operation."""


def expired_records(machine: GroupMachine, now_ms: int) -> list[CoordinatorResult[GroupRecord, None]]:
    """Tombstones of all that is past its retention, in batches; a group's own comes after those of its offsets."""
    records: list[GroupRecord] = []
    for group in machine.groups.values():
        kept = not _expire_offsets(machine, group, now_ms, records)
        if kept or group.state is not _S.EMPTY or group.pending_join:
            continue
        if not machine.offsets.has_open_transaction(group.group_id):
            records.append(GroupMetadataRecord(group.group_id, None))
    return in_batches(records)


def in_batches(records: list[GroupRecord]) -> list[CoordinatorResult[GroupRecord, None]]:
    return [
        CoordinatorResult(tuple(records[start : start + MAX_RECORDS_PER_SWEEP_BATCH]), None)
        for start in range(0, len(records), MAX_RECORDS_PER_SWEEP_BATCH)
    ]


def _expire_offsets(
    machine: GroupMachine, group: ClassicGroup, now_ms: int, records: list[GroupRecord]
) -> bool:
    """True when nothing is left."""
    offsets = machine.offsets.of_group(group.group_id)
    if not offsets:
        return True
    by_state = group.protocol_type is not None and group.state is _S.EMPTY
    by_commit = group.protocol_type is None or (
        group.uses_consumer_protocol() and group.state is _S.STABLE and group.subscribed_topics is not None
    )
    if not by_state and not by_commit:
        return False
    all_expired = True
    for topic, partitions in offsets.items():
        if group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, stored in partitions.items():
            since_ms = stored.commit_timestamp_ms
            if by_state and group.current_state_timestamp_ms >= 0:
                since_ms = group.current_state_timestamp_ms
            due = _is_due(stored, since_ms, now_ms, machine.env.settings.offsets_retention_ms)
            if due and not machine.offsets.is_pending(group.group_id, topic, partition):
                records.append(OffsetRecord(group.group_id, topic, partition, None))
            else:
                all_expired = False
    return all_expired


def _is_due(stored: CommittedOffset, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if stored.expire_timestamp_ms >= 0:
        return now_ms >= stored.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def delete_group(machine: GroupMachine, group_id: str) -> CoordinatorResult[GroupRecord, None]:
    """Everything of an empty group. Raises Refused: carried groups are not ours to delete."""
    carried = machine.carried.get(group_id)
    if carried is not None and not carried.is_empty():
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    group = machine.groups.get(group_id)
    if group is None or group.state is _S.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if group.state is not _S.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    records: list[GroupRecord] = [
        OffsetRecord(group_id, topic, partition, None)
        for topic, partitions in machine.offsets.of_group(group_id).items()
        for partition in partitions
    ]
    records += [
        OffsetRecord(group_id, topic, partition, None)
        for topic, partition in machine.offsets.pending_of_group(group_id)
        if machine.offsets.get(group_id, topic, partition) is None
    ]
    records.append(GroupMetadataRecord(group_id, None))
    return CoordinatorResult(tuple(records), None)


def deleted_topic_records(
    machine: GroupMachine, topics: Mapping[str, Uuid]
) -> list[CoordinatorResult[GroupRecord, None]]:
    """Tombstones for the offsets of deleted topics (name -> id). An offset under another id is the new topic's and stays."""
    records: list[GroupRecord] = []
    for group_id in machine.offsets.group_ids():
        gone: dict[tuple[str, int], None] = {}
        for topic, partitions in machine.offsets.of_group(group_id).items():
            topic_id = topics.get(topic)
            if topic_id is None:
                continue
            for partition, stored in partitions.items():
                if stored.topic_id in (ZERO_UUID, topic_id):
                    gone[(topic, partition)] = None
        for topic, partition in machine.offsets.pending_of_group(group_id):
            if topic in topics:
                gone[(topic, partition)] = None
        records += [OffsetRecord(group_id, topic, partition, None) for topic, partition in gone]
    return in_batches(records)
