"""Whether the checkpoints of a run and its tables have one past. If not, rows would be lost, and nothing would tell of it.

Spark's file sink passes over every batch whose number is in the table's `_spark_metadata` already: a new checkpoint counts from 0,
and all that it reads before it has caught up with the old number reaches no table. A checkpoint without its table goes on after
rows that are nowhere. Folders are read by Spark's own file systems, so it is the same for HDFS and S3. Knows Spark 4.0's layout.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.options import RunOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkacompat.pipeline.queries import Query

NONE: Final = -1
SINK_LOG: Final = "_spark_metadata"


def checkpoint_of(query: Query, options: RunOptions) -> str:
    """The folder of the query's checkpoint."""
    return f"{options.checkpoint.rstrip('/')}/{query.name}"


def table_of(query: Query, options: RunOptions) -> str | None:
    """The folder of the query's table; None where it feeds topics."""
    return None if query.table is None else f"{options.output.rstrip('/')}/{query.table}"


def last_batch(names: Iterable[str]) -> int:
    """The highest batch that files of these names tell of, NONE if none does. Compacted logs are `N.compact`; temporary files and
    checksums begin with a dot.
    """
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=NONE)


def fault(checkpoint: str, table: str, planned: int, ended: int, written: int) -> str | None:
    """What is wrong between a checkpoint, by its last batch planned and ended, and a table, by its last batch; None if nothing is.

    A batch is planned, then in the table, then ended; a driver that dies leaves it at any of these.
    """
    if ended <= written <= planned:
        return None
    if written > planned:
        said = f"table {table} holds batches to number {written}, which checkpoint {checkpoint} does not know"
        danger = "as many batches from now on would reach no table"
    else:
        said = f"checkpoint {checkpoint} has ended batch {ended}, which table {table} does not hold"
        danger = "the rows before would be in no table"
    return f"{said}: {danger}. Give --checkpoint and --output of one run, or for a new beginning an empty folder for each"


def require_one_past(session: SparkSession, query: Query, options: RunOptions) -> None:
    """PipelineFailed naming both folders unless the query's table, where it has one, is as its checkpoint left it."""
    table = table_of(query, options)
    if table is None:
        return
    checkpoint = checkpoint_of(query, options)
    planned = last_batch(_names(session, f"{checkpoint}/offsets"))
    ended = last_batch(_names(session, f"{checkpoint}/commits"))
    written = last_batch(_names(session, f"{table}/{SINK_LOG}"))
    found = fault(checkpoint, table, planned, ended, written)
    if found is not None:
        raise PipelineFailed(found)


def _names(session: SparkSession, place: str) -> list[str]:
    """Names of the files in a folder on any file system that Spark knows; none where there is no folder."""
    context: Any = session.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(place)
    system = path.getFileSystem(context._jsc.hadoopConfiguration())
    if not system.exists(path):
        return []
    return [str(status.getPath().getName()) for status in system.listStatus(path)]
