"""Writes a table in each format, with events that are late, and backfills them, and then a column that a later version of the job
has. A program, because its Spark has the packages of the formats.

python -m interop_tests.pipeline.backfill_tables BOOTSTRAP FOLDER

The result is one JSON object: the rows of each table before and after, those that have the column, what the backfill says, and its
dates.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from interop_tests.pipeline.table_programs import begun
from kafkacompat.pipeline.backfill import Backfill
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import lock
from kafkacompat.pipeline.job import Field, Job, Kind, Table
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.maintenance.table import MIB
from kafkacompat.pipeline.manifest import encode, manifest_of
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.recomputing import Range
from kafkacompat.pipeline.runner import Run, StopRequest
from kafkacompat.pipeline.table_formats import LAKES, QUERY_ID, iceberg_name
from kafkacompat.pipeline.tables import FORMATS, ICEBERG
from kafkacompat.pipeline.topics import identity_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "till.sales"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
# The newest sale is at eight, and none is of the future.
NEWEST_DAY_MS = (int(time.time() * 1000) - 9 * HOUR_MS) // DAY_MS * DAY_MS


def hourly(events: DataFrame, options: RunOptions) -> DataFrame:
    """The sales of each hour."""
    return events.groupBy(F.window("event_time", "1 hour")).agg(F.count("*").alias("sales"))


JOB = Job(
    name="till",
    inputs=(TOPIC,),
    fields=(Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER)),
    sinks=tuple(Table(f"till/{form}", hourly, ("window_start_ms",), format=form) for form in FORMATS),
)


def hourly_of_the_shop(events: DataFrame, options: RunOptions) -> DataFrame:
    """The sales of each hour, and where."""
    shop = F.struct(F.lit("web").alias("name"), F.array(F.lit(1)).alias("tills"))
    return hourly(events, options).withColumn("shop", shop)


UPGRADED = replace(
    JOB,
    sinks=tuple(
        replace(sink, rows=hourly_of_the_shop) if isinstance(sink, Table) else sink for sink in JOB.sinks
    ),
    state_version=2,
    continues_from=1,
)


def hourly_of_the_open_shop(events: DataFrame, options: RunOptions) -> DataFrame:
    """The same with a field more in the column."""
    rows = hourly_of_the_shop(events, options)
    return rows.withColumn("shop", F.col("shop").withField("open", F.lit(True)))


GROWN = replace(
    UPGRADED,
    sinks=tuple(
        replace(sink, rows=hourly_of_the_open_shop) if isinstance(sink, Table) else sink for sink in JOB.sinks
    ),
)


def send(bootstrap: str, *times_ms: int) -> None:
    """Send a sale at each of these times, and the first of them once more."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for at in (*times_ms, times_ms[0]):
        producer.produce(TOPIC, json.dumps({"event_id": f"sale-{at}", "event_time_ms": at}))
    assert producer.flush(30) == 0


def send_aborted(bootstrap: str, at_ms: int) -> None:
    """Send a sale in a transaction that is aborted, as a replay that was killed leaves it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till-aborted"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, json.dumps({"event_id": f"aborted-{at_ms}", "event_time_ms": at_ms}))
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def run(session: SparkSession, options: RunOptions, job: Job = JOB) -> None:
    """Run the job's tables until they have read what is there."""
    tables = [query for query in job.queries if query.table is not None]
    Run(session, tables, options, say=lambda line: print(line, file=sys.stderr)).run(StopRequest())


def table(session: SparkSession, form: str, options: RunOptions) -> DataFrame:
    """The table of this format, with the columns of all its files."""
    if form == ICEBERG:
        return session.table(iceberg_name("till/iceberg"))
    return session.read.format(form).option("mergeSchema", "true").load(f"{options.output}/till/{form}")


def rows(frame: DataFrame) -> list[list[Any]]:
    """Day before the newest, hour and number of sales of each row."""
    found = [
        [
            (NEWEST_DAY_MS - row["window_start_ms"] + DAY_MS - 1) // DAY_MS,
            row["window_start_ms"] % DAY_MS // HOUR_MS,
            row["sales"],
        ]
        for row in frame.collect()
    ]
    return sorted(found)


