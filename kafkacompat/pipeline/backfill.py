"""Computes dates of tables again from the records of their topics, and puts their rows in the place of those of the run.

A Parquet table is changed beside the run that writes it, by one rename of its newest compact file. Tables of other formats
are changed while no run writes them, by one commit of their own. Dates whose rows are the same are left as they are.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkacompat.pipeline.checkpoint_validation import checkpoint_of
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import read_text
from kafkacompat.pipeline.groups import Offsets
from kafkacompat.pipeline.job import Job, Table
from kafkacompat.pipeline.maintenance.local_folder import LocalFolder, locked, pattern_of
from kafkacompat.pipeline.maintenance.parquet import ROUNDS, replace_files
from kafkacompat.pipeline.maintenance.rounds import Replacement, date_of
from kafkacompat.pipeline.manifest import Manifest, decode, difference, manifest_of, topics_made_anew
from kafkacompat.pipeline.options import OPTIONS, READ_COMMITTED, RunOptions
from kafkacompat.pipeline.recomputing import (
    Batch,
    Range,
    batch_in,
    changed_dates,
    needed_from_ms,
    of_dates,
    recomputed,
    require_ended,
    require_records,
)
from kafkacompat.pipeline.sink_log import Entry
from kafkacompat.pipeline.table_formats import LAKES, NONE, Lake, written_batch
from kafkacompat.pipeline.tables import PARQUET, partitioned_by
from kafkacompat.pipeline.topics import identity_of
from kafkacompat.security.cluster_address import ClusterAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkacompat.pipeline.job import Query

TIMEOUT_S: Final = 30.0
MADE: Final = "backfilled-"
"""The beginning of the name of a file that a backfill has made."""


def kept_manifest(checkpoint: Path, job: str) -> Manifest:
    """Return the manifest of a job's checkpoint. PipelineFailed."""
    place = checkpoint / f"{job}.manifest.json"
    try:
        return decode(place.read_text())
    except FileNotFoundError:
        raise PipelineFailed(
            f"checkpoint {checkpoint} has no run of job {job}: there is no {place.name}"
        ) from None
    except ValueError as error:
        raise PipelineFailed(f"manifest {place} cannot be read: {error}") from None


def require_same_topics(checkpoint: str, kept: Manifest, now: Manifest) -> None:
    """Raise PipelineFailed unless the topics of a job, and its state_version, are those of its run."""
    problem = difference(kept, now)
    if problem is not None:
        raise PipelineFailed(f"checkpoint {checkpoint} of job {kept.job} does not fit: {problem}")
    if kept.state_version != now.state_version:
        raise PipelineFailed(
            f"checkpoint {checkpoint} of job {kept.job} has state_version {kept.state_version}, and the job "
            f"{now.state_version}: let a run of the job continue from it first"
        )
    if anew := topics_made_anew(kept, now):
        raise PipelineFailed(
            f"topics {', '.join(anew)} were deleted and created again: they do not have the records of the table"
        )


def options_of_run(job: Job, options: RunOptions, kept: Manifest) -> RunOptions:
    """Return the options with the settings of the run. PipelineFailed if it is another job, cluster or topic."""
    settings: dict[str, Any] = {
        OPTIONS[word]: value for word, value in kept.settings.items() if word in OPTIONS
    }
    found = replace(options, **settings)
    cluster_id, topic_ids = identity_of(options.bootstrap, job.inputs_of(found))
    require_same_topics(options.checkpoint, kept, manifest_of(job, found, cluster_id, topic_ids))
    return found


