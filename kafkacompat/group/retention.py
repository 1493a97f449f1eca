"""Which offsets and groups have expired, and what is removed when a group or a topic is deleted.

The functions walk the places where offsets may be, a bounded number at a time, and return the tombstones. The state
may change between two stretches, so each place is checked in its turn, and the tombstones must be written before other
code runs. Groups of unsupported kinds lose only offsets of deleted topics. Share groups do not expire. Follows KIP-211
and offsets.retention.minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import Refused
from kafkacompat.faults import report
from kafkacompat.group.carried_group import CarriedGroup
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.commit import is_gone
from kafkacompat.group.environment import heartbeat_key
from kafkacompat.group.records import GroupMetadataRecord, GroupRecord, OffsetAndMetadata, OffsetRecord
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.ids import Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager


class Place(NamedTuple):
    """A place where an offset may be. Without a topic it is the end of its group, where the group itself is checked."""

    group_id: str
    topic: str | None = None
    partition: int = -1


# --- expiry


def places(machine: GroupMetadataManager) -> Iterator[Place]:
    """All places that may expire: offsets, and each group after its offsets."""
    for group_id in list(machine.groups):
        for topic, partition in machine.offsets.places(group_id):
            yield Place(group_id, topic, partition)
        yield Place(group_id)


def expired_records(
    machine: GroupMetadataManager, stretch: Iterable[Place], now_ms: int
) -> list[GroupRecord]:
    """Tombstones for everything past its retention. A group's tombstones come after those of its offsets."""
    records: list[GroupRecord] = []
    going: dict[str, int] = {}
    for place in stretch:
        try:
            found = _expired(machine, place, now_ms, going.get(place.group_id, 0))
        except Exception as error:
            report(f"the expiry of {place}", error)
            continue
        if found:
            records += found
            going[place.group_id] = going.get(place.group_id, 0) + 1
    return records


def _expired(machine: GroupMetadataManager, place: Place, now_ms: int, going: int) -> Sequence[GroupRecord]:
    """`going` is the number of the group's offsets that are about to be removed but are still present."""
    group = machine.groups.get(place.group_id)
    if group is None or isinstance(group, (CarriedGroup, ShareGroup)):
        return ()
    if place.topic is None:
        stays = (
            not group.is_empty()
            or group.is_dead()
            or (isinstance(group, ClassicGroup) and group.pending_join)
            or machine.offsets.has_more_than(place.group_id, going)
            or machine.offsets.has_open_transaction(place.group_id)
        )
        return () if stays else group.tombstones()
    stored = machine.offsets.get(*place)  # type: ignore[arg-type]  # the place has a topic
    if stored is None or not _has_expired(machine, group, place.topic, stored, now_ms):
        return ()
    if machine.offsets.is_pending(place.group_id, place.topic, place.partition):
        return ()
    return (OffsetRecord(place.group_id, place.topic, place.partition, None),)


def _has_expired(
    machine: GroupMetadataManager, group: Group, topic: str, stored: OffsetAndMetadata, now_ms: int
) -> bool:
    since_ms = group.expires_since_ms(stored)
    if since_ms is None or group.is_subscribed_to(topic):
        return False
    if stored.expire_timestamp_ms >= 0:
        return now_ms >= stored.expire_timestamp_ms
    return now_ms - since_ms >= machine.env.settings.offsets_retention_ms


# --- deletion of a group


def begin_deletion(machine: GroupMetadataManager, group_id: str) -> Group:
    """The group, if it may be deleted. Raises Refused, also for groups of unsupported kinds."""
    group = machine.groups.get(group_id)
    if isinstance(group, CarriedGroup) and not group.is_empty():
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    if group is None or isinstance(group, CarriedGroup) or group.is_dead():
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not group.is_empty():
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    return group


def shut(machine: GroupMetadataManager, group: Group, now_ms: int) -> None:
    """Mark the group as dead, so that no request uses it while its offsets are removed step by step."""
    if isinstance(group, ClassicGroup):
        for member_id in list(group.pending_join):
            machine.env.timers.cancel(heartbeat_key(group, member_id))
    group.shut(now_ms)


def places_of_group(machine: GroupMetadataManager, group_id: str) -> Iterator[Place]:
    """All offsets of the group, including those of open transactions, and the group last."""
    for topic, partition in machine.offsets.places(group_id):
        yield Place(group_id, topic, partition)
    for topic, partition in machine.offsets.pending_places(group_id):
        yield Place(group_id, topic, partition)
    yield Place(group_id)


def deletion_records(machine: GroupMetadataManager, stretch: Iterable[Place]) -> list[GroupRecord]:
    found: dict[Place, None] = {}
    for place in stretch:
        if place.topic is None:
            # A transaction may have ended meanwhile, and its offsets are where the walk has been.
            found.update(dict.fromkeys(places_of_group(machine, place.group_id)))
        elif machine.offsets.is_tracked(place.group_id, place.topic, place.partition):
            found[place] = None
    records: list[GroupRecord] = []
    for place in found:
        if place.topic is None:
            group = machine.groups.get(
                place.group_id
            )  # None if the shard was unloaded, which refuses the write
            records += [GroupMetadataRecord(place.group_id, None)] if group is None else group.tombstones()
        else:
            records.append(OffsetRecord(place.group_id, place.topic, place.partition, None))
    return records


# --- deletion of topics

DeletedTopics = Mapping[str, Mapping[Uuid, int]]
"""Name -> id -> end of the offsets' log when the topic was deleted. Later records belong to a later topic."""


def places_of_topics(machine: GroupMetadataManager, topics: DeletedTopics) -> Iterator[Place]:
    """Places of these topics' offsets, with empty places in between, so that each step costs about the same."""
    for group_id in machine.offsets.group_ids():
        yield Place(group_id)
        # First, because what a transaction has written may be committed meanwhile, and is then found below.
        for topic, partition in machine.offsets.pending_places(group_id):
            yield Place(group_id, topic if topic in topics else None, partition)
        for topic in topics:
            yield Place(group_id)
            for partition in list(machine.offsets.of_group(group_id).get(topic, ())):
                yield Place(group_id, topic, partition)


def deleted_topic_records(
    machine: GroupMetadataManager, stretch: Iterable[Place], topics: DeletedTopics
) -> list[GroupRecord]:
    """Tombstones for the offsets of deleted topics. An offset with another topic id, or a later one, belongs to the
    new topic and stays.

    A tombstone also removes the offsets of open transactions. So no tombstone is written if one of those belongs to
    the new topic.
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
