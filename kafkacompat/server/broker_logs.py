"""A broker's logs from its start to its stop: loaded, kept in order by work of their own, closed.

What works on them by itself (checkpoints, retention, flushes, cleaning) begins once the broker may lead, and is waited for before
they are closed. Logs that a thread still works on stay open: they are left as after a kill, and checked at the next start.
Settings: num.recovery.threads.per.data.dir, log.cleaner.*.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred, gather
from kafkacompat.log.cleaner.cleaner import OWN_PROCESS_BYTES, LogCleaner, cleaner_limits
from kafkacompat.log.cleaner.throttle import Throttle
from kafkacompat.log.manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.node.cleaning import BackgroundCleaning
from kafkacompat.node.periodic import PeriodicWork
from kafkacompat.node.settings import NodeSettings
from kafkacompat.server.doors import NodeDoors
from kafkacompat.stepping.jobs import Stepping, Steps

if TYPE_CHECKING:
    from kafkacompat.log.loading import LoadTask

logger = logging.getLogger(__name__)

WORKERS_END_MS = 10_000
"""How long workers that still touch the logs are waited for when the node stops."""
LOADED_AT_ONCE = 32
"""Logs of a clean stop that are opened one after another before anybody else has a turn: some 0.3 ms each."""


class BrokerLogs:
    """`load`, `keep_checkpoints_true`, `start_upkeep`; then `stop_upkeep` and `close`. All once, in this order."""

    def __init__(self, doors: NodeDoors, settings: NodeSettings, logs: LogManager) -> None:
        self._doors = doors
        self._settings = settings
        self._logs = logs
        self._loading: Deferred[Any] | None = None
        """Of logs that are closed only when all are open."""
        self._is_loaded = False
        """All logs are open, and ours to close."""
        self.leaves_threads = False
        """Some work on the logs, and may do so until the process ends."""
        self._periodic: PeriodicWork | None = None
        self._cleaning: BackgroundCleaning | None = None

    async def load(self) -> None:
        """Every partition's log; after an unclean stop with as many threads as num.recovery.threads.per.data.dir allows.

        Called off, a clean load goes on to its end, for its marks are gone and whoever closes the logs must have them all; recovery
        ends as by a kill, and begins again with the next start.
        """
        workers = self._doors.workers
        tasks = self._logs.begin_load()

        if all(task.clean for task in tasks):
            stepping = Stepping(self._doors.timers, workers.files, 1, 0)
            self._loading = stepping.submit(_loaded_in_steps(tasks)).then(self._loaded)
            await self._loading
        else:
            self.leaves_threads = True
            await gather([workers.recovery.submit(task.run) for task in tasks])
            self.leaves_threads = False
            self._loaded(tasks)

    async def load_is_over(self) -> None:
        """Of a start that was called off."""
        if self._loading is not None:
            await self._loading

    def _loaded(self, tasks: Sequence[LoadTask]) -> None:
        self._logs.finish_load(tasks)
        self._is_loaded = True

    def keep_checkpoints_true(self) -> None:
        """From the broker's registration on: partitions may change what a checkpoint says."""
        doors = self._doors
        self._periodic = PeriodicWork(
            doors.config, self._settings, LogUpkeep(self._logs), doors.clock, doors.timers, doors.workers
        )
        self._logs.on_stale = self._periodic.checkpoint_soon

    def start_upkeep(self) -> None:
        assert self._periodic is not None
        self._periodic.start()
        self._cleaning = self._make_cleaning()
        if self._doors.config.get_boolean("log.cleaner.enable"):
            self._cleaning.start()

    def _make_cleaning(self) -> BackgroundCleaning:
        doors, settings = self._doors, self._settings
        throttle = Throttle(
            lambda: settings.effective.get_double("log.cleaner.io.max.bytes.per.second"), doors.monotonic_s
        )
        cleaner = LogCleaner(
            self._logs,
            doors.disk,
            lambda: cleaner_limits(settings.effective),
            lambda: throttle,
            logger.warning,
            monotonic_ms=doors.clock.monotonic_ms,
            own_process_bytes=OWN_PROCESS_BYTES if doors.disk.is_shared else None,
        )
        return BackgroundCleaning(settings, cleaner, throttle, doors.clock, doors.timers, doors.workers)

    async def stop_upkeep(self) -> None:
        """Wait for what cleans, syncs and checkpoints by itself, but not for ever: a disk may answer nothing."""
        ends = [part.stop() for part in (self._cleaning, self._periodic) if part is not None]
        await self._in_time(gather(ends), WORKERS_END_MS)
        self.leaves_threads = not all(end.done for end in ends)
        if self.leaves_threads:
            logger.error(
                "a thread still works on the logs after %d s; they are left as after a kill, and checked at the next start",
                WORKERS_END_MS // 1000,
            )

    def _in_time(self, wanted: Deferred[Any], timeout_ms: int) -> Deferred[None]:
        """There when that is, or when its time is over."""
        either: Deferred[None] = Deferred()

        def over() -> None:
            if not either.done:
                either.resolve(None)

        timer = self._doors.timers.call_after(timeout_ms, over)
        either.on_done(lambda _: timer.cancel())
        wanted.on_done(lambda _: over())
        return either

    def close(self, broker_epoch: int) -> None:
        """After the metadata log has stopped: nothing changes roles any more."""
        if self._is_loaded and not self.leaves_threads:
            # A broker that was never registered has changed nothing since the last clean stop.
            self._logs.shut_down(max(broker_epoch, self._logs.previous_broker_epoch))


def _loaded_in_steps(tasks: Sequence[LoadTask]) -> Steps[Sequence[LoadTask]]:
    for number, task in enumerate(tasks):
        if number % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
            yield None
        task.run()
    return tasks
