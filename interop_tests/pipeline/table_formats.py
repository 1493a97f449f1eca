"""Writes one table in each format, dies between the steps of a batch's commit, continues, and maintains the tables beside the
writer and without it. A program, because its Spark has the packages of the formats.

python -m interop_tests.pipeline.table_formats BOOTSTRAP FOLDER

The states of a dead driver are made from the files of a run that has ended: without the checkpoint's last commit, or
without the table's last commit too. The result is one JSON object: the event ids in each table, what is refused, and what
maintenance says.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from interop_tests.pipeline.runs import forget_last_commits
from interop_tests.pipeline.table_programs import begun
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import lock
from kafkacompat.pipeline.job import Field, Job, Kind, Query, Table
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.maintenance.table import MIB, maintain_table
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.packages import formats_here, spark_version
from kafkacompat.pipeline.runner import Run, StopRequest
from kafkacompat.pipeline.table_formats import iceberg_name
from kafkacompat.pipeline.tables import DELTA, ICEBERG, PARQUET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The tests on two releases of Spark share a broker.
TOPIC = f"shop.orders-{spark_version()}"
ROUNDS = 4
EVENTS_A_ROUND = 20
DAY_MS = 86_400_000
MINUTE_MS = 60_000
FORMATS = formats_here()

JOB = Job(
    name="shop",
    inputs=(TOPIC,),
    fields=(Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER)),
    sinks=tuple(
        Table(f"shop/{form}", lambda events, _: events.select("event_id", "event_time_ms"), format=form)
        for form in FORMATS
    ),
)
TABLES = [query for query in JOB.queries if query.table is not None]


def with_columns(*columns: str) -> list[Query]:
    """The queries of a later version of the job, whose tables have these columns before `event_time_ms`."""
    wanted = ("event_id", *columns, "event_time_ms")
    job = replace(
        JOB,
        sinks=tuple(
            Table(f"shop/{form}", lambda events, _: events.selectExpr(*wanted), format=form)
            for form in FORMATS
        ),
        state_version=2,
        continues_from=1,
    )
    return [query for query in job.queries if query.table is not None]


def send(bootstrap: str, number: int) -> None:
    """Send the events of a round, on both sides of the midnight before the last, so that none is late."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    midnight_ms = (int(time.time() * 1000) // DAY_MS - 1) * DAY_MS
    for each in range(EVENTS_A_ROUND):
        event = {"event_id": f"{number}-{each:02}", "event_time_ms": midnight_ms - each % 2 * MINUTE_MS}
        producer.produce(TOPIC, json.dumps(event))
    assert producer.flush(30) == 0


def forget_parquet(table: Path) -> None:
    last = max(table.glob("_spark_metadata/[0-9]*"))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)


def forget_delta(table: Path) -> None:
    log = table / "_delta_log"
    last = max(log.glob("*.json"))
    for path in (last, log / f".{last.name}.crc", last.with_suffix(".crc"), log / f".{last.stem}.crc.crc"):
        path.unlink(missing_ok=True)


def forget_iceberg(table: Path) -> None:
    metadata = table / "metadata"
    hint = metadata / "version-hint.text"
    version = int(hint.read_text())
    metadata.joinpath(f"v{version}.metadata.json").unlink()
    hint.write_text(str(version - 1))
    metadata.joinpath(".version-hint.text.crc").unlink(missing_ok=True)


FORGET = {PARQUET: forget_parquet, DELTA: forget_delta, ICEBERG: forget_iceberg}
"""What makes each table as it was before its last commit. The files of the batch stay."""


def run(session: SparkSession, queries: list[Query], options: RunOptions) -> None:
    """Run these queries until they have read what is there."""
    Run(session, queries, options, say=lambda line: print(line, file=sys.stderr)).run(StopRequest())


def table(session: SparkSession, form: str, output: Path) -> DataFrame:
    """The table of this format."""
    if form == ICEBERG:
        return session.table(iceberg_name("shop/iceberg"))
    return session.read.format(form).option("mergeSchema", "true").load(str(output / "shop" / form))


def rows(session: SparkSession, form: str, output: Path) -> list[str]:
    """The event ids in the table of this format, with the dates by which it is partitioned."""
    frame = table(session, form, output)
    found = frame.selectExpr(
        "event_id", "cast(date AS string) = date(timestamp_millis(event_time_ms)) AS same"
    )
    collected = found.collect()
    assert all(row["same"] for row in collected), form
    return sorted(row["event_id"] for row in collected)


def content(session: SparkSession, form: str, output: Path) -> list[list[str | None]]:
    """All rows of the table of this format, as text."""
    frame = table(session, form, output).selectExpr(
        *(f"cast({name} AS string) AS {name}" for name in ("event_id", "shop", "event_time_ms", "date"))
    )
    return sorted(list(row) for row in frame.collect())


