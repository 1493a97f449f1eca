"""What a node counts of its metadata: the batches that it replays and how long that takes (BrokerMetadataListener of Kafka's
MBeans), and what a controller has seen since its start: new leaders of the quorum, and elections of partitions' leaders
outside the in-sync sets (ControllerStats and KafkaController).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.controller.image import is_next
from kafkacompat.ids import NO_LEADER
from kafkacompat.meters import Histogram

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage


class BatchMeter:
    """A batch may be replayed in parts. One part of one batch at a time."""

    __slots__ = ("_began_s", "_monotonic_s", "_records", "_took_s", "sizes", "times_us")

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self.sizes = Histogram()
        """Records of a batch."""
        self.times_us = Histogram()
        self._began_s = 0.0
        self._records = 0
        """Of the parts so far."""
        self._took_s = 0.0

    def begin(self) -> None:
        """A part, or a whole batch."""
        self._began_s = self._monotonic_s()

    def end_part(self, records: int) -> None:
        """More of the same batch follows."""
        self._took_s += self._monotonic_s() - self._began_s
        self._records += records

    def end(self, records: int) -> None:
        """`records`: of the last part."""
        self.end_part(records)
        self.sizes.note(self._records)
        self.times_us.note(1_000_000 * self._took_s)
        self.forget()

    def forget(self) -> None:
        """What was replayed in parts is no batch, but a snapshot, or its end does not come."""
        self._records, self._took_s = 0, 0.0


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
