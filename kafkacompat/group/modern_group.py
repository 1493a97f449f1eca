"""What the newer kinds of groups have in common (Kafka's ModernGroup).

- Members, epochs, target assignment and subscribed topics. They are changed by the replay of records only.
- How a request is refused that is not of a member of the group, or of one with another epoch.
- The metadata hash: whether the topics that the members subscribe to have changed. Only equality matters. The hash is
  Kafka's own nevertheless, because it is in the group's records: a broker of another kind that takes over the group
  would otherwise compute another hash and start a needless epoch.
- The timers that fence a member when they fire. A timer belongs to the ids, because the log makes the group: it looks for the
  member when it fires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from struct import pack
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from xxhash import xxh3_64_intdigest

from kafkacompat.coordinator.core import LoadFailure, OperationRefused
from kafkacompat.group.classic.classic_group import ClassicGroup
from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.group.environment import METADATA_REFRESH_INTERVAL_MS, Environment, GroupResult, nothing
from kafkacompat.group.records import DEAD
from kafkacompat.group.sizes import size_of_group
from kafkacompat.ids import Uuid
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.environment import TimerKey
    from kafkacompat.group.group import Group
    from kafkacompat.group.records import GroupKind, GroupRecord, ModernGroupRecord, OffsetAndMetadata
    from kafkacompat.group.topics import Topic
    from kafkacompat.memory import Held, Memory
    from kafkacompat.tasks import Work


LEAVE_GROUP_MEMBER_EPOCH = -1
FIRST_COMMIT_VERSION_WITH_EPOCHS = 9

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
    def instance_id(self) -> str | None: ...

    @property
    def subscribed_topic_names(self) -> frozenset[str]: ...

    @property
    def revocation_timeout_ms(self) -> int | None:
        """How long the member may take to give up what it has to. None if there is nothing to give up."""
        ...

    def is_reconciled_to(self, target_epoch: int) -> bool: ...

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
        "_state_name",
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
        "static_members",
        "targets",
    )

    kind: ClassVar[GroupKind]
    session_timeout: ClassVar[str]
    assignment_interval: ClassVar[str]
    """Names of settings."""
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
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, T] = {}
        """Member id -> target assignment."""
        self.refresh_deadline_ms = 0
        self.refresh_epoch = 0
        self._is_dead = False
        self._state_name: str | None = None

    @property
    def state_name(self) -> str:
        if self._state_name is None:
            if self._is_dead:
                self._state_name = DEAD
            else:
                self._state_name = self._state_of_members() if self.members else "Empty"
        return self._state_name

    def _state_of_members(self) -> str:
        """The state of a group with members."""
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        epoch = self.assignment_epoch
        return (
            "Stable" if all(each.is_reconciled_to(epoch) for each in self.members.values()) else "Reconciling"
        )

    def _state_may_change(self) -> None:
        self._state_name = None

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

    def committing_member(
        self, member_id: str, group_instance_id: str | None, member_epoch: int, is_transactional: bool
    ) -> M | None:
        """The member whose epoch a commit of offsets must have. None if the commit needs no member. Raises OperationRefused."""
        if self._is_dead:
            raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if member_epoch < 0 and not self.members:
            return None
        if is_transactional and member_epoch == -1 and member_id == "" and group_instance_id is None:
            return None
        return self.member(member_id)

    def static_member(self, instance_id: str | None) -> M | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def update_member(self, new: M) -> None:
        old = self.members.get(new.member_id)
        self.members[new.member_id] = new
        self._hold(old, new)
        self._state_may_change()
        self._count(old, new)
        if old is not None and old.instance_id != new.instance_id:
            self._release_instance(old)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id

    def remove_member(self, member_id: str) -> None:
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._held.pop(member_id, None)
        self._state_may_change()
        self._count(old, None)
        self._release_instance(old)

    def _release_instance(self, old: M) -> None:
        if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
            del self.static_members[old.instance_id]

    def _count(self, old: M | None, new: M | None) -> None:
        """Bring what is derived from the members up to date with the change of one."""
        raise NotImplementedError

    def target_of(self, member_id: str, instance_id: str | None, nothing: T) -> T:
        """A static member that is being replaced hands its target on."""
        if instance_id is not None:
            former = self.static_members.get(instance_id)
            if former is None:
                return nothing
            member_id = former
        return self.targets.get(member_id, nothing)

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

    def remember(self) -> None:
        """The group is there again."""
        for name in self.topic_names:
            self._subscribe(name)

    # --- offsets

    def validate_offset_delete(self) -> None:
        if self._is_dead:
            raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} not found.")

    def expires_since_ms(self, stored: OffsetAndMetadata) -> int | None:
        return stored.commit_timestamp

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


def member_replay(
    blank: Callable[[str], M], told: Callable[[Any, M, Any], M]
) -> Callable[[Any, Any, Any], None]:
    """What applies the record of a member. `blank` makes a member of its id. `told` is called with the group, the member
    and the value."""

    def replay(group: ModernGroup[M, Any], key: Any, value: Any) -> None:
        member_id = key.member_id
        old = group.members.get(member_id)
        if value is not None:
            group.update_member(told(group, blank(member_id) if old is None else old, value))
            return
        if old is not None and (old.member_epoch != LEAVE_GROUP_MEMBER_EPOCH or member_id in group.targets):
            raise LoadFailure(
                f"the tombstone of member {member_id} of group {group.group_id} comes before those of its assignments"
            )
        group.remove_member(member_id)

    return replay


def assignment_replay(
    blank: Callable[[str], M], assigned: Callable[[M, Any], M], left: Callable[[M], M]
) -> Callable[[Any, Any, Any], None]:
    """What applies the record of a member's current assignment. `left` makes it a member of LEAVE_GROUP_MEMBER_EPOCH that
    has nothing."""

    def replay(group: ModernGroup[M, Any], key: Any, value: Any) -> None:
        old = group.members.get(key.member_id)
        if value is not None:
            group.update_member(assigned(blank(key.member_id) if old is None else old, value))
        elif old is not None:
            group.update_member(left(old))

    return replay


# --- requests of members


def group_of_kind(env: Environment, group_id: str, kind: type[G]) -> G:
    """Raises OperationRefused GROUP_ID_NOT_FOUND."""
    group: Any = env.groups.get(group_id)
    if group is None:
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, kind):
        raise OperationRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind.kind.value} group."
        )
    return group


def throw_if_full(
    group: ModernGroup[Any, Any], limit: int, member_id: str, instance_id: str | None = None
) -> None:
    """A static member that comes back takes its own place."""
    if (
        len(group.members) >= limit
        and member_id not in group.members
        and instance_id not in group.static_members
    ):
        raise OperationRefused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {group.kind.value} group has reached its maximum capacity of {limit} members.",
        )


def throw_if_fenced(member: ModernGroupMember, member_id: str, instance_id: str) -> None:
    """The instance id may be another member's by now."""
    if member.member_id != member_id:
        raise OperationRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def static_member_or_refused(group: ModernGroup[M, Any], member_id: str, instance_id: str) -> M:
    """The member of the instance id, if it is this one."""
    member = group.static_member(instance_id)
    if member is None:
        raise OperationRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    throw_if_fenced(member, member_id, instance_id)
    return member


