"""Merges files of Delta and Iceberg tables, removes rows of old dates, and deletes old files, by what these formats have for it.

No run may write meanwhile: two commits in a local folder at the same moment may replace each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkacompat.pipeline.maintenance.rounds import Limits
from kafkacompat.pipeline.table_commits import CATALOG, QUERY_ID, iceberg_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR_MS = 3_600_000
LISTING_TASKS = 8


@dataclass(frozen=True, slots=True)
class Merged:
    """How many files became how many."""

    merged: int
    made: int


def maintain_delta(session: SparkSession, place: str, limits: Limits, grace_ms: int) -> Merged:
    """Maintain the Delta table in this folder."""
    table = "delta.`{}`".format(place.replace("`", "``"))
    for key, value in {
        "spark.databricks.delta.optimize.minFileSize": str(limits.small_bytes),
        "spark.databricks.delta.optimize.maxFileSize": str(limits.target_bytes),
        # Nobody writes, so files without a commit belong to nobody, however young they are.
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # VACUUM lists the folders in so many tasks. Spark's default is 10,000, which take a minute here.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(LISTING_TASKS),
    }.items():
        session.conf.set(key, value)
    _delete(session, table, limits)
    done = session.sql(f"OPTIMIZE {table}").collect()[0]["metrics"]
    session.sql(f"VACUUM {table} RETAIN {grace_ms / HOUR_MS} HOURS")
    return Merged(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


def maintain_iceberg(session: SparkSession, table: str, limits: Limits, grace_ms: int, now_ms: int) -> Merged:
    """Maintain the Iceberg table of this name, JOB/NAME. `use_output` must have named its warehouse."""
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
    before = datetime.fromtimestamp((now_ms - grace_ms) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    session.sql(
        f"{called}expire_snapshots({quoted}, older_than => TIMESTAMP '{before}', "
        f"retain_last => {_needed_snapshots(session, name)})"
    ).collect()
    return Merged(int(done["rewritten_data_files_count"]), int(done["added_data_files_count"]))


def _delete(session: SparkSession, table: str, limits: Limits) -> None:
    if limits.oldest is not None:
        session.sql(f"DELETE FROM {table} WHERE date < '{limits.oldest.isoformat()}'")


def _needed_snapshots(session: SparkSession, name: str) -> int:
    """Return how many of the last snapshots must stay: to the last one that names the batch of a query."""
    jvm: Any = session.sparkContext._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
    snapshot, number = table.currentSnapshot(), 1
    while snapshot is not None:
        if snapshot.summary().get(QUERY_ID) is not None:
            return number
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)
        number += 1
    # Rows without a query: everything may be expired but the last one.
    return 1
