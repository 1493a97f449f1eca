"""What the target assignments of all newer kinds of groups have in common: when one is due, and what of it is written.

A kind says what its assignor is asked and which record has a target. A large group is assigned in pieces beside the requests. Until
then its members keep the previous target, as they do for the assignment interval of their kind. Follows Kafka's
TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from kafkacompat.group.environment import Environment, TimerKey
    from kafkacompat.group.modern_group import ModernGroup

T = TypeVar("T")
Setting = Callable[[str, str], int]
"""The setting of a group, by the group's id and the setting's name."""

AT_ONCE_UNITS = 2_000
"""Members, and partitions of their topics, up to which a group is assigned within the request."""
ASSIGNING = "assigning partitions of a group"


class Target(NamedTuple, Generic[T]):
    epoch: int
    assignment: T
    """Of the member that is reconciled."""


def assignment_key(group_id: str) -> TimerKey:
    """Of the assignment that is being made beside the requests."""
    return ("assignment", group_id)


def may_assign(group: ModernGroup[Any, Any], interval_ms: int, now_ms: int) -> bool:
    """Whether the assignment interval has passed, or the clock was set back. The interval may be 0."""
    since_ms = group.assignment_timestamp_ms
    return not since_ms or not interval_ms or not since_ms <= now_ms < since_ms + interval_ms


def is_assignment_due(
    env: Environment, group: ModernGroup[Any, Any], group_epoch: int, setting: Setting, now_ms: int
) -> bool:
    """Whether a new target assignment is to be made. `setting` gives a setting of the group's kind."""
    return (
        group.assignment_epoch < group_epoch
        and may_assign(group, setting(group.group_id, "assignment_interval_ms"), now_ms)
        and not env.tasks.is_scheduled(assignment_key(group.group_id))
    )


def is_still_wanted(group: ModernGroup[Any, Any], group_epoch: int, assigned: Collection[str]) -> bool:
    """Whether what was assigned beside the requests is to be written, to the members in `assigned`. Members that left meanwhile
    are left out. Those that joined get their part from the next assignment."""
    if not group.assignment_epoch < group_epoch <= group.group_epoch:
        return False  # a later assignment has overtaken it
    # With the same epoch and other members, the log refused the change for which this was computed, and the epoch is now that of
    # another change. Nothing would cause another assignment, so the next heartbeat must.
    return group_epoch < group.group_epoch or set(assigned) == group.members.keys()


def changed_targets(
    group: ModernGroup[Any, T], assigned: Mapping[str, T], of: Iterable[str]
) -> Iterator[tuple[str, T]]:
    """Those members that have no target yet or another one, with what they are to have."""
    for member_id in of:
        if member_id in assigned and group.targets.get(member_id) != assigned[member_id]:
            yield member_id, assigned[member_id]
