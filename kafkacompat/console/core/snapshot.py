"""What one look at the cluster found, as plain data. Knows neither the client that looked nor the view of it."""

from __future__ import annotations

from dataclasses import dataclass, field

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A broker that the cluster's metadata names, thus one that is alive."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """One partition. leader is NO_LEADER without one; the offsets are None where they could not be asked for."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    earliest: int | None = None
    latest: int | None = None

    @property
    def under_replicated(self) -> bool:
        """Some replica is not in sync."""
        return len(self.in_sync) < len(self.replicas)

    @property
    def offline(self) -> bool:
        """Nobody leads it: it can be neither read nor written."""
        return self.leader == NO_LEADER


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """One topic; topic_id tells it from an earlier topic of the same name."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionSeen, ...]

    @property
    def end_offsets(self) -> int | None:
        """The sum of the end offsets; None as long as one of them is not known."""
        ends = [partition.latest for partition in self.partitions]
        return None if None in ends else sum(end for end in ends if end is not None)


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A consumer group: its members and what it has committed, (topic, partition) -> offset."""

    group_id: str
    kind: str
    state: str
    members: int
    coordinator: int | None
    committed: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """Bytes that one node's log of one partition takes on disk."""

    node_id: int
    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the cluster. sizes is None when no node told them; the reason is sizes_error."""

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
