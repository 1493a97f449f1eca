"""What each format of tables does in its own way, as one value a format.

Each format commits the number of a batch and its rows in one atomic step, in Spark's own sink or in that of the format:

- Parquet: a file of that number in `_spark_metadata`.
- Delta: the transaction `txn` with the query's id and the batch's number, in the commit that adds the files.
- Iceberg: the query's id and the number (epoch) in the summary of the snapshot that adds the files.

The sink drops a batch that the table contains, so no batch is lost or doubled, whenever the driver dies.

Delta and Iceberg also have what a maintenance and a backfill need. For Parquet that is in `maintenance` and `backfill.py`. No run
may write meanwhile: two commits in a local folder at the same moment may replace each other.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import names_in, qualified, read_text
from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.tables import COMMITS, DELTA, ICEBERG, PARQUET, format_in, partitioned_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NONE: Final = -1
CATALOG: Final = "kafkacompat_tables"
"""Iceberg finds its tables in this catalog. Its warehouse is the output folder, so a table lies where Parquet would."""

QUERY_ID: Final = "spark.sql.streaming.queryId"
EPOCH_ID: Final = "spark.sql.streaming.epochId"
HOUR_MS: Final = 3_600_000
LISTING_TASKS: Final = 8


def last_batch(names: Iterable[str]) -> int:
    """Return the highest batch number in these file names, or NONE. Compacted logs are named `N.compact`. Temporary
    files and checksums start with a dot."""
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=NONE)


def iceberg_name(table: str) -> str:
    """Return the name of a table in Spark SQL."""
    return ".".join([CATALOG, *(f"`{part}`" for part in table.split("/"))])


@dataclass(frozen=True, slots=True)
class Merged:
    """How many files became how many."""

    merged: int
    made: int


class TableFormat(ABC):
    """`table`: JOB/NAME. `place`: its folder."""

    name: ClassVar[str]
    skips_without_running: ClassVar[bool] = True
    """Whether the sink does not even compute the rows of a batch that the table contains."""

    def use_output(self, session: SparkSession, output: str) -> None:  # noqa: B027 - most find tables by their folders
        """Find the tables of this folder. It is called before the first query on them."""

    @abstractmethod
    def written_batch(
        self, session: SparkSession, table: str, place: str, checkpoint: str
    ) -> tuple[int, bool]:
        """Return the last batch of the query of this checkpoint that the table contains, or NONE, and then whether it
        contains batches of another checkpoint."""

    def start(self, writer: DataStreamWriter, table: str, place: str) -> StreamingQuery:
        """Start the query that writes a table, and create the table if it does not exist."""
        return self.writer(writer, table).option("path", place).start()

    def writer(self, writer: DataStreamWriter, table: str) -> DataStreamWriter:
        return writer.format(self.name).partitionBy(*partitioned_by(table))


class Parquet(TableFormat):
    name = PARQUET

    def written_batch(
        self, session: SparkSession, table: str, place: str, checkpoint: str
    ) -> tuple[int, bool]:
        return last_batch(names_in(session, f"{place}/{COMMITS[PARQUET]}")), False


class Lake(TableFormat):
    """A format with a way of its own to change what is written."""

    def written_batch(
        self, session: SparkSession, table: str, place: str, checkpoint: str
    ) -> tuple[int, bool]:
        text = read_text(session, f"{checkpoint}/metadata")
        return self.batch_of_query(session, table, place, "" if text is None else str(json.loads(text)["id"]))

    @abstractmethod
    def batch_of_query(
        self, session: SparkSession, table: str, place: str, query_id: str
    ) -> tuple[int, bool]: ...

    @abstractmethod
    def rows(self, session: SparkSession, table: str, place: str) -> DataFrame: ...

    @abstractmethod
    def overwrite(self, rows: DataFrame, table: str, place: str, dates: Sequence[str]) -> None:
        """Replace the rows of these dates. A column that the table lacks is added to it."""

    @abstractmethod
    def maintain(
        self, session: SparkSession, table: str, place: str, limits: Limits, grace_ms: int, now_ms: int
    ) -> Merged:
        """Merge small files, remove rows of old dates, and delete old files."""


class Delta(Lake):
    name = DELTA

    def writer(self, writer: DataStreamWriter, table: str) -> DataStreamWriter:
        return super().writer(writer, table).option("mergeSchema", "true")

    def batch_of_query(
        self, session: SparkSession, table: str, place: str, query_id: str
    ) -> tuple[int, bool]:
        jvm: Any = session.sparkContext._jvm
        log: Any = jvm.org.apache.spark.sql.delta.DeltaLog
        log.clearCache()
        transactions = log.forTable(session._jsparkSession, place).unsafeVolatileSnapshot().transactions()
        found = transactions.get(query_id)
        if found.isDefined():
            return int(found.get()), False
        return NONE, not transactions.isEmpty()

    def rows(self, session: SparkSession, table: str, place: str) -> DataFrame:
        return session.read.format(self.name).load(place)

    def overwrite(self, rows: DataFrame, table: str, place: str, dates: Sequence[str]) -> None:
        listed = ", ".join(f"'{day}'" for day in dates)
        writer = rows.write.format(self.name).mode("overwrite").option("mergeSchema", "true")
        writer.option("replaceWhere", f"date IN ({listed})").save(place)

    def maintain(
        self, session: SparkSession, table: str, place: str, limits: Limits, grace_ms: int, now_ms: int
    ) -> Merged:
        name = "delta.`{}`".format(place.replace("`", "``"))
        for key, value in {
            "spark.databricks.delta.optimize.minFileSize": str(limits.small_bytes),
            "spark.databricks.delta.optimize.maxFileSize": str(limits.target_bytes),
            # Nobody writes, so files without a commit belong to nobody, however young they are.
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            # VACUUM lists the folders in so many tasks. Spark's default is 10,000, which take a minute here.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(LISTING_TASKS),
        }.items():
            session.conf.set(key, value)
        _delete(session, name, limits)
        done = session.sql(f"OPTIMIZE {name}").collect()[0]["metrics"]
        session.sql(f"VACUUM {name} RETAIN {grace_ms / HOUR_MS} HOURS")
        return Merged(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


class Iceberg(Lake):
    name = ICEBERG
    # It computes the rows, and drops its commit.
    skips_without_running = False

    def use_output(self, session: SparkSession, output: str) -> None:
        catalog = f"spark.sql.catalog.{CATALOG}"
        session.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        session.conf.set(f"{catalog}.type", "hadoop")
        session.conf.set(f"{catalog}.warehouse", qualified(session, output))
        # Another writer's commit, as that of a maintenance, must be seen.
        session.conf.set(f"{catalog}.cache-enabled", "false")

    def start(self, writer: DataStreamWriter, table: str, place: str) -> StreamingQuery:
        # The rows come in the number of tasks that the job has chosen, and a task has rows of several dates.
        writer = self.writer(writer, table).option("fanout-enabled", "true")
        # A column that a later version of the job adds stands before the partition columns, and in the table behind them.
        writer = writer.option("merge-schema", "true").option("check-ordering", "false")
        return writer.option("distribution-mode", "none").toTable(iceberg_name(table))

    def batch_of_query(
        self, session: SparkSession, table: str, place: str, query_id: str
    ) -> tuple[int, bool]:
        """As Iceberg's sink does: the newest of the present snapshot and those before it that has this query's id."""
        loaded = _loaded(session, table)
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

    def rows(self, session: SparkSession, table: str, place: str) -> DataFrame:
        return session.table(iceberg_name(table))

    def overwrite(self, rows: DataFrame, table: str, place: str, dates: Sequence[str]) -> None:
        from pyspark.sql import functions as F

        # Unlike a query's, these rows are checked by Spark before Iceberg could add a column. Older rows have null in it.
        described: Any = rows
        jvm: Any = rows.sparkSession.sparkContext._jvm
        schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(described._jdf.schema().asNullable())
        _loaded(rows.sparkSession, table).updateSchema().caseSensitive(False).unionByNameWith(schema).commit()
        for column in rows.sparkSession.table(iceberg_name(table)).schema:
            if column.name.lower() not in map(str.lower, rows.columns):
                rows = rows.withColumn(column.name, F.lit(None).cast(column.dataType))
        writer = rows.writeTo(iceberg_name(table)).option("fanout-enabled", "true")
        writer.overwrite(F.col("date").isin(list(dates)))

    def maintain(
        self, session: SparkSession, table: str, place: str, limits: Limits, grace_ms: int, now_ms: int
    ) -> Merged:
        name = iceberg_name(table)
        _delete(session, name, limits)
        options = {
            "min-input-files": 2,
            "min-file-size-bytes": limits.small_bytes,
            "target-file-size-bytes": limits.target_bytes,
        }
        given = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
        called = f"CALL {CATALOG}.system."
        quoted = "table => '{}'".format(name.removeprefix(f"{CATALOG}."))
        done = session.sql(f"{called}rewrite_data_files({quoted}, options => map({given}))").collect()[0]
        _name_batch_again(session, table)
        before = datetime.fromtimestamp(_oldest_needed_ms(session, table, now_ms - grace_ms) / 1000, UTC)
        session.sql(
            f"{called}expire_snapshots({quoted}, older_than => TIMESTAMP '{before:%Y-%m-%d %H:%M:%S.%f}')"
        ).collect()
        return Merged(int(done["rewritten_data_files_count"]), int(done["added_data_files_count"]))


def _delete(session: SparkSession, name: str, limits: Limits) -> None:
    if limits.oldest is not None:
        session.sql(f"DELETE FROM {name} WHERE date < '{limits.oldest.isoformat()}'")


def _loaded(session: SparkSession, table: str) -> Any:
    jvm: Any = session.sparkContext._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        session._jsparkSession, iceberg_name(table)
    )


def _oldest_needed_ms(session: SparkSession, table: str, before_ms: int) -> int:
    """Return when the snapshot was made that was the present one at this time. Readers may have begun on it until the next one was
    made. The time itself if it is gone."""
    loaded = _loaded(session, table)
    jvm: Any = session.sparkContext._jvm
    found = jvm.org.apache.iceberg.util.SnapshotUtil.nullableSnapshotIdAsOfTime(loaded, before_ms)
    snapshot = None if found is None else loaded.snapshot(found)
    return before_ms if snapshot is None else int(snapshot.timestampMillis())


def _name_batch_again(session: SparkSession, table: str) -> None:
    """Have the present snapshot name the last batch of a query, so that the snapshots before it may go, with the files that they
    alone need. A rewrite and a DELETE name none. Nothing else writes meanwhile."""
    loaded = _loaded(session, table)
    snapshot, is_present = loaded.currentSnapshot(), True
    while snapshot is not None:
        summary = snapshot.summary()
        if summary.get(QUERY_ID) is not None:
            break
        parent = snapshot.parentId()
        snapshot, is_present = None if parent is None else loaded.snapshot(parent), False
    if snapshot is None or is_present:
        return
    empty = loaded.newFastAppend()
    for name in (QUERY_ID, EPOCH_ID):
        empty = empty.set(name, summary.get(name))
    empty.commit()


LAKES: Final[dict[str, Lake]] = {each.name: each for each in (Delta(), Iceberg())}
TABLE_FORMATS: Final[dict[str, TableFormat]] = {PARQUET: Parquet(), **LAKES}


def written_batch(session: SparkSession, form: str, table: str, place: str, checkpoint: str) -> int:
    """Return the last batch of the query of this checkpoint that a table contains, or NONE.

    PipelineFailed if the folder has a table of another format, or batches of another checkpoint.
    """
    found = format_in(names_in(session, place))
    if found is None:
        return NONE
    if found != form:
        raise PipelineFailed(
            f"table {place} has the format {found}, and this run writes {form}. Use --table-format {found} or, to start again, "
            "empty folders for --checkpoint and --output"
        )
    batch, is_foreign = TABLE_FORMATS[form].written_batch(session, table, place, checkpoint)
    if is_foreign:
        raise PipelineFailed(
            f"table {place} contains batches of another checkpoint than {checkpoint}: their rows would be written twice. "
            "Use the --checkpoint and --output of the same run or, to start again, an empty folder for each"
        )
    return batch
