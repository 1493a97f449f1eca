"""A pass of retention over all the logs of a node, in steps.

Duty: which logs a step takes, what of it is read in a worker thread, what is dropped afterwards. Must not know: what may go
(retention.py), threads, when a pass is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.faults import report
from kafkacompat.log.segment_list import DROPPED_AT_ONCE
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.log.log import PartitionLog
    from kafkacompat.log.looks import SegmentsLook
    from kafkacompat.log.manager import LogManager

LOGS_AT_ONCE = 250
"""Logs that one step looks at."""


class RetentionPass:
    """One look at every log, in steps: a few hundred logs, or as many segments as one log may drop at once."""

    def __init__(self, manager: LogManager, now_ms: int) -> None:
        self._manager = manager
        self._now_ms = now_ms
        self._left = list(manager.logs.items())
        """Last to first."""
        self.removed = 0
        """Segments that went so far."""

    def next(self) -> RetentionStep | None:
        """None when every log has been looked at."""
        if not self._left:
            return None
        step = RetentionStep(self)
        for _ in range(min(len(self._left), LOGS_AT_ONCE)):
            step.take(self._left.pop())
        return step

    def is_served(self, log: PartitionLog) -> bool:
        return self._manager.get(log.topic_partition) is log

    def retain(self, log: PartitionLog) -> int:
        """How many segments went."""
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

    def look(self, log: PartitionLog) -> SegmentsLook | None:
        return log.look_for_retention(self._now_ms)

    def take_over(self, log: PartitionLog, look: SegmentsLook) -> bool:
        """Whether what was read is of use."""
        try:
            look.finish()
        except OSError as error:
            self._manager.log_failed(log, error)
        except LogRefused:
            # Its indexes are being built anew; the next pass finds them.
            return False
        except BatchCorrupt as damage:
            self._damaged(log, damage)
        else:
            return True
        return False

    def _damaged(self, log: PartitionLog, damage: BatchCorrupt) -> None:
        self._manager.log_damaged(log, damage, "and retention leaves it as it is")

    def put_back(self, log: PartitionLog) -> None:
        self._left.append((log.topic_partition, log))


class RetentionStep:
    """`run` reads how old segments are where that is not known; what may go is renamed in `finish`."""

    __slots__ = ("_looks", "_pass", "_ready")

    def __init__(self, whole: RetentionPass) -> None:
        self._pass = whole
        self._looks: list[tuple[PartitionLog, SegmentsLook]] = []
        self._ready: list[PartitionLog] = []

    def take(self, item: tuple[TopicPartition, PartitionLog]) -> None:
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
        """True: the pass goes on."""
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
                # Perhaps more of it may go, whose age is not known yet.
                whole.put_back(log)
        return True
