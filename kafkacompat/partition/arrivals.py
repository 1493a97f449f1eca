"""New partitions whose logs are still to be opened: a few at a time, or when they are first asked for.

They are kept in order and opened one after another; a worker makes their files, for making one may take a millisecond and requests
would wait. As in Kafka, the reply to the creation of a large topic does not wait for every log; unlike there nobody meets a
partition that is not open yet. Only partitions that cannot have a log already may wait here, for retention must not look at a log
before its topic's settings are known. A name that checkpoints still speak of waits until they are written anew: whoever asks for it
meanwhile is told to come again. So does one whose log could not be made for want of room or of descriptors, until there are some.
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
"""Logs that one image opens at once, while whoever changed the metadata waits."""
OPENED_A_SLICE = 2
"""Few: what is left to do when the files are there is a quarter of a millisecond each, and requests wait meanwhile."""
SLICE_INTERVAL_MS = 1
"""Before the first slice, and after one whose files could not be made aside."""
RETRY_INTERVAL_MS = 100
"""When no worker is free; until then logs are opened only when they are asked for."""
SHORTAGE_INTERVAL_MS = 5_000
"""Between two looks whether a log can be made for which there was no room."""

Key = tuple[str, int]


class Arrivals:
    """Bounded by the partitions of the image. One worker is busy for it at a time."""

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
        """`open_log` opens the log, or makes it where its files are not there."""
        self._node_id = node_id
        self._timers = timers
        self._workers = workers
        self._log_manager = log_manager
        self._log_config = log_config
        self._open = open_log
        self._waiting: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        self._running = False
        """A slice is being prepared, or a timer will begin one."""
        self._short: dict[Key, tuple[Uuid, PartitionRegistration]] = {}
        """Those that lacked room."""
        self._tried: Key | None = None
        """Which of them shows whether there is room."""
        self._looks_again = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, name: Key) -> bool:
        return name in self._waiting or name in self._short

    def add(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """Wait, or go on waiting with a newer image."""
        self._short.pop(name, None)
        self._waiting[name] = topic_id, image
        if not self._running:
            self._running = True
            self._timers.call_after(SLICE_INTERVAL_MS, self._prepare_slice)

    def add_short(self, name: TopicPartition, topic_id: Uuid, image: PartitionRegistration) -> None:
        """There was no room for its log: wait until there is. One of all that wait so is tried at a time."""
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
        """False when no such partition waits, or it cannot be opened yet."""
        waiting = self._waiting.get(name)
        if waiting is None or not self._log_manager.may_make(TopicPartition(*name)):
            return False
        del self._waiting[name]
        self._open(TopicPartition(*name), *waiting)
        if name == self._tried and name not in self._short:
            # There is room.
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
        except Exception as error:  # too many jobs, or our own bug
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
                # The disk did not take the checkpoints.
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
    """Blocks; for a worker."""
    if clearing is not None:
        clearing.run()
    for one in prepared:
        one.run()
