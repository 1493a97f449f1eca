"""What the newer kinds of groups have in common (Kafka's ModernGroup).

- Members, epochs, target assignment and subscribed topics. They are changed by the replay of records only.
- When a target assignment is due, and what of it is written. A kind says what its assignor is asked and which record
  has a target. A large group is assigned in pieces beside the requests. Until then its members keep the previous
  target, as they do for the assignment interval of their kind. Follows Kafka's TargetAssignmentBuilder.
- The metadata hash: whether the topics that the members subscribe to have changed. Only equality matters. The hash is
  Kafka's own nevertheless, because it is in the group's records: a broker of another kind that takes over the group
  would otherwise compute another hash and start a needless epoch.
- A timer that fences a member when it fires. It belongs to the ids, because the log makes the group: it looks for the
  member when it fires.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from xxhash import xxh3_64_intdigest

from kafkacompat.coordinator.core import LoadFailure, OperationRefused
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.group.environment import METADATA_REFRESH_INTERVAL_MS, Environment, GroupResult
from kafkacompat.group.sizes import size_of_group
from kafkacompat.ids import Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.environment import TimerKey
    from kafkacompat.group.group import Group
    from kafkacompat.group.records import GroupKind, GroupRecord, ModernGroupRecord
    from kafkacompat.group.topics import Topic
    from kafkacompat.memory import Held, Memory
    from kafkacompat.tasks import Work


LEAVE_GROUP_MEMBER_EPOCH = -1

JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's trim removes."""

Subscribers = dict[str, set[str]]
"""Topic name -> ids of the groups that subscribe to it."""


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip(JAVA_BLANKS)


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
        """Raises OperationRefused."""
        found = self.members.get(member_id)
        if found is None:
            raise OperationRefused(
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

    def unsubscribe_from_all(self) -> None:
        """The group is removed."""
        for name in self.topic_names:
            self._unsubscribe(name)

    # --- deletion

    def mark_dead(self, now_ms: int) -> None:
        self._is_dead = True
        self._state_may_change()

    def mark_alive(self) -> None:
        self._is_dead = False
        self._state_may_change()


# --- replay


G = TypeVar("G", bound=ModernGroup[Any, Any])

Replays = Mapping[int, Callable[[G, Any, Any], None]]
"""Record type -> what applies a key and a value. The value of a tombstone is None."""


def replay_modern_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: ModernGroupRecord,
    kind: type[G],
    replays: Replays[G],
    group_metadata: int,
    memory: Memory | None = None,
) -> None:
    """Apply a record to a group of this kind, which may replace one that only has offsets. `group_metadata`: the record
    type whose tombstone ends the group.

    Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored.
    """
    of_any_kind: dict[str, Any] = groups
    group = of_any_kind.get(record.group_id)
    if not isinstance(group, kind):
        if record.value is None:
            return
        is_simple = (
            isinstance(group, ClassicGroup) and group.protocol_type is None and group.generation_id == 0
        )
        if group is not None and not is_simple:
            raise LoadFailure(f"group {record.group_id} is {group.kind.value} and {kind.kind.value} at once")
        group = of_any_kind[record.group_id] = kind(record.group_id, subscribers, memory)
    replays[record.key.API_KEY](group, record.key, record.value)
    if group_metadata == record.key.API_KEY and record.value is None:
        group.unsubscribe_from_all()
        del groups[record.group_id]


def replay_group_metadata(group: ModernGroup[Any, Any], key: Any, value: Any) -> None:
    if value is not None:
        group.set_group_epoch(value.epoch, value.metadata_hash)
    elif group.members or group.targets or group.assignment_epoch != -1:
        raise LoadFailure(f"the tombstone of group {group.group_id} comes before those of its members")


def replay_target_metadata(group: ModernGroup[Any, Any], key: Any, value: Any) -> None:
    if value is not None:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif group.targets:
        raise LoadFailure(
            f"the tombstone of group {group.group_id}'s assignment comes before those of its members"
        )
    else:
        group.set_assignment_epoch(-1, 0)


def check_may_leave(group: ModernGroup[Any, Any], member_id: str) -> None:
    """Raises LoadFailure if the tombstone of a member comes before those of its assignments."""
    old = group.members.get(member_id)
    if old is not None and (old.member_epoch != LEAVE_GROUP_MEMBER_EPOCH or member_id in group.targets):
        raise LoadFailure(
            f"the tombstone of member {member_id} of group {group.group_id} comes before those of its assignments"
        )


