"""The watermark of the real queries, batch by batch: what is late, and what an early event does to all others."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import runner
from kafkacompat.pipeline._tests.conftest import RECEIVED_MS, SOURCE_SCHEMA
from kafkacompat.pipeline._tests.test_jobs import VIEW, encoded
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.progress import dropped_late
from kafkacompat.pipeline.queries import QUERIES
from kafkacompat.pipeline.session import settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_MS = 60_000
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
DAY_MS = 24 * 60 * MINUTE_MS
START_MS = RECEIVED_MS // MINUTE_MS * MINUTE_MS
VISITORS = next(query for query in QUERIES["activity"] if query.name == "activity-visitors")


class Arrival(NamedTuple):
    """A page view of a user. Times are ms after START_MS."""

    user: str
    event_ms: int
    arrival_ms: int


class Told(NamedTuple):
    """What a query did: the views of each closed window by the minute of its start, and the late events of each
    batch."""

    closed: dict[int, int]
    late: list[int]


Batches = Callable[..., Told]


@pytest.fixture
def batches(
    spark: SparkSession,
    records: Callable[..., DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Batches]:
    """batches([arrivals], ...) runs activity-visitors over these batches, one after the other. With `is_killed`, each
    run ends between the table's commit and Spark's."""
    from pyspark.sql import functions as F

    from kafkacompat.pipeline.jobs.validation import cap_timestamps

    source, output, checkpoint = (str(tmp_path / name) for name in ("source", "tables", "checkpoint"))
    options = RunOptions(
        jobs=("activity",),
        checkpoint=checkpoint,
        output=output,
        window_s=60,
        watermark_s=120,
        until_caught_up=True,
    )
    monkeypatch.setattr(
        runner,
        "source",
        lambda *_: cap_timestamps(spark.readStream.schema(SOURCE_SCHEMA).parquet(source)),
    )
    changed = {key: value for key, value in settings(options).items() if "stateStore" in key}
    for key, value in changed.items():
        spark.conf.set(key, value)
    # Reports are of offsets in Kafka.
    monkeypatch.setattr(runner, "report_of", lambda *_: {})

    def next_batch(arrivals: list[Arrival], number: int) -> int:
        """Return how many of these events were late. Spark first finishes what the watermark of the batch before closes."""
        events = [
            encoded(VIEW, event_id=f"{number}-{place}", user_id=user, event_time_ms=START_MS + event_ms)
            for place, (user, event_ms, _) in enumerate(arrivals)
        ]
        received_ms = [START_MS + each.arrival_ms for each in arrivals]
        frame = records("activity.page_views", *events, received_ms=received_ms)
        frame.coalesce(1).write.mode("append").parquet(source)
        progress = io.StringIO()
        runner.Run(spark, [VISITORS], options, lambda _: None, progress).run(runner.StopRequest())
        return sum(dropped_late(json.loads(line)) for line in progress.getvalue().splitlines())

    def run(*given: list[Arrival], is_killed: bool = False) -> Told:
        # Without batches of their own for what a watermark closes, the last batch of a run is one with data.
        spark.conf.set(NO_DATA_BATCHES, str(not is_killed).lower())
        late = []
        for number, arrivals in enumerate(given):
            late.append(next_batch(arrivals, number))
            if is_killed:
                commits = Path(checkpoint, VISITORS.name, "commits")
                commits.joinpath(str(number)).unlink()
                commits.joinpath(f".{number}.crc").unlink(missing_ok=True)
        minute = ((F.col("window_start_ms") - START_MS) / MINUTE_MS).cast("int").alias("minute")
        found = spark.read.parquet(f"{output}/{VISITORS.table}").select(minute, "views").collect()
        return Told({row["minute"]: row["views"] for row in found}, late)

    yield run
    for key in (*changed, NO_DATA_BATCHES):
        spark.conf.unset(key)


def steady(user: str, first_minute: int, last_minute: int, behind_ms: int = 0) -> list[Arrival]:
    """One view a minute, which arrives when it happens or later."""
    times = [minute * MINUTE_MS for minute in range(first_minute, last_minute + 1)]
    return [Arrival(user, time_ms, time_ms + behind_ms) for time_ms in times]


def test_an_event_ahead_of_its_arrival_makes_no_other_event_late(batches: Batches) -> None:
    """Nine minutes ahead is within what is accepted, and more than the watermark's delay."""
    early = [Arrival("clock ahead", 11 * MINUTE_MS, 2 * MINUTE_MS)]
    told = batches(steady("ann", 0, 2) + early, steady("ann", 1, 6, 1000), steady("ann", 7, 12))
    assert told.late == [0, 0, 0]
    assert told.closed == {0: 1, 1: 2, 2: 3, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1}


def test_a_source_that_is_a_day_behind_is_late_and_the_others_are_not(batches: Batches) -> None:
    behind = steady("was away", -24 * 60, -24 * 60 + 4, DAY_MS)
    told = batches(steady("ann", 0, 3), steady("ann", 4, 6) + behind, steady("ann", 7, 9) + behind[:1])
    assert told.late == [0, 5, 1]
    assert told.closed == dict.fromkeys(range(7), 1)


def test_a_job_that_was_idle_for_a_day_goes_on_and_calls_older_events_late(batches: Batches) -> None:
    today = 24 * 60
    told = batches(steady("ann", 0, 3), steady("ann", today, today + 5), steady("ann", 2, 4, DAY_MS))
    assert told.late == [0, 0, 3]
    assert told.closed == dict.fromkeys([*range(4), *range(today, today + 3)], 1)


def test_a_driver_that_dies_between_the_commits_of_table_and_checkpoint_changes_nothing(
    batches: Batches,
) -> None:
    """Spark's file sink skips a batch that its table contains. A batch that does not run would not move the watermark."""
    views = [steady("ann", 0, 6), steady("ann", 7, 9), steady("bob", 0, 2, 10 * MINUTE_MS)]
    told = batches(*views, steady("ann", 10, 12), is_killed=True)
    # Each run first repeats the batch of the run before.
    assert told.late == [0, 0, 3, 3]
    assert told.closed == dict.fromkeys(range(7), 1)
