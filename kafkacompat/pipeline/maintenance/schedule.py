"""Says which table of a run is maintained next, and when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PATIENCE_S: Final = 600.0
"""After this time a query that always has a batch is stopped within one. Spark repeats it."""


class Schedule:
    """The times of the tables of a run. Each is maintained some time after the start, and after its last maintenance."""

    def __init__(self, tables: Iterable[str], every_s: float, now_s: float) -> None:
        self._every_s = every_s
        self._due_s = dict.fromkeys(tables, now_s + every_s)

    def due(self, now_s: float) -> str | None:
        """Return the table for which it is time, and for longer than for the others. None if there is none."""
        table = min(self._due_s, key=self._due_s.__getitem__, default=None)
        return table if table is not None and self._due_s[table] <= now_s else None

    def must_not_wait(self, table: str, now_s: float) -> bool:
        """Return whether the next pause between two batches of its query has been waited for long enough."""
        return now_s - self._due_s[table] >= PATIENCE_S

    def ended(self, table: str, now_s: float) -> None:
        """The table was maintained, or could not be."""
        self._due_s[table] = now_s + self._every_s