def oldest_records(
    address: ClusterAddress, offsets: Offsets, isolation_level: str = READ_COMMITTED
) -> dict[tuple[str, int], int]:
    """Return the timestamp of the first record of each partition whose earlier ones are deleted, and the present time if it
    has no record any more. PipelineFailed."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    reader = Consumer(
        {
            **address.librdkafka(),
            "client.id": "kafkacompat-backfill",
            "group.id": "kafkacompat-backfill",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            # A partition may end with what is no record: the end of a transaction.
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: dict[tuple[str, int], int] = {}
    try:
        for topic, partition in offsets:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
            if low == 0:
                continue
            found[topic, partition] = _now_ms()
            if low < high:
                reader.assign([TopicPartition(topic, partition, low)])
                message = reader.poll(TIMEOUT_S)
                if message is None:
                    raise PipelineFailed(f"the first record of {topic}-{partition} cannot be read")
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    continue
                if error is not None:
                    raise KafkaException(error)
                found[topic, partition] = message.timestamp()[1]
    except KafkaException as error:
        raise PipelineFailed(f"the first records cannot be read: {error.args[0].str()}") from None
    finally:
        reader.close()
    return found


class Backfill:
    """The dates of the tables of one job. `options` and `kept`, the manifest, are those of its run."""

    def __init__(
        self, session: SparkSession, job: Job, options: RunOptions, kept: Manifest, asked: Range
    ) -> None:
        self._session = session
        self._job = job
        self._options = options
        self._kept = kept
        self._asked = asked
        self._output = Path(options.output)
        self._writers_lock = self._output / f".{job.name}.lock"
        # The folders of partitions say 01, and not 1.
        session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")

    def table(self, name: str, form: str, grace_ms: int) -> str:
        """Compute the dates of a table of this format again. Return what was done, for a person. PipelineFailed."""
        sink = {each.name: each for each in self._job.sinks if isinstance(each, Table)}.get(name)
        if sink is None:
            raise PipelineFailed(f"job {self._job.name} has no Table of this name")
        query = next(each for each in self._job.queries if each.table == name)
        try:
            if form == PARQUET:
                return self._parquet(sink, query, grace_ms)
            with locked(self._writers_lock) as is_alone:
                if not is_alone:
                    raise PipelineFailed(
                        f"a run, a maintenance or another backfill of its job is at work, and only one process may commit to a "
                        f"table of format {form}: stop the run first"
                    )
                return self._lake(sink, query, LAKES[form])
        finally:
            self._session.catalog.clearCache()

    def _parquet(self, sink: Table, query: Query, grace_ms: int) -> str:
        place = self._output / sink.name
        round_id = uuid.uuid4().hex[:12]
        found: list[date] | None = None

        def replacement(number: int, entries: list[Entry]) -> Replacement:
            nonlocal found
            listed = [each for each in entries if self._asked.has(date_of(each.folder))]
            rows, found = self._changed(sink, query, number, self._rows_in(place, listed))
            if not found:
                return Replacement((), ())
            taken = tuple(each for each in listed if date_of(each.folder) in found)
            return Replacement(taken, self._written(sink, of_dates(rows, found), round_id))

        (place / ROUNDS).mkdir(exist_ok=True)
        with locked(place / ROUNDS / "lock") as is_free:
            if not is_free:
                raise PipelineFailed("a maintenance or another backfill is at work")
            folder = LocalFolder(place, self._writers_lock, lambda: self._session)
            folder.clean()
            outcome = replace_files(folder, replacement, grace_ms, round_id, _now_ms)
            folder.clean()
        if outcome.is_disturbed:
            raise PipelineFailed(
                "something else than its writer has changed it meanwhile, and nothing was replaced"
            )
        if found is None:
            raise PipelineFailed(
                "an earlier backfill or maintenance is open until the run's next compact file: call again after it"
            )
        return said(found, is_open=outcome.is_open)

    def _rows_in(self, place: Path, files: Sequence[Entry]) -> DataFrame | None:
        if not files:
            return None
        reader = self._session.read.option("basePath", str(place)).option("mergeSchema", "true")
        return reader.parquet(*(pattern_of(place / each.place) for each in files))

    def _written(self, sink: Table, rows: DataFrame, round_id: str) -> tuple[tuple[str, str], ...]:
        """Write a file for each partition aside. Return the path of each, and its place."""
        place = self._output / sink.name
        aside = place / ROUNDS / f".{MADE}{round_id}"
        columns = partitioned_by(sink.name)
        writer = rows.repartition(*columns).write.partitionBy(*columns).option("compression", "snappy")
        writer.parquet(str(aside))
        made = []
        for number, path in enumerate(sorted(aside.rglob("part-*.parquet"))):
            name = f"{MADE}{round_id}-{number}.snappy.parquet"
            made.append((str(path.relative_to(place)), str(path.parent.relative_to(aside) / name)))
        return tuple(made)

    def _lake(self, sink: Table, query: Query, lake: Lake) -> str:
        session, place = self._session, str(self._output / sink.name)
        lake.use_output(session, self._options.output)
        number = written_batch(session, lake.name, sink.name, place, checkpoint_of(query, self._options))
        if number == NONE:
            raise PipelineFailed(f"it has no batch of the checkpoint {self._options.checkpoint}")
        frame = lake.rows(session, sink.name, place)
        rows, changed = self._changed(sink, query, number, self._asked.within(frame))
        if changed:
            days = [day.isoformat() for day in changed]
            lake.overwrite(of_dates(rows, changed), sink.name, place, days)
        return said(changed)

    def _changed(
        self, sink: Table, query: Query, number: int, present: DataFrame | None
    ) -> tuple[DataFrame, list[date]]:
        """Return the rows of the table at a batch, and the dates of which it has others."""
        options, asked = self._options, self._asked
        batch = _batch_of(self._session, query, self._options, number)
        require_ended(asked, batch)
        self._require_records(batch)
        rows = recomputed(self._session, query, options, batch, asked, is_keyed=bool(sink.key))
        # The rows are read. Topics may have been deleted and created again, or have lost records, since the first check.
        cluster_id, topic_ids = identity_of(options.bootstrap, self._job.inputs_of(options))
        now = manifest_of(self._job, options, cluster_id, topic_ids)
        require_same_topics(options.checkpoint, self._kept, now)
        self._require_records(batch)
        return rows, changed_dates(present, rows, may_lack=self._job.continues_from is not None)

    def _require_records(self, batch: Batch) -> None:
        options, asked = self._options, self._asked
        oldest = oldest_records(options.bootstrap, batch.offsets, options.isolation_level)
        require_records(asked, needed_from_ms(asked, options.watermark_s), oldest)


def _batch_of(session: SparkSession, query: Query, options: RunOptions, number: int) -> Batch:
    text = read_text(session, f"{checkpoint_of(query, options)}/offsets/{number}")
    if text is None:
        raise PipelineFailed(
            f"the checkpoint of query {query.name} does not have batch {number}, the newest that the table lists: call again"
        )
    return batch_in(number, text)


def said(changed: Sequence[date], *, is_open: bool = False) -> str:
    """Return in a line what has been done with a table."""
    if not changed:
        return "every row is as computed, nothing changed"
    told = f"computed again: {', '.join(day.isoformat() for day in changed)}"
    if is_open:
        told += "; the run that writes it may undo that with its next compact file: call again after it"
    return told


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
