"""Writes a table in each format, with events that are late, and backfills them. A program, because its Spark has the packages
of the formats.

python -m interop_tests.pipeline.backfill_tables BOOTSTRAP FOLDER

The result is one JSON object: the rows of each table before and after, and what the backfill says.
"""

from __future__ import annotations

import json
import sys
import time
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
from kafkacompat.pipeline.manifest import encode, manifest_of
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.recomputing import Range
from kafkacompat.pipeline.runner import Run, StopRequest
from kafkacompat.pipeline.table_formats import iceberg_name
from kafkacompat.pipeline.tables import FORMATS, ICEBERG
from kafkacompat.pipeline.topics import identity_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "till.sales"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
TODAY_MS = int(time.time() * 1000) // DAY_MS * DAY_MS


def hourly(events: DataFrame, options: RunOptions) -> DataFrame:
    """The sales of each hour."""
    return events.groupBy(F.window("event_time", "1 hour")).agg(F.count("*").alias("sales"))


JOB = Job(
    name="till",
    inputs=(TOPIC,),
    fields=(Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER)),
    sinks=tuple(Table(f"till/{form}", hourly, ("window_start_ms",), format=form) for form in FORMATS),
)
TABLES = [query for query in JOB.queries if query.table is not None]


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


def run(session: SparkSession, options: RunOptions) -> None:
    """Run the queries until they have read what is there."""
    Run(session, TABLES, options, say=lambda line: print(line, file=sys.stderr)).run(StopRequest())


def rows(session: SparkSession, form: str, options: RunOptions) -> list[list[Any]]:
    """Day before today, hour and number of sales of each row."""
    frame = (
        session.table(iceberg_name("till/iceberg"))
        if form == ICEBERG
        else session.read.format(form).load(f"{options.output}/till/{form}")
    )
    found = [
        [
            (TODAY_MS - row["window_start_ms"] + DAY_MS - 1) // DAY_MS,
            row["window_start_ms"] % DAY_MS // HOUR_MS,
            row["sales"],
        ]
        for row in frame.collect()
    ]
    return sorted(found)


def day(before: int) -> date:
    """The date so many days before today."""
    return datetime.fromtimestamp(TODAY_MS / 1000, UTC).date() - timedelta(days=before)


def main(bootstrap: str, folder: str) -> None:
    root = Path(folder)
    session, options = begun("till", bootstrap, folder)
    at = [TODAY_MS - days * DAY_MS + 5 * HOUR_MS for days in range(5)]
    found: list[dict[str, list[list[Any]]]] = []
    said: list[dict[str, str]] = []

    def read() -> None:
        found.append({form: rows(session, form, options) for form in FORMATS})

    def backfill(first: int, last: int) -> None:
        told: dict[str, str] = {}
        backfills = Backfill(session, JOB, options, kept, Range(day(first), day(last)))
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
    root.joinpath("checkpoint/till.manifest.json").write_text(encode(kept))
    print(json.dumps({"rows": found, "said": said}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
