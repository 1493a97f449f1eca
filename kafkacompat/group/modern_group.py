"""What the newer kinds of groups have in common (ModernGroup): members, epochs, target assignment, subscribed topics.

It is changed by the replay of records only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from kafkacompat.coordinator.core import Refused
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.kinds import GroupKind

LEAVE_GROUP_MEMBER_EPOCH = -1

Subscribers = dict[str, set[str]]
"""Topic name -> ids of the groups that subscribe to it."""


class ModernGroupMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...


M = TypeVar("M", bound=ModernGroupMember)
T = TypeVar("T")


class ModernGroup(Generic[M, T]):
    """Of members M, each with a target T."""

    __slots__ = (
        "_is_dead",
        "_subscribers",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "group_epoch",
        "group_id",
        "members",
        "metadata_hash",
        "refresh_deadline_ms",
        "refresh_epoch",
        "targets",
    )

    kind: ClassVar[GroupKind]
    topic_names: Mapping[str, Any]
    """By subscribed topic, how many members subscribe to it."""

    def __init__(self, group_id: str, subscribers: Subscribers) -> None:
        self.group_id = group_id
        self._subscribers = subscribers
        self.group_epoch = 1
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        """When the target assignment was computed. 0 if unknown."""
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        """Member id -> target assignment."""
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0
        self._is_dead = False

    def _state_may_change(self) -> None:
        """For a kind of group that remembers its state."""

    def is_empty(self) -> bool:
        return not self.members

    def is_dead(self) -> bool:
        return self._is_dead

    def set_group_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.group_epoch = epoch
        self.metadata_hash = metadata_hash
        self._state_may_change()

    def set_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        self.assignment_epoch = epoch
        self.assignment_timestamp_ms = timestamp_ms
        self._state_may_change()

    def request_metadata_refresh(self) -> None:
        """A subscribed topic has changed: the next heartbeat compares the metadata hash."""
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0

    def set_refresh_deadline(self, deadline_ms: int, epoch: int) -> None:
        self.refresh_deadline_ms = deadline_ms
        self.refresh_epoch = epoch

    def has_metadata_expired(self, now_ms: int) -> bool:
        """Also if the group epoch of the last refresh was never written."""
        return now_ms >= self.refresh_deadline_ms or self.group_epoch < self.refresh_epoch

    def member(self, member_id: str) -> M:
        """Raises Refused."""
        found = self.members.get(member_id)
        if found is None:
            raise Refused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    # --- subscribed topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_names

    def _subscribe(self, name: str) -> None:
        self._subscribers.setdefault(name, set()).add(self.group_id)

    def _unsubscribe(self, name: str) -> None:
        groups = self._subscribers.get(name)
        if groups is not None:
            groups.discard(self.group_id)
            if not groups:
                del self._subscribers[name]

    def forget(self) -> None:
        """The group is removed."""
        for name in self.topic_names:
            self._unsubscribe(name)

    # --- deletion

    def shut(self, now_ms: int) -> None:
        self._is_dead = True
        self._state_may_change()

    def open_again(self) -> None:
        self._is_dead = False
        self._state_may_change()
