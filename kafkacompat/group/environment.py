"""The environment of group operations: settings, topics, timers, random numbers."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from kafkacompat.config.group import (
    CONSUMER_ASSIGNORS,
    SHARE_ASSIGNORS,
    GroupConfigManager,
    consumer_assignors,
    share_assignor,
)
from kafkacompat.config.keys import Settings
from kafkacompat.coordinator.core import Caller, CoordinatorResult, OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.group import Group
from kafkacompat.group.records import GroupKind, GroupRecord
from kafkacompat.group.topics import NoTopics, Topic, Topics
from kafkacompat.memory import NO_CONNECTION, Memory
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.classic.classic_group import ClassicGroup
    from kafkacompat.ports import Random
    from kafkacompat.wire.message import Message

T = TypeVar("T")

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
    """Kafka's settings of all consumer groups of a node, group.consumer. in their names. Times in ms. What a group may have of its
    own is asked of GroupConfigManager."""

    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    migration_policy: str = "bidirectional"
    regex_refresh_interval_ms: int = 600_000

    @classmethod
    def from_config(cls, config: Settings) -> ConsumerGroupSettings:
        return cls(
            max_size=config.get_int("group.consumer.max.size"),
            assignors=consumer_assignors(config.get_list(CONSUMER_ASSIGNORS)),
            migration_policy=(config.get_string("group.consumer.migration.policy") or "").lower(),
            regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
        )

    @property
    def allows_upgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        return self.migration_policy in ("bidirectional", "downgrade")

    @property
    def allows_classic_members(self) -> bool:
        """Whether a member of the classic protocol may join a consumer group that has members."""
        return self.allows_upgrade or self.allows_downgrade


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Kafka's settings of all share groups of a node, group.share. in their names. Times in ms."""

    max_size: int = 200
    assignor: str = "simple"
    initialize_retry_interval_ms: int = 30_000

    @classmethod
    def from_config(cls, config: Settings) -> ShareGroupSettings:
        return cls(
            max_size=config.get_int("group.share.max.size"),
            assignor=share_assignor(config.get_list(SHARE_ASSIGNORS)),
            initialize_retry_interval_ms=max(
                config.get_int("group.share.initialize.retry.interval.ms"),
                config.get_int("offsets.commit.timeout.ms"),
            ),
        )


@dataclass(frozen=True, slots=True)
class StreamsGroupSettings:
    """Kafka's settings of all streams groups of a node, group.streams. in their names. Times in ms."""

    max_size: int = 2_147_483_647

    @classmethod
    def from_config(cls, config: Settings) -> StreamsGroupSettings:
        return cls(max_size=config.get_int("group.streams.max.size"))


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
    streams: StreamsGroupSettings = field(default_factory=StreamsGroupSettings)

    @classmethod
    def from_config(cls, config: Settings) -> GroupSettings:
        """The settings in force at the start. As in Kafka, none of them is dynamic."""
        return cls(
            min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
            max_size=config.get_int("group.max.size"),
            offset_metadata_max_size=config.get_int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.get_int("offsets.retention.minutes") * 60_000,
            consumer=ConsumerGroupSettings.from_config(config),
            share=ShareGroupSettings.from_config(config),
            streams=StreamsGroupSettings.from_config(config),
        )


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


class RebalanceMeters(Protocol):
    """They are told of rebalances, for metrics."""

    def consumer_rebalanced(self) -> None:
        """A consumer group has a new epoch."""
        ...

    def share_rebalanced(self) -> None:
        """A share group has a new epoch for another reason than a member that leaves."""
        ...

    def streams_rebalanced(self) -> None:
        """A streams group has a new epoch for another reason than a member that leaves."""
        ...

    def rebalance_completed(self) -> None:
        """The assignment of a generation of a classic group is written."""
        ...


class NoMeters:
    def consumer_rebalanced(self) -> None: ...

    def share_rebalanced(self) -> None: ...

    def streams_rebalanced(self) -> None: ...

    def rebalance_completed(self) -> None: ...


