"""New partitions whose logs are not open yet. They are opened a few at a time, or at the first request.

The queue is in order. A worker creates the files, because creating one may take a millisecond and would delay
requests. As in Kafka, the reply to the creation of a large topic does not wait for every log. Unlike in Kafka, no
request meets a partition that is not open.

- Only partitions that cannot have a log yet may wait here, because retention must not examine a log before its topic's
  settings are known.
- A name with old entries in the checkpoints waits until they are rewritten. Requests for it get a retriable error.
- So does a log that could not be created for lack of space or descriptors, until they are available.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.ids import TopicPartition, Uuid
from kafkacompat.ports import LogRefused

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import PartitionRegistration
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import LogManager, Plan, PreparedLog, Timers, Workers

logger = logging.getLogger(__name__)

OPENED_AT_ONCE_MAX = 32
"""Logs that one image opens at once, while the request that changed the metadata waits."""
OPENED_A_SLICE = 2
"""Logs per slice. Once the files exist, opening a log takes a quarter of a millisecond, and requests wait meanwhile."""
SLICE_INTERVAL_MS = 1
"""Delay before the first slice, and after a slice whose files could not be created in advance."""
RETRY_INTERVAL_MS = 100
"""Delay if no worker is free. Until then a log is opened only by a request."""
SHORTAGE_INTERVAL_MS = 5_000
"""Delay between two attempts to create a log for which there was no space."""

Key = tuple[str, int]


class Arrivals:
    """Bounded by the partitions of the image. Uses one worker at a time."""

    __slots__ = (
        "_log_config",
        "_log_manager",
        "_looks_again",
        "_node_id",
        "_open",
        "_running",
        "_short",
        "_timers",
        "_tried",
        "_waiting",
        "_workers",
    )

    def __init__(
        self,
        node_id: int,
        timers: Timers,
        workers: Workers,
        log_manager: LogManager,
        log_config: Callable[[str], LogConfig],
        open_log: Callable[[TopicPartition, Uuid, PartitionRegistration], None],
    ) -> None:
        """`open_log` opens the log, and creates it if its files do not exist."""
        self._node_id = node_id
        self._timers = timers
        self._workers = workers
        self._log_manager = log_manager
        self._log_config = log_config
        self._open = open_log
        self._waiting: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        self._running = False
        """A slice is being prepared, or a timer will start one."""
        self._short: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        """Partitions that lacked space."""
        self._tried: Key | None = None
        """The partition of `_short` whose attempt shows whether there is space."""
        self._looks_again = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting or name in self._short

    def add(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """Add a partition, or replace its image if it already waits."""
        self._short.pop(name, None)
        self._waiting[name] = topic_id, image
        if not self._running:
            self._running = True
            self._timers.call_after(SLICE_INTERVAL_MS, self._prepare_slice)

    def add_short(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """Add a partition whose log had no space. One of all such partitions is tried at a time."""
        self._short[name] = topic_id, image
        if not self._looks_again:
            self._looks_again = True
            self._timers.call_after(SHORTAGE_INTERVAL_MS, self._look_again)

    def _look_again(self) -> None:
        self._looks_again = bool(self._short)
        if self._short:
            self._timers.call_after(SHORTAGE_INTERVAL_MS, self._look_again)
            self._tried, waiting = next(iter(self._short.items()))
            self.add(TopicPartition(*self._tried), *waiting)

    def discard(self, name: Key) -> None:
        self._waiting.pop(name, None)
        self._short.pop(name, None)

    def open_now(self, name: Key) -> bool:
        """Open a waiting partition. Returns False if it does not wait, or cannot be opened yet."""
        waiting = self._waiting.get(name)
        if waiting is None or not self._log_manager.may_make(TopicPartition(*name)):
            return False
        del self._waiting[name]
        self._open(TopicPartition(*name), *waiting)
        if name == self._tried and name not in self._short:
            # There is space again.
            for each, lacked in list(self._short.items()):
                self.add(TopicPartition(*each), *lacked)
        return True

    def _prepare_slice(self) -> None:
        names = list(islice(self._waiting, OPENED_A_SLICE))
        if not names:
            self._running = False
            return
        try:
            prepared = [self._prepare(name) for name in names]
        except LogRefused:
            self._open_unprepared(names)
            return
        clearing = self._log_manager.clear_names([TopicPartition(*name) for name in names])
        job = self._workers.submit(partial(run_all, clearing, prepared))
        job.on_done(partial(self._open_slice, names, prepared, clearing))

    def _prepare(self, name: Key) -> PreparedLog:
        topic_id, image = self._waiting[name]
        return self._log_manager.prepare(TopicPartition(*name), topic_id, image.directory(self._node_id))

    def _open_slice(
        self, names: list[Key], prepared: list[PreparedLog], clearing: Plan | None, done: Deferred[None]
    ) -> None:
        if self._log_manager.closed:
            return
        try:
            done.result()
        except Exception as error:  # too many jobs, or a bug in kafkacompat
            logger.error("no worker made the files of new partitions: %s", error)
            for files in prepared:
                self._log_manager.discard(files)
            self._timers.call_after(RETRY_INTERVAL_MS, self._prepare_slice)
            return
        if clearing is not None:
            clearing.finish()
        placed, delay_ms = True, SLICE_INTERVAL_MS
        for name, files in zip(names, prepared, strict=True):
            waiting = self._waiting.get(name)
            if waiting is None or waiting[0] != files.topic_id:
                self._log_manager.discard(files)
                continue
            if not self._log_manager.may_make(files.topic_partition):
                # The disk refused the checkpoints.
                self._log_manager.discard(files)
                placed, delay_ms = False, RETRY_INTERVAL_MS
                continue
            placed = self._log_manager.place(files, self._log_config(name[0])) and placed
            self.open_now(name)
        if placed:
            self._prepare_slice()
        else:
            self._timers.call_after(delay_ms, self._prepare_slice)

    def _open_unprepared(self, names: list[Key]) -> None:
        for name in names:
            self.open_now(name)
        self._timers.call_after(SLICE_INTERVAL_MS, self._prepare_slice)


def run_all(clearing: Plan | None, prepared: list[PreparedLog]) -> None:
    """Run the checkpoint plan, then create the files. Blocks; for a worker."""
    if clearing is not None:
        clearing.run()
    for one in prepared:
        one.run()
