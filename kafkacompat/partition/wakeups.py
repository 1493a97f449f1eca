"""Wakes requests when a partition changes: produces and deletions that wait for replicas, and parked fetches.

A change (high watermark, end, role) is passed on at once, or after all appends of one request. It decides nothing.
Requests and logs are unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.partition.delayed_operations import TurnBudget
from kafkacompat.partition.delete_records_purgatory import DeleteRecordsPurgatory
from kafkacompat.partition.produce_purgatory import ProducePurgatory

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Clock, Timers

Key = tuple[str, int]
Watcher = Callable[["Partition"], None]


class Wakeups:
    """`cores` is the manager's table."""

    def __init__(self, cores: Mapping[Key, Partition], clock: Clock, timers: Timers) -> None:
        self.budget = TurnBudget(timers)
        """Of all who are woken."""
        self.produces = ProducePurgatory(cores, clock, timers, self.budget)
        self.deletions = DeleteRecordsPurgatory(cores, clock, timers, self.budget)
        self._watchers: list[Watcher] = []
        self._append_watchers: list[Watcher] = []
        self._held: dict[Key, Partition] | None = None
        self._held_appends: dict[Key, Partition] = {}

    def watch(self, watcher: Watcher) -> None:
        """Add a callback for an advanced high watermark, and for a changed or ended role."""
        self._watchers.append(watcher)

    def watch_appends(self, watcher: Watcher) -> None:
        """Add a callback for a moved end or log start of a partition with followers, and for a changed or ended role."""
        self._append_watchers.append(watcher)

    def hold(self) -> None:
        """Collect changes until `release`. A fetch that waits for several partitions of one produce then gets them all
        at once."""
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

    def advanced(self, core: Partition) -> None:
        """The high watermark advanced, or the role changed: requests that wait for it may be complete."""
        if self._held is not None:
            self._held[core.topic_partition] = core
            return
        self.produces.advanced(core)
        for watcher in self._watchers:
            try:
                watcher(core)
            except Exception as error:  # the append itself has succeeded
                report(f"waking those who wait for {core.topic_partition}", error)

    def appended(self, core: Partition) -> None:
        """The end or the log start of a partition with followers moved."""
        if self._held is not None:
            self._held_appends[core.topic_partition] = core
            return
        for watcher in self._append_watchers:
            try:
                watcher(core)
            except Exception as error:
                report(f"waking those who follow {core.topic_partition}", error)

    def follower_moved(self, core: Partition) -> None:
        """A follower has reported its log start."""
        if self.deletions:
            self.deletions.moved(core)

    def role_changed(self, core: Partition) -> None:
        """Leader or epoch changed, or the partition is gone: all requests that wait for it are due."""
        self.advanced(core)
        self.appended(core)
        self.follower_moved(core)
