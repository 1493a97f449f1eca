"""The target assignment of the newer kinds of groups: when it is due, and what of it is written.

A kind says what its assignor is asked, and which records have a target and the assignment's epoch. A large group is
assigned in pieces beside the requests. Until then its members keep the previous target, as they do for the assignment
interval of their kind. Follows Kafka's TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.dataclass import dataclass
from kafkacompat.group.environment import Environment, GroupResult, nothing

if TYPE_CHECKING:
    from kafkacompat.group.environment import TimerKey
    from kafkacompat.group.modern_group import ModernGroup
    from kafkacompat.group.records import GroupRecord

T = TypeVar("T")

AT_ONCE_UNITS = 2_000
"""Members, and partitions of their topics, up to which a group is assigned within the request."""
TARGETS_AT_ONCE = 500
"""The most members whose targets are written at once beside the requests: each has a record."""
ASSIGNING = "assigning partitions of a group"


class Target(NamedTuple, Generic[T]):
    epoch: int
    assignment: T
    """Of the member that is reconciled."""


@dataclass(frozen=True, slots=True)
class TargetRecords(Generic[T]):
    """The records of a kind of group."""

    group: type[ModernGroup[Any, T]]
    target: Callable[[str, str, T], GroupRecord]
    """Called with group id, member id, and the member's target."""
    epoch: Callable[[str, int, int], GroupRecord]
    """Called with group id, assignment epoch, and the wall clock in ms."""
    nothing: T


def assignment_key(group_id: str) -> TimerKey:
    """Of the assignment that is being made beside the requests."""
    return ("assignment", group_id)


def may_assign(group: ModernGroup[Any, Any], interval_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed, or the clock was set back. The interval may be 0."""
    since_ms = group.assignment_timestamp_ms
    return not since_ms or not interval_ms or not since_ms <= now_ms < since_ms + interval_ms


def is_assignment_due(env: Environment, group: ModernGroup[Any, Any], group_epoch: int, now_ms: int) -> bool:
    """Whether a new target assignment is to be made."""
    return (
        group.assignment_epoch < group_epoch
        and may_assign(group, env.configs.get_int(group.group_id, group.assignment_interval), now_ms)
        and not env.tasks.is_scheduled(assignment_key(group.group_id))
    )


def assigned_at_once(
    of: TargetRecords[T],
    group: ModernGroup[Any, T],
    group_epoch: int,
    assigned: Mapping[str, T],
    member_id: str,
    records: list[GroupRecord],
    now_ms: int,
    inherited: T | None = None,
) -> Target[T]:
    """Add the records of a new target assignment. Return the member's target. `inherited` is the target of the static member
    whose place it takes: the records of that replacement have it already."""
    records += [
        of.target(group.group_id, *each)
        for each in changed_targets(group, assigned, assigned)
        if each != (member_id, inherited)
    ]
    records.append(of.epoch(group.group_id, group_epoch, now_ms))
    return Target(group_epoch, assigned.get(member_id, of.nothing))


def assign_beside(
    of: TargetRecords[T],
    env: Environment,
    group: ModernGroup[Any, T],
    group_epoch: int,
    work: Generator[int, None, dict[str, Any]],
    instance_id: str | None,
    member_id: str,
) -> None:
    """Assign beside the requests, and write what comes of it. The member and its instance id are those of the request,
    which the group does not have yet."""
    instances = dict(group.static_members)
    if instance_id is not None:
        instances[instance_id] = member_id
    _schedule(of, env, group.group_id, group_epoch, instances, work)


def _schedule(
    of: TargetRecords[T],
    env: Environment,
    group_id: str,
    group_epoch: int,
    instances: dict[str, str],
    work: Generator[int, None, dict[str, Any]],
) -> None:
    env.tasks.schedule(
        ASSIGNING,
        assignment_key(group_id),
        work,
        lambda assigned, at_ms: _assigned(of, env, group_id, group_epoch, instances, assigned, at_ms),
    )


def _given(assigned: dict[str, T]) -> Generator[int, None, dict[str, T]]:
    yield 0
    return assigned


def _assigned(
    of: TargetRecords[T],
    env: Environment,
    group_id: str,
    group_epoch: int,
    instances: dict[str, str],
    assigned: dict[str, T],
    now_ms: int,
) -> GroupResult:
    """Write what was assigned beside the requests, unless the group has gone or it is no longer wanted.

    Many targets are written in several batches, the epoch with the last of them. Until then members that have what they
    should have do not move, and the others take only what nobody has.

    `instances`: instance id -> member id that `assigned` has. A static member that was replaced since then hands its part
    on, because a replacement causes no other assignment.
    """
    group: Any = env.groups.get(group_id)
    if not isinstance(group, of.group):
        return nothing()
    for instance_id, former in instances.items():
        present = group.static_members.get(instance_id)
        if present is not None and present not in assigned and former in assigned:
            assigned[present] = assigned.pop(former)
            instances[instance_id] = present
    if not _is_still_wanted(group, group_epoch, assigned):
        return nothing()
    changed = islice(changed_targets(group, assigned, group.members), TARGETS_AT_ONCE + 1)
    records = [of.target(group_id, *each) for each in changed]
    if len(records) > TARGETS_AT_ONCE:
        _schedule(of, env, group_id, group_epoch, instances, _given(assigned))
        return CoordinatorResult(tuple(records[:TARGETS_AT_ONCE]), None)
    return CoordinatorResult((*records, of.epoch(group_id, group_epoch, now_ms)), None)


def _is_still_wanted(group: ModernGroup[Any, Any], group_epoch: int, assigned: Mapping[str, Any]) -> bool:
    """Members that left meanwhile are left out. Those that joined get their part from the next assignment."""
    if not group.assignment_epoch < group_epoch <= group.group_epoch:
        return False  # a later assignment has overtaken it
    # With the same epoch and other members, the log refused the change for which this was computed, and the epoch is now that of
    # another change. Nothing would cause another assignment, so the next heartbeat must.
    return group_epoch < group.group_epoch or assigned.keys() == group.members.keys()


def changed_targets(
    group: ModernGroup[Any, T], assigned: Mapping[str, T], of: Iterable[str]
) -> Iterator[tuple[str, T]]:
    """Those members that have no target yet or another one, with what they are to have."""
    for member_id in of:
        if member_id in assigned and group.targets.get(member_id) != assigned[member_id]:
            yield member_id, assigned[member_id]
