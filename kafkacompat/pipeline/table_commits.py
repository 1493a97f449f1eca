"""The batches that a table contains, as the commits of its format name them, and the writer of each format.

Each format commits the number of a batch and its rows in one atomic step, in Spark's own sink or in that of the format:

- Parquet: a file of that number in `_spark_metadata`.
- Delta: the transaction `txn` with the query's id and the batch's number, in the commit that adds the files.
- Iceberg: the query's id and the number (epoch) in the summary of the snapshot that adds the files.

The sink drops a batch that the table contains, so no batch is lost or doubled, whenever the driver dies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import names_in, qualified, read_text
from kafkacompat.pipeline.tables import COMMITS, DELTA, ICEBERG, PARQUET, format_in, partitioned_by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NONE: Final = -1
CATALOG: Final = "kafkacompat_tables"
"""Iceberg finds its tables in this catalog. Its warehouse is the output folder, so a table lies where Parquet would."""

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"


def last_batch(names: Iterable[str]) -> int:
    """Return the highest batch number in these file names, or NONE. Compacted logs are named `N.compact`. Temporary
    files and checksums start with a dot."""
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=NONE)


def use_output(session: SparkSession, output: str) -> None:
    """Make Iceberg look for tables in this folder. It must be called before the first query on them."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    session.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set(f"{catalog}.type", "hadoop")
    session.conf.set(f"{catalog}.warehouse", qualified(session, output))
    # Another writer's commit, as that of a maintenance, must be seen.
    session.conf.set(f"{catalog}.cache-enabled", "false")


def written_batch(session: SparkSession, form: str, table: str, place: str, checkpoint: str) -> int:
    """Return the last batch of the query of this checkpoint that a table contains, or NONE.

    table: JOB/NAME. place: its folder. PipelineFailed if the folder has a table of another format, or batches of another
    checkpoint.
    """
    found = format_in(names_in(session, place))
    if found is None:
        return NONE
    if found != form:
        raise PipelineFailed(
            f"table {place} has the format {found}, and this run writes {form}. Use --table-format {found} or, to start again, "
            "empty folders for --checkpoint and --output"
        )
    if form == PARQUET:
        return last_batch(names_in(session, f"{place}/{COMMITS[PARQUET]}"))
    text = read_text(session, f"{checkpoint}/metadata")
    query_id = "" if text is None else str(json.loads(text)["id"])
    find = _delta_batch if form == DELTA else _iceberg_batch
    batch, is_foreign = find(session, table if form == ICEBERG else place, query_id)
    if is_foreign:
        raise PipelineFailed(
            f"table {place} contains batches of another checkpoint than {checkpoint}: their rows would be written twice. "
            "Use the --checkpoint and --output of the same run or, to start again, an empty folder for each"
        )
    return batch


def skips_without_running(form: str) -> bool:
    """Return whether the sink of this format does not even compute the rows of a batch that the table contains.

    Iceberg's computes them and drops its commit.
    """
    return form != ICEBERG


def start_table(writer: DataStreamWriter, form: str, table: str, place: str) -> StreamingQuery:
    """Start the query that writes a table, and create the table if it does not exist."""
    writer = writer.format(form).partitionBy(*partitioned_by(table))
    if form != ICEBERG:
        return writer.option("path", place).start()
    # The rows come in the number of tasks that the job has chosen, and a task has rows of several dates.
    writer = writer.option("fanout-enabled", "true").option("distribution-mode", "none")
    return writer.toTable(iceberg_name(table))


def iceberg_name(table: str) -> str:
    """Return the name of a table in Spark SQL."""
    return ".".join([CATALOG, *(f"`{part}`" for part in table.split("/"))])


def _delta_batch(session: SparkSession, place: str, query_id: str) -> tuple[int, bool]:
    jvm: Any = session.sparkContext._jvm
    log: Any = jvm.org.apache.spark.sql.delta.DeltaLog
    log.clearCache()
    transactions = log.forTable(session._jsparkSession, place).unsafeVolatileSnapshot().transactions()
    found = transactions.get(query_id)
    if found.isDefined():
        return int(found.get()), False
    return NONE, not transactions.isEmpty()


def _iceberg_batch(session: SparkSession, table: str, query_id: str) -> tuple[int, bool]:
    """As Iceberg's sink does: the newest of the present snapshot and those before it that has this query's id."""
    jvm: Any = session.sparkContext._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        session._jsparkSession, iceberg_name(table)
    )
    is_foreign = False
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        writer = summary.get(QUERY_ID)
        if writer == query_id:
            return int(summary.get(EPOCH_ID)), False
        is_foreign |= writer is not None
        parent = snapshot.parentId()
        snapshot = None if parent is None else loaded.snapshot(parent)
    return NONE, is_foreign
