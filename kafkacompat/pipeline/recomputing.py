"""Recomputes dates of a table from the records of its topics, as the table is at a batch of its query.

The table at batch N has the rows of the records before the offsets of N whose windows ended before its
watermark. So exactly these records are read, in a batch query without a watermark: nothing is late. What the query writes
after N are rows of later records, or of windows that end later, and stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.groups import Offsets, logged_offsets
from kafkacompat.pipeline.jobs.validation import FUTURE_TOLERANCE_MS, cap_timestamps
from kafkacompat.pipeline.results import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkacompat.pipeline.job import Query
    from kafkacompat.pipeline.options import RunOptions

DAY_MS: Final = 86_400_000
WINDOW_END: Final = "window_end_ms"
SESSION: Final = "session_window"
EVENT_TIME: Final = "event_time_ms"


@dataclass(frozen=True, slots=True)
class Batch:
    """What a query's checkpoint says of a batch: the offsets up to which it reads, and the watermark with which it runs."""

    number: int
    offsets: Offsets
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Range:
    """The dates that are computed again, from the first to the last."""

    first: date
    last: date

    def has(self, day: date | None) -> bool:
        """Return whether a date is one of them."""
        return day is not None and self.first <= day <= self.last

    def within(self, rows: DataFrame) -> DataFrame:
        """Return the rows of these dates."""
        from pyspark.sql import functions as F

        return rows.where(F.col("date").cast("string").between(self.first.isoformat(), self.last.isoformat()))


def batch_in(number: int, planned: str) -> Batch:
    """Parse a file offsets/N of a checkpoint. PipelineFailed."""
    try:
        watermark_ms = int(json.loads(planned.splitlines()[1])["batchWatermarkMs"])
    except (ValueError, KeyError, TypeError, IndexError):
        raise PipelineFailed(f"the checkpoint's offsets/{number} cannot be read") from None
    return Batch(number, logged_offsets(planned), watermark_ms)


def midnight_ms(day: date) -> int:
    """Return the time at which a date begins, in UTC."""
    return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def said_of(milliseconds: int) -> str:
    """Return a time for a person."""
    milliseconds = max(milliseconds, midnight_ms(date.min))
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def require_ended(asked: Range, batch: Batch) -> None:
    """Raise PipelineFailed unless the last date is behind the watermark."""
    if midnight_ms(asked.last) + DAY_MS > batch.watermark_ms:
        raise PipelineFailed(
            f"the run still writes {asked.last}: its watermark in batch {batch.number} is {said_of(batch.watermark_ms)}, and "
            "a date can be computed again when the watermark is behind its end"
        )


def needed_from_ms(asked: Range, watermark_s: int) -> int:
    """Return the time from which the records must be there.

    An event may be ahead of its record's timestamp, and records are out of order by about the watermark.
    """
    return midnight_ms(asked.first) - FUTURE_TOLERANCE_MS - watermark_s * 1000


def require_records(asked: Range, needed_ms: int, oldest: dict[tuple[str, int], int]) -> None:
    """Raise PipelineFailed unless the records are there. oldest: the timestamp of the first record of each partition whose
    earlier ones are deleted."""
    for (topic, partition), found_ms in sorted(oldest.items()):
        if found_ms > needed_ms:
            raise PipelineFailed(
                f"{asked.first} cannot be computed again: the records of {topic}-{partition} before "
                f"{said_of(found_ms)} are deleted, and those from {said_of(needed_ms)} are needed"
            )


