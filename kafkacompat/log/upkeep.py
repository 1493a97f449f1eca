"""Periodic tasks of a node's logs: syncs, checkpoints, retention, removal of deleted files.

The loop's thread makes a plan of what is due. The plan's `run` blocks and is for a worker thread; the loop's thread
takes the result. node/log_maintenance.py has the timers and intervals. As in Kafka, closed segments are synced soon, the
active one only by flush.ms: syncing a file that is being written would delay appends, and recovery reads the whole
segment of the recovery point anyway. A pass of retention over all logs is done in steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.log.checkpoint import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from kafkacompat.log.directory import FILES
from kafkacompat.log.segment_list import DROPPED_AT_ONCE
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.tasks import Work

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.directory import CheckpointPlan, Deletion, DeletionQueue
    from kafkacompat.log.flush import LogFlush
    from kafkacompat.log.index_rebuild import IndexRebuild
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.retention import SegmentAges
    from kafkacompat.log.unified_log import UnifiedLog

LOGS_AT_ONCE = 250
"""Logs per step."""

NEVER = 2**63 - 1


FLUSHED_AT_ONCE = 100
"""The most logs that one plan syncs. The next plan takes the others."""
CHECKED_AT_ONCE = 1_000
CHECKED_US = 400
"""Of a thousand producer ids or logs that the expiry checks."""


class FlushPlan:
    """Files of several logs to sync, fixed when they are added. A failed sync takes the log's directory offline."""

    __slots__ = ("_failures", "_has_more", "_items", "_manager")

    def __init__(self, manager: LogManager, has_more: Callable[[], bool] = lambda: False) -> None:
        """`has_more` tells afterwards whether other logs wait, whatever became of these."""
        self._manager = manager
        self._has_more = has_more
        self._items: list[tuple[UnifiedLog, LogFlush]] = []
        self._failures: list[tuple[UnifiedLog, OSError]] = []

    def __bool__(self) -> bool:
        return bool(self._items or self._failures)

    def add(self, log: UnifiedLog, *, closed_only: bool = False) -> None:
        """Add the unsynced files of a log. If its flush cannot begin, `finish` reports that; the other logs are
        synced."""
        try:
            self._items.append((log, log.begin_flush(closed_only=closed_only)))
        except OSError as error:
            self._failures.append((log, error))

    def go_on_with_snapshot(self, log: UnifiedLog) -> bool:
        """Write a log's snapshot of its producers, and add its closed segments when that is done. Returns False if that
        takes another step."""
        try:
            if not log.go_on_with_snapshot():
                return False
        except OSError as error:
            self._failures.append((log, error))
        else:
            self.add(log, closed_only=True)
        return True

    def run(self) -> None:
        synced = []
        for log, flush in self._items:
            try:
                flush.run()
            except OSError as error:
                self._failures.append((log, error))
            else:
                synced.append((log, flush))
        self._items = synced

    @property
    def is_full(self) -> bool:
        return len(self._items) >= FLUSHED_AT_ONCE

    def finish(self) -> bool:
        """Take over the results. Returns True if the plan was full and made progress, since more logs may wait, and if more
        are known to wait."""
        was_full, moved = self.is_full, False
        for log, flush in self._items:
            before = log.recovery_point
            log.finish_flush(flush)
            moved = moved or log.recovery_point > before
        for log, error in self._failures:
            self._manager.log_failed(log, error)
        return (was_full and moved) or self._has_more()


class IndexRebuildPlan:
    """A rebuild of the indexes of one segment."""

    __slots__ = ("_manager", "_rebuild", "run")

    def __init__(self, manager: LogManager, rebuild: IndexRebuild) -> None:
        self._manager = manager
        self._rebuild = rebuild
        self.run = rebuild.run

    def finish(self) -> bool:
        """Put the indexes in place. Returns True: more segments may wait."""
        try:
            self._rebuild.finish()
        except OSError as error:
            self._manager.log_failed(self._rebuild.log, error)
        self._manager.index_rebuilds.done(self._rebuild)
        return True


class RemovalPlan:
    """Files and directories that are due for removal."""

    __slots__ = ("_due", "_left", "_queue")

    def __init__(self, queue: DeletionQueue, due: list[Deletion]) -> None:
        self._queue = queue
        self._due = due
        self._left: list[Deletion] = []

    def run(self) -> None:
        self._left = self._queue.remove(self._due)

    def finish(self) -> None:
        self._queue.put_back(self._left)


