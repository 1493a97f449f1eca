"""A share-partition as its leader keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.share.share_partition import SharePartition

if TYPE_CHECKING:
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.partition import Partition
    from kafkacompat.share.values import ShareSettings

RECORDS_A_LOOK = 50


class LedPartition:
    """One share-partition of which this node leads the partition."""

    __slots__ = (
        "core",
        "is_cached",
        "key",
        "loading_since_ms",
        "lock_at_ms",
        "name",
        "partition",
        "settings",
        "writes",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        name: TopicPartition,
        partition: Partition,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.key = key
        self.name = name
        self.partition = partition
        self.settings = settings
        self.core = SharePartition(key, name.topic, partition.leader_epoch, settings)
        self.is_cached = True
        """False once it is dropped. Requests that know it may still hold it."""
        self.lock_at_ms = -1
        """When its locks are looked at next. -1: never."""
        self.loading_since_ms = 0
        self.writes = 0
        """Changes that the persister has not written yet, and dead letters that are on their way."""

    def looks(self) -> int:
        """How long it takes to go through what is in flight, counted in share-partitions with fewer than RECORDS_A_LOOK."""
        return 1 + self.core.in_flight_records() // RECORDS_A_LOOK

    def readable_end(self, *, read_committed: bool) -> int:
        log = self.partition.log
        return log.last_stable_offset if read_committed else log.high_watermark