def source(session: SparkSession, batch: Batch, options: RunOptions) -> DataFrame:
    """Return the records that a query has read until a batch.

    Those of all partitions: an event may be a copy of one in another partition, and a row may be of events of several.
    """
    partitions: dict[str, list[int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(batch.offsets.items()):
        partitions.setdefault(topic, []).append(partition)
        ends.setdefault(topic, {})[str(partition)] = offset
    given = {
        **options.bootstrap.spark(),
        "assign": json.dumps(partitions),
        "kafka.isolation.level": options.isolation_level,
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
    }
    return cap_timestamps(session.read.format("kafka").options(**given).load())


def end_of(columns: Collection[str], *, is_keyed: bool) -> str | None:
    """Return the column that says when a row ends: its window or its event. None if there is none.

    A row with a key may be of several events, so that the time of one says nothing.
    """
    known = (WINDOW_END,) if is_keyed else (WINDOW_END, EVENT_TIME)
    return next((name for name in known if name in columns), None)


def is_of_sessions(rows: DataFrame) -> bool:
    """Return whether rows come from session windows, whatever their columns are named. Spark's plan has its own name for these."""
    described: Any = rows
    return SESSION in described._jdf.queryExecution().analyzed().toString()


def recomputed(
    session: SparkSession, query: Query, options: RunOptions, batch: Batch, asked: Range, *, is_keyed: bool
) -> DataFrame:
    """Return the rows of these dates. PipelineFailed if one of their windows has not ended, or rows may change dates."""
    from pyspark.sql import functions as F

    rows = query.build(source(session, batch, options), options)
    if is_of_sessions(rows):
        raise PipelineFailed(
            "its rows are of sessions: an event that was late may join one with another of the next date"
        )
    end = end_of(rows.columns, is_keyed=is_keyed)
    if end is None:
        raise PipelineFailed(f"its rows have no {WINDOW_END}, so it is not known when they end")
    # Without the lineage, rows that are lost are not read again: the topics may be others then.
    rows = asked.within(rows).localCheckpoint()
    if end == WINDOW_END:
        still = rows.where(F.col(end) > batch.watermark_ms)
        day = still.select(F.min(F.col("date").cast("string"))).collect()[0][0]
        if day is not None:
            raise PipelineFailed(f"the run still writes {day}: a window of it has not ended")
    return rows


def changed_dates(present: DataFrame | None, computed: DataFrame, *, may_lack: bool = False) -> list[date]:
    """Return the dates whose rows differ. PipelineFailed if the table has more of a date, or values of a column that is not
    computed: nothing of it must be lost.

    may_lack: rows of an earlier version of the job, which lack a column that was added, have null there.
    """
    from pyspark.sql import functions as F

    columns = sorted(computed.columns)
    of_table = present

    def counted(frame: DataFrame, each: int) -> DataFrame:
        for name in ("date", "hour"):
            if name in columns:
                frame = frame.withColumn(name, F.col(name).cast("string"))
        text = F.to_json(F.struct(*map(quoted, columns)), {"ignoreNullFields": "false"})
        return frame.select("date", text.alias("row"), F.lit(each).alias("each"))

    both = counted(computed, 1)
    if present is not None:
        for name in columns:
            if name not in present.columns:
                if not may_lack:
                    raise PipelineFailed(
                        f"the table has no column {name}: its rows are of another version of the job"
                    )
                present = present.withColumn(name, F.lit(None))
        both = both.unionAll(counted(present, -1))
    fewer = both.groupBy("date").agg(F.sum("each").alias("more")).where("more < 0").collect()
    if fewer:
        raise PipelineFailed(
            f"the table has more rows of {min(row['date'] for row in fewer)} than the records give: records are missing, "
            "or rows are in it twice"
        )
    differing = both.groupBy("date", "row").agg(F.sum("each").alias("more")).where("more != 0")
    found = sorted(date.fromisoformat(row["date"]) for row in differing.select("date").distinct().collect())
    if of_table is not None and found:
        replaced = of_dates(of_table, found)
        for name in set(of_table.columns).difference(columns):
            if not replaced.where(F.col(quoted(name)).isNotNull()).isEmpty():
                raise PipelineFailed(
                    f"the table has a column {name}, which the job does not have: its values would be lost"
                )
    return found


def of_dates(rows: DataFrame, days: Collection[date]) -> DataFrame:
    """Return the rows of these dates."""
    from pyspark.sql import functions as F

    return rows.where(F.col("date").cast("string").isin([day.isoformat() for day in days]))
