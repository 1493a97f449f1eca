"""The cluster's state at one moment, as plain data. Independent of clients and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LEADER = -1
CONSUMER = "consumer"
"""The kind of a group of the consumer rebalance protocol (KIP-848)."""
SHARE = "share"
"""The kind of a share group (KIP-932)."""
STREAMS = "streams"
"""The kind of a streams group (KIP-1071)."""
MAX_MEMBERS_SHOWN = 50
"""Members of a group, in order of their ids. Further members are only counted."""

Places = tuple[tuple[str, int], ...]
"""Partitions in order: (topic, partition)."""
ShareKey = tuple[str, str, int]
"""(group, topic, partition)."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A broker in the cluster's metadata, which means that it is alive."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition. leader is NO_LEADER without one. The offsets are None if they could not be read."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    earliest: int | None = None
    latest: int | None = None

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.in_sync) < len(self.replicas)

    @property
    def offline(self) -> bool:
        """Whether it has no leader, so that it can be neither read nor written."""
        return self.leader == NO_LEADER


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """One topic. topic_id distinguishes it from an earlier topic with the same name."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionSeen, ...]

    @property
    def end_offsets(self) -> int | None:
        """The sum of the end offsets. None if one of them is unknown."""
        ends = [partition.latest for partition in self.partitions]
        return None if None in ends else sum(end for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member of a group. target is None in a classic group, where no assignment is prepared ahead."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assigned: Places = ()
    target: Places | None = None


@dataclass(frozen=True, slots=True)
class MemberEpoch:
    """What the library does not tell of a member. kind is classic or consumer, or empty if the broker does not tell."""

    epoch: int
    kind: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""


@dataclass(frozen=True, slots=True)
class GroupEpochs:
    """What the library does not tell of a group. The group has converged when all its epochs are equal."""

    group_epoch: int
    assignment_epoch: int
    members: dict[str, MemberEpoch] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A consumer group: its members and its committed offsets, (topic, partition) -> offset.

    kind is classic or consumer. member_list has at most MAX_MEMBERS_SHOWN of the members.
    """

    group_id: str
    kind: str
    state: str
    members: int
    coordinator: int | None
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    assignor: str = ""
    member_list: tuple[MemberSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareStand:
    """How far a share group has come in one partition. Both are None if they are not known.

    start is None until the group has stored something for the partition.
    """

    start: int | None
    lag: int | None
    """Records that are neither accepted nor archived, in flight or not."""


@dataclass(frozen=True, slots=True)
class ShareGroupSeen:
    """A share group (KIP-932): its members, and (topic, partition) -> stand. The library knows no such groups.

    member_list has at most MAX_MEMBERS_SHOWN of the members. stands is None if the coordinator did not tell.
    """

    group_id: str
    state: str
    members: int
    coordinator: int
    epochs: GroupEpochs
    stands: dict[tuple[str, int], ShareStand] | None = None
    assignor: str = ""
    member_list: tuple[MemberSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsGroupSeen:
    """A streams group (KIP-1071), which the library does not know. sources are the topics that its topology reads.

    member_list has at most MAX_MEMBERS_SHOWN of the members. Their assigned places are active tasks: (subtopology, partition).
    """

    group_id: str
    state: str
    members: int
    coordinator: int
    epochs: GroupEpochs
    sources: tuple[str, ...] = ()
    member_list: tuple[MemberSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareNumbers:
    """What the leader of a partition tells of a share group that reads it. The counts begin when it loaded the state."""

    held: int = 0
    """Records that members hold now."""
    oldest_lock_ms: int | None = None
    """Time since the oldest lock was taken or renewed. None: no record is held."""
    delivered: int = 0
    """Records that were given to members, each time counted."""
    archived: int = 0
    """Records that were rejected or delivered as often as allowed."""


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """A topic that is a mirror of another cluster, or was one."""

    topic: str
    mirror: str
    source: str
    state: str
    """mirroring, paused or stopped."""


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """The size in bytes of one node's log of one partition."""

    node_id: int
    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster's state at one moment. sizes is None if no node reported them. sizes_error is the reason."""

    taken_ms: int
    cluster_id: str
    controller_id: int
    nodes: tuple[NodeSeen, ...]
    topics: tuple[TopicSeen, ...]
    groups: tuple[GroupSeen, ...] = ()
    sizes: tuple[ReplicaSize, ...] | None = None
    sizes_error: str = ""
    topics_hidden: int = 0
    groups_hidden: int = 0
    epochs: Mapping[str, GroupEpochs] = field(default_factory=dict)
    """By group id. A group of the consumer protocol may be missing: its coordinator did not tell."""
    share_groups: tuple[ShareGroupSeen, ...] = ()
    streams_groups: tuple[StreamsGroupSeen, ...] = ()
    share_groups_hidden: int = 0
    """Share groups and streams groups that are not shown."""
    share_groups_error: str = ""
    """Why some nodes did not tell of their share groups and streams groups."""
    share_numbers: Mapping[ShareKey, ShareNumbers] | None = None
    """From the metrics of the leaders. None: no metrics are asked for."""
    share_numbers_error: str = ""
    mirrors: tuple[MirrorSeen, ...] = ()
