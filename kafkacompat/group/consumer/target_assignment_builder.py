"""The target assignment of a consumer group: which assignor, and what it is asked.

What is alike for all kinds is in group/target_assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from kafkacompat.group.environment import Environment
from kafkacompat.group.records import consumer_target_epoch_record, consumer_target_record
from kafkacompat.group.target_assignment import (
    AT_ONCE_UNITS,
    Target,
    TargetRecords,
    assign_beside,
    assigned_at_once,
    is_assignment_due,
)
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.ids import Uuid


ASSIGNORS: dict[str, Assign] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
"""group.consumer.assignors by their names."""
MEMBERS_AT_ONCE = 500
"""Members up to which a group is assigned within the request. A member that is alone is always assigned so."""
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
    last = Target(
        group.assignment_epoch, group.target_of(member.member_id, member.instance_id, NO_PARTITIONS)
    )
    if not is_assignment_due(env, group, group_epoch, now_ms):
        return last
    assign = ASSIGNORS[group.preferred_assignor(*change) or env.settings.consumer.assignors[0]]
    describing = _spec(env, group, change, homogeneous)
    spec = None if len(group.members) > MEMBERS_AT_ONCE else at_once(describing)
    if spec is None or _is_large(spec):
        work = _described_and_assigned(assign, describing) if spec is None else assign(spec)
        assign_beside(_RECORDS, env, group, group_epoch, work, member.instance_id, member.member_id)
        return last
    assigned = assign_to_one(spec) if len(spec.members) == 1 else at_once(assign(spec))
    replaced = _replaced(group, member)
    inherited = None if replaced is None else group.targets.get(replaced)
    return assigned_at_once(
        _RECORDS, group, group_epoch, assigned, member.member_id, records, now_ms, inherited
    )


_RECORDS: TargetRecords[Assignment] = TargetRecords(
    ConsumerGroup, consumer_target_record, consumer_target_epoch_record, NO_PARTITIONS
)


def _is_large(spec: GroupSpec) -> bool:
    return len(spec.members) > 1 and len(spec.members) + sum(spec.partition_counts.values()) > AT_ONCE_UNITS


def _described_and_assigned(
    assign: Assign, describing: Generator[int, None, GroupSpec]
) -> Generator[int, None, dict[str, Assignment]]:
    spec = yield from describing
    return (yield from assign(spec))


def _spec(
    env: Environment, group: ConsumerGroup, change: Change, homogeneous: bool
) -> Generator[int, None, GroupSpec]:
    """The group as it is now, with the change, described in steps."""
    member = change.new
    replaced = _replaced(group, member)
    members = {**group.members, member.member_id: member}
    if replaced is not None:
        del members[replaced]
    targets = dict(group.targets)
    return _described(env, group, members, targets, member.member_id, replaced, homogeneous)


def _replaced(group: ConsumerGroup, member: ConsumerGroupMember) -> str | None:
    """The static member whose place the member takes."""
    former = group.static_member(member.instance_id)
    return None if former is None or former.member_id == member.member_id else former.member_id


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
