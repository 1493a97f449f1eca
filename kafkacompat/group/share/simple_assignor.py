"""The assignor "simple" of share groups: partitions are shared by several members if there are more members than
partitions.

Members keep what they have, as far as each member and each partition has its fair number. A member is known by its
position in the group. Where Kafka goes through partitions or members in the order of a hash map, they come in their own
order here. Follows Kafka's SimpleAssignor; `_shared_out` explains what it does not look at.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING

from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import Assignment, Meter, uuid_order

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid

MEMBER_NS = 1_500
PARTITION_NS = 1_000
"""One partition of one member, or one that is free."""

TopicPartition = tuple["Uuid", int]
Mutable = dict["Uuid", set[int]]


@dataclass(frozen=True, slots=True)
class ShareMemberSpec:
    topic_ids: frozenset[Uuid]
    """The subscribed topics that exist."""
    assigned: Mapping[Uuid, frozenset[int]]
    """The member's part of the previous target assignment."""


@dataclass(frozen=True, slots=True)
class ShareGroupSpec:
    members: Mapping[str, ShareMemberSpec]
    """By member id, in the group's order."""
    assignable: Mapping[Uuid, Sequence[int]]
    """Subscribed topic -> its partitions that have a state, in ascending order."""
    homogeneous: bool
    """Whether all members subscribe to the same topics."""


