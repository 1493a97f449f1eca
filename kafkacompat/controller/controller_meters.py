"""What a controller has seen since its start: new leaders of the quorum, and elections of partitions' leaders outside the
in-sync sets (ControllerStats and KafkaController of Kafka's metrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.controller.changed_topics import is_next
from kafkacompat.ids import NO_LEADER

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage


class ControllerMeters:
    def __init__(self) -> None:
        self.new_active_controllers = 0
        self.unclean_elections = 0
        """New leaders that have to recover, because they were not in sync."""
        self.eligible_elections = 0
        """New leaders that were eligible and not in sync (KIP-966)."""

    def leader_changed(self, leader_id: int) -> None:
        if leader_id != NO_LEADER:
            self.new_active_controllers += 1

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Count the elections since the old image. Those before this start, or in a snapshot, are not known one by one."""
        if old.topics is new.topics or not is_next(old, new):
            return
        self.unclean_elections += new.topic_changes.unclean_elections
        self.eligible_elections += new.topic_changes.eligible_elections
