"""Selects the dirtiest log and the offsets between which it may be cleaned.

A pure decision from the log's own state. Never cleaned are the active segment, offsets at or above the last stable
offset, and records younger than min.compaction.lag.ms. Follows KIP-58 and KIP-354.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import BatchCorrupt

if TYPE_CHECKING:
    from kafkacompat.log.unified_log import UnifiedLog

NO_MAX_LAG_MS = (1 << 63) - 1
SEGMENTS_A_STEP = 2000
"""Segments examined in one step of the loop, at half a microsecond each."""


AGES_A_STEP = 64
"""Segments whose age is read from files in one step. Afterwards the age is known."""


class LogToClean(NamedTuple):
    """A log that can be cleaned. Offsets are absolute. `segments` closed segments end at or below `end_offset`, which
    is a segment's base."""

    log: UnifiedLog
    first_dirty_offset: int
    end_offset: int
    segments: int
    ratio: float
    overdue_ms: int
    """How long max.compaction.lag.ms has passed for the oldest closed segment that was never cleaned. 0: it has not."""


def candidate(log: UnifiedLog, now_ms: int) -> LogToClean | None:
    """What can be cleaned of a compacted log, or None. A start offset outside the log is corrected."""
    first_dirty = first_dirty_offset(log)
    end_offset, count = _cleanable_end(log, first_dirty, now_ms)
    clean = dirty = 0
    first_dirty_segment = -1
    for at, segment in enumerate(log.segments[:count]):
        next_offset = log.segments[at + 1].base_offset
        if next_offset <= first_dirty:
            clean += segment.size
        else:
            if first_dirty_segment < 0:
                first_dirty_segment = at
            dirty += segment.size
    if not dirty:
        return None
    return LogToClean(
        log,
        first_dirty,
        end_offset,
        count,
        dirty / (clean + dirty),
        _overdue_ms(log, first_dirty_segment, now_ms),
    )


def first_dirty_offset(log: UnifiedLog) -> int:
    return (
        log.cleaned_to
        if log.local_log_start_offset <= log.cleaned_to <= log.log_end_offset
        else log.local_log_start_offset
    )


def _cleanable_end(log: UnifiedLog, first_dirty: int, now_ms: int) -> tuple[int, int]:
    """The base of the first segment that must not be cleaned, and the number of segments before it."""
    segments = log.segments
    bound = log.last_stable_offset
    count = len(segments) - 1
    if bound < segments[count].base_offset:
        while count and segments[count].base_offset > bound:
            count -= 1
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for at in range(count):
            if (
                segments[at + 1].base_offset > first_dirty
                and segments[at].retention_timestamp_ms() > now_ms - lag_ms
            ):
                count = at
                break
    return segments[count].base_offset, count


def _overdue_ms(log: UnifiedLog, first_dirty_segment: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= NO_MAX_LAG_MS:
        return 0
    overdue_ms = 0
    for segment in log.segments[first_dirty_segment:-1]:
        began_ms = segment.first_batch_timestamp()
        if began_ms is not None and began_ms > 0:
            overdue_ms = max(overdue_ms, now_ms - lag_ms - began_ms)
    return overdue_ms


def learn_ages(log: UnifiedLog) -> bool:
    """Read the ages that the lag settings need, for segments that are not clean. Returns False if one step was not
    enough."""
    config = log.config
    largest, first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms < NO_MAX_LAG_MS
    if not largest and not first:
        return True
    start, left = first_dirty_offset(log), AGES_A_STEP
    for segment, following in pairwise(log.segments):
        if following.base_offset <= start or segment.knows_ages(largest=largest, first=first):
            continue
        if not left:
            return False
        left -= 1
        segment.learn_ages(largest=largest, first=first)
    return True


class Search:
    """Finds the log with the highest dirty ratio among those that are dirty enough or overdue. Runs in steps, since a
    node may have many logs."""

    def __init__(
        self,
        logs: Iterable[UnifiedLog],
        now_ms: int,
        may_begin: Callable[[UnifiedLog], bool],
        failed: Callable[[UnifiedLog, Exception], None],
        rests: Callable[[UnifiedLog], bool] = lambda log: False,
    ) -> None:
        """`failed` is called with logs whose files cannot be read, because of OSError or BatchCorrupt. The search
        continues with the others. A log that `rests` is found only if there is no other."""
        self._rests = rests
        self._left = list(logs)
        self._left.reverse()
        self._now_ms = now_ms
        self._may_begin = may_begin
        self._failed = failed
        self.best: LogToClean | None = None
        self.highest_ratio = 0.0
        """The highest dirty ratio, also of logs that are not dirty enough."""
        self.overdue_ms = 0
        """Of the log whose cleaning is most overdue."""
        self.steps = 0

    def step(self) -> bool:
        """Examine some more logs. Returns whether the search is complete."""
        self.steps += 1
        left, weight = self._left, 0
        while left and weight < SEGMENTS_A_STEP:
            log = left.pop()
            weight += 1
            if log.config.compact and len(log.segments) >= 2 and self._may_begin(log):
                weight += len(log.segments)
                if not self._look_at(log):
                    left.append(log)
                    return False
        return not left

    def _look_at(self, log: UnifiedLog) -> bool:
        """Examine one log. Returns False if it needs another step."""
        try:
            if not learn_ages(log):
                return False
            found = candidate(log, self._now_ms)
        except (OSError, BatchCorrupt) as error:
            self._failed(log, error)
            return True
        except LogRefused:
            return True  # the log's indexes are being rebuilt
        if found is not None:
            self.highest_ratio = max(self.highest_ratio, found.ratio)
            self.overdue_ms = max(self.overdue_ms, found.overdue_ms)
        if (
            found is not None
            and (found.overdue_ms or found.ratio > log.config.min_cleanable_dirty_ratio)
            and (self.best is None or self._rank(found) > self._rank(self.best))
        ):
            self.best = found
        return True

    def _rank(self, found: LogToClean) -> tuple[bool, float]:
        return not self._rests(found.log), found.ratio
