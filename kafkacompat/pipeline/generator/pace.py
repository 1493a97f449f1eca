"""When events are due: event time as a function of the wall clock. Pure. Times are milliseconds since 1970, UTC.

Event time runs `speed` times as fast as the wall clock until it has caught up, and then at the same speed. The reason:
a broker refuses records an hour ahead of its clock (`message.timestamp.after.max.ms`), and so do the jobs.
"""

from __future__ import annotations

from typing import NamedTuple


class Pace(NamedTuple):
    """The pace from the start on."""

    wall_start_ms: int
    event_start_ms: int
    speed: float
    """At least 1 if the event time is behind the clock."""

    def event_time_ms(self, wall_ms: int) -> int:
        """Events that arrive up to this event time are due."""
        elapsed_ms = max(wall_ms - self.wall_start_ms, 0)
        return min(self.event_start_ms + int(elapsed_ms * self.speed), wall_ms)