# --- target assignments


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
    env: Environment, group: ModernGroup[Any, Any], group_epoch: int, interval: str, now_ms: int
) -> bool:
    """Whether a new target assignment is to be made. `interval`: the setting of the group's kind."""
    return (
        group.assignment_epoch < group_epoch
        and may_assign(group, env.configs.get_int(group.group_id, interval), now_ms)
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


# --- the metadata hash


MAGIC = 0
"""The version of the hash function."""
HASH_COST = 6
"""To hash one topic."""
HASHED_PARTITIONS_A_UNIT = 20
"""Partitions of a topic that are hashed for a cost of 1."""


def metadata_hash(env: Environment, names: Iterable[str]) -> int:
    """Of the topics that exist. It changes when one of them does."""
    found = {name: topic for name in names if (topic := env.topics.by_name.get(name)) is not None}
    return group_hash({name: _hash_of(env, topic) for name, topic in found.items()})


def hash_topics(env: Environment, names: Iterable[str]) -> Work[None]:
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


def topic_hash(
    topic_id: Uuid, name: str, partition_count: int, racks: Sequence[Sequence[str]] | None = None
) -> int:
    """A topic's hash as a signed number of 64 bits. A topic without metadata counts as 0.

    `racks`: for each partition the rack ids of its replicas in any order, each as often as it has replicas. None if no
    replica has one.
    """
    parts = [pack("<b", MAGIC), topic_id[7::-1], topic_id[:7:-1], _string(name), pack("<i", partition_count)]
    if racks is None or not any(racks):
        parts.append(pack(f"<{partition_count}i", *range(partition_count)))
    else:
        # The partitions of a topic have few different sets of racks.
        encoded: dict[tuple[str, ...], bytes] = {}
        for partition in range(partition_count):
            key = tuple(racks[partition])
            if key not in encoded:
                encoded[key] = b"".join(map(_rack, sorted(key, key=string_order)))
            parts.append(partition.to_bytes(4, "little") + encoded[key])
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def group_hash(hashes: Mapping[str, int]) -> int:
    """The hash of a group, from the hashes of its topics by name. A signed number of 64 bits. 0 without topics."""
    if not hashes:
        return 0
    ordered = [hashes[name] for name in sorted(hashes)]
    return _signed(xxh3_64_intdigest(pack(f"<{len(ordered)}q", *ordered)))


def _string(text: str) -> bytes:
    """UTF-16 code units and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + pack("<i", len(units) // 2)


def _rack(rack: str) -> bytes:
    """The length comes first as well: a rack id may contain any separator."""
    string = _string(rack)
    return string[-4:] + string


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# --- the group epoch


def maybe_bump_group_epoch(
    env: Environment,
    group: ModernGroup[Any, Any],
    bump: bool,
    names: Iterable[str],
    epoch_record: Callable[[str, int, int], GroupRecord],
    rebalanced: Callable[[], None],
    records: list[GroupRecord],
    now_ms: int,
) -> tuple[int, bool]:
    """The group epoch, and whether it is a new one: if `bump`, or if the topics of these names have changed since the last
    look. `rebalanced` is called for a new one."""
    found_hash = metadata_hash(env, names)
    is_new = bump or found_hash != group.metadata_hash
    epoch = group.group_epoch
    if is_new:
        epoch += 1
        records.append(epoch_record(group.group_id, epoch, found_hash))
        rebalanced()
    group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, epoch)
    return epoch, is_new


# --- timers that fence members


RETRY_MS = 500
"""A fencing that the log refuses is tried again after this time."""


class Fencing(ABC):
    """There is one for each timer of each member, so it is small."""

    __slots__ = ("_env", "_key")

    def __init__(self, env: Environment, key: tuple[str, str, str]) -> None:
        """`key`: the kind of the timer, the group id and the member id."""
        self._env = env
        self._key = key

    def __call__(self, now_ms: int) -> GroupResult:
        _, group_id, member_id = self._key
        result = self._fenced(self._env.groups.get(group_id), member_id, now_ms)
        undo = result.refused

        def refused() -> None:
            if undo is not None:
                undo()
            self._env.timers.schedule(self._key, RETRY_MS, self)

        return replace(result, refused=refused) if result.records else result

    @abstractmethod
    def _fenced(self, group: Group | None, member_id: str, now_ms: int) -> GroupResult:
        """Fence the member, if it is still there."""