def kept_snapshots(session: SparkSession, options: RunOptions) -> list[bool]:
    """Maintain the table of Iceberg when readers may have begun just before the last batch. Return whether the two snapshots before
    that batch stay, and its own."""

    def snapshots() -> list[Any]:
        made = f"SELECT snapshot_id, unix_millis(committed_at) AS at, summary FROM {iceberg_name('till/iceberg')}.snapshots"
        return session.sql(f"{made} ORDER BY committed_at").collect()

    before = snapshots()
    last = max(number for number, row in enumerate(before) if QUERY_ID in row["summary"])
    limits = Limits(small_bytes=MIB, target_bytes=2 * MIB, oldest=None)
    place = f"{options.output}/till/iceberg"
    LAKES[ICEBERG].maintain(session, "till/iceberg", place, limits, 0, before[last]["at"] - 1)
    after = {row["snapshot_id"] for row in snapshots()}
    return [row["snapshot_id"] in after for row in before[last - 2 : last + 1]]


def day(before: int) -> date:
    """The date so many days before the newest."""
    return datetime.fromtimestamp(NEWEST_DAY_MS / 1000, UTC).date() - timedelta(days=before)


def main(bootstrap: str, folder: str) -> None:
    root = Path(folder)
    session, options = begun("till", bootstrap, folder)
    at = [NEWEST_DAY_MS - days * DAY_MS + 5 * HOUR_MS for days in range(5)]
    found: list[dict[str, list[list[Any]]]] = []
    said: list[dict[str, str]] = []

    def read() -> None:
        found.append({form: rows(table(session, form, options)) for form in FORMATS})

    def backfill(first: int, last: int, job: Job = JOB) -> None:
        told: dict[str, str] = {}
        backfills = Backfill(session, job, options, kept, Range(day(first), day(last)))
        for form in FORMATS:
            try:
                told[form] = backfills.table(f"till/{form}", form, 0)
            except PipelineFailed as failure:
                told[form] = str(failure)
        said.append(told)

    send_aborted(bootstrap, at[4] + 5)
    kept = manifest_of(JOB, options, *identity_of(options.bootstrap, [TOPIC]))
    send(bootstrap, at[4], at[4] + 1)
    run(session, options)
    send(bootstrap, at[2], at[2] + 1)
    run(session, options)
    # These are late: an hour with a row, and a day without one.
    send(bootstrap, at[4] + 2, at[3])
    run(session, options)
    for later in range(3):
        send(bootstrap, at[1] - 3 * HOUR_MS + later)
        run(session, options)
    read()
    backfill(4, 1)
    # As a run that writes: Spark's JVM has the lock.
    held = lock(session, str(root / "tables/.till.lock"), "the output", lambda _: False)
    assert held is not None
    backfill(4, 2)
    held.release()
    read()
    backfill(4, 2)
    read()
    backfill(4, 2)
    for at_ms in (at[1], at[0], at[0] + 1):
        send(bootstrap, at_ms)
        run(session, options)
    backfill(4, 2)
    read()
    # A run of the later version has gone on, and ended before its first batch.
    kept = replace(kept, state_version=UPGRADED.state_version)
    filled: list[dict[str, list[list[Any]]]] = []

    def read_filled() -> None:
        frames = {form: table(session, form, options) for form in FORMATS}
        filled.append({form: rows(each.where("shop.tills[0] = 1")) for form, each in frames.items()})

    backfill(4, 3, UPGRADED)
    read_filled()
    send(bootstrap, at[0] + 3 * HOUR_MS)
    run(session, options, UPGRADED)
    read_filled()
    backfill(4, 2, UPGRADED)
    read_filled()
    read()
    backfill(4, 2, GROWN)
    grown = {form: rows(table(session, form, options).where("shop.open")) for form in FORMATS}
    kept_of_iceberg = kept_snapshots(session, options)
    read()
    root.joinpath("checkpoint/till.manifest.json").write_text(encode(kept))
    dates = [day(4).isoformat(), day(2).isoformat()]
    told = {"rows": found, "filled": filled, "grown": grown, "kept of iceberg": kept_of_iceberg}
    print(json.dumps({**told, "said": said, "dates": dates}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
