"""The periodic work on a broker's logs: checkpoints, flushes, retention, expiry of idle producers, and the log cleaner
(the scheduled tasks of LogManager, and LogCleaner).

Whenever the interval of a setting is over, the log upkeep is asked for the due work. Blocking work runs in a worker,
and its result is applied in the loop's thread. This module decides nothing about logs. There are several executors, among
them one for the syncs of each log directory. A sync, the removal of large files or the reading of old ones can take
seconds. Neither the syncs of other directories nor the small checkpoint files should wait for it. An executor runs one job
at a time, and a job that already waits is not queued again. So two jobs never write the same checkpoint.

log.cleaner.threads cleanings run at a time, and there is a search for work every log.cleaner.backoff.ms. The steps of a
cleaning run in worker threads. Their results are applied in the loop's thread, and a checkpoint follows each cleaning. The next
cleaning starts at once. As in Kafka, it waits for log.cleaner.backoff.ms if no log needed cleaning, or if a cleaning failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import report
from kafkacompat.ports import LogRefused, passes
from kafkacompat.tasks import WakeUp, in_turns, pause

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ports import Clock, WorkerPools, Workers
    from kafkacompat.tasks import Started, Tasks, Work

logger = logging.getLogger(__name__)

DELETION_SWEEP_MS = 5_000


class Plan(Protocol):
    def run(self) -> None: ...

    def finish(self) -> bool | None:
        """Return True if more work should be done at once."""
        ...


class Retention(Protocol):
    """A pass over all logs, cut into plans, because there may be many logs."""

    removed: int
    """The number of segments removed so far."""

    def next(self) -> Plan | None: ...


class Upkeep(Protocol):
    """The part of log.upkeep.LogUpkeep that is used here."""

    def places(self) -> Sequence[str]: ...

    def watch_rolls(self, told: Callable[[str], None]) -> None: ...

    def flush_rolled(self, place: str) -> Plan | None: ...

    def flush_closed_segments(self, place: str) -> Plan | None: ...

    def flush_overdue(self, place: str, now_ms: int) -> Plan | None: ...

    def checkpoint_high_watermarks(self) -> Plan | None: ...

    def checkpoint_recovery_points(self) -> Plan | None: ...

    def checkpoint_log_starts(self) -> Plan | None: ...

    def checkpoint_cleaned(self) -> Plan | None: ...

    def begin_retention(self, now_ms: int) -> Retention: ...

    def has_tiered_logs(self) -> bool: ...

    def watch_damage(self, told: Callable[[], None]) -> None: ...

    def rebuild_indexes(self) -> Plan | None: ...

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Work[None]: ...

    def remove_expired_deletions(self, monotonic_ms: int) -> Plan | None: ...


class Numbers(Protocol):
    def get_int(self, name: str) -> int: ...


Begin = Callable[[], Plan | None]


def report_unexpected(duty: str, error: Exception) -> None:
    """Of a duty that will be tried again: a disk may refuse something, and a log or the workers too. The rest is a bug."""
    if isinstance(error, (OSError, LogRefused)) or passes(error):
        logger.error("%s failed and is tried again later: %s", duty, error)
    else:
        report(duty, error)


class SerialExecutor:
    """Runs jobs in worker threads, one after another. At most one job of each kind waits."""

    __slots__ = ("_idle", "_is_stopped", "_tasks", "_waiting", "_workers")

    def __init__(self, tasks: Tasks, workers: Workers) -> None:
        self._tasks = tasks
        self._workers = workers
        self._waiting: dict[str, Begin] = {}
        self._idle: Deferred[None] = Deferred.of(None)
        """Done while no job runs."""
        self._is_stopped = False

    def submit(self, kind: str, begin: Begin) -> None:
        """Queue a job. `begin` is called when the job's turn comes, so that its plan is up to date."""
        if self._is_stopped:
            return
        self._waiting[kind] = begin
        if self._idle.done:
            self._idle = Deferred()
            self._tasks.start(kind, self._run())

    def stop(self) -> Deferred[None]:
        """Drop all waiting jobs. Resolves when no job runs any more."""
        self._is_stopped = True
        self._waiting.clear()
        return self._idle

    async def _run(self) -> None:
        while self._waiting and not self._is_stopped:
            kind = next(iter(self._waiting))
            begin = self._waiting.pop(kind)
            try:
                plan = begin()
                if plan is not None:
                    await self._workers.submit(plan.run)
                    if plan.finish():
                        # The job goes behind the waiting ones, so that small jobs need not wait for a long one.
                        self._waiting.setdefault(kind, begin)
            except Exception as error:  # it is tried again at its next interval
                report_unexpected(kind, error)
        self._idle.resolve(None)


