"""The target assignment of a consumer group: which assignor, what it is asked, and the records of what has changed.

A large group is assigned in steps beside the requests. Until then its members keep the previous target, as they do for
group.consumer.assignment.interval.ms. Follows Kafka's TargetAssignmentBuilder.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.consumer import range_assignor, uniform_assignor
from kafkacompat.group.consumer.assignor import (
    Assign,
    Assignment,
    GroupSpec,
    MemberSpec,
    Meter,
    assign_to_one,
)
from kafkacompat.group.consumer.consumer_group import NO_PARTITIONS, ConsumerGroup
from kafkacompat.group.consumer.metadata_hash import group_hash, topic_hash
from kafkacompat.group.consumer.records import target_epoch_record, target_record
from kafkacompat.group.consumer.subscribed_topics import SubscribedTopics
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kafkacompat.group.consumer.member import ConsumerGroupMember
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.group.topics import Topic
    from kafkacompat.ids import Uuid

ASSIGNORS: dict[str, Assign] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
"""group.consumer.assignors by their names."""
AT_ONCE_UNITS = 2_000
"""Members, and partitions of their topics, up to which a group is assigned within the request. A member that is alone is
always assigned so."""
MEMBERS_AT_ONCE = 500
"""The same, of the members alone. Also the most members whose targets are written at once: each has a record."""
SPEC_NS = 1_500
"""To describe one member, or one topic to which members subscribe."""
HASH_COST = 6
"""To hash one topic."""
HASHED_PARTITIONS_A_UNIT = 20
"""Partitions of a topic that are hashed for a cost of 1."""
ASSIGNING = "assigning partitions of a group"


class Target(NamedTuple):
    epoch: int
    assignment: Assignment
    """Of the member that is reconciled."""


class Change(NamedTuple):
    """One member before and after a request. `old` is the member whose records the request finds."""

    old: ConsumerGroupMember
    new: ConsumerGroupMember


def subscribed_counts(group: ConsumerGroup, change: Change | None) -> dict[str, list[int]]:
    """Topic -> [members that name it, regular expressions that match it], with the change."""
    topics = SubscribedTopics(group)
    if change is not None:
        old, new = change
        topics.rename(old.subscribed_topic_names, new.subscribed_topic_names)
        if old.regex is not None and old.regex != new.regex and group.regexes.get(old.regex) == 1:
            topics.match(old.regex)
    return topics.counts()


def metadata_hash(env: Environment, names: Iterable[str]) -> int:
    """Of the topics that exist. It changes when one of them does."""
    found = {name: topic for name in names if (topic := env.topics.by_name.get(name)) is not None}
    return group_hash({name: _hash_of(env, topic) for name, topic in found.items()})


def hash_topics(env: Environment, names: Iterable[str]) -> Generator[int, None, None]:
    """Hash these topics beside the requests, so that `metadata_hash` finds what is still true of it."""
    for name in names:
        topic = env.topics.by_name.get(name)
        if topic is not None:
            _hash_of(env, topic)
            yield HASH_COST + len(topic.partitions) // HASHED_PARTITIONS_A_UNIT


def _hash_of(env: Environment, topic: Topic) -> int:
    cached = env.topic_hashes.get(topic.name)
    if cached is None or cached[0] is not topic:
        known = topic_hash(topic.id, topic.name, len(topic.partitions), env.topics.racks(topic))
        cached = env.topic_hashes[topic.name] = (topic, known)
    return cached[1]


def is_homogeneous(group: ConsumerGroup, change: Change | None, counts: dict[str, list[int]]) -> bool:
    """Whether all members, with this change, subscribe to the same topics."""
    members = len(group.members)
    regexes = dict(group.regexes)
    if change is not None:
        old, new = change
        members += new.member_id not in group.members and group.static_member(new.instance_id) is None
        if old.regex != new.regex:
            for regex, step in ((old.regex, -1), (new.regex, 1)):
                if regex is not None:
                    regexes[regex] = regexes.get(regex, 0) + step
                    if not regexes[regex]:
                        del regexes[regex]
    if not regexes:
        return all(by_name == members for by_name, _ in counts.values())
    if len(regexes) > 1 or next(iter(regexes.values())) != members:
        return False
    return all(by_regex == 1 and not by_name for by_name, by_regex in counts.values())


def may_assign(env: Environment, group: ConsumerGroup, now_ms: int) -> bool:
    """Whether group.consumer.assignment.interval.ms has passed, or the clock was set back. The interval may be 0."""
    interval_ms = env.consumer_setting(group.group_id, "assignment_interval_ms")
    since_ms = group.assignment_timestamp_ms
    return not since_ms or not interval_ms or not since_ms <= now_ms < since_ms + interval_ms


def maybe_update_target(
    env: Environment,
    group: ConsumerGroup,
    group_epoch: int,
    change: Change,
    homogeneous: bool,
    records: list[GroupRecord],
    now_ms: int,
) -> Target:
    """Add the records of a new target assignment if the group epoch is ahead of it. Return the member's target."""
    member = change.new
    last = Target(group.assignment_epoch, group.target_of(member.member_id, member.instance_id))
    key = ("assignment", group.group_id)
    if (
        group.assignment_epoch >= group_epoch
        or not may_assign(env, group, now_ms)
        or env.tasks.is_scheduled(key)
    ):
        return last
    assign = ASSIGNORS[group.preferred_assignor(*change) or env.settings.consumer.assignors[0]]
    describing = _spec(env, group, change, homogeneous)
    spec = None if len(group.members) > MEMBERS_AT_ONCE else at_once(describing)
    if spec is None or _is_large(spec):
        instances = dict(group.static_members)
        if member.instance_id is not None:
            instances[member.instance_id] = member.member_id
        env.tasks.schedule(
            ASSIGNING,
            key,
            _described_and_assigned(assign, describing) if spec is None else assign(spec),
            lambda assigned, at_ms: _assigned(env, group.group_id, group_epoch, instances, assigned, at_ms),
        )
        return last
    assigned = assign_to_one(spec) if len(spec.members) == 1 else at_once(assign(spec))
    records += _changed(group, assigned, assigned)
    records.append(target_epoch_record(group.group_id, group_epoch, now_ms))
    return Target(group_epoch, assigned.get(member.member_id, NO_PARTITIONS))


