"""A query's progress as numbers and as a line for a person. Knows Spark's StreamingQueryProgress JSON, but not Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

NAME_WIDTH = 22


def dropped_late(progress: dict[str, Any]) -> int:
    """Return the rows of this batch that came behind the watermark, over all stateful operators."""
    return sum(
        operator.get("numRowsDroppedByWatermark", 0) for operator in progress.get("stateOperators", ())
    )


def duplicates(progress: dict[str, Any]) -> int:
    """Return the events of this batch that were copies of earlier ones."""
    return sum(
        operator.get("customMetrics", {}).get("numDroppedDuplicateRows", 0)
        for operator in progress.get("stateOperators", ())
    )


def state_rows(progress: dict[str, Any]) -> int:
    """Return the current rows of state, over all stateful operators."""
    return sum(operator.get("numRowsTotal", 0) for operator in progress.get("stateOperators", ()))


@dataclass(slots=True)
class Totals:
    """A query's sums over the batches of this run."""

    last_batch: tuple[int, str] = (-1, "")
    batches: int = 0
    records: int = 0
    late: int = 0
    copies: int = 0
    state: int = 0
    busy_ms: int = 0

    def is_new(self, batch: int, timestamp: str) -> bool:
        """Whether the batch was not added yet. An idle query reports its next batch repeatedly, each time with a new timestamp."""
        return (batch, timestamp) > self.last_batch

    def add(self, progress: dict[str, Any]) -> None:
        """Add one batch."""
        self.last_batch = (progress["batchId"], progress["timestamp"])
        self.batches += 1
        self.records += progress["numInputRows"]
        self.late += dropped_late(progress)
        self.copies += duplicates(progress)
        self.state = state_rows(progress)
        self.busy_ms += progress.get("durationMs", {}).get("triggerExecution", 0)


def line_of(name: str, progress: dict[str, Any], totals: Totals) -> str:
    """Return one line: the batch's records, rate and duration, the rows dropped so far, and the watermark."""
    took_ms = progress.get("durationMs", {}).get("triggerExecution", 0)
    rate = progress.get("processedRowsPerSecond", 0.0)
    words = [
        f"{datetime.now(UTC):%H:%M:%S} {name:{NAME_WIDTH}} batch {progress['batchId']:<4}",
        f"{progress['numInputRows']:>9,} records {rate:>9,.0f}/s {took_ms / 1000:>6.1f} s",
        f"total {totals.records:,}",
    ]
    if totals.copies:
        words.append(f"copies {totals.copies:,}")
    if totals.late:
        words.append(f"late {totals.late:,}")
    if totals.state:
        words.append(f"state {totals.state:,}")
    watermark = progress.get("eventTime", {}).get("watermark")
    if watermark and not watermark.startswith("1970"):
        words.append(f"watermark {watermark[:19]}Z")
    return "  ".join(words)


def summary_of(totals: dict[str, Totals]) -> str:
    """Return a summary of the run: one line per query."""
    lines = ["stopped; per query: records read, duplicates dropped, late rows dropped, rows of open state"]
    lines += [
        f"  {name:{NAME_WIDTH}} {one.records:>12,} {one.copies:>9,} {one.late:>9,} {one.state:>9,}"
        for name, one in totals.items()
    ]
    return "\n".join(lines)
