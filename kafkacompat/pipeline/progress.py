"""What a query's progress says, as numbers and as a line for a person. Knows Spark's StreamingQueryProgress JSON, no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

NAME_WIDTH = 22


def dropped_late(progress: dict[str, Any]) -> int:
    """Rows that came behind the watermark in this batch, over all stateful operators."""
    return sum(
        operator.get("numRowsDroppedByWatermark", 0) for operator in progress.get("stateOperators", ())
    )


def duplicates(progress: dict[str, Any]) -> int:
    """Events that were copies of earlier ones in this batch."""
    return sum(
        operator.get("customMetrics", {}).get("numDroppedDuplicateRows", 0)
        for operator in progress.get("stateOperators", ())
    )


def state_rows(progress: dict[str, Any]) -> int:
    """Rows of state now, over all stateful operators."""
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
        """Not added yet. An idle query tells the batch to come again and again, with a new timestamp."""
        return (batch, timestamp) > self.last_batch

    def add(self, progress: dict[str, Any]) -> None:
        """One more batch."""
        self.last_batch = (progress["batchId"], progress["timestamp"])
        self.batches += 1
        self.records += progress["numInputRows"]
        self.late += dropped_late(progress)
        self.copies += duplicates(progress)
        self.state = state_rows(progress)
        self.busy_ms += progress.get("durationMs", {}).get("triggerExecution", 0)


def line_of(name: str, progress: dict[str, Any], totals: Totals) -> str:
    """One line: records and rate of the batch, how long it took, what was dropped so far, and where the watermark is."""
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
    """What a run did, for its end: a line a query."""
    lines = ["stopped; by query: records read, copies dropped, late dropped, rows of state that stay open"]
    lines += [
        f"  {name:{NAME_WIDTH}} {one.records:>12,} {one.copies:>9,} {one.late:>9,} {one.state:>9,}"
        for name, one in totals.items()
    ]
    return "\n".join(lines)
