"""The assignor "uniform": members get equally many partitions and keep as many as possible of those that they have.

Balance comes before stickiness. If all members subscribe to the same topics, their numbers of partitions differ by at
most one. Each member keeps what it had, up to its quota. The rest goes to the members below their quota, in the
group's order.

If they subscribe to different topics, each member first keeps what it had of the topics that it still subscribes to.
The partitions that nobody has go to the least loaded subscribers of their topics. Then partitions move from the most
loaded to the least loaded subscribers of their topic, topic by topic, until a whole round moves nothing. The result
is balanced if the topics of any two members are the same or have none in common. Otherwise the number of rounds is
limited.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping

from kafkacompat.group.consumer.assignor import Assignment, GroupSpec, Meter, uuid_order
from kafkacompat.ids import Uuid

TOPIC_NS = 1000
PARTITION_NS = 100
"""Adding a partition and giving it to its previous owner."""


class UnassignedPartitions:
    """First all partitions of the group's topics, then those that are left after each member has kept some."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[Uuid, set[int]] = {}

    def add(self, topic_id: Uuid, partition_count: int) -> None:
        self._by_topic[topic_id] = set(range(partition_count))

    def keep(self, assigned: Mapping[Uuid, frozenset[int]], topic_ids: Container[Uuid]) -> Assignment:
        """Take out what a member had and can keep: partitions of these topics that exist and that nobody else has kept.
        In valid records nobody else has, but records are a file's content."""
        kept: Assignment = {}
        for topic_id, partitions in assigned.items():
            left = self._by_topic.get(topic_id)
            if left is None or topic_id not in topic_ids:
                continue
            if not partitions <= left:
                partitions &= left
            if partitions:
                left -= partitions
                kept[topic_id] = partitions
        return kept

    def of(self, topic_id: Uuid) -> list[int]:
        """In ascending order."""
        return sorted(self._by_topic[topic_id])


SORTED_NS = 500
"""A topic, in the order of ids."""
MEMBER_NS = 1000
KEPT_NS = 600
"""What a member had of one topic."""
REVOKED_NS = 100
GIVEN_NS = 700
"""One or more partitions of one topic."""
GIVEN_PARTITION_NS = 100

Revoked = tuple[Uuid, list[int]]