def refusals(session: SparkSession, options: RunOptions) -> dict[str, list[str]]:
    """What is said about each table with a new checkpoint, without the table, and with another format."""
    root = Path(options.output).parent
    others = {
        "new checkpoint": replace(options, checkpoint=str(root / "new")),
        "new output": replace(options, output=str(root / "other")),
    }
    said: dict[str, list[str]] = {}
    for query in TABLES:
        other = PARQUET if query.format == DELTA else DELTA
        for what, tried in {**others, "other format": replace(options, table_format=other)}.items():
            try:
                run(session, [query], tried)
            except PipelineFailed as failure:
                said.setdefault(what, []).append(str(failure))
    return said


def maintained(session: SparkSession, options: RunOptions, limits: Limits) -> dict[str, str]:
    """What maintenance says of each table. Replaced files are deleted as soon as no list can have them."""
    output = Path(options.output)
    return {
        form: maintain_table(output, f"shop/{form}", form, limits, 0, lambda: session) for form in FORMATS
    }


def run_with_maintenance(bootstrap: str, session: SparkSession, options: RunOptions) -> dict[str, list[str]]:
    """A run that maintains its tables as often as it can, until each was maintained twice. Return what it says of each."""
    told: dict[str, list[str]] = {form: [] for form in FORMATS}
    stop = StopRequest()

    def say(line: str) -> None:
        print(line, file=sys.stderr)
        table, mark, what = line.partition(": ")
        if not mark or not table.startswith("shop/"):
            return
        if not any(told.values()):
            send(bootstrap, 7)
        told[table.removeprefix("shop/")].append(what)
        if all(len(each) > 1 for each in told.values()):
            stop.ask()

    goes_on = replace(options, until_caught_up=False, table_trigger_s=1.0, maintain_every_s=0.0)
    Run(session, TABLES, goes_on, say=say).run(stop)
    run(session, TABLES, options)
    return told


def run_with_more_columns(
    bootstrap: str, session: SparkSession, options: RunOptions
) -> tuple[dict[str, int], dict[str, str]]:
    """A run with a column that is added, and for all formats but Parquet one in which it has another type. Return for each format
    how many rows have the column, and for the latter how it fails."""
    output = Path(options.output)
    send(bootstrap, 8)
    run(session, with_columns("'web' AS shop"), options)
    added = {form: table(session, form, output).where("shop = 'web'").count() for form in FORMATS}
    send(bootstrap, 9)
    failed = {}
    for query in with_columns("array(event_time_ms) AS shop"):
        if query.format == PARQUET:
            continue
        try:
            run(session, [query], options)
        except PipelineFailed as failure:
            failed[query.format] = str(failure)
    # The version before it goes on.
    run(session, with_columns("'web' AS shop"), options)
    return added, failed


def main(bootstrap: str, folder: str) -> None:
    # Each round is one batch, and the last batch has rows.
    session, options = begun(
        "shop", bootstrap, folder, {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    )
    for number in range(ROUNDS):
        send(bootstrap, number)
        run(session, TABLES, options)
        if number in (1, 2):
            forget_last_commits(Path(options.checkpoint), "shop")
        if number == 2:
            for form in FORMATS:
                FORGET[form](Path(options.output, "shop", form))
    output = Path(options.output)
    found = [{form: rows(session, form, output) for form in FORMATS}]
    refused = refusals(session, options)
    said = []
    limits = Limits(small_bytes=MIB, target_bytes=2 * MIB, oldest=None)

    def maintain_and_read(limits: Limits) -> None:
        said.append(maintained(session, options, limits))
        found.append({form: rows(session, form, output) for form in FORMATS})

    # As a run that writes: Spark's JVM has the lock. The next two batches end with a compact file.
    held = lock(session, str(output / ".shop.lock"), "the output", lambda _: False)
    assert held is not None
    maintain_and_read(limits)
    for number in (4, 5):
        send(bootstrap, number)
        run(session, TABLES, options)
    maintain_and_read(limits)
    held.release()
    newest = datetime.fromtimestamp((time.time() // 86_400 - 1) * 86_400, UTC).date()
    maintain_and_read(replace(limits, oldest=newest))
    send(bootstrap, 6)
    run(session, TABLES, options)
    found.append({form: rows(session, form, output) for form in FORMATS})
    by_the_run = run_with_maintenance(bootstrap, session, options)
    found.append({form: rows(session, form, output) for form in FORMATS})
    added, failed = run_with_more_columns(bootstrap, session, options)
    maintain_and_read(limits)
    maintained(session, options, limits)
    told = {"rows": found, "refused": refused, "said": said, "by the run": by_the_run}
    told["content"] = {form: content(session, form, output) for form in FORMATS}
    files = iceberg_name("shop/iceberg") + ".{}files"
    kinds = ("all_data_", "") if ICEBERG in FORMATS else ()
    left = [session.table(files.format(kind)).count() for kind in kinds]
    print(json.dumps({**told, "added": added, "failed": failed, "left": left}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
