"""The assignor "uniform" for members that all subscribe to the same topics.

The members' numbers of partitions differ by at most one. Each member keeps what it had, up to its quota. The rest goes
to the members below their quota, in the group's order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kafkacompat.group.consumer.assignor import Assignment, GroupSpec, Meter, uuid_order
from kafkacompat.group.consumer.unassigned_partitions import PARTITION_NS, TOPIC_NS, UnassignedPartitions
from kafkacompat.ids import Uuid

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