def assign(spec: ShareGroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id. Yields the cost of each step, like the assignors of consumer groups."""
    meter = Meter()
    members = list(spec.members.values())
    if cost := meter.spend(MEMBER_NS * len(members)):
        yield cost
    if not any(member.topic_ids for member in members):
        return {member_id: {} for member_id in spec.members}
    changed: dict[int, Mutable] = {}
    if spec.homogeneous:
        subscribed = members[0].topic_ids
        partitions: list[TopicPartition] = []
        for topic_id in sorted(subscribed, key=uuid_order):
            partitions += [(topic_id, partition) for partition in spec.assignable.get(topic_id, ())]
            if cost := meter.spend(PARTITION_NS * len(spec.assignable.get(topic_id, ()))):
                yield cost
        everybody = range(len(members))
        yield from _unsubscribe(members, subscribed, changed, meter)
        yield from _Sharing(members, everybody, partitions, changed, subscribed).steps(meter)
    else:
        subscribers: dict[Uuid, list[int]] = {}
        for index, member in enumerate(members):
            for topic_id in member.topic_ids:
                subscribers.setdefault(topic_id, []).append(index)
            if cost := meter.spend(MEMBER_NS * len(member.topic_ids)):
                yield cost
        for topic_id in sorted(subscribers, key=uuid_order):
            partitions = [(topic_id, partition) for partition in spec.assignable.get(topic_id, ())]
            one = frozenset((topic_id,))
            yield from _Sharing(members, subscribers[topic_id], partitions, changed, one).steps(meter)
    assignments: dict[str, Assignment] = {}
    for index, (member_id, member) in enumerate(spec.members.items()):
        new = changed.get(index)
        assignments[member_id] = (
            dict(member.assigned)
            if new is None
            else {topic_id: frozenset(partitions) for topic_id, partitions in new.items()}
        )
        if cost := meter.spend(MEMBER_NS + PARTITION_NS * sum(map(len, assignments[member_id].values()))):
            yield cost
    return assignments


def _copy(assigned: Mapping[Uuid, Iterable[int]]) -> Mutable:
    return {topic_id: set(partitions) for topic_id, partitions in assigned.items()}


def _unsubscribe(
    members: Sequence[ShareMemberSpec],
    subscribed: frozenset[Uuid],
    changed: dict[int, Mutable],
    meter: Meter,
) -> Iterator[int]:
    for index, member in enumerate(members):
        if not member.assigned.keys() <= subscribed:
            changed[index] = _copy(
                {topic_id: each for topic_id, each in member.assigned.items() if topic_id in subscribed}
            )
        if cost := meter.spend(MEMBER_NS * len(member.assigned)):
            yield cost


class _Sharing:
    """Shares partitions out to the members that subscribe to them."""

    def __init__(
        self,
        members: Sequence[ShareMemberSpec],
        subscribed_members: Sequence[int],
        partitions: Sequence[TopicPartition],
        changed: dict[int, Mutable],
        topic_ids: frozenset[Uuid],
    ) -> None:
        """`changed`: new assignments by member, which are added to. `topic_ids`: topics of which former assignments
        count."""
        self._members = members
        self._subscribed_members = subscribed_members
        self._partitions = partitions
        self._changed = changed
        self._topic_ids = topic_ids
        member_count, count = len(subscribed_members), len(partitions)
        self._sharing = -(-member_count // count) if count else 0
        """Members that each partition should have."""
        precise = self._sharing * count / member_count
        self._desired = {
            member: ceil(precise * (index + 1)) - ceil(precise * index)
            for index, member in enumerate(subscribed_members)
        }
        """Partitions that each member should have."""
        self._by_partition: dict[TopicPartition, set[int]] = {}
        self._by_member: dict[int, set[TopicPartition]] = {}
        self._known: dict[Uuid, set[int]] = {}
        """The keys of `_by_partition`, by topic. To sort all of them at once would be one long step."""

    def steps(self, meter: Meter) -> Iterator[int]:
        for member, spec in enumerate(self._members):
            for topic_id, partitions in spec.assigned.items():
                if topic_id not in self._topic_ids:
                    continue
                own = self._by_member.setdefault(member, set())
                self._known.setdefault(topic_id, set()).update(partitions)
                for partition in partitions:
                    own.add((topic_id, partition))
                    self._by_partition.setdefault((topic_id, partition), set()).add(member)
                    if cost := meter.spend(PARTITION_NS):
                        yield cost
            if cost := meter.spend(MEMBER_NS):
                yield cost
        for member in sorted(self._by_member):
            yield from self._take_from_member(member, meter)
        for topic_partition in self._in_order():
            self._take_from_partition(topic_partition)
            if cost := meter.spend(PARTITION_NS):
                yield cost
        for topic_partition in self._partitions:
            self._by_partition.setdefault(topic_partition, set())
            self._known.setdefault(topic_partition[0], set()).add(topic_partition[1])
            if cost := meter.spend(PARTITION_NS):
                yield cost
        yield from self._shared_out(meter)

    def _in_order(self) -> Iterator[TopicPartition]:
        for topic_id in sorted(self._known, key=uuid_order):
            for partition in sorted(self._known[topic_id]):
                yield topic_id, partition

    def _take_from_member(self, member: int, meter: Meter) -> Iterator[int]:
        """Its first partitions, if it has too many. It still has all of its former ones here."""
        excess = len(self._by_member[member]) - self._desired.get(member, 0)
        former = self._members[member].assigned
        for topic_id in sorted(self._topic_ids & former.keys(), key=uuid_order):
            for partition in sorted(former[topic_id]):
                if excess <= 0:
                    return
                self._take(member, (topic_id, partition))
                excess -= 1
                if cost := meter.spend(PARTITION_NS):
                    yield cost

    def _take_from_partition(self, topic_partition: TopicPartition) -> None:
        having = self._by_partition[topic_partition]
        excess = len(having) - self._sharing
        for member in sorted(having)[: max(excess, 0)]:
            self._take(member, topic_partition)

    def _take(self, member: int, topic_partition: TopicPartition) -> None:
        self._by_member[member].discard(topic_partition)
        self._by_partition[topic_partition].discard(member)
        topic_id, partition = topic_partition
        self._new_of(member)[topic_id].discard(partition)

    def _new_of(self, member: int) -> Mutable:
        new = self._changed.get(member)
        if new is None:
            new = self._changed[member] = _copy(self._members[member].assigned)
        return new

    def _shared_out(self, meter: Meter) -> Iterator[int]:
        """Go round the members that have too few. As in Kafka, a partition that needs several members does not look
        at those it has just got."""
        waiting = [
            member
            for member in self._subscribed_members
            if len(self._by_member.get(member, ())) < self._desired[member]
        ]
        position, kept, has_given = 0, list[int](), False
        for topic_partition in self._in_order():
            having = self._by_partition[topic_partition]
            needed = self._sharing - len(having)
            while needed > 0:
                if position == len(waiting):
                    if not has_given or not kept:
                        break
                    waiting, position, kept, has_given = kept, 0, [], False
                member = waiting[position]
                position += 1
                if member in having:
                    kept.append(member)
                    continue
                topic_id, partition = topic_partition
                self._new_of(member).setdefault(topic_id, set()).add(partition)
                own = self._by_member.setdefault(member, set())
                own.add(topic_partition)
                needed -= 1
                has_given = True
                if len(own) < self._desired[member]:
                    kept.append(member)
            if not kept and position == len(waiting):
                break
            if cost := meter.spend(PARTITION_NS * (1 + self._sharing)):
                yield cost
