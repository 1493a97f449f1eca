"""The target assignment of a share group: what the assignor is asked, and the records of what has changed.

What is alike for all kinds is in group/target_assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.share.member import Partitions
from kafkacompat.group.share.records import target_epoch_record, target_record
from kafkacompat.group.share.share_group import NO_PARTITIONS, ShareGroup
from kafkacompat.group.share.simple_assignor import ShareGroupSpec, ShareMemberSpec, assign
from kafkacompat.group.share.state_partitions import NO_STATES
from kafkacompat.group.target_assignment import (
    ASSIGNING,
    AT_ONCE_UNITS,
    Target,
    assignment_key,
    changed_targets,
    is_assignment_due,
    is_still_wanted,
)
from kafkacompat.tasks import at_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkacompat.group.records import GroupRecord
    from kafkacompat.group.share.member import ShareGroupMember
    from kafkacompat.ids import Uuid


FIRST_AT_ONCE_UNITS = 5_000
"""Like AT_ONCE_UNITS, for the first assignment, which a member then gets as the answer to its joining."""


ShareTarget = Target[Partitions]


def maybe_update_target(
    env: Environment,
    group: ShareGroup,
    group_epoch: int,
    member: ShareGroupMember,
    homogeneous: bool,
    records: list[GroupRecord],
    now_ms: int,
) -> ShareTarget:
    """Add the records of a new target assignment if the group epoch is ahead of it. Return the member's target."""
    last = Target(group.assignment_epoch, group.targets.get(member.member_id, NO_PARTITIONS))
    if not is_assignment_due(env, group, group_epoch, env.share_setting, now_ms):
        return last
    spec = _spec(env, group, member, homogeneous)
    shares = max(len(spec.members), sum(map(len, spec.assignable.values())))
    if len(spec.members) + shares > (AT_ONCE_UNITS if group.targets else FIRST_AT_ONCE_UNITS):
        env.tasks.schedule(
            ASSIGNING,
            assignment_key(group.group_id),
            assign(spec),
            lambda assigned, at_ms: _assigned(env, group.group_id, group_epoch, assigned, at_ms),
        )
        return last
    assigned = at_once(assign(spec))
    records += _changed(group, assigned, assigned)
    records.append(target_epoch_record(group.group_id, group_epoch, now_ms))
    return Target(group_epoch, assigned.get(member.member_id, NO_PARTITIONS))


def _assigned(
    env: Environment,
    group_id: str,
    group_epoch: int,
    assigned: Mapping[str, Partitions],
    now_ms: int,
) -> GroupResult:
    """Write what was assigned beside the requests, unless the group has gone or it is no longer wanted."""
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not is_still_wanted(group, group_epoch, assigned):
        return nothing()
    records = _changed(group, assigned, group.members)
    return CoordinatorResult((*records, target_epoch_record(group.group_id, group_epoch, now_ms)), None)


def _changed(group: ShareGroup, assigned: Mapping[str, Partitions], of: Iterable[str]) -> list[GroupRecord]:
    """A record for each member without a target yet, or with another one."""
    return [
        target_record(group.group_id, member_id, target)
        for member_id, target in changed_targets(group, assigned, of)
    ]


def _spec(env: Environment, group: ShareGroup, member: ShareGroupMember, homogeneous: bool) -> ShareGroupSpec:
    # Members with equal subscriptions share one set of ids.
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    assignable: dict[Uuid, list[int]] = {}
    has_state = (NO_STATES if group.states is None else group.states).assignable()
    specs = {}
    for each in {**group.members, member.member_id: member}.values():
        names = each.subscribed_topic_names
        topic_ids = ids.get(names)
        if topic_ids is None:
            known = [topic for name in names if (topic := env.topics.by_name.get(name)) is not None]
            for topic in known:
                if topic.id not in assignable:
                    count = len(topic.partitions)
                    having = has_state.get(topic.id, ())
                    assignable[topic.id] = sorted(index for index in having if index < count)
            topic_ids = ids[names] = frozenset([topic.id for topic in known])
        specs[each.member_id] = ShareMemberSpec(topic_ids, group.targets.get(each.member_id, NO_PARTITIONS))
    return ShareGroupSpec(specs, assignable, homogeneous)
