"""Who is told when a partition has moved: produces and deletions that wait for replicas, and parked fetches.

What moved (high watermark, end, role) is passed on at once, or when the appends of one request are all done. It decides nothing and
knows neither requests nor logs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.partition.delete_records_purgatory import DeleteRecordsPurgatory
from kafkacompat.partition.produce_purgatory import ProducePurgatory

if TYPE_CHECKING:
    from kafkacompat.partition.core import PartitionCore
    from kafkacompat.ports import Clock, Timers

Key = tuple[str, int]
Watcher = Callable[["PartitionCore"], None]


class Wakeups:
    """`cores` is the manager's table."""

    def __init__(self, cores: Mapping[Key, PartitionCore], clock: Clock, timers: Timers) -> None:
        self.produces = ProducePurgatory(cores, clock, timers)
        self.deletions = DeleteRecordsPurgatory(cores, clock, timers)
        self._watchers: list[Watcher] = []
        self._append_watchers: list[Watcher] = []
        self._held: dict[Key, PartitionCore] | None = None
        self._held_appends: dict[Key, PartitionCore] = {}

    def watch(self, watcher: Watcher) -> None:
        """Call back when a partition's high watermark advanced, or its role changed or ended."""
        self._watchers.append(watcher)

    def watch_appends(self, watcher: Watcher) -> None:
        """Call back when a partition that others follow has grown or its log's start moved, or its role changed or ended."""
        self._append_watchers.append(watcher)

    def hold(self) -> None:
        """Until `release`: a fetch that waits for several partitions of one produce sees them all at once."""
        self._held = {}

    def release(self) -> None:
        held, self._held = self._held, None
        if held:
            for core in held.values():
                self.advanced(core)
        if self._held_appends:
            appends, self._held_appends = self._held_appends, {}
            for core in appends.values():
                self.appended(core)

    def advanced(self, core: PartitionCore) -> None:
        """Its high watermark moved, or its role changed: whoever waits for that may have waited enough."""
        if self._held is not None:
            self._held[core.topic_partition] = core
            return
        self.produces.advanced(core)
        for watcher in self._watchers:
            try:
                watcher(core)
            except Exception as error:  # whoever appended has done so all the same
                report(f"waking those who wait for {core.topic_partition}", error)

    def appended(self, core: PartitionCore) -> None:
        """Its end moved, or its log's start, and others follow it."""
        if self._held is not None:
            self._held_appends[core.topic_partition] = core
            return
        for watcher in self._append_watchers:
            try:
                watcher(core)
            except Exception as error:
                report(f"waking those who follow {core.topic_partition}", error)

    def follower_moved(self, core: PartitionCore) -> None:
        """A follower told where its log begins."""
        if self.deletions:
            self.deletions.moved(core)

    def role_changed(self, core: PartitionCore) -> None:
        """Leader or epoch changed, or it is gone: everybody who waits for it is due."""
        self.advanced(core)
        self.appended(core)
        self.follower_moved(core)