class LogUpkeep:
    """Makes the plans, in the loop's thread. Plans of one kind run one after another. None means that nothing is due."""

    __slots__ = ("_last_flush_ms", "_manager")

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._last_flush_ms: dict[TopicPartition, int] = {}
        """When flush.ms was last applied, for the logs that set it."""

    def places(self) -> list[str]:
        """The paths of the log directories. Each is synced separately."""
        return [directory.path for directory in self._manager.directories]

    def flush_closed_segments(self, place: str) -> FlushPlan | None:
        """Sync the closed segments of a directory's logs that are not durable yet."""
        plan = FlushPlan(self._manager)
        for log in self._logs_at(place).values():
            if log.recovery_point < log.segments[-1].base_offset:
                plan.add(log, closed_only=True)
                if plan.is_full:
                    break
        return plan or None

    def watch_rolls(self, told: Callable[[str], None]) -> None:
        """`told` is called with a directory that has logs for `flush_rolled`."""
        self._manager.rolled.watch(told)

    def flush_rolled(self, place: str) -> FlushPlan | None:
        """Sync the segments closed since the last call. Otherwise a power loss may keep later data and lose earlier
        data, and no start would detect the gap."""
        rolled = self._manager.rolled
        plan = FlushPlan(self._manager, lambda: rolled.waits(place))
        later: list[UnifiedLog] = []
        has_stepped = False
        while not plan.is_full and (log := rolled.pop(place)) is not None:
            if self._manager.get(log.topic_partition) is not log:
                continue
            if log.has_unfinished_snapshot:
                # One step in a call: it takes as long as a step of the loop should.
                if has_stepped or not plan.go_on_with_snapshot(log):
                    later.append(log)
                has_stepped = True
            else:
                plan.add(log, closed_only=True)
        for log in later:
            rolled.add(log)
        return plan or None

    def _logs_at(self, place: str) -> dict[TopicPartition, UnifiedLog]:
        directory = self._manager.directory_at(place)
        return {} if directory is None else self._manager.logs_in(directory)

    def flush_overdue(self, place: str, now_ms: int) -> FlushPlan | None:
        """Sync logs of a directory with unsynced records whose last sync was at least flush.ms ago."""
        plan = FlushPlan(self._manager)
        last = self._last_flush_ms
        for name, log in self._logs_at(place).items():
            interval_ms = log.config.flush_ms
            if interval_ms == NEVER or log.recovery_point >= log.log_end_offset:
                continue
            if now_ms - last.setdefault(name, now_ms - interval_ms) >= interval_ms:
                last[name] = now_ms
                plan.add(log)
                if plan.is_full:
                    break
        for name in [name for name in last if name not in self._manager.logs]:
            del last[name]
        return plan or None

    def checkpoint_high_watermarks(self) -> CheckpointPlan | None:
        """Runs every replica.high.watermark.checkpoint.interval.ms. The other checkpoints are included while a caller
        waits for them: a full disk may have space again."""
        checkpoints = self._manager.checkpoints
        return checkpoints.plan(*(FILES if checkpoints.are_awaited else (HIGH_WATERMARK_FILE,)))

    def checkpoint_recovery_points(self) -> CheckpointPlan | None:
        """Runs every log.flush.offset.checkpoint.interval.ms."""
        return self._manager.checkpoints.plan(RECOVERY_POINT_FILE)

    def checkpoint_log_starts(self) -> CheckpointPlan | None:
        """Runs every log.flush.start.offset.checkpoint.interval.ms."""
        return self._manager.checkpoints.plan(LOG_START_FILE)

    def checkpoint_cleaned(self) -> CheckpointPlan | None:
        """Write up to which offsets logs are clean. Runs after each cleaning."""
        return self._manager.checkpoints.plan(CLEANER_FILE)

    def watch_damage(self, told: Callable[[], None]) -> None:
        """`told` is called when a segment waits for `rebuild_indexes`."""
        self._manager.index_rebuilds.watch(told)

    def rebuild_indexes(self) -> IndexRebuildPlan | None:
        rebuild = self._manager.index_rebuilds.begin()
        return None if rebuild is None else IndexRebuildPlan(self._manager, rebuild)

    def begin_retention(self, now_ms: int) -> RetentionPass:
        """Runs every log.retention.check.interval.ms."""
        return RetentionPass(self._manager, now_ms)

    def has_tiered_logs(self) -> bool:
        """Whether retention may remove segments above the end of what is remote."""
        return any(log.is_tiered for log in self._manager.logs.values())

    def remove_expired_producers(self, now_ms: int, expiration_ms: int) -> Work[None]:
        """Runs every producer.id.expiration.check.interval.ms, in pieces. A log that fails is reported and skipped."""
        checked = 0
        for name, log in list(self._manager.logs.items()):
            if self._manager.logs.get(name) is not log:
                continue
            checked += 1
            try:
                for _ in log.expire_producers(now_ms, expiration_ms):
                    checked += 1
                    if checked >= CHECKED_AT_ONCE:
                        checked = 0
                        yield CHECKED_US
            except Exception as error:
                report(f"the expiry of producer ids of {name}", error)
            if checked >= CHECKED_AT_ONCE:
                checked = 0
                yield CHECKED_US

    def remove_expired_deletions(self, monotonic_ms: int) -> RemovalPlan | None:
        """Remove files and directories whose file.delete.delay.ms is over."""
        queue = self._manager.deletions
        due = queue.take_due(monotonic_ms)
        return RemovalPlan(queue, due) if due else None


