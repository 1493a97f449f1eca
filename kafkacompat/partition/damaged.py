"""Replicas of this node that are given up because their log cannot be read at an offset, until it can be read again.

The file may be repaired, the damaged segment may be deleted, and a disk that refused a read several times may be well
again. So each of them is looked at now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.records.batch import BatchCorrupt, has_valid_crc, iterate_batches

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.partition import Partition
    from kafkacompat.ports import Log, Records, Timers, Workers

logger = logging.getLogger(__name__)

LOOK_MS = 60_000


class DamagedReplicas:
    """Bounded by the replicas of this node."""

    def __init__(self, timers: Timers, workers: Workers, repaired: Callable[[Partition], None]) -> None:
        self._timers = timers
        self._workers = workers
        self._repaired = repaired
        self._damaged: dict[TopicPartition, tuple[Partition, Log, int]] = {}
        """With an offset at which the log cannot be read."""
        self._looks = False

    def add(self, core: Partition, offset: int) -> None:
        self._damaged[core.topic_partition] = core, core.log, offset
        self._look_later()

    def discard(self, name: TopicPartition) -> None:
        self._damaged.pop(name, None)

    def has(self, core: Partition) -> bool:
        """Whether the replica is damaged, as far as is known. Another log in its place is not, nor one that begins or ends
        elsewhere by now."""
        found = self._damaged.get(core.topic_partition)
        if found is None:
            return False
        _, log, offset = found
        if core.log is not log or not log.log_start_offset <= offset < log.log_end_offset:
            del self._damaged[core.topic_partition]
        return core.topic_partition in self._damaged

    def _look_later(self) -> None:
        if not self._looks and self._damaged:
            self._looks = True
            self._timers.call_after(LOOK_MS, self._look)

    def _look(self) -> None:
        self._looks = False
        self._look_later()  # whatever becomes of this one
        for core, log, offset in list(self._damaged.values()):
            if not self.has(core):
                self._repaired(core)
                continue
            try:
                records = log.read(offset, 1, log.log_end_offset, True).records
            except (OSError, LogRefused, BatchCorrupt, MemoryError):
                continue
            self._workers.submit(partial(_is_whole, records)).on_done(partial(self._seen, core, log))

    def _seen(self, core: Partition, log: Log, done: Deferred[bool]) -> None:
        try:
            is_whole = done.result()
        except Exception as error:  # it stays damaged: another look follows
            logger.info("%s is still damaged: %s", core.topic_partition, error)
            return
        if is_whole and self.has(core) and core.log is log:
            del self._damaged[core.topic_partition]
            logger.warning("%s can be read again", core.topic_partition)
            self._repaired(core)


def _is_whole(records: Records) -> bool:
    """Whether the first batch of a slice is what was written. Blocks. Raises OSError or BatchCorrupt."""
    data = records.read() if isinstance(records, FileSlice) else records
    for header in iterate_batches(data):
        return has_valid_crc(memoryview(data)[header.position : header.position + header.size], header)
    return False
