"""The target assignment of a consumer group: which assignor, what it is asked, and the records of what has changed.

What is alike for all kinds is in group/modern_group.
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
from kafkacompat.group.consumer.consumer_group import NO_PARTITIONS, ConsumerGroup, SubscribedTopics
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.modern_group import (
    ASSIGNING,
    AT_ONCE_UNITS,
    Target,
    assignment_key,
    changed_targets,
    is_assignment_due,
    is_still_wanted,
)
from kafkacompat.group.records import consumer_target_epoch_record, consumer_target_record
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.ids import Uuid


ASSIGNORS: dict[str, Assign] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
"""group.consumer.assignors by their names."""
MEMBERS_AT_ONCE = 500
"""Members up to which a group is assigned within the request. Also the most members whose targets are written at once: each has
a record. A member that is alone is always assigned so."""
SPEC_NS = 1_500
"""To describe one member, or one topic to which members subscribe."""

ConsumerTarget = Target[Assignment]


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


def maybe_update_target(
    env: Environment,
    group: ConsumerGroup,
    group_epoch: int,
    change: Change,
    homogeneous: bool,
    records: list[GroupRecord],
    now_ms: int,
) -> ConsumerTarget:
    """Add the records of a new target assignment if the group epoch is ahead of it. Return the member's target."""
    member = change.new
    last = Target(group.assignment_epoch, group.target_of(member.member_id, member.instance_id))
    if not is_assignment_due(env, group, group_epoch, "consumer.assignment.interval.ms", now_ms):
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
            assignment_key(group.group_id),
            _described_and_assigned(assign, describing) if spec is None else assign(spec),
            lambda assigned, at_ms: _assigned(env, group.group_id, group_epoch, instances, assigned, at_ms),
        )
        return last
    assigned = assign_to_one(spec) if len(spec.members) == 1 else at_once(assign(spec))
    records += _changed(group, assigned, assigned)
    records.append(consumer_target_epoch_record(group.group_id, group_epoch, now_ms))
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
    """Write what was assigned beside the requests, unless the group has gone or it is no longer wanted.

    Many targets are written in several batches, the epoch with the last of them. Until then members that have what they
    should have do not move, and the others take only what nobody has.

    `instances`: instance id -> member id that `assigned` has. A static member that was replaced since then hands its part
    on, because a replacement causes no other assignment.
    """
    group = env.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return nothing()
    for instance_id, former in instances.items():
        present = group.static_members.get(instance_id)
        if present is not None and present not in assigned and former in assigned:
            assigned[present] = assigned.pop(former)
            instances[instance_id] = present
    if not is_still_wanted(group, group_epoch, assigned):
        return nothing()
    records = _changed(group, assigned, group.members)
    if len(records) > MEMBERS_AT_ONCE:
        env.tasks.schedule(
            ASSIGNING,
            assignment_key(group_id),
            _given(assigned),
            lambda again, at_ms: _assigned(env, group_id, group_epoch, instances, again, at_ms),
        )
        return CoordinatorResult(tuple(records[:MEMBERS_AT_ONCE]), None)
    return CoordinatorResult(
        (*records, consumer_target_epoch_record(group.group_id, group_epoch, now_ms)), None
    )


def _changed(group: ConsumerGroup, assigned: dict[str, Assignment], of: Iterable[str]) -> list[GroupRecord]:
    """A record for each member without a target yet, or with another one, and one record more than is written at once."""
    changed = islice(changed_targets(group, assigned, of), MEMBERS_AT_ONCE + 1)
    return [consumer_target_record(group.group_id, member_id, target) for member_id, target in changed]


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