class RetentionPass:
    """One pass over all logs. A step covers LOGS_AT_ONCE logs, or as many segments as one log may drop at once."""

    def __init__(self, manager: LogManager, now_ms: int) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._left = list(manager.logs.items())
        """The remaining logs; the last one is next."""
        self.removed = 0
        """Segments deleted so far."""

    def next(self) -> RetentionStep | None:
        """The next step. None after the last log."""
        if not self._left:
            return None
        step = RetentionStep(self)
        for _ in range(min(len(self._left), LOGS_AT_ONCE)):
            step.take(self._left.pop())
        return step

    def is_served(self, log: UnifiedLog) -> bool:
        return self._manager.get(log.topic_partition) is log

    def retain(self, log: UnifiedLog) -> int:
        """Delete a log's segments as far as allowed. Returns their number."""
        try:
            count = log.enforce_retention(self._now_ms)
        except OSError as error:
            self._manager.log_failed(log, error)
            return 0
        except BatchCorrupt as damage:
            self._damaged(log, damage)
            return 0
        except Exception as error:
            report(f"retention of {log.topic_partition}", error)
            return 0
        self.removed += count
        return count

    def ages_of(self, log: UnifiedLog) -> SegmentAges | None:
        return log.unknown_ages(self._now_ms)

    def take_over(self, log: UnifiedLog, ages: SegmentAges) -> bool:
        """Take over what was read. Returns whether it is usable."""
        try:
            ages.finish()
        except OSError as error:
            self._manager.log_failed(log, error)
        except LogRefused:
            # The log's indexes are being rebuilt. The next pass will use them.
            return False
        except BatchCorrupt as damage:
            self._damaged(log, damage)
        else:
            return True
        return False

    def _damaged(self, log: UnifiedLog, damage: BatchCorrupt) -> None:
        self._manager.log_damaged(log, damage, "and retention leaves it as it is")

    def put_back(self, log: UnifiedLog) -> None:
        self._left.append((log.topic_partition, log))


class RetentionStep:
    """`run` reads the unknown ages of segments. `finish` renames the segments to delete."""

    __slots__ = ("_ages", "_pass", "_ready")

    def __init__(self, whole: RetentionPass) -> None:
        self._pass = whole
        self._ages: list[tuple[UnifiedLog, SegmentAges]] = []
        self._ready: list[UnifiedLog] = []

    def take(self, item: tuple[TopicPartition, UnifiedLog]) -> None:
        log = item[1]
        if self._pass.is_served(log):
            ages = self._pass.ages_of(log)
            if ages is None:
                self._ready.append(log)
            else:
                self._ages.append((log, ages))

    def run(self) -> None:
        for _, ages in self._ages:
            ages.run()

    def finish(self) -> bool:
        """Delete what is due. Returns True: the pass continues."""
        whole = self._pass
        logs = self._ready + [log for log, ages in self._ages if whole.take_over(log, ages)]
        dropped = 0
        for log in logs:
            if not whole.is_served(log):
                continue
            if dropped >= DROPPED_AT_ONCE:
                whole.put_back(log)
                continue
            count = whole.retain(log)
            dropped += count
            if count:
                # More segments may be due whose age is not known yet.
                whole.put_back(log)
        return True
