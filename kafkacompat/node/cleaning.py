"""Runs the log cleaner: log.cleaner.threads cleanings at a time, and a search for work every log.cleaner.backoff.ms.

The steps of a cleaning run in worker threads. Their results are applied in the loop's thread, and a checkpoint follows
each cleaning. The next cleaning starts at once. As in Kafka, it waits for log.cleaner.backoff.ms if no log needed
cleaning, or if a cleaning failed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.node.periodic import Numbers, Plan, SerialExecutor, report_unexpected

if TYPE_CHECKING:
    from kafkacompat.ports import Clock, WorkerPools
    from kafkacompat.tasks import Tasks

logger = logging.getLogger(__name__)

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
        self._stopped: Deferred[None] | None = None

    def start(self) -> None:
        self._tasks.start("selecting logs to clean", self._look())

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
            await self._tasks.sleep(max(self._dynamic.get_int("log.cleaner.backoff.ms"), 1))

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
