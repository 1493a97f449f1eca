"""A retention pass over all logs of a node, in steps.

It chooses the logs of a step, what a worker thread reads of them, and what is deleted afterwards. retention.py decides
which segments may be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.log.segment_list import DROPPED_AT_ONCE
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.log_manager import LogManager
    from kafkacompat.log.looks import SegmentsLook
    from kafkacompat.log.unified_log import UnifiedLog

LOGS_AT_ONCE = 250
"""Logs per step."""


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

    def look(self, log: UnifiedLog) -> SegmentsLook | None:
        return log.look_for_retention(self._now_ms)

    def take_over(self, log: UnifiedLog, look: SegmentsLook) -> bool:
        """Take over what was read. Returns whether it is usable."""
        try:
            look.finish()
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

    __slots__ = ("_looks", "_pass", "_ready")

    def __init__(self, whole: RetentionPass) -> None:
        self._pass = whole
        self._looks: list[tuple[UnifiedLog, SegmentsLook]] = []
        self._ready: list[UnifiedLog] = []

    def take(self, item: tuple[TopicPartition, UnifiedLog]) -> None:
        log = item[1]
        if self._pass.is_served(log):
            look = self._pass.look(log)
            if look is None:
                self._ready.append(log)
            else:
                self._looks.append((log, look))

    def run(self) -> None:
        for _, look in self._looks:
            look.run()

    def finish(self) -> bool:
        """Delete what is due. Returns True: the pass continues."""
        whole = self._pass
        logs = self._ready + [log for log, look in self._looks if whole.take_over(log, look)]
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
