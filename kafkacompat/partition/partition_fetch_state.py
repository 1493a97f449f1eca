"""What a fetcher knows of each partition it follows, and what an answer of the leader has brought about. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.core import PartitionCore


class PartitionFetchState:
    """One partition in a fetcher. Its core's leader epoch may move on while `current_leader_epoch` is what was assigned."""

    __slots__ = (
        "asked",
        "begins_anew",
        "core",
        "current_leader_epoch",
        "due_ms",
        "failed",
        "is_fresh",
        "refusals",
        "resolving",
    )

    def __init__(self, core: PartitionCore) -> None:
        self.core = core
        self.current_leader_epoch = core.leader_epoch
        self.asked: tuple[int, int, int, int] | None = None
        """(offset, log start, last fetched epoch, leader epoch) as the session knows them; None when it knows nothing."""
        self.is_fresh = True
        """Not asked for yet since it was added. The session may hold its question from before, whose answers the log may not have
        taken: while the name of its directory is not durable a log's high watermark does not move. A leader tells it again only to
        whoever asks again."""
        self.due_ms = 0
        """Not asked for before this."""
        self.failed = False
        """Not asked for until the metadata gives it a new epoch."""
        self.begins_anew = False
        """Nothing of its log is the leader's: it is to begin where that begins, once that is known."""
        self.resolving = False
        """Waits for the leader's offsets, or for the checkpoints after a truncation."""
        self.refusals = 0
        """Answers in a row that show the leader behind with its metadata."""

    @property
    def name(self) -> TopicPartition:
        return self.core.topic_partition

    def is_ready_for_fetch(self, now_ms: int) -> bool:
        return not self.failed and not self.resolving and self.due_ms <= now_ms


@dataclass(slots=True)
class Fetched:
    """What a response has brought about, for the fetcher to carry on."""

    advanced: list[PartitionCore]
    """Their high watermark moved."""
    out_of_range: list[PartitionFetchState]
    """The leader's offsets must be asked for."""
    truncated: list[PartitionFetchState]
    """Not asked for before `resolved`: the checkpoints may still say more of their logs than is true."""
    broken: list[tuple[PartitionCore, OSError]]
    """Their files failed."""
    notes: list[str]
    """For the node's log."""
    failed: list[tuple[PartitionFetchState, Exception]]
    """Not followed until their leader changes: their logs are damaged, or a bug of ours met them."""
    batches: int = 0
    """Of the last partition, appended in the last step."""

    @classmethod
    def nothing(cls) -> Fetched:
        return cls([], [], [], [], [], [])
