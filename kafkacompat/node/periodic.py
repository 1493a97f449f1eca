"""What a node does by the clock: checkpoints, flushes, retention, forgetting idle producers.

Duty: call the log manager when a setting's interval is over; what blocks goes to a worker. Decides nothing about logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.deferred import Deferred
    from kafkacompat.ports import Clock, Timers, Workers

logger = logging.getLogger(__name__)

DELETION_SWEEP_MS = 5_000


class Plan(Protocol):
    def run(self) -> None: ...


class PeriodicLogs(Protocol):
    """The log manager's periodic functions."""

    def checkpoint_high_watermarks(self) -> None: ...

    def begin_flush(self) -> Plan: ...

    def finish_flush(self, plan: Any) -> None: ...

    def enforce_retention(self, now_ms: int) -> int: ...

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> None: ...

    def remove_expired_deletions(self, monotonic_ms: int | None) -> int: ...


class Numbers(Protocol):
    def int(self, name: str) -> int: ...


def start_periodic_work(
    config: ServerConfig, dynamic: Numbers, logs: PeriodicLogs, clock: Clock, timers: Timers, workers: Workers
) -> None:
    """Set every timer; they go on as long as the timers run."""

    def every(name: str, action: Callable[[], None], first_name: str | None = None) -> None:
        interval_ms = config.int(name)
        first_ms = interval_ms if first_name is None else config.int(first_name)

        def run() -> None:
            timers.call_after(interval_ms, run)
            action()

        timers.call_after(first_ms, run)

    def flush() -> None:
        plan = logs.begin_flush()

        def done(finished: Deferred[None]) -> None:
            try:
                finished.result()
            except OSError as error:
                logger.error("a periodic flush failed; recovery starts where it did before: %s", error)
                return
            logs.finish_flush(plan)

        workers.submit(plan.run).on_done(done)

    def sweep_deletions() -> None:
        timers.call_after(DELETION_SWEEP_MS, sweep_deletions)
        logs.remove_expired_deletions(clock.monotonic_ms())

    def retain() -> None:
        removed = logs.enforce_retention(clock.now_ms())
        if removed:
            logger.info("retention removed %d segments", removed)

    def forget_producers() -> None:
        logs.remove_expired_producers(clock.now_ms(), dynamic.int("producer.id.expiration.ms"))

    every("replica.high.watermark.checkpoint.interval.ms", logs.checkpoint_high_watermarks)
    every("log.flush.offset.checkpoint.interval.ms", flush)
    every("log.retention.check.interval.ms", retain, "log.initial.task.delay.ms")
    every("producer.id.expiration.check.interval.ms", forget_producers)
    timers.call_after(DELETION_SWEEP_MS, sweep_deletions)
