"""A broker's logs from start to stop: loading, background work, closing; and the node's reaction when a log directory fails.

The background work (checkpoints, retention, flushes, cleaning) starts when the broker may lead partitions. The stop
waits for it before it closes the logs. If a thread still works on a log, the logs stay open. They are then as after a
kill, and the next start checks them. Settings: num.recovery.threads.per.data.dir, log.cleaner.*.

The heartbeats report failed and cordoned directories to the controller (KIP-112, KIP-858, KIP-1066). The replicas in a
failed directory go offline, and the broker continues with the other directories. As in Kafka, the node halts if the
metadata log's directory or the last directory fails. Settings: log.dirs, cordoned.log.dirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.config import ServerConfig
from kafkacompat.config.server import TIERING
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.log.cleaner.log_cleaner import OWN_PROCESS_BYTES, LogCleaner, Throttler, cleaner_limits
from kafkacompat.log.index_cache import UNLIMITED
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.node.log_maintenance import BackgroundCleaning, PeriodicWork
from kafkacompat.node.settings import NodeSettings
from kafkacompat.ports import passes
from kafkacompat.server.data_directories import NodeDirectories
from kafkacompat.server.services import NodeServices
from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.controller.metadata_machine import MetadataMachine
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.opening import LoadTask

logger = logging.getLogger(__name__)

EVERY_DIRECTORY = "*"


class DirectoryFailed(Exception):
    """A log directory failed without which the node cannot continue."""


WORKERS_END_MS = 10_000
"""How long a stopping node waits for workers that still use the logs."""
LACK_AGAIN_MS = 1_000
LACK_TRIES = 30
"""How often logs that could not be opened for want of descriptors or memory are tried again, before they are left offline
until the next start."""
LOADED_AT_ONCE = 32
"""After a clean shutdown, logs that are opened in one step of the loop. One takes about 0.3 ms."""


class BrokerLogs:
    """Call `load`, `keep_checkpoints_true`, `start_upkeep`, `stop_upkeep` and `close`, each once and in this order."""

    def __init__(
        self,
        services: NodeServices,
        directories: NodeDirectories,
        settings: NodeSettings,
        machine: MetadataMachine,
        lifecycle: BrokerLifecycleManager,
    ) -> None:
        """`lifecycle` reports failed and cordoned directories to the controller."""
        self._services = services
        self._settings = settings
        self._lifecycle = lifecycle
        self._metadata_directory = directories.identity.metadata_directory
        ids, descriptors = directories.identity.directory_ids, services.descriptors
        self.manager = LogManager(
            services.disk,
            [(path, ids.get(path, ZERO_UUID)) for path in directories.log_dirs],
            settings.log_config(""),
            services.clock,
            randrange=services.random.randrange,
            note=logger.warning,
            unique_text=services.unique_text,
            producer_ids_max=services.config.get_int("partition.max.producer.ids"),
            open_files_max=(lambda: UNLIMITED) if descriptors is None else descriptors.files_max,
            # A full disk does not take a directory offline if this is the only broker: no other replica could take over.
            spares_full=lambda: len(machine.image.brokers) <= 1,
            on_directory_failed=self._directory_failed,
            on_stale=self._checkpoint_soon,
            remote_storage=services.config.get_boolean(TIERING),
        )
        if descriptors is not None:
            descriptors.count_logs(lambda: len(self.manager.logs))
        for directory in self.manager.directories:
            directory.failure = directories.failed.get(directory.path)
            if directory.failure is not None:
                logger.warning("Stopping serving logs in dir %s: %s", directory.path, directory.failure)
        self._loading: Deferred[Any] | None = None
        """The running load after a clean shutdown. The logs may be closed only when all of them are open."""
        self._is_loaded = False
        """True once all logs are open, so that they must be closed."""
        self.leaves_threads = False
        """True while worker threads use the logs, which they may do until the process ends."""
        self._periodic: PeriodicWork | None = None
        """None until `keep_checkpoints_true`."""
        self._cleaning: BackgroundCleaning | None = None
        self.cleaner: LogCleaner | None = None
        """None until the broker serves, and without log.cleaner.enable."""
        self.cleaner_throttle = Throttler(
            lambda: settings.effective.get_double("log.cleaner.io.max.bytes.per.second"), services.monotonic_s
        )

    async def load(self) -> None:
        """Load the log of every partition. After an unclean shutdown, num.recovery.threads.per.data.dir threads
        recover the logs.

        If the start is cancelled, a clean load still runs to its end: the marks of the clean shutdown are already
        deleted, so all logs must be open to be closed properly. A recovery is left as after a kill, and the next start
        repeats it.
        """
        workers = self._services.workers
        tasks = await self._begin_load()
        if all(task.clean for task in tasks):
            self._loading = self._services.tasks.run("opening the logs", self._open(tasks))
            await self._loading
        else:
            self.leaves_threads = True
            await gather([workers.recovery.submit(task.run) for task in tasks])
            await self._open_lacking(tasks)
            self.leaves_threads = False
            self._loaded(tasks)

    async def _begin_load(self) -> list[LoadTask]:
        for tries in range(LACK_TRIES, 0, -1):
            try:
                return self.manager.begin_load(waits=tries > 1)
            except OSError as error:
                logger.warning("the log directories are looked at again: %s", error)
            await self._services.tasks.sleep(LACK_AGAIN_MS)
        raise AssertionError("the last try waits for nothing")

    async def _open(self, tasks: Sequence[LoadTask]) -> None:
        """After a clean shutdown."""
        for number, task in enumerate(tasks):
            if number % LOADED_AT_ONCE == LOADED_AT_ONCE - 1:
                await pause()
            task.run()
        await self._open_lacking(tasks)
        self._loaded(tasks)

    async def _open_lacking(self, tasks: Sequence[LoadTask]) -> None:
        """Open the logs for which something was lacking."""
        recovery = self._services.workers.recovery
        for _ in range(LACK_TRIES):
            lacking = [task for task in tasks if isinstance(task.result, Exception) and passes(task.result)]
            if not lacking:
                return
            logger.warning(
                "%s, and %d logs more: opened later: %s", lacking[0].path, len(lacking) - 1, lacking[0].result
            )
            await self._services.tasks.sleep(LACK_AGAIN_MS)
            await gather([recovery.submit(task.run) for task in lacking])

    async def load_is_over(self) -> None:
        """Wait for the load of a start that was cancelled."""
        if self._loading is not None:
            await self._loading

    def _loaded(self, tasks: Sequence[LoadTask]) -> None:
        self.manager.finish_load(tasks)
        self._is_loaded = True

    def keep_checkpoints_true(self) -> None:
        """Call it when the broker registers: from then on partitions may make checkpoints outdated."""
        services = self._services
        self._periodic = PeriodicWork(
            services.config,
            self._settings,
            LogUpkeep(self.manager),
            services.clock,
            services.tasks,
            services.workers,
        )

    def _checkpoint_soon(self) -> None:
        if self._periodic is None:
            self.manager.checkpoint_now()
        else:
            self._periodic.checkpoint_soon()

    def start_upkeep(self) -> None:
        assert self._periodic is not None
        self._periodic.start()
        cleaner, self._cleaning = self._make_cleaning()
        if self._services.config.get_boolean("log.cleaner.enable"):
            self.cleaner = cleaner
            self._cleaning.start()

    def _make_cleaning(self) -> tuple[LogCleaner, BackgroundCleaning]:
        services, settings = self._services, self._settings
        throttle = self.cleaner_throttle
        cleaner = LogCleaner(
            self.manager,
            services.disk,
            lambda: cleaner_limits(settings.effective),
            lambda: throttle,
            logger.warning,
            monotonic_ms=services.clock.monotonic_ms,
            own_process_bytes=OWN_PROCESS_BYTES if services.disk.is_shared else None,
        )
        return cleaner, BackgroundCleaning(
            settings, cleaner, throttle, services.clock, services.tasks, services.workers
        )

    async def stop_upkeep(self) -> None:
        """Wait for cleaning, syncs and checkpoints to end, for at most WORKERS_END_MS: a disk may not respond."""
        ends = [part.stop() for part in (self._cleaning, self._periodic) if part is not None]
        await self._in_time(gather(ends), WORKERS_END_MS)
        self.leaves_threads = not all(end.done for end in ends)
        if self.leaves_threads:
            logger.error(
                "a thread still works on the logs after %d s; they are left as after a kill, and checked at the next start",
                WORKERS_END_MS // 1000,
            )

    def _in_time(self, wanted: Deferred[Any], timeout_ms: int) -> Deferred[None]:
        """Resolve when `wanted` is resolved or the timeout is over."""
        either: Deferred[None] = Deferred()

        def over() -> None:
            if not either.done:
                either.resolve(None)

        timer = self._services.work_timers.call_after(timeout_ms, over)
        either.on_done(lambda _: timer.cancel())
        wanted.on_done(lambda _: over())
        return either

    def close(self, broker_epoch: int) -> None:
        """Close the logs. Call it after the metadata log has stopped, because roles no longer change then."""
        if self._is_loaded and not self.leaves_threads:
            # A broker that never registered has changed nothing since the last clean shutdown, so it keeps that epoch.
            self.manager.shut_down(max(broker_epoch, self.manager.previous_broker_epoch))

    # Log directories.

    def online_ids(self) -> tuple[Uuid, ...]:
        """The directories with which the broker registers. Directories that failed while the logs were loaded are left out."""
        return tuple(each.directory_id for each in self.manager.directories if each.online)

    def follow_settings(self, config: ServerConfig) -> None:
        """Apply changed settings that are not read where they are used."""
        self.cordon(config)
        if self._cleaning is not None:
            self._cleaning.look_soon()

    def cordon(self, config: ServerConfig) -> None:
        """Apply cordoned.log.dirs."""
        names = {
            name if name == EVERY_DIRECTORY else os.path.abspath(name)
            for name in config.get_list("cordoned.log.dirs")
        }
        cordoned = [
            each.directory_id
            for each in self.manager.directories
            if each.online and (each.path in names or EVERY_DIRECTORY in names)
        ]
        self.manager.cordoned = frozenset(cordoned)
        self._lifecycle.cordon(tuple(sorted(cordoned)))

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.path == self._metadata_directory:
            self._halt("the metadata log's directory has failed", [directory])
        elif not any(each.online for each in self.manager.directories):
            self._halt("all log directories have failed", self.manager.directories)
        else:
            self._lifecycle.directory_failed(directory.directory_id)

    def _halt(self, text: str, failed: Sequence[LogDirectory]) -> None:
        causes = ", ".join(f"{each.path} ({each.failure})" for each in failed)
        error = DirectoryFailed(f"{text}: {causes}")
        error.__cause__ = failed[-1].failure
        self._services.halt(error)
