"""The environment of group operations: settings, topics, timers, random numbers."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kafkacompat.coordinator.core import Caller, CoordinatorResult, Refused
from kafkacompat.group.group import Group
from kafkacompat.group.records import GroupKind, GroupRecord
from kafkacompat.group.topics import NoTopics, Topic, Topics
from kafkacompat.ids import parse_int
from kafkacompat.memory import NO_CONNECTION, Memory
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.classic.classic_group import ClassicGroup
    from kafkacompat.ports import Random
    from kafkacompat.wire.message import Message

T = TypeVar("T")

_GROUP_CONFIGS = {
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "assignment_interval_ms": "assignment.interval.ms",
}
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1
"""The longest time for which a consumer group takes its topics for unchanged without being told of a change."""

DEFAULT_GROUPS_BYTES = 1 << 30
"""As much memory as Apache Kafka's scripts give a whole broker (KAFKA_HEAP_OPTS)."""
CONNECTION_BYTES_MAX = 16 << 20
"""What the joins of one connection may leave in memory. A client has one member on its connection."""
MEMBER_BYTES_MAX = 8 << 20
"""Metadata of one member for all its protocols. What the log takes of one group is a megabyte."""

TimerKey = tuple[Hashable, ...]
GroupResult = CoordinatorResult[GroupRecord, None]
TimerOperation = Callable[[int], GroupResult]
"""Called with the wall clock in ms when it is due."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Kafka's settings of consumer groups, group.consumer. in their names. Times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration_policy: str = "bidirectional"
    regex_refresh_interval_ms: int = 600_000

    @property
    def allows_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Kafka's settings of share groups, group.share. in their names. Times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    assignor: str = "simple"
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's settings of the group coordinator. Sizes in characters, times in ms."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    offset_metadata_max_size: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of groups' own settings, by their names: the least and the greatest value. A setting that is not here has none."""


class GroupTimers(Protocol):
    def schedule(self, key: TimerKey, delay_ms: int, operation: TimerOperation) -> None:
        """Run the operation after the delay. It replaces the key's earlier operation."""
        ...

    def reschedule(self, key: TimerKey, delay_ms: int) -> bool:
        """Give the key's operation another delay. False if the key has none."""
        ...

    def cancel(self, key: TimerKey) -> None: ...

    def is_scheduled(self, key: TimerKey) -> bool: ...


class GroupTasks(Protocol):
    """Long work beside the requests. Its result comes back as an operation, unless the shard was unloaded meanwhile."""

    def schedule(
        self,
        name: str,
        key: TimerKey,
        work: Generator[int, None, T],
        then: Callable[[T, int], GroupResult],
    ) -> None:
        """`work` reports the cost of its steps. `then` is called with its result and the wall clock in ms. A failure is
        reported, and nothing is called."""
        ...

    def is_scheduled(self, key: TimerKey) -> bool: ...