class PeriodicWork:
    """Call `start` once, and `stop` once before the logs are closed."""

    def __init__(
        self,
        config: ServerConfig,
        dynamic: Numbers,
        upkeep: Upkeep,
        clock: Clock,
        tasks: Tasks,
        workers: WorkerPools,
    ) -> None:
        self._config = config
        self._dynamic = dynamic
        self._upkeep = upkeep
        self._clock = clock
        self._tasks = tasks
        self._syncs = {place: SerialExecutor(tasks, workers.log_sync.at(place)) for place in upkeep.places()}
        self._files = SerialExecutor(tasks, workers.files)
        self._removals = SerialExecutor(tasks, workers.files)
        self._reads = SerialExecutor(tasks, workers.files)
        self._expiry: Started | None = None
        self._retention: Retention | None = None
        """The running pass."""
        self._stopped = False

    def start(self) -> None:
        """Begin all duties. As in Kafka, an interval of 0 means once."""
        upkeep = self._upkeep
        upkeep.watch_damage(lambda: self._reads.submit("rebuilding of indexes", upkeep.rebuild_indexes))
        upkeep.watch_rolls(self._flush_rolled_soon)
        initial_ms = self._config.get_int("log.initial.task.delay.ms")
        self._every("replica.high.watermark.checkpoint.interval.ms", self._checkpoint_high_watermarks)
        self._every("log.flush.offset.checkpoint.interval.ms", self._flush_closed_segments, initial_ms)
        self._every("log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_log_starts, initial_ms)
        self._every("log.flush.scheduler.interval.ms", self._flush_overdue, initial_ms)
        self._every("log.retention.check.interval.ms", self._retain, initial_ms)
        self._every("producer.id.expiration.check.interval.ms", self._expire_soon)
        self._tasks.start(
            "removal of deleted files",
            self._repeat(DELETION_SWEEP_MS, DELETION_SWEEP_MS, self._sweep_deletions),
        )

    def stop(self) -> Deferred[None]:
        """Start no more work. Resolves when no worker uses the logs any more."""
        self._stopped = True
        executors = [*self._syncs.values(), self._files, self._removals, self._reads]
        return when_all_done([executor.stop() for executor in executors])

    def _every(self, name: str, action: Callable[[], None], first_ms: int | None = None) -> None:
        interval_ms = self._config.get_int(name)
        self._tasks.start(
            name, self._repeat(interval_ms if first_ms is None else first_ms, interval_ms, action)
        )

    async def _repeat(self, first_ms: int, interval_ms: int, action: Callable[[], None]) -> None:
        await self._tasks.sleep(first_ms)
        while not self._stopped:
            try:
                action()
            except Exception as error:  # the next interval comes all the same
                report("upkeep of the logs", error)
            if interval_ms <= 0:
                return
            await self._tasks.sleep(interval_ms)

    def checkpoint_soon(self) -> None:
        """Write the checkpoints soon, because logs were deleted or truncated. May be called before `start`.

        However many logs change, each file is written at most twice: once when the first log changes, and once after
        that.
        """
        if not self._stopped:
            self._checkpoint_log_starts()
            self._checkpoint_high_watermarks()
            self._checkpoint_recovery_points()
            self._files.submit("checkpoint of the cleaner", self._upkeep.checkpoint_cleaned)

    def _checkpoint_log_starts(self) -> None:
        self._files.submit("checkpoint of the log starts", self._upkeep.checkpoint_log_starts)

    def _checkpoint_recovery_points(self) -> None:
        self._files.submit("checkpoint of the recovery points", self._upkeep.checkpoint_recovery_points)

    def _checkpoint_high_watermarks(self) -> None:
        self._files.submit("checkpoint of the high watermarks", self._upkeep.checkpoint_high_watermarks)

    def _flush_closed_segments(self) -> None:
        for place, executor in self._syncs.items():
            executor.submit("flush of closed segments", partial(self._upkeep.flush_closed_segments, place))
        # This checkpoints the results of earlier syncs. As in Kafka, those of this sync follow one interval later.
        self._checkpoint_recovery_points()

    def _flush_rolled_soon(self, place: str) -> None:
        """Not directly: the caller is still inside the append that rolled the segment."""
        self._tasks.start("flush of rolled segments", self._flush_rolled(place))

    async def _flush_rolled(self, place: str) -> None:
        await self._tasks.sleep(0)
        self._syncs[place].submit("flush of rolled segments", partial(self._upkeep.flush_rolled, place))

    def _flush_overdue(self) -> None:
        for place, executor in self._syncs.items():
            executor.submit("flush by flush.ms", partial(self._flush_overdue_at, place))

    def _flush_overdue_at(self, place: str) -> Plan | None:
        return self._upkeep.flush_overdue(place, self._clock.monotonic_ms())

    def _retain(self) -> None:
        """Start a pass. If the previous pass still runs, it continues instead."""
        if self._retention is None:
            self._retention = self._upkeep.begin_retention(self._clock.now_ms())
        if self._upkeep.has_tiered_logs():
            # A start that found an older log start would have a hole between what is remote and what is left here.
            self._checkpoint_log_starts()
            self._files.submit("retention", self._begin_retaining)
        else:
            self._begin_retaining()

    def _begin_retaining(self) -> None:
        self._reads.submit("retention", self._go_on_retaining)

    def _go_on_retaining(self) -> Plan | None:
        retention = self._retention
        plan = None if retention is None else retention.next()
        if retention is not None and plan is None:
            self._retention = None
            if retention.removed:
                logger.info("retention removed %d segments", retention.removed)
        return plan

    def _expire_soon(self) -> None:
        if self._expiry is None or self._expiry.done:
            self._expiry = self._tasks.start("expiry of producer ids", self._expire_producers())

    async def _expire_producers(self) -> None:
        await pause()
        expiration_ms = self._dynamic.get_int("producer.id.expiration.ms")
        await in_turns(self._upkeep.remove_expired_producers(self._clock.now_ms(), expiration_ms))

    def _sweep_deletions(self) -> None:
        self._removals.submit(
            "removal of deleted files",
            lambda: self._upkeep.remove_expired_deletions(self._clock.monotonic_ms()),
        )


LOOK_ON_MS = 1
"""The pause between two steps of a search through very many logs."""


class Step(Protocol):
    """The part of log.cleaner.log_cleaner.Cleaning that is used here."""

    done: bool
    summary: str

    def run(self) -> None: ...

    def finish(self, now_ms: int) -> None: ...

    def abandon(self) -> None: ...


class Cleaner(Protocol):
    """The part of log.cleaner.log_cleaner.LogCleaner that is used here."""

    @property
    def is_looking(self) -> bool: ...

    def begin(self, now_ms: int) -> Step | None: ...

    def checkpoint(self) -> Plan | None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class Stoppable(Protocol):
    def stop(self) -> None: ...


class BackgroundCleaning:
    """Call `start` once, and `stop` once before the logs are closed. Both run in the loop's thread."""

    def __init__(
        self,
        dynamic: Numbers,
        cleaner: Cleaner,
        throttle: Stoppable,
        clock: Clock,
        tasks: Tasks,
        workers: WorkerPools,
    ) -> None:
        self._dynamic = dynamic
        self._cleaner = cleaner
        self._throttle = throttle
        self._clock = clock
        self._tasks = tasks
        self._workers = workers.cleaning
        self._checkpoints = SerialExecutor(tasks, workers.files)
        self._active = 0
        self._looks_on = False
        self._wake_up = WakeUp(tasks)
        self._stopped: Deferred[None] | None = None

    def start(self) -> None:
        self._tasks.start("selecting logs to clean", self._look())

    def look_soon(self) -> None:
        """Look for work with the settings in force: the wait since the last look may be one of hours."""
        self._wake_up.call()

    def _checkpoint_soon(self) -> None:
        if self._stopped is None:
            self._checkpoints.submit("checkpoint of the cleaner", self._cleaner.checkpoint)

    def stop(self) -> Deferred[None]:
        """Start no more cleanings and end the running ones. Resolves when no worker uses the logs any more."""
        self._stopped = Deferred()
        self._throttle.stop()
        self._cleaner.interrupt()
        self._maybe_stopped()
        return self._stopped

    async def _look(self) -> None:
        while self._stopped is None:
            self._fill()
            self._checkpoint_soon()
            await self._wake_up.wait(max(self._dynamic.get_int("log.cleaner.backoff.ms"), 1))

    def _fill(self) -> None:
        """Start cleanings while threads are free and logs are dirty."""
        while self._stopped is None and self._active < self._dynamic.get_int("log.cleaner.threads"):
            try:
                step = self._cleaner.begin(self._clock.now_ms())
            except Exception as error:  # the next attempt follows
                report_unexpected("selecting a log to clean", error)
                return
            if step is None:
                if self._cleaner.is_looking and not self._looks_on:
                    self._looks_on = True
                    self._tasks.start("selecting logs to clean", self._look_on())
                return
            self._active += 1
            self._tasks.start("cleaning a log", self._clean(step))

    async def _look_on(self) -> None:
        await self._tasks.sleep(LOOK_ON_MS)
        self._looks_on = False
        self._fill()

    async def _clean(self, step: Step) -> None:
        began_ms = self._clock.monotonic_ms()
        while not step.done:
            try:
                await self._workers.submit(step.run)
                step.finish(self._clock.now_ms())
                if self._stopped is not None and not step.done:
                    step.abandon()
            except Exception as error:
                report_unexpected("cleaning a log", error)
                step.done = True
        self._active -= 1
        self._maybe_stopped()
        if self._stopped is None and step.summary:
            # Only after a success: a retry does not empty a full disk, so after a failure the next search is soon
            # enough.
            logger.info("%s, in %d ms", step.summary, self._clock.monotonic_ms() - began_ms)
            self._checkpoints.submit("checkpoint of the cleaner", self._cleaner.checkpoint)
            self._fill()

    def _maybe_stopped(self) -> None:
        stopped = self._stopped
        if stopped is not None and not self._active and not stopped.done:
            when_all_done([self._workers.submit(self._cleaner.close), self._checkpoints.stop()]).pass_to(
                stopped
            )
