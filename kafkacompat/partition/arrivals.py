"""New partitions whose logs are still to be opened: a few at a time, or when they are first asked for.

Duty: keep them in order and have them opened. Must not know: logs, roles, images. As in Kafka, the reply to the creation of
a large topic does not wait for every log; unlike there nobody meets a partition that is not open yet. Only partitions
that cannot have a log already may wait here, for retention must not look at a log before its topic's settings are known.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid

if TYPE_CHECKING:
    from kafkacompat.controller.image import PartitionImage
    from kafkacompat.ports import Timers

OPENED_AT_ONCE_MAX = 32
"""Logs that one image opens at once, while whoever changed the metadata waits."""
OPENED_A_SLICE = 2
"""Few: making files may take a millisecond each, and requests wait meanwhile."""
SLICE_INTERVAL_MS = 1

Key = tuple[str, int]


class Arrivals:
    """Bounded by the partitions of the image."""

    __slots__ = ("_open", "_timers", "_waiting")

    def __init__(
        self, timers: Timers, open_log: Callable[[TopicPartition, Uuid, PartitionImage], None]
    ) -> None:
        self._timers = timers
        self._open = open_log
        self._waiting: dict[Key, tuple[Uuid, PartitionImage]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting

    def add(self, name: TopicPartition, topic_id: Uuid, image: PartitionImage) -> None:
        """Wait, or go on waiting with a newer image."""
        if not self._waiting:
            self._timers.call_after(SLICE_INTERVAL_MS, self._open_some)
        self._waiting[name] = topic_id, image

    def discard(self, name: Key) -> None:
        self._waiting.pop(name, None)

    def open_now(self, name: Key) -> bool:
        """False when no such partition waits."""
        waiting = self._waiting.pop(name, None)
        if waiting is None:
            return False
        self._open(TopicPartition(*name), *waiting)
        return True

    def _open_some(self) -> None:
        for name in list(islice(self._waiting, OPENED_A_SLICE)):
            self.open_now(name)
        if self._waiting:
            self._timers.call_after(SLICE_INTERVAL_MS, self._open_some)
