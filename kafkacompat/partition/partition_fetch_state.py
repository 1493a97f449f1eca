"""The state of each partition in a fetcher, and the outcome of a leader's response. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.partition import Partition


class PartitionFetchState:
    """One partition in a fetcher. Its core's leader epoch may advance while `current_leader_epoch` keeps the assigned
    epoch."""

    __slots__ = (
        "asked",
        "begins_anew",
        "core",
        "current_leader_epoch",
        "due_ms",
        "failed",
        "is_fresh",
        "lag",
        "refusals",
        "resolving",
    )

    def __init__(self, core: Partition) -> None:
        self.core = core
        self.current_leader_epoch = core.leader_epoch
        self.asked: tuple[int, int, int, int] | None = None
        """(offset, log start, last fetched epoch, leader epoch) as known to the session. None if it is not in the
        session."""
        self.is_fresh = True
        """Not fetched yet since it was added. The session may know an earlier request of this partition, whose answer
        the log may have ignored: a high watermark does not move while the name of the log's directory is not durable.
        The leader repeats its answer only for a new request."""
        self.lag = 0
        """Offsets up to the leader's high watermark at its last answer."""
        self.due_ms = 0
        """The partition is not fetched before this time."""
        self.failed = False
        """The partition is not fetched until the metadata gives it a new epoch."""
        self.begins_anew = False
        """No record of the log is the leader's. The log must start empty at the leader's log start, once that is
        known."""
        self.resolving = False
        """Waits for the leader's offsets, or for the checkpoints after a truncation."""
        self.refusals = 0
        """Consecutive answers of a leader whose metadata is behind."""

    @property
    def name(self) -> TopicPartition:
        return self.core.topic_partition

    def is_ready_for_fetch(self, now_ms: int) -> bool:
        return not self.failed and not self.resolving and self.due_ms <= now_ms


@dataclass(slots=True)
class Fetched:
    """The outcome of a response, for the fetcher to act on."""

    advanced: list[Partition]
    """Partitions whose high watermark moved."""
    out_of_range: list[PartitionFetchState]
    """Partitions that need the leader's offsets."""
    truncated: list[PartitionFetchState]
    """Partitions not fetched before `resolved`, because a checkpoint offset may be too high for their logs."""
    broken: list[tuple[Partition, OSError]]
    """Partitions whose files failed."""
    notes: list[str]
    """Lines for the node's log."""
    failed: list[tuple[PartitionFetchState, Exception]]
    """Partitions not followed until their leader changes, because of a damaged log or a bug in kafkacompat."""
    batches: int = 0
    """Batches of the last partition appended in the last step."""

    @classmethod
    def nothing(cls) -> Fetched:
        return cls([], [], [], [], [], [])
