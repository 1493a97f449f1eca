"""The environment of classic group operations: settings, timers, random numbers, and the collected replies.

Replies are collected, so that no other code runs in the middle of an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.records import GroupRecord

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.group.classic_group import ClassicGroup
    from kafkacompat.ports import Random

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

TimerKey = tuple[Hashable, ...]
GroupResult = CoordinatorResult[GroupRecord, None]
TimerOperation = Callable[[int], GroupResult]
"""Called with the wall clock in ms when it is due."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's settings of the group coordinator. Sizes in characters, times in ms."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    offset_metadata_max_size: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000


class GroupTimers(Protocol):
    def schedule(self, key: TimerKey, delay_ms: int, operation: TimerOperation) -> None:
        """Run the operation after the delay. It replaces the key's earlier operation."""
        ...

    def cancel(self, key: TimerKey) -> None: ...


class Environment:
    """The environment of one shard. `replies` has (parked request, message) pairs in order. The shell sends them after
    the operation."""

    __slots__ = ("groups", "random", "replies", "settings", "timers")

    def __init__(
        self,
        settings: GroupSettings,
        timers: GroupTimers,
        random: Random,
        groups: dict[str, ClassicGroup],
    ) -> None:
        self.settings = settings
        self.timers = timers
        self.random = random
        self.groups = groups
        self.replies: list[tuple[Deferred[Any], Any]] = []

    def reply(self, waiter: Deferred[Any] | None, message: Any) -> bool:
        """Add a reply. Returns whether there was a request to answer."""
        if waiter is None:
            return False
        self.replies.append((waiter, message))
        return True

    def member_id(self, prefix: str) -> str:
        """A new member id: the prefix, a dash, and a UUID in Java's text form."""
        digits = self.random.uuid().hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def nothing() -> GroupResult:
    return CoordinatorResult((), None)


# A timer belongs to the group object and not to its name, because another group of that name may exist when it fires.


def heartbeat_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("heartbeat", group, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    return ("join", group)


def sync_key(group: ClassicGroup) -> TimerKey:
    return ("sync", group)
