"""What the requests of share groups' members share on one node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Clock, Timers
    from kafkacompat.share.acknowledging import AcknowledgementMeter
    from kafkacompat.share.delayed_share_fetch import ShareFetches
    from kafkacompat.share.partition_cache import SharePartitionCache
    from kafkacompat.share.session_ends import SessionEnds
    from kafkacompat.share.sessions import ShareSessionCache
    from kafkacompat.share.settings import GroupSettingsCache


@dataclass(frozen=True, slots=True)
class ShareParts:
    manager: ReplicaManager
    sessions: ShareSessionCache
    ends: SessionEnds
    cache: SharePartitionCache
    meter: AcknowledgementMeter
    fetches: ShareFetches
    settings: GroupSettingsCache
    clock: Clock
    timers: Timers
    fetch_max_bytes: Callable[[], int]

    @property
    def image(self) -> MetadataImage:
        return self.manager.image

    def lock_timeout_ms(self, group_id: str) -> int:
        return self.settings.of(group_id).partition.record_lock_duration_ms
