"""The assignor "range": each member gets a contiguous range of each of its topics.

Members are in the order of their ids, static members first and in the order of their instance ids. So a static member
that returns under another member id gets the same ranges. If all members subscribe to the same topics, topics with
equally many partitions are co-partitioned: a member gets the same partitions of each of them. Earlier assignments do
not matter.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from kafkacompat.group.consumer.assignor import Assignment, GroupSpec, Meter, string_order
from kafkacompat.ids import Uuid

NAME = "range"

MEMBER_NS = 500
SUBSCRIPTION_NS = 90
"""One topic of one member."""
TOPIC_NS = 1000
RANGE_NS = 600
PARTITION_NS = 60


def assign(spec: GroupSpec) -> Generator[int, None, dict[str, Assignment]]:
    """Return the target assignment by member id. Yields as described in the module `assignor`."""
    meter = Meter()
    member_ids = _ordered(spec)
    assignments: dict[str, Assignment] = {member_id: {} for member_id in spec.members}
    if cost := meter.spend(2 * MEMBER_NS * len(member_ids)):
        yield cost
    if spec.homogeneous:
        yield from _assign_homogeneous(spec, member_ids, assignments, meter)
    else:
        yield from _assign_heterogeneous(spec, member_ids, assignments, meter)
    return assignments


def _ordered(spec: GroupSpec) -> list[str]:
    """The member ids in the order in which they get ranges."""

    def order(member_id: str) -> tuple[bool, bytes]:
        instance_id = spec.members[member_id].instance_id
        if instance_id is None:
            return True, string_order(member_id)
        return False, string_order(instance_id)

    return sorted(spec.members, key=order)


def _assign_homogeneous(
    spec: GroupSpec, member_ids: list[str], assignments: dict[str, Assignment], meter: Meter
) -> Iterator[int]:
    if not member_ids:
        return
    by_count: dict[int, list[Uuid]] = {}
    topic_ids = spec.topics(spec.members[member_ids[0]].topic_ids)
    for topic_id in topic_ids:
        by_count.setdefault(spec.partition_counts[topic_id], []).append(topic_id)
    if cost := meter.spend(TOPIC_NS * len(topic_ids)):
        yield cost
    for count, same_count in by_count.items():
        # These topics are co-partitioned, so that their members share one set of partitions.
        for member_id, partitions in zip(member_ids, _ranges(count, len(member_ids)), strict=False):
            assignments[member_id].update(dict.fromkeys(same_count, partitions))
            ns = RANGE_NS + PARTITION_NS * len(partitions) + SUBSCRIPTION_NS * len(same_count)
            if cost := meter.spend(ns):
                yield cost


def _assign_heterogeneous(
    spec: GroupSpec, member_ids: list[str], assignments: dict[str, Assignment], meter: Meter
) -> Iterator[int]:
    subscribers: dict[Uuid, list[Assignment]] = {}
    for member_id in member_ids:
        assignment = assignments[member_id]
        topic_ids = spec.members[member_id].topic_ids
        for topic_id in topic_ids:
            if topic_id in subscribers:
                subscribers[topic_id].append(assignment)
            else:
                subscribers[topic_id] = [assignment]
        if cost := meter.spend(MEMBER_NS + SUBSCRIPTION_NS * len(topic_ids)):
            yield cost
    topics = spec.topics(subscribers)
    if cost := meter.spend(TOPIC_NS * len(topics)):
        yield cost
    for topic_id in topics:
        subscribed = subscribers[topic_id]
        ranges = _ranges(spec.partition_counts[topic_id], len(subscribed))
        for assignment, partitions in zip(subscribed, ranges, strict=False):
            assignment[topic_id] = partitions
            if cost := meter.spend(RANGE_NS + PARTITION_NS * len(partitions)):
                yield cost
        if cost := meter.spend(TOPIC_NS):
            yield cost


def _ranges(partition_count: int, member_count: int) -> Iterator[frozenset[int]]:
    """The ranges of the first members, which are one longer than those of the last. The last members get none if there
    are too few partitions."""
    quota, extra = divmod(partition_count, member_count)
    start = 0
    while start < partition_count:
        end = start + quota + (extra > 0)
        extra -= 1
        yield frozenset(range(start, end))
        start = end
