"""Which offsets and groups have had their time, and what goes when a group or a topic is deleted.

Walk the places where offsets lie, a bounded number at a time, and name the tombstones. Between two stretches of places
anything may change, so each is judged when its turn comes, and what is judged is to be written before anybody else has the
loop. Groups of kinds that are carried but not served keep everything but offsets of topics that are gone. Follows KIP-211 and
offsets.retention.minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import Refused
from kafkacompat.faults import report
from kafkacompat.group.classic_group import ClassicGroup, ClassicGroupState
from kafkacompat.group.commit import is_gone
from kafkacompat.group.environment import heartbeat_key
from kafkacompat.group.records import GroupMetadataRecord, GroupRecord, OffsetAndMetadata, OffsetRecord
from kafkacompat.ids import Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.machine import GroupMachine

_S = ClassicGroupState


class Place(NamedTuple):
    """Where an offset may lie; without a topic, the end of its group, at which the group itself is judged."""

    group_id: str
    topic: str | None = None
    partition: int = -1


# --- expiry


def places(machine: GroupMachine) -> Iterator[Place]:
    """Everything that time may take: offsets, and after those of each group the group."""
    for group_id in list(machine.groups):
        for topic, partition in machine.offsets.places(group_id):
            yield Place(group_id, topic, partition)
        yield Place(group_id)


def expired_records(machine: GroupMachine, stretch: Iterable[Place], now_ms: int) -> list[GroupRecord]:
    """Tombstones of what is past its retention; a group's own comes after those of its offsets."""
    records: list[GroupRecord] = []
    going: dict[str, int] = {}
    for place in stretch:
        try:
            record = _expired(machine, place, now_ms, going.get(place.group_id, 0))
        except Exception as error:
            report(f"the expiry of {place}", error)
            continue
        if record is not None:
            records.append(record)
            going[place.group_id] = going.get(place.group_id, 0) + 1
    return records


def _expired(machine: GroupMachine, place: Place, now_ms: int, going: int) -> GroupRecord | None:
    """`going`: how many offsets of the group go with those judged before, and are there still."""
    group = machine.groups.get(place.group_id)
    if group is None:
        return None
    if place.topic is None:
        stays = (
            group.state is not _S.EMPTY
            or group.pending_join
            or machine.offsets.has_more_than(place.group_id, going)
            or machine.offsets.has_open_transaction(place.group_id)
        )
        return None if stays else GroupMetadataRecord(place.group_id, None)
    stored = machine.offsets.get(*place)  # type: ignore[arg-type]  # with a topic
    if stored is None or not _has_expired(machine, group, place.topic, stored, now_ms):
        return None
    if machine.offsets.is_pending(place.group_id, place.topic, place.partition):
        return None
    return OffsetRecord(place.group_id, place.topic, place.partition, None)


def _has_expired(
    machine: GroupMachine, group: ClassicGroup, topic: str, stored: OffsetAndMetadata, now_ms: int
) -> bool:
    by_state = group.protocol_type is not None and group.state is _S.EMPTY
    by_commit = group.protocol_type is None or (
        group.uses_consumer_protocol() and group.state is _S.STABLE and group.subscribed_topics is not None
    )
    if not (by_state or by_commit) or group.is_subscribed_to(topic):
        return False
    if stored.expire_timestamp_ms >= 0:
        return now_ms >= stored.expire_timestamp_ms
    since_ms = stored.commit_timestamp_ms
    if by_state and group.current_state_timestamp_ms >= 0:
        since_ms = group.current_state_timestamp_ms
    return now_ms - since_ms >= machine.env.settings.offsets_retention_ms


# --- deletion of a group


def begin_deletion(machine: GroupMachine, group_id: str) -> ClassicGroup:
    """The group, if it may be deleted. Raises Refused: carried groups are not ours to delete."""
    carried = machine.carried.get(group_id)
    if carried is not None and not carried.is_empty():
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    group = machine.groups.get(group_id)
    if group is None or group.state is _S.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if group.state is not _S.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    return group


def shut(machine: GroupMachine, group: ClassicGroup, now_ms: int) -> None:
    """While its offsets go one after another nobody else is to use the group: it counts as dead."""
    for member_id in list(group.pending_join):
        group.remove(member_id)
        machine.env.timers.cancel(heartbeat_key(group, member_id))
    group.transition_to(_S.DEAD, now_ms)


def open_again(group: ClassicGroup) -> None:
    """It could not be deleted."""
    group.state = _S.EMPTY


def places_of_group(machine: GroupMachine, group_id: str) -> Iterator[Place]:
    """All its offsets, those of open transactions too, and the group last."""
    for topic, partition in machine.offsets.places(group_id):
        yield Place(group_id, topic, partition)
    for topic, partition in machine.offsets.pending_places(group_id):
        yield Place(group_id, topic, partition)
    yield Place(group_id)


def deletion_records(machine: GroupMachine, stretch: Iterable[Place]) -> list[GroupRecord]:
    found: dict[Place, None] = {}
    for place in stretch:
        if place.topic is None or machine.offsets.is_tracked(place.group_id, place.topic, place.partition):
            found[place] = None
    return [
        GroupMetadataRecord(place.group_id, None)
        if place.topic is None
        else OffsetRecord(place.group_id, place.topic, place.partition, None)
        for place in found
    ]


# --- deletion of topics

DeletedTopics = Mapping[str, Mapping[Uuid, int]]
"""Name -> id -> where the log of the offsets ended when the topic was deleted: what stands behind is a later topic's."""


def places_of_topics(machine: GroupMachine, topics: DeletedTopics) -> Iterator[Place]:
    """Where offsets of these lie; now and then a place at which there is nothing, so that every one costs about the same."""
    for group_id in machine.offsets.group_ids():
        yield Place(group_id)
        for topic in topics:
            yield Place(group_id)
            for partition in list(machine.offsets.of_group(group_id).get(topic, ())):
                yield Place(group_id, topic, partition)
        for topic, partition in machine.offsets.pending_places(group_id):
            yield Place(group_id, topic if topic in topics else None, partition)


def deleted_topic_records(
    machine: GroupMachine, stretch: Iterable[Place], topics: DeletedTopics
) -> list[GroupRecord]:
    """Tombstones for the offsets of deleted topics. An offset under another id, or a later one, is the new topic's and stays.

    A tombstone takes those of open transactions too: where one of them is the new topic's there is none.
    """
    gone: dict[Place, None] = {}
    for place in stretch:
        if place.topic is None:
            continue
        ids = topics[place.topic]
        stored = machine.offsets.get(place.group_id, place.topic, place.partition)
        pending = list(machine.offsets.pending(place.group_id, place.topic, place.partition))
        if not all(is_gone(each, ids) for each in pending):
            continue
        if pending if stored is None else is_gone(stored, ids):
            gone[place] = None
    return [OffsetRecord(place.group_id, place.topic or "", place.partition, None) for place in gone]
