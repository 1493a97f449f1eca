"""A query's progress as numbers, as a line for a person, and as a report for the console. Knows Spark's
StreamingQueryProgress JSON, but not Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

NAME_WIDTH = 22
RECENT_BATCHES = 10
"""Whether a query drops most events is decided over this number of batches with records."""
REASON_CHARACTERS_MAX = 400
RUNNING, STOPPED, FAILED = "running", "stopped", "failed"


def dropped_late(progress: dict[str, Any]) -> int:
    """Return the rows of this batch that came behind the watermark, over all stateful operators."""
    return sum(
        operator.get("numRowsDroppedByWatermark", 0) for operator in progress.get("stateOperators", ())
    )


def duplicates(progress: dict[str, Any]) -> int:
    """Return the events of this batch that were duplicates of earlier ones."""
    return sum(
        operator.get("customMetrics", {}).get("numDroppedDuplicateRows", 0)
        for operator in progress.get("stateOperators", ())
    )


def state_rows(progress: dict[str, Any]) -> int:
    """Return the current rows of state, over all stateful operators."""
    return sum(operator.get("numRowsTotal", 0) for operator in progress.get("stateOperators", ()))


def kept(progress: dict[str, Any]) -> int:
    """Return the events of this batch that were neither late nor duplicates, over all operators that check that. Without such a
    check, all records are kept."""
    updated = [
        int(operator.get("numRowsUpdated", 0))
        for operator in progress.get("stateOperators", ())
        if operator.get("operatorName", "").startswith("dedupe")
    ]
    return sum(updated) if updated else int(progress["numInputRows"])


def read_to(progress: dict[str, Any]) -> int | None:
    """Return the sum of the offsets, over all partitions, up to which the query has read. None before its first batch."""
    ends: list[Any] = [source.get("endOffset") for source in progress.get("sources", ())]
    if not ends or not all(isinstance(end, dict) for end in ends):
        return None
    return sum(int(offset) for end in ends for offsets in end.values() for offset in offsets.values())


def watermark_of(progress: dict[str, Any]) -> str | None:
    """Return the watermark in ISO format, or None before the first event. Spark then says 1970."""
    watermark: str | None = progress.get("eventTime", {}).get("watermark")
    return None if not watermark or watermark.startswith("1970") else watermark


def newest_event_ms(progress: dict[str, Any]) -> int | None:
    """Return the latest event time of a batch. None without records, for queries without a watermark, and before the years that
    Python has. Writers choose the time of an event and that of its record."""
    newest: str | None = progress.get("eventTime", {}).get("max")
    try:
        return None if newest is None else _milliseconds(newest)
    except ValueError:
        return None


def behind_ms(progress: dict[str, Any]) -> int | None:
    """Return how old the newest event of a batch was when the batch had ended. None if its events have no time."""
    newest_ms = newest_event_ms(progress)
    if newest_ms is None:
        return None
    ended_ms = _milliseconds(progress["timestamp"]) + progress.get("durationMs", {}).get(
        "triggerExecution", 0
    )
    return max(0, int(ended_ms) - newest_ms)


@dataclass(slots=True)
class Totals:
    """A query's sums over the batches of this run."""

    last: dict[str, Any] = field(default_factory=dict)
    last_with_records: dict[str, Any] = field(default_factory=dict)
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=RECENT_BATCHES))
    """Late and kept events of the last batches with records."""
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
        self.last = progress
        if progress["numInputRows"]:
            self.last_with_records = progress
            self.recent.append((dropped_late(progress), kept(progress)))
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
    watermark = watermark_of(progress)
    if watermark is not None:
        words.append(f"watermark {watermark[:19]}Z")
    behind = behind_ms(progress)
    if behind is not None:
        words.append(f"behind {behind / 1000:,.0f} s")
    return "  ".join(words)


def report_of(
    query: str,
    reads: Sequence[str],
    trigger_s: float,
    totals: Totals,
    state: str,
    reason: str | None,
    at_ms: int,
) -> dict[str, str | int | None]:
    """Return the value of a record of `pipeline.progress`: the state of a query at this time, for the console.

    The job is the first word of the query's name. `batch` and the fields that begin with it are the last batch that
    read records. `read_to` is as in the function of that name.
    """
    last = totals.last_with_records
    watermark = watermark_of(totals.last)
    return {
        "event_id": f"{query}-{at_ms}",
        "query": query,
        "job": query.partition("-")[0],
        "state": state,
        "reason": reason[:REASON_CHARACTERS_MAX] if reason is not None else None,
        "at_ms": at_ms,
        "reads": ",".join(reads),
        "trigger_ms": round(trigger_s * 1000),
        "read_to": read_to(totals.last),
        "records": totals.records,
        "late": totals.late,
        "copies": totals.copies,
        "recent_late": sum(late for late, _ in totals.recent),
        "recent_kept": sum(kept for _, kept in totals.recent),
        "watermark_ms": None if watermark is None else _milliseconds(watermark),
        "newest_event_ms": newest_event_ms(last),
        "batch": last.get("batchId"),
        "batch_records": last.get("numInputRows"),
        "batch_start_ms": _milliseconds(last["timestamp"]) if last else None,
        "batch_ms": last.get("durationMs", {}).get("triggerExecution"),
    }


def _milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() * 1000)


def summary_of(totals: dict[str, Totals]) -> str:
    """Return a summary of the run: one line per query."""
    lines = ["stopped; per query: records read, duplicates dropped, late rows dropped, rows of open state"]
    lines += [
        f"  {name:{NAME_WIDTH}} {one.records:>12,} {one.copies:>9,} {one.late:>9,} {one.state:>9,}"
        for name, one in totals.items()
    ]
    return "\n".join(lines)
