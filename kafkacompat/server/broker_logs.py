"""A broker's logs from start to stop: loading, background work, closing; and the node's reaction when a log directory fails.

The background work (checkpoints, retention, flushes, cleaning) starts when the broker may lead partitions. The stop
waits for it before it closes the logs. If a thread still works on a log, the logs stay open. They are then as after a
kill, and the next start checks them. Settings: num.recovery.threads.per.data.dir, log.cleaner.*.

BrokerDirectories connects the log manager with the heartbeats (failed and cordoned directories), the placement of replicas
and the channel to the controller (KIP-112, KIP-858, KIP-1066). The replicas in a failed directory go offline, and the
broker continues with the other directories. As in Kafka, the node halts if the metadata log's directory or the last
directory fails. Settings: log.dirs, cordoned.log.dirs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.config import ServerConfig
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.log.cleaner.log_cleaner import OWN_PROCESS_BYTES, LogCleaner, Throttler, cleaner_limits
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.node.assignments_manager import AssignmentsManager
from kafkacompat.node.broker_lifecycle_manager import BrokerLifecycleManager
from kafkacompat.node.log_maintenance import BackgroundCleaning, PeriodicWork
from kafkacompat.node.settings import NodeSettings
from kafkacompat.partition.placement import Placement
from kafkacompat.ports import passes
from kafkacompat.server.data_directories import NodeDirectories
from kafkacompat.server.doors import NodeDoors
from kafkacompat.server.shared_server import SharedServer
from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.log.directory import LogDirectory
    from kafkacompat.log.opening import LoadTask
    from kafkacompat.partition.hosted_partitions import HostedPartitions
    from kafkacompat.partition.services import PartitionServices

logger = logging.getLogger(__name__)

EVERY_DIRECTORY = "*"


class DirectoryFailed(Exception):
    """A log directory failed without which the node cannot continue."""


class BrokerDirectories:
    """Created with the log manager, before the logs are loaded."""

    def __init__(
        self,
        doors: NodeDoors,
        directories: NodeDirectories,
        settings: NodeSettings,
        shared: SharedServer,
    ) -> None:
        self._doors = doors
        self._settings = settings
        self._shared = shared
        self._metadata_directory = directories.identity.metadata_directory
        ids = directories.identity.directory_ids
        self.logs = LogManager(
            doors.disk,
            [(path, ids.get(path, ZERO_UUID)) for path in directories.log_dirs],
            settings.log_config(""),
            doors.clock,
            randrange=doors.random.randrange,
            note=logger.warning,
            unique_text=doors.unique_text,
            producer_ids_max=doors.config.get_int("partition.max.producer.ids"),
        )
        for directory in self.logs.directories:
            directory.failure = directories.failed.get(directory.path)
            if directory.failure is not None:
                logger.warning("Stopping serving logs in dir %s: %s", directory.path, directory.failure)
        self.logs.on_directory_failed = self._directory_failed
        # A full disk does not take a directory offline if this is the only broker: no other replica could take over.
        self.logs.spares_full = lambda: len(shared.machine.image.brokers) <= 1
        self._life: BrokerLifecycleManager | None = None
        self._assignments: AssignmentsManager | None = None
        self._placement: Placement | None = None

    def place(
        self, services: PartitionServices, hosted: HostedPartitions, broker_epoch: Callable[[], int]
    ) -> Placement:
        """Return the placement of replicas, which follows the partitions' roles from now on."""
        doors, machine = self._doors, self._shared.machine
        self._assignments = AssignmentsManager(
            doors.config.node_id,
            self._shared.controller_channel("directory-assignments"),
            doors.tasks,
            lambda: machine.image,
            broker_epoch,
        )
        self._placement = Placement(services, hosted, self._assignments.assign)
        return self._placement

    @property
    def queued_assignments(self) -> int:
        """Replicas whose directory the controller has not accepted yet."""
        return 0 if self._assignments is None else self._assignments.queued

    def max_move_lag(self) -> int:
        """Of the replicas that are being moved between directories."""
        return 0 if self._placement is None else self._placement.max_move_lag()

    def moved_bytes_per_second(self) -> float | None:
        """None: nothing has been moved between directories yet."""
        return None if self._placement is None else self._placement.moved_bytes_per_second()

    def online_ids(self) -> tuple[Uuid, ...]:
        """The directories with which the broker registers. Directories that failed while the logs were loaded are left out."""
        return tuple(each.directory_id for each in self.logs.directories if each.online)

    def follow(self, life: BrokerLifecycleManager) -> None:
        """Set the heartbeats that report failed and cordoned directories to the controller."""
        self._life = life
        self.take_settings(self._settings.effective)

    def take_settings(self, config: ServerConfig) -> None:
        names = {
            name if name == EVERY_DIRECTORY else os.path.abspath(name)
            for name in config.get_list("cordoned.log.dirs")
        }
        cordoned = [
            each.directory_id
            for each in self.logs.directories
            if each.online and (each.path in names or EVERY_DIRECTORY in names)
        ]
        self.logs.cordoned = frozenset(cordoned)
        if self._life is not None:
            self._life.cordon(tuple(sorted(cordoned)))

    def close(self) -> None:
        """Stop all moves of replicas and all reports to the controller."""
        if self._placement is not None:
            self._placement.close()
        if self._assignments is not None:
            self._assignments.close()

    def _directory_failed(self, directory: LogDirectory) -> None:
        if directory.path == self._metadata_directory:
            self._halt("the metadata log's directory has failed", [directory])
        elif not any(each.online for each in self.logs.directories):
            self._halt("all log directories have failed", self.logs.directories)
        elif self._life is not None:
            self._life.directory_failed(directory.directory_id)

    def _halt(self, text: str, failed: Sequence[LogDirectory]) -> None:
        causes = ", ".join(f"{each.path} ({each.failure})" for each in failed)
        error = DirectoryFailed(f"{text}: {causes}")
        error.__cause__ = failed[-1].failure
        self._doors.halt(error)


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

    def __init__(self, doors: NodeDoors, settings: NodeSettings, logs: LogManager) -> None:
        self._doors = doors
        self._settings = settings
        self._logs = logs
        self._loading: Deferred[Any] | None = None
        """The running load after a clean shutdown. The logs may be closed only when all of them are open."""
        self._is_loaded = False
        """True once all logs are open, so that they must be closed."""
        self.leaves_threads = False
        """True while worker threads use the logs, which they may do until the process ends."""
        self._periodic: PeriodicWork | None = None
        self._cleaning: BackgroundCleaning | None = None
        self.cleaner: LogCleaner | None = None
        """None until the broker serves, and without log.cleaner.enable."""
        self.cleaner_throttle = Throttler(
            lambda: settings.effective.get_double("log.cleaner.io.max.bytes.per.second"), doors.monotonic_s
        )

    async def load(self) -> None:
        """Load the log of every partition. After an unclean shutdown, num.recovery.threads.per.data.dir threads
        recover the logs.

        If the start is cancelled, a clean load still runs to its end: the marks of the clean shutdown are already
        deleted, so all logs must be open to be closed properly. A recovery is left as after a kill, and the next start
        repeats it.
        """
        workers = self._doors.workers
        tasks = await self._begin_load()
        if all(task.clean for task in tasks):
            self._loading = self._doors.tasks.run("opening the logs", self._open(tasks))
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
                return self._logs.begin_load(waits=tries > 1)
            except OSError as error:
                logger.warning("the log directories are looked at again: %s", error)
            await self._doors.tasks.sleep(LACK_AGAIN_MS)
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
        recovery = self._doors.workers.recovery
        for _ in range(LACK_TRIES):
            lacking = [task for task in tasks if isinstance(task.result, Exception) and passes(task.result)]
            if not lacking:
                return
            logger.warning(
                "%s, and %d logs more: opened later: %s", lacking[0].path, len(lacking) - 1, lacking[0].result
            )
            await self._doors.tasks.sleep(LACK_AGAIN_MS)
            await gather([recovery.submit(task.run) for task in lacking])

    async def load_is_over(self) -> None:
        """Wait for the load of a start that was cancelled."""
        if self._loading is not None:
            await self._loading

    def _loaded(self, tasks: Sequence[LoadTask]) -> None:
        self._logs.finish_load(tasks)
        self._is_loaded = True

    def keep_checkpoints_true(self) -> None:
        """Call it when the broker registers: from then on partitions may make checkpoints outdated."""
        doors = self._doors
        self._periodic = PeriodicWork(
            doors.config, self._settings, LogUpkeep(self._logs), doors.clock, doors.tasks, doors.workers
        )
        self._logs.on_stale = self._periodic.checkpoint_soon

    def start_upkeep(self) -> None:
        assert self._periodic is not None
        self._periodic.start()
        cleaner, self._cleaning = self._make_cleaning()
        if self._doors.config.get_boolean("log.cleaner.enable"):
            self.cleaner = cleaner
            self._cleaning.start()

    def _make_cleaning(self) -> tuple[LogCleaner, BackgroundCleaning]:
        doors, settings = self._doors, self._settings
        throttle = self.cleaner_throttle
        cleaner = LogCleaner(
            self._logs,
            doors.disk,
            lambda: cleaner_limits(settings.effective),
            lambda: throttle,
            logger.warning,
            monotonic_ms=doors.clock.monotonic_ms,
            own_process_bytes=OWN_PROCESS_BYTES if doors.disk.is_shared else None,
        )
        return cleaner, BackgroundCleaning(
            settings, cleaner, throttle, doors.clock, doors.tasks, doors.workers
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

        timer = self._doors.timers.call_after(timeout_ms, over)
        either.on_done(lambda _: timer.cancel())
        wanted.on_done(lambda _: over())
        return either

    def close(self, broker_epoch: int) -> None:
        """Close the logs. Call it after the metadata log has stopped, because roles no longer change then."""
        if self._is_loaded and not self.leaves_threads:
            # A broker that never registered has changed nothing since the last clean shutdown, so it keeps that epoch.
            self._logs.shut_down(max(broker_epoch, self._logs.previous_broker_epoch))
