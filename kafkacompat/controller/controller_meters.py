"""What a controller has seen since its start: new leaders of the quorum, and elections of partitions' leaders outside the
in-sync sets (ControllerStats and KafkaController of Kafka's metrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.ids import NO_LEADER

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, PartitionRegistration


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
        """Count the elections between two images. Of several elections of a partition between them it sees one."""
        if old.topics is new.topics:
            return
        for topic_id, topic in new.topics_by_id.items():
            former = old.topics_by_id.get(topic_id)
            if former is None or former is topic:
                continue
            for index, partition in topic.partitions.items():
                before = former.partitions.get(index)
                if before is not None and before is not partition:
                    self._compare(before, partition)

    def _compare(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        leader = after.leader
        if leader in (NO_LEADER, before.leader) or leader in before.isr:
            return
        if after.leader_recovering:
            self.unclean_elections += 1
        elif leader in before.eligible_leader_replicas:
            self.eligible_elections += 1
