"""The cluster's state at one moment, as plain data. Independent of clients and views."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_LEADER = -1


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
class GroupSeen:
    """A consumer group: its members and its committed offsets, (topic, partition) -> offset."""

    group_id: str
    kind: str
    state: str
    members: int
    coordinator: int | None
    committed: dict[tuple[str, int], int] = field(default_factory=dict)


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
