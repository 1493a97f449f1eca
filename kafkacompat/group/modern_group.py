"""What the newer kinds of groups have in common (ModernGroup): members, epochs, target assignment, subscribed topics.

It is changed by the replay of records only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from kafkacompat.coordinator.core import Refused
from kafkacompat.group.sizes import size_of_group
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.kinds import GroupKind
    from kafkacompat.memory import Held, Memory

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

    def size(self) -> int:
        """The bytes of memory that the member takes, besides its assignment, which the brokers decide."""
        ...

    def takes_as_much_as(self, other: Self) -> bool:
        """Whether what it has told is the same object as what the other one has told. It is quick."""
        ...


M = TypeVar("M", bound=ModernGroupMember)
T = TypeVar("T")


class ModernGroup(Generic[M, T]):
    """Of members M, each with a target T."""

    __slots__ = (
        "_held",
        "_is_dead",
        "_memory",
        "_subscribers",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "group_epoch",
        "group_id",
        "held",
        "members",
        "metadata_hash",
        "refresh_deadline_ms",
        "refresh_epoch",
        "targets",
    )

    kind: ClassVar[GroupKind]
    topic_names: Mapping[str, Any]
    """By subscribed topic, how many members subscribe to it."""

    def __init__(self, group_id: str, subscribers: Subscribers, memory: Memory | None = None) -> None:
        """`memory`: where the group and its members are counted. None if they are not, as long as the group exists for the
        present request only."""
        self._memory = memory
        self.held = None if memory is None else memory.hold(size_of_group(group_id))
        self._held: dict[str, Held] = {}
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

    # --- memory

    def growth(self, new: M) -> int:
        """How much more memory is held after a member tells this than before."""
        held = self._held.get(new.member_id)
        old = self.members.get(new.member_id)
        if old is not None and new.takes_as_much_as(old):
            return 0
        own = size_of_group(self.group_id) if self._memory is None else 0
        return own + new.size() - (0 if held is None else held.size)

    def _hold(self, old: M | None, new: M) -> None:
        if self._memory is None or (old is not None and new.takes_as_much_as(old)):
            return
        self._held.pop(new.member_id, None)
        self._held[new.member_id] = self._memory.hold(new.size())

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
