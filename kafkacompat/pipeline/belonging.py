"""Whether a run may go on with a checkpoint: nobody else uses it, it was begun with the same settings on the same topics, and its
tables have one past with it. If not, rows would be lost or mixed, and nothing would tell of it.

Spark's file sink passes over every batch whose number is in the table's `_spark_metadata` already: a new checkpoint counts from 0,
and all that it reads before it has caught up with the old number reaches no table. A checkpoint without its table goes on after
rows that are nowhere. Folders are read by Spark's own file systems, so it is the same for HDFS and S3. Knows Spark 4.0's layout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.manifest import (
    Manifest,
    ManifestUnreadable,
    decode,
    difference,
    encode,
    topics_made_anew,
)
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.places import lock, names_in, read_text, write_text
from kafkacompat.pipeline.queries import QUERIES, Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NONE: Final = -1
SINK_LOG: Final = "_spark_metadata"


def checkpoint_of(query: Query, options: RunOptions) -> str:
    """The folder of the query's checkpoint."""
    return f"{_checkpoint(options)}/{query.name}"


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
    planned = _planned(session, query, options)
    ended = last_batch(names_in(session, f"{checkpoint}/commits"))
    written = last_batch(names_in(session, f"{table}/{SINK_LOG}"))
    found = fault(checkpoint, table, planned, ended, written)
    if found is not None:
        raise PipelineFailed(found)


@contextlib.contextmanager
def jobs_locked(session: SparkSession, options: RunOptions, wait: Callable[[float], bool]) -> Iterator[None]:
    """Keep other runs of these jobs from their checkpoints and tables meanwhile. PipelineFailed if one has them.

    Runs of different jobs may share both folders. `wait` is as in `places.lock`.
    """
    checkpoint, output = options.checkpoint, options.output
    with contextlib.ExitStack() as held:
        for job in options.jobs:
            for place, what in (
                (f"{_checkpoint(options)}/{job}.lock", f"checkpoint {checkpoint} of job {job}"),
                (f"{output.rstrip('/')}/.{job}.lock", f"output {output} of job {job}"),
            ):
                found = lock(session, place, what, wait)
                if found is not None:
                    held.callback(found.release)
        yield


def require_same_run(
    session: SparkSession, now: Manifest, options: RunOptions, say: Callable[[str], None]
) -> None:
    """PipelineFailed unless the job's checkpoint was begun with these settings, on this cluster and these topics; a new one is
    given its manifest. With `--ignore-data-loss` a topic made anew is taken as it is.
    """
    place = f"{_checkpoint(options)}/{now.job}.manifest.json"
    beginning = "Give the same, or for a new beginning an empty folder for --checkpoint and --output each"
    text = read_text(session, place)
    if text is None:
        if any(_planned(session, query, options) != NONE for query in QUERIES[now.job]):
            older = f"checkpoint {options.checkpoint} of job {now.job} has no manifest"
            say(f"{older}; it is taken for one with this run's settings, cluster and topics")
    else:
        try:
            kept = decode(text)
        except ManifestUnreadable as error:
            raise PipelineFailed(f"manifest {place} cannot be read: {error}") from None
        found = difference(kept, now)
        if found is not None:
            raise PipelineFailed(
                f"checkpoint {options.checkpoint} of job {now.job} cannot go on: {found}. {beginning}"
            )
        anew = topics_made_anew(kept, now)
        if anew and options.fail_on_data_loss:
            raise PipelineFailed(
                f"checkpoint {options.checkpoint} of job {now.job} holds offsets of topics that were deleted and made anew: "
                f"{', '.join(anew)}. Give --ignore-data-loss to go on at the same offsets, or an empty folder for --checkpoint "
                "and --output each"
            )
        if anew:
            say(
                f"topics {', '.join(anew)} were deleted and made anew: records below the checkpoint's offsets are not read"
            )
        if kept == now:
            return
    write_text(session, place, encode(now))


def _planned(session: SparkSession, query: Query, options: RunOptions) -> int:
    return last_batch(names_in(session, f"{checkpoint_of(query, options)}/offsets"))


def _checkpoint(options: RunOptions) -> str:
    return options.checkpoint.rstrip("/")