def throw_if_commit_without_epoch(api_version: int, protocol: str) -> None:
    if api_version < FIRST_COMMIT_VERSION_WITH_EPOCHS:
        raise OperationRefused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"OffsetCommit version {FIRST_COMMIT_VERSION_WITH_EPOCHS} or above must be used by members using the"
            f" {protocol} group protocol",
        )


def unreleased_instance(member_id: str, instance_id: str, owner: str) -> OperationRefused:
    return OperationRefused(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id is "
        f"owned by {owner} member.",
    )


def fenced_epoch(
    group: ModernGroup[Any, Any], received: int, known: int, detail: str = ""
) -> OperationRefused:
    """`detail`: more about a smaller epoch."""
    comparison, more = ("greater", "") if received > known else ("smaller", detail)
    return OperationRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {group.kind.value} group member has a {comparison} member epoch ({received}) than the one known by the group "
        f"coordinator ({known}){more}. The member must abandon all its partitions and rejoin.",
    )


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


def names_to_hash(group: object, told: Sequence[str] | None) -> Sequence[str]:
    """Topics that a heartbeat has to hash: those that it tells, or those of the group if they are as many and some may have
    changed."""
    told = told or ()
    if not isinstance(group, ModernGroup) or group.refresh_deadline_ms or len(group.topic_names) < len(told):
        return told
    return list(group.topic_names)


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
"""A fencing that the log refuses, or for which there is no memory, is tried again after this time, as in Kafka."""


