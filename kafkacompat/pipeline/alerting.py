"""Writes the batches of the query metrics-live: windows as records, and the changes of alerts.

`alerts` decides about alerts. Its state is in the query's checkpoint, one file for each batch that changed it, and
survives a restart. If Spark runs a batch again, the batch starts from the state before it and makes the same changes
with the same event ids. The driver gets only windows with enough samples. Executors run only Spark's code.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafkacompat.pipeline import topics
from kafkacompat.pipeline.alerts import (
    COLUMNS,
    SAMPLES_MIN,
    Change,
    State,
    Tracker,
    decode,
    encode,
)
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.file_systems import names_in, read_text, remove, write_text
from kafkacompat.pipeline.jobs.metrics import ESTIMATES
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.results import as_records, row_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "alerts"
RECORD_SCHEMA: Final = "array<struct<topic: string, key: string, value: string>>"
BATCHES_KEPT: Final = 10
"""As many as Spark keeps of its state here."""


def window_records(windows: DataFrame) -> DataFrame:
    """Return each window as a record. A repeated batch must give the same ids, although its estimates may differ in a digit."""
    exact = [name for name in windows.columns if name not in ESTIMATES]
    window = row_record(
        topics.METRICS_WINDOWS, windows.columns, ["service", "window_start_ms"], told_by=exact
    )
    return as_records(windows, F.array(window))


def change_records(session: SparkSession, changes: list[Change]) -> DataFrame:
    """Return each change as a record. The JVM parses a text, because a frame of Python rows would start Python on an executor."""
    made = [
        {"topic": topics.METRICS_ALERTS, "key": change.key, "value": json.dumps(fields_of(change))}
        for change in changes
    ]
    records = F.explode(F.from_json(F.lit(json.dumps(made)), RECORD_SCHEMA)).alias("made")
    return session.range(1).select(records).select("made.*")


def fields_of(change: Change) -> dict[str, Any]:
    """Return the value of a change's record."""
    return {"event_id": change.event_id, **asdict(change)}


class Alerting:
    """The writer of one query's batches."""

    def __init__(self, checkpoint: str, options: RunOptions) -> None:
        self._folder = f"{checkpoint}/{FOLDER}"
        self._bootstrap = options.bootstrap
        self._tracker = Tracker(options.window_s, options.watermark_s)

    def __call__(self, windows: DataFrame, batch: int) -> None:
        """Write a batch, then save the state after it. If the process dies in between, the batch runs again from the
        state before it."""
        session = windows.sparkSession
        # Computing the frame twice would count its rows twice in Spark's state.
        windows.persist()
        try:
            told = windows.where(F.col("count") >= SAMPLES_MIN).select(*COLUMNS).collect()
            before = self._before(session, batch)
            after, changes = self._tracker.step(before, [row.asDict() for row in told])
            records = window_records(windows)
            if changes:
                records = records.union(change_records(session, changes))
            self.write(records)
            if after != before:
                self._keep(session, batch, after)
        finally:
            windows.unpersist()

    def write(self, records: DataFrame) -> None:
        """Write the records to the topics that they name."""
        records.write.format("kafka").options(**self._bootstrap.spark()).save()

    def _before(self, session: SparkSession, batch: int) -> State:
        last = max((number for number in self._kept(session) if number < batch), default=None)
        text = None if last is None else read_text(session, f"{self._folder}/{last}")
        if text is None:
            return State()
        try:
            return decode(text)
        except ValueError as error:
            raise PipelineFailed(f"{self._folder}/{last}: {error}") from None

    def _keep(self, session: SparkSession, batch: int, state: State) -> None:
        write_text(session, f"{self._folder}/{batch}", encode(state))
        kept = self._kept(session)
        # Keep the newest of the states that are too old: the oldest batch that may run again starts from it.
        too_old = sorted(number for number in kept if number <= batch - BATCHES_KEPT)
        for number in too_old[:-1]:
            remove(session, f"{self._folder}/{number}")

    def _kept(self, session: SparkSession) -> list[int]:
        return [int(name) for name in names_in(session, self._folder) if name.isdigit()]
