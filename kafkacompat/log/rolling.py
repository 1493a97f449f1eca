"""When a segment is old enough to be rolled.

Uses segment.ms, segment.jitter.ms and, for compacted topics, max.compaction.lag.ms. The jitter keeps segments that
began together from rolling together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig


def roll_after_ms(config: LogConfig, randrange: Callable[[int], int] | None) -> int:
    """The age in ms of a segment's records at which it is rolled. Without `randrange` there is no jitter."""
    wait_ms = config.segment_ms
    if config.compact:
        # The active segment is never cleaned, so it must be closed in time.
        wait_ms = min(wait_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, wait_ms)
    if jitter_ms > 0 and randrange is not None:
        wait_ms -= randrange(jitter_ms + 1)
    return wait_ms