class Environment:
    """The environment of one shard."""

    __slots__ = (
        "assignment_interval_ms",
        "fence",
        "group_configs",
        "groups",
        "memory",
        "new_topics_version",
        "note_completed_rebalance",
        "note_rebalance",
        "note_share_rebalance",
        "random",
        "settings",
        "share_assignment_interval_ms",
        "subscribers",
        "tasks",
        "timers",
        "topic_hashes",
        "topics",
    )

    def __init__(
        self,
        settings: GroupSettings,
        timers: GroupTimers,
        tasks: GroupTasks,
        random: Random,
        groups: dict[str, Group],
        memory: Memory | None = None,
    ) -> None:
        """`memory`: of the groups of all shards of this node."""
        self.settings = settings
        self.timers = timers
        self.tasks = tasks
        self.random = random
        self.groups = groups
        self.memory = group_memory(DEFAULT_GROUPS_BYTES) if memory is None else memory
        self.subscribers: dict[str, set[str]] = {}
        """Topic -> ids of the consumer and share groups that subscribe to it."""
        self.topics: Topics = NoTopics()
        self.new_topics_version = -1
        """The version of the last image with topics that the one before did not have."""
        self.topic_hashes: dict[str, tuple[Topic, int]] = {}
        self.group_configs: Callable[[str], Mapping[str, str]] = lambda group_id: {}
        """The dynamic settings of a group (KIP-848)."""
        self.fence: Callable[[Any, Sequence[Any], int], GroupResult] = lambda group, members, now_ms: (
            nothing()
        )
        """Removes members from a consumer group. Their timers call it."""
        self.assignment_interval_ms: Callable[[], int] = lambda: settings.consumer.assignment_interval_ms
        """group.consumer.assignment.interval.ms, which is dynamic."""
        self.share_assignment_interval_ms: Callable[[], int] = lambda: settings.share.assignment_interval_ms
        """group.share.assignment.interval.ms, which is dynamic."""
        self.note_rebalance: Callable[[], None] = lambda: None
        """Called for each new epoch of a consumer group."""
        self.note_share_rebalance: Callable[[], None] = lambda: None
        """Called for each new epoch of a share group for another reason than a member that leaves."""
        self.note_completed_rebalance: Callable[[], None] = lambda: None
        """Called for each generation of a classic group whose assignment is written."""

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """None also if the group is of another kind."""
        group = self.groups.get(group_id)
        return group if group is not None and group.kind is GroupKind.CLASSIC else None  # type: ignore[return-value]

    def consumer_setting(self, group_id: str, name: str) -> int:
        """A setting of ConsumerGroupSettings, or the group's own."""
        own = self._own_setting(group_id, f"consumer.{_GROUP_CONFIGS[name]}")
        if own is not None:
            return own
        if name == "assignment_interval_ms":
            return self.assignment_interval_ms()
        value: int = getattr(self.settings.consumer, name)
        return value

    def share_setting(self, group_id: str, name: str) -> int:
        """A setting of ShareGroupSettings, or the group's own."""
        own = self._own_setting(group_id, f"share.{_GROUP_CONFIGS[name]}")
        if own is not None:
            return own
        if name == "assignment_interval_ms":
            return self.share_assignment_interval_ms()
        value: int = getattr(self.settings.share, name)
        return value

    def _own_setting(self, group_id: str, name: str) -> int | None:
        """The group's own value within the broker's bounds, which may have changed since it was set. None without one, or
        if another version has set what is no number here."""
        text = self.group_configs(group_id).get(name)
        if text is None:
            return None
        try:
            own = parse_int(text.strip())
        except ValueError:
            return None
        low, high = self.settings.bounds.get(name, (own, own))
        return min(max(own, low), high)

    def new_uuid(self) -> str:
        """A random id in Kafka's text form."""
        return urlsafe_b64encode(self.random.uuid()).decode().rstrip("=")

    def throw_if_no_room(self, growth: int, connection_id: int = NO_CONNECTION) -> None:
        """Raises Refused COORDINATOR_LOAD_IN_PROGRESS if the node has no memory for what a member tells. Java's client and
        librdkafka then come back to the same coordinator later. They give up after GROUP_MAX_SIZE_REACHED."""
        if not self.memory.has_room(growth, connection_id):
            raise Refused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "The coordinator has no memory left for members of groups (group.coordinator.max.bytes).",
            )

    def member_id(self, prefix: str) -> str:
        """A new member id: the prefix, a dash, and a UUID in Java's text form."""
        digits = self.random.uuid().hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def group_memory(most: int) -> Memory:
    """`most`: group.coordinator.max.bytes."""
    return Memory(most, CONNECTION_BYTES_MAX, most // 4)


_NOTHING: GroupResult = CoordinatorResult((), None)


def nothing() -> GroupResult:
    return _NOTHING


def replied(caller: Caller, message: Message) -> GroupResult:
    """Answer one request and write nothing."""
    return CoordinatorResult((), None, replies=((caller, message),))


# A timer belongs to the group object and not to its name, because another group of that name may exist when it fires.


def heartbeat_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("heartbeat", group, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    return ("join", group)


def sync_key(group: ClassicGroup) -> TimerKey:
    return ("sync", group)