def assign_homogeneous(spec: GroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id."""
    members = spec.members
    if not members:
        return {}
    meter = Meter()
    unassigned = UnassignedPartitions()
    topic_ids = spec.topics(next(iter(members.values())).topic_ids)
    if cost := meter.spend(SORTED_NS * len(topic_ids)):
        yield cost
    partition_count = 0
    for topic_id in topic_ids:
        count = spec.partition_counts[topic_id]
        unassigned.add(topic_id, count)
        partition_count += count
        if cost := meter.spend(TOPIC_NS + PARTITION_NS * count):
            yield cost

    assignments: dict[str, Assignment] = {}
    unfilled: list[tuple[Assignment, int]] = []
    revoked: list[Revoked] = []
    subscribed = frozenset(topic_ids)
    quota, extra = divmod(partition_count, len(members))
    for index, (member_id, member) in enumerate(members.items()):
        assignment = assignments[member_id] = unassigned.keep(member.assigned, subscribed)
        most = quota + (extra > 0)
        size = sum(map(len, assignment.values()))
        if size > most:
            revoked += _revoke(assignment, most)
            if cost := meter.spend(REVOKED_NS * size):
                yield cost
        # As many members get one more than the quota as there are partitions left over. They are those that have it
        # already. Only if these are too few, the last members get it as well.
        if extra and (size > quota or len(members) - index <= extra):
            extra -= 1
        else:
            most = quota
        if size < most:
            unfilled.append((assignment, most - size))
        if cost := meter.spend(MEMBER_NS + KEPT_NS * len(member.assigned)):
            yield cost

    rest = _rest(topic_ids, unassigned, revoked)
    partitions: list[int] = []
    start = 0
    for assignment, room in unfilled:
        while room:
            if start == len(partitions):
                (topic_id, partitions), start = next(rest), 0
            given = partitions[start : start + room]
            start += len(given)
            room -= len(given)
            assignment[topic_id] = assignment.get(topic_id, frozenset()).union(given)
            if cost := meter.spend(GIVEN_NS + GIVEN_PARTITION_NS * len(given)):
                yield cost
    return assignments


def _revoke(assignment: Assignment, most: int) -> Iterator[Revoked]:
    """Take from the assignment what is above this number of partitions."""
    for topic_id in sorted(assignment, key=uuid_order):
        partitions = sorted(assignment[topic_id])
        if len(partitions) > most:
            yield topic_id, partitions[most:]
            if most:
                assignment[topic_id] = frozenset(partitions[:most])
            else:
                del assignment[topic_id]
        most = max(0, most - len(partitions))


def _rest(
    topic_ids: list[Uuid], unassigned: UnassignedPartitions, revoked: list[Revoked]
) -> Iterator[Revoked]:
    """What the unfilled members get, in this order: partitions that nobody had come first."""
    for topic_id in topic_ids:
        if partitions := unassigned.of(topic_id):
            yield topic_id, partitions
    yield from revoked


ROUNDS_MAX = 16
"""Kafka's limit. Each round about halves the imbalance."""

SUBSCRIPTION_NS = 90
COMPARED_NS = 50
"""One subscriber, to find out whether a topic is balanced."""
HETEROGENEOUS_SORTED_NS = 100
"""One subscriber, in the order of loads."""
HETEROGENEOUS_GIVEN_NS = 500
MOVED_NS = 1200
MOVES_A_STEP = 1000
CHANGED_NS = 700
"""The set of a member's partitions of one topic."""


def assign_heterogeneous(spec: GroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id."""
    group = _Group(spec)
    yield from group.subscribe()
    yield from group.keep()
    yield from group.assign_rest()
    yield from group.balance()
    return dict(zip(spec.members, group.assignments, strict=True))


class _Group:
    """The assignment in progress. Members are numbers here, in the group's order."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._meter = Meter()
        self._subscribers: dict[Uuid, list[int]] = {}
        self._topics: list[Uuid] = []
        self._unassigned = UnassignedPartitions()
        self.assignments: list[Assignment] = []
        self._sizes: list[int] = []
        """The number of partitions of each member."""

    def subscribe(self) -> Iterator[int]:
        """Collect the subscribers of each topic, and sort the topics."""
        spend = self._meter.spend
        counts = self._spec.partition_counts
        subscribers = self._subscribers
        for index, member in enumerate(self._spec.members.values()):
            for topic_id in member.topic_ids:
                if topic_id in subscribers:
                    subscribers[topic_id].append(index)
                elif topic_id in counts:
                    subscribers[topic_id] = [index]
            if cost := spend(MEMBER_NS + SUBSCRIPTION_NS * len(member.topic_ids)):
                yield cost

        def order(topic_id: Uuid) -> tuple[float, int, tuple[int, ...]]:
            subscribed = len(subscribers[topic_id])
            return -(counts[topic_id] / subscribed), subscribed, uuid_order(topic_id)

        self._topics = sorted(subscribers, key=order)
        if cost := spend(TOPIC_NS * len(subscribers)):
            yield cost
        for topic_id in self._topics:
            self._unassigned.add(topic_id, counts[topic_id])
            if cost := spend(TOPIC_NS + PARTITION_NS * counts[topic_id]):
                yield cost

    def keep(self) -> Iterator[int]:
        for member in self._spec.members.values():
            kept = self._unassigned.keep(member.assigned, member.topic_ids)
            self.assignments.append(kept)
            self._sizes.append(sum(map(len, kept.values())))
            if cost := self._meter.spend(MEMBER_NS + KEPT_NS * len(member.assigned)):
                yield cost

    def assign_rest(self) -> Iterator[int]:
        spend = self._meter.spend
        sizes = self._sizes
        for topic_id in self._topics:
            partitions = self._unassigned.of(topic_id)
            if not partitions:
                if cost := spend(TOPIC_NS):
                    yield cost
                continue
            loads = _Loads(sizes, self._subscribers[topic_id])
            given: dict[int, list[int]] = {}
            for start in range(0, len(partitions), MOVES_A_STEP):
                some = partitions[start : start + MOVES_A_STEP]
                for partition in some:
                    index = loads.next_least_loaded()
                    given.setdefault(index, []).append(partition)
                    sizes[index] += 1
                if cost := spend(HETEROGENEOUS_GIVEN_NS * len(some)):
                    yield cost
            self._give(topic_id, given)
            ns = (
                TOPIC_NS
                + HETEROGENEOUS_SORTED_NS * len(self._subscribers[topic_id])
                + CHANGED_NS * len(given)
            )
            if cost := spend(ns):
                yield cost

    def balance(self) -> Iterator[int]:
        """Balance one topic after the other until all have been balanced since the last move."""
        topics = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        last = -1
        for _ in range(ROUNDS_MAX):
            for number, topic_id in enumerate(topics):
                if number == last:
                    return
                moves = yield from self._balance_topic(topic_id)
                if moves or last < 0:
                    last = number

    def _balance_topic(self, topic_id: Uuid) -> Generator[int, None, int]:
        """Return the number of partitions that have moved."""
        spend = self._meter.spend
        sizes = self._sizes
        subscribers = self._subscribers[topic_id]
        now = [sizes[index] for index in subscribers]
        if cost := spend(TOPIC_NS + COMPARED_NS * len(subscribers)):
            yield cost
        if max(now) - min(now) <= 1:
            return 0
        loads = _Loads(sizes, subscribers)
        if cost := spend(HETEROGENEOUS_SORTED_NS * len(subscribers)):
            yield cost
        # A member gives up what it had before this, and not what it has been given here.
        held: dict[int, list[int]] = {}
        kept: dict[int, int] = {}
        given: dict[int, list[int]] = {}
        moves = 0
        while (giver := loads.next_most_loaded()) >= 0:
            if giver not in held:
                held[giver] = sorted(self.assignments[giver].get(topic_id, ()))
                if cost := spend(CHANGED_NS + PARTITION_NS * len(held[giver])):
                    yield cost
            if not held[giver]:
                loads.exclude_most_loaded()
                continue
            taker = loads.next_least_loaded()
            if loads.are_balanced:
                break
            partition = held[giver].pop()
            sizes[giver] -= 1
            sizes[taker] += 1
            given.setdefault(taker, []).append(partition)
            kept[giver] = len(held[giver])
            moves += 1
            if cost := spend(MOVED_NS):
                yield cost
        for giver in kept:
            if held[giver]:
                self.assignments[giver][topic_id] = frozenset(held[giver])
            else:
                del self.assignments[giver][topic_id]
            if cost := spend(CHANGED_NS + PARTITION_NS * len(held[giver])):
                yield cost
        self._give(topic_id, given)
        if cost := spend(CHANGED_NS * len(given)):
            yield cost
        return moves

    def _give(self, topic_id: Uuid, given: dict[int, list[int]]) -> None:
        for index, partitions in given.items():
            assignment = self.assignments[index]
            assignment[topic_id] = assignment.get(topic_id, frozenset()).union(partitions)


class _Loads:
    """The subscribers of a topic by load, which is the number of all their partitions. Finds the next one that gives up a
    partition, and the next one that gets it.

    The least loaded members are a range at the start. Each of them gets a partition. Then the level of the range is one
    higher, and it grows by the members of that level. In the same way the most loaded members are a range at the end.
    """

    __slots__ = (
        "_least_end",
        "_least_level",
        "_members",
        "_most_end",
        "_most_level",
        "_most_start",
        "_next_least",
        "_next_most",
        "_sizes",
    )

    def __init__(self, sizes: list[int], subscribers: list[int]) -> None:
        """`sizes`: of all members. The caller changes them with each partition that moves."""
        self._sizes = sizes
        # The sort is stable: equal loads are in the group's order.
        members = sorted(subscribers, key=sizes.__getitem__)
        self._members = members
        self._least_end = 0
        self._least_level = sizes[members[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(members)
        self._most_level = sizes[members[-1]] + 1
        self._next_most = len(members) - 1

    @property
    def are_balanced(self) -> bool:
        return self._most_level - self._least_level <= 1

    def next_least_loaded(self) -> int:
        """The member that gets the next partition."""
        if self._next_least >= self._least_end:
            members, sizes = self._members, self._sizes
            self._least_level = level = self._least_level + 1
            end = self._least_end
            while end < len(members) and sizes[members[end]] == level:
                end += 1
            self._least_end = end
            self._next_least = 0
        index = self._members[self._next_least]
        self._next_least += 1
        return index

    def next_most_loaded(self) -> int:
        """The member that gives up the next partition. -1 if no member can."""
        start = self._most_start
        if self._next_most < start:
            members, sizes = self._members, self._sizes
            if self._most_end <= start and start > 0:
                # All members of the range are excluded, so that the level is that of the next ones.
                self._most_level = sizes[members[start - 1]]
            else:
                self._most_level -= 1
            while start > 0 and sizes[members[start - 1]] == self._most_level:
                start -= 1
            self._most_start = start
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return -1
        index = self._members[self._next_most]
        self._next_most -= 1
        return index

    def exclude_most_loaded(self) -> None:
        """Take the member that `next_most_loaded` has returned out of the range: it has nothing to give up."""
        members = self._members
        at = self._next_most + 1
        self._most_end -= 1
        members[at], members[self._most_end] = members[self._most_end], members[at]


NAME = "uniform"


def assign(spec: GroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id. Yields as described in the module `assignor`."""
    return assign_homogeneous(spec) if spec.homogeneous else assign_heterogeneous(spec)