def _is_large(spec: GroupSpec) -> bool:
    return len(spec.members) > 1 and len(spec.members) + sum(spec.partition_counts.values()) > AT_ONCE_UNITS


def _described_and_assigned(
    assign: Assign, describing: Generator[int, None, GroupSpec]
) -> Generator[int, None, dict[str, Assignment]]:
    spec = yield from describing
    return (yield from assign(spec))


def _given(assigned: dict[str, Assignment]) -> Generator[int, None, dict[str, Assignment]]:
    yield 0
    return assigned


def _assigned(
    env: Environment,
    group_id: str,
    group_epoch: int,
    instances: dict[str, str],
    assigned: dict[str, Assignment],
    now_ms: int,
) -> GroupResult:
    """Write what was assigned in steps, unless the group has gone or a later assignment has overtaken it. Members that
    left meanwhile are left out. Those that joined get their part from the next assignment.

    Many targets are written in several batches, the epoch with the last of them. Until then members that have what they
    should have do not move, and the others take only what nobody has.

    `instances`: instance id -> member id that `assigned` has. A static member that was replaced since then hands its part
    on, because a replacement causes no other assignment.
    """
    group = env.groups.get(group_id)
    if not isinstance(group, ConsumerGroup) or not group.assignment_epoch < group_epoch <= group.group_epoch:
        return nothing()
    for instance_id, former in instances.items():
        present = group.static_members.get(instance_id)
        if present is not None and present not in assigned and former in assigned:
            assigned[present] = assigned.pop(former)
            instances[instance_id] = present
    if group_epoch == group.group_epoch and assigned.keys() != group.members.keys():
        # The log refused the change for which this was computed, and the epoch is now that of another change. Nothing
        # would cause another assignment, so the next heartbeat must.
        return nothing()
    records = _changed(group, assigned, group.members)
    if len(records) > MEMBERS_AT_ONCE:
        env.tasks.schedule(
            ASSIGNING,
            ("assignment", group_id),
            _given(assigned),
            lambda again, at_ms: _assigned(env, group_id, group_epoch, instances, again, at_ms),
        )
        return CoordinatorResult(tuple(records[:MEMBERS_AT_ONCE]), None)
    return CoordinatorResult((*records, target_epoch_record(group.group_id, group_epoch, now_ms)), None)


def _changed(group: ConsumerGroup, assigned: dict[str, Assignment], of: Iterable[str]) -> list[GroupRecord]:
    """A record for each member without a target yet, or with another one, and one record more than is written at once."""
    changed = (
        target_record(group.group_id, member_id, assigned[member_id])
        for member_id in of
        if member_id in assigned and group.targets.get(member_id) != assigned[member_id]
    )
    return list(islice(changed, MEMBERS_AT_ONCE + 1))


def _spec(
    env: Environment, group: ConsumerGroup, change: Change, homogeneous: bool
) -> Generator[int, None, GroupSpec]:
    """The group as it is now, with the change, described in steps."""
    member = change.new
    former = group.static_member(member.instance_id)
    replaced = None if former is None or former.member_id == member.member_id else former.member_id
    members = {**group.members, member.member_id: member}
    if replaced is not None:
        del members[replaced]
    targets = dict(group.targets)
    return _described(env, group, members, targets, member.member_id, replaced, homogeneous)


def _described(
    env: Environment,
    group: ConsumerGroup,
    members: dict[str, ConsumerGroupMember],
    targets: dict[str, Assignment],
    joining: str,
    replaced: str | None,
    homogeneous: bool,
) -> Generator[int, None, GroupSpec]:
    # Members with equal subscriptions share one set of ids: a union of names and matches may have all topics.
    ids: dict[tuple[frozenset[str], str | None], frozenset[Uuid]] = {}
    counts: dict[Uuid, int] = {}
    specs = {}
    meter = Meter()
    for member_id, each in members.items():
        subscription = (each.subscribed_topic_names, each.regex)
        topic_ids = ids.get(subscription)
        if topic_ids is None:
            names = group.topic_names_of(each)
            known = [topic for name in names if (topic := env.topics.by_name.get(name)) is not None]
            counts.update((topic.id, len(topic.partitions)) for topic in known)
            topic_ids = ids[subscription] = frozenset([topic.id for topic in known])
            if cost := meter.spend(SPEC_NS * len(known)):
                yield cost
        of = replaced if replaced is not None and member_id == joining else member_id
        specs[member_id] = MemberSpec(
            each.instance_id, each.rack_id, topic_ids, targets.get(of, NO_PARTITIONS)
        )
        if cost := meter.spend(SPEC_NS):
            yield cost
    return GroupSpec(specs, counts, homogeneous)