def session_timeout_ms(env: Environment, group: ModernGroup[Any, Any]) -> int:
    return env.configs.get_int(group.group_id, group.session_timeout)


def session_key(group_id: str, member_id: str) -> TimerKey:
    """The timer that `schedule_session_timeout` sets."""
    return _timer_key("session", group_id, member_id)


def schedule_session_timeout(env: Environment, group_id: str, member_id: str, timeout_ms: int) -> None:
    schedule_fencing(env, "session", group_id, member_id, timeout_ms)


def schedule_rebalance_timeout(env: Environment, group_id: str, member: ModernGroupMember) -> None:
    """A member that has something to give up has its time from now on. For another there is no timer.

    A member of the classic protocol is told to join again, and has the timer of `schedule_join_timeout_if_absent`. It has this
    one too after a load, as in Kafka."""
    timeout_ms = member.revocation_timeout_ms
    if timeout_ms is None:
        cancel_fencing(env, "rebalance", group_id, member.member_id)
    else:
        schedule_fencing(env, "rebalance", group_id, member.member_id, timeout_ms, member.member_epoch)


def take_up(env: Environment, group: ModernGroup[M, Any], members: Iterable[M] | None = None) -> None:
    """Every member gets a full session, after a load for example. Or only these."""
    timeout_ms = session_timeout_ms(env, group)
    for member in group.members.values() if members is None else members:
        schedule_session_timeout(env, group.group_id, member.member_id, timeout_ms)
        if member.revocation_timeout_ms is not None:
            schedule_rebalance_timeout(env, group.group_id, member)


def schedule_fencing(
    env: Environment, kind: str, group_id: str, member_id: str, timeout_ms: int, epoch: int | None = None
) -> None:
    """With an epoch, only a member that is still at it is fenced."""
    key = _timer_key(kind, group_id, member_id)
    env.timers.schedule(key, timeout_ms, _Fencing(env, key, epoch))


def is_fencing_scheduled(env: Environment, kind: str, group_id: str, member_id: str) -> bool:
    return env.timers.is_scheduled(_timer_key(kind, group_id, member_id))


def cancel_fencing(env: Environment, kind: str, group_id: str, member_id: str) -> None:
    env.timers.cancel(_timer_key(kind, group_id, member_id))


def _timer_key(kind: str, group_id: str, member_id: str) -> tuple[str, str, str]:
    return (kind, group_id, member_id)


class _Fencing:
    """There is one for each timer of each member, so it is small."""

    __slots__ = ("_env", "_epoch", "_key")

    def __init__(self, env: Environment, key: tuple[str, str, str], epoch: int | None) -> None:
        self._env = env
        self._key = key
        self._epoch = epoch

    def __call__(self, now_ms: int) -> GroupResult:
        """Fence the member, if it is still there."""
        env = self._env
        _, group_id, member_id = self._key
        group: Any = env.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ModernGroup) else None
        if member is None or self._epoch not in (None, member.member_epoch):
            return nothing()
        try:
            result = env.fence(group, [member], now_ms)
        except Exception:
            env.timers.schedule(self._key, RETRY_MS, self)
            raise
        undo = result.refused

        def refused() -> None:
            if undo is not None:
                undo()
            env.timers.schedule(self._key, RETRY_MS, self)

        return replace(result, refused=refused) if result.records else result
