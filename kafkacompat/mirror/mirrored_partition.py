"""A partition here that follows one at a source: what is known of it, and whether it still does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.mirror.traffic import MirrorState
from kafkacompat.partition.fetch_session_handler import FetchedPartition

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition, Uuid
    from kafkacompat.mirror.traffic import MirrorTopicTraffic
    from kafkacompat.partition.fetch_session_handler import Position
    from kafkacompat.partition.partition import Partition

NO_LEADER = -1
NO_LOG_START = -1
"""What a request says of the log start of somebody who is no follower."""


class MirroredPartition(FetchedPartition):
    """A partition that this node leads, in one of its leader epochs."""

    __slots__ = (
        "begins_anew",
        "core",
        "failed",
        "is_lost",
        "lag",
        "leader",
        "leader_epoch",
        "source_epoch",
        "told",
        "topic_id",
        "traffic",
    )

    def __init__(self, core: Partition, topic_id: Uuid, traffic: MirrorTopicTraffic) -> None:
        super().__init__((topic_id, core.topic_partition.partition))
        self.core = core
        self.traffic = traffic
        self.leader_epoch = core.leader_epoch
        self.topic_id = topic_id
        """At the source."""
        self.leader = NO_LEADER
        """At the source. NO_LEADER until it is known."""
        self.source_epoch = -1
        """The leader epoch there, as its metadata tells. It never goes back."""
        self.begins_anew = False
        """Nothing in the log is the source's any more. It begins empty at the source's log start."""
        self.failed: str | None = None
        """Why the partition does not follow any more. None: it does."""
        self.is_lost = False
        """The last request for it had no answer."""
        self.lag = -1
        """Records below the source's high watermark that are not here, at its last answer. -1: not known."""
        self.told = ""
        """The last trouble, which is noted once while it lasts."""

    @property
    def name(self) -> TopicPartition:
        return self.core.topic_partition

    def position(self) -> Position | None:
        if not self.is_current():
            return None
        log = self.core.log
        return log.log_end_offset, NO_LOG_START, log.latest_epoch(), self.source_epoch

    def is_current(self) -> bool:
        """Whether this node still leads the partition in that epoch, and it is still a mirror without records of its own."""
        core = self.core
        return (
            core.is_leader
            and core.is_read_only
            and core.leader_epoch == self.leader_epoch
            and not has_own_records(core)
        )

    def state(self) -> MirrorState:
        stands_still = self.failed is not None or bool(self.told) or self.is_lost or self.leader == NO_LEADER
        return MirrorState(self.lag, stands_still)


def has_own_records(core: Partition) -> bool:
    """Whether something was written here after a stop of the mirror. The core is one, so no epoch is without records."""
    return core.log.latest_epoch() >= core.log.config.mirror_leader_epoch