FenceMembers: TypeAlias = "Callable[[Environment, Any, Sequence[Any], int], GroupResult]"
"""Called with a group of one of the newer kinds, members of it, and the wall clock in ms."""


class Environment:
    """The environment of one shard."""

    __slots__ = (
        "_fence",
        "configs",
        "groups",
        "memory",
        "meters",
        "new_topics_version",
        "random",
        "settings",
        "subscribers",
        "tasks",
        "timers",
        "topic_hashes",
        "topics",
    )

    def __init__(
        self,
        settings: GroupSettings,
        configs: GroupConfigManager,
        timers: GroupTimers,
        tasks: GroupTasks,
        random: Random,
        groups: dict[str, Group],
        fence: FenceMembers,
        memory: Memory | None = None,
        meters: RebalanceMeters | None = None,
    ) -> None:
        """`configs`: what groups have of their own, or from the node. `fence` removes members from a group; their timers call it.
        `memory`: of the groups of all shards of this node."""
        self.settings = settings
        self.configs = configs
        self.timers = timers
        self.tasks = tasks
        self.random = random
        self.groups = groups
        self._fence = fence
        self.memory = group_memory(DEFAULT_GROUPS_BYTES) if memory is None else memory
        self.meters = NoMeters() if meters is None else meters
        self.subscribers: dict[str, set[str]] = {}
        """Topic -> ids of the groups of the newer kinds that subscribe to it."""
        self.topics: Topics = NoTopics()
        self.new_topics_version = -1
        """The version of the last image with topics that the one before did not have."""
        self.topic_hashes: dict[str, tuple[Topic, int]] = {}

    def fence(self, group: Any, members: Sequence[Any], now_ms: int) -> GroupResult:
        return self._fence(self, group, members, now_ms)

    def classic_group(self, group_id: str) -> ClassicGroup | None:
        """None also if the group is of another kind."""
        group = self.groups.get(group_id)
        return group if group is not None and group.kind is GroupKind.CLASSIC else None  # type: ignore[return-value]

    def new_uuid(self) -> str:
        """A random id in Kafka's text form."""
        return urlsafe_b64encode(self.random.uuid()).decode().rstrip("=")

    def throw_if_no_room(self, growth: int, connection_id: int = NO_CONNECTION) -> None:
        """Raises OperationRefused COORDINATOR_LOAD_IN_PROGRESS if the node has no memory for what a member tells. Java's client and
        librdkafka then come back to the same coordinator later. They give up after GROUP_MAX_SIZE_REACHED."""
        if not self.memory.has_room(growth, connection_id):
            raise OperationRefused(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                "The coordinator has no memory left for members of groups (group.coordinator.max.bytes).",
            )

    def member_id(self, prefix: str) -> str:
        """A new member id: the prefix, a dash, and a UUID in Java's text form."""
        digits = self.random.uuid().hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


MEMBER_ID_BYTES_MAX = (1 << 15) - 1
"""Of any string on the wire, and in the records of classic groups."""
MEMBER_ID_DIGITS = 37
"""Bytes of what follows the prefix."""


def may_begin_member_id(prefix: str) -> bool:
    """Whether a response and a record can have the member id that begins with it."""
    return len(prefix.encode()) + MEMBER_ID_DIGITS <= MEMBER_ID_BYTES_MAX


def group_memory(most: int) -> Memory:
    """`most`: group.coordinator.max.bytes."""
    return Memory(most, CONNECTION_BYTES_MAX, most // 4)


_NOTHING: GroupResult = CoordinatorResult((), None)


def nothing() -> GroupResult:
    return _NOTHING


def replied(caller: Caller, message: Message) -> GroupResult:
    """Answer one request and write nothing."""
    return CoordinatorResult((), None, replies=((caller, message),))


# A timer of a classic group belongs to the group object and not to its name, because another group of that name may exist when
# it fires.


def heartbeat_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("heartbeat", group, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    return ("join", group)


def sync_key(group: ClassicGroup) -> TimerKey:
    return ("sync", group)
