"""View model of the jobs' queries: what each of them last reported, and whether a person should have a look at it.

A query may run and still do nothing useful: it drops what it reads as late, or it stands still. This module knows
reports and end offsets, but neither reading nor HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafkacompat.console.core.cluster_view import BAD, GOOD, WARNING, View
from kafkacompat.console.core.results import Fields
from kafkacompat.console.core.snapshot import Snapshot

SILENT_MS = 60_000
"""A run reports its queries every 10 s. After this time without a report it has ended without a word."""
STANDING_MS = 180_000
"""How long records may wait without a batch."""
STANDING_TRIGGERS = 3
"""With a long interval between batches, this number of intervals."""
FORGOTTEN_MS = 24 * 3_600_000
"""Runs that ended longer ago are not shown."""

RUNNING, SILENT, FAILED = "running", "silent", "failed"

SHOWN = (
    "query",
    "job",
    "at_ms",
    "records",
    "late",
    "copies",
    "watermark_ms",
    "batch",
    "batch_records",
    "batch_start_ms",
    "batch_ms",
)


def ends_of(rows: Iterable[Fields], snapshot: Snapshot | None) -> dict[str, int]:
    """Return the sum of the end offsets of each topic that a query reads, if all of them are known."""
    wanted = {topic for row in rows for topic in row["reads"].split(",")}
    found = {}
    for topic in snapshot.topics if snapshot is not None else ():
        if topic.name in wanted:
            ends = [partition.latest for partition in topic.partitions]
            if None not in ends:
                found[topic.name] = sum(end for end in ends if end is not None)
    return found


def behind(row: Fields, ends: Mapping[str, int]) -> int | None:
    """Return the number of records that wait for the query. None before its first batch, or while the topics are not known."""
    topics = row["reads"].split(",")
    if row["read_to"] is None or not all(topic in ends for topic in topics):
        return None
    return max(0, sum(ends[topic] for topic in topics) - int(row["read_to"]))


def behind_ms(row: Fields, waiting: int | None, now_ms: int) -> int | None:
    """Return how far the results are behind the present: the age of the newest event that was read, while records wait.
    0 if none waits. None if that is not known."""
    if waiting == 0:
        return 0
    newest_ms = row["newest_event_ms"]
    return None if waiting is None or newest_ms is None else max(0, now_ms - int(newest_ms))


class Standing:
    """Since when records wait for a query that reads none. The times are those of this console's clock."""

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, int]] = {}

    def look(self, rows: Iterable[Fields], ends: Mapping[str, int], now_ms: int) -> None:
        """Compare with the look before."""
        since = {}
        for row in rows:
            if behind(row, ends):
                known = self._since.get(row["query"])
                moved = known is None or known[0] != row["read_to"]
                since[row["query"]] = (row["read_to"], now_ms) if moved or known is None else known
        self._since = since

    def forget(self) -> None:
        """The broker is away: no query can read."""
        self._since = {}

    def since_ms(self, query: str) -> int | None:
        """Return the time, or None if nothing waits."""
        known = self._since.get(query)
        return None if known is None else known[1]


def queries_view(
    rows: Iterable[Fields], ends: Mapping[str, int], standing: Standing, now_ms: int
) -> list[View]:
    """Return the last report of each query, job by job.

    `level` and `said` tell what is wrong, if anything is. `available` is the number of records ever written to the
    topics that the query reads, as far as it is known.
    """
    recent = [row for row in rows if now_ms - row["at_ms"] < FORGOTTEN_MS]
    return [
        _query_view(row, ends, standing, now_ms)
        for row in sorted(recent, key=lambda row: (row["job"], row["query"]))
    ]


def _query_view(row: Fields, ends: Mapping[str, int], standing: Standing, now_ms: int) -> View:
    waiting = behind(row, ends)
    silent_ms = now_ms - row["at_ms"]
    state, level, said = row["state"], GOOD, ""
    if state == FAILED:
        level, said = BAD, row["reason"] or "failed"
    elif state == RUNNING and silent_ms > SILENT_MS:
        state, level = SILENT, WARNING
        said = f"has reported nothing for {_age(silent_ms)}: its run has ended without a word"
    elif state == RUNNING:
        since_ms = standing.since_ms(row["query"])
        patience_ms = max(STANDING_MS, STANDING_TRIGGERS * row["trigger_ms"])
        recent = row["recent_late"] + row["recent_kept"]
        if since_ms is not None and now_ms - since_ms > patience_ms:
            level, said = WARNING, f"stands still for {_age(now_ms - since_ms)}: {waiting:,} records wait"
        elif row["recent_late"] > row["recent_kept"]:
            level, said = WARNING, f"drops events as late: {row['recent_late']:,} of the last {recent:,}"
    shown: dict[str, Any] = {name: row[name] for name in SHOWN}
    available = sum(ends.get(topic, 0) for topic in row["reads"].split(","))
    return shown | {
        "state": state,
        "behind": waiting,
        "behind_ms": behind_ms(row, waiting, now_ms),
        "available": available,
        "level": level,
        "said": said,
    }


def _age(age_ms: int) -> str:
    seconds = age_ms // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
