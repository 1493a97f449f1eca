"""Manifests and locks in Spark's file systems: which runs may continue from a checkpoint."""

from __future__ import annotations

import fcntl
import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import file_systems
from kafkacompat.pipeline.checkpoint_validation import jobs_locked, require_same_job, require_same_run
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.job import Job, Topic
from kafkacompat.pipeline.manifest import Manifest, manifest_of
from kafkacompat.pipeline.options import DEFAULT_WATERMARK_S, RunOptions
from kafkacompat.pipeline.queries import LOGS
from kafkacompat.pipeline.topics import LOGS_RAW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    """Options of a run whose folders exist. Their paths have a blank and brackets: a path must not be treated as a pattern."""
    chosen = RunOptions(jobs=("logs",), checkpoint=f"{tmp_path}/a [1] c/", output=f"{tmp_path}/a [1] t/")
    for place in (chosen.checkpoint, chosen.output):
        Path(place).mkdir()
    return chosen


def manifest(options: RunOptions, topic_id: str = "first") -> Manifest:
    return manifest_of(LOGS, options, "cluster", {LOGS_RAW: topic_id})


def test_a_checkpoint_goes_on_only_with_what_it_was_begun_with(
    spark: SparkSession, options: RunOptions
) -> None:
    said: list[str] = []
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    assert said == []
    started = f"started with --watermark {DEFAULT_WATERMARK_S}"
    with pytest.raises(PipelineFailed, match=rf"{started}, this run has --watermark 5\."):
        require_same_run(spark, manifest(replace(options, watermark_s=5)), LOGS.queries, options, said.append)
    # A refused run changes nothing.
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    assert said == []


def test_a_newer_version_of_a_job_goes_on_once_and_the_older_one_no_more(
    spark: SparkSession, options: RunOptions
) -> None:
    said: list[str] = []

    def run(job: Job) -> None:
        kept = manifest_of(job, options, "cluster", {LOGS_RAW: "first"})
        require_same_run(spark, kept, job.queries, options, said.append)

    run(LOGS)
    with pytest.raises(
        PipelineFailed, match=r"state_version is 1, .* state_version 2 .*continues_from.* empty folders"
    ):
        run(replace(LOGS, state_version=2))
    for _ in range(2):
        run(replace(LOGS, state_version=2, continues_from=1))
    assert len(said) == 1
    assert "state_version 1 becomes 2" in said[0]
    with pytest.raises(PipelineFailed, match=r"state_version is 2, .* state_version 1, which is older"):
        run(LOGS)
    # The same is said before a run has created its topics.
    with pytest.raises(PipelineFailed, match=r"state_version is 2, .* state_version 1, which is older"):
        require_same_job(spark, manifest_of(LOGS, options, "cluster", {}), options)


def test_a_topic_made_anew_is_gone_on_with_only_if_asked(spark: SparkSession, options: RunOptions) -> None:
    said: list[str] = []
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    with pytest.raises(
        PipelineFailed, match=f"deleted and created again: {LOGS_RAW}. Use --ignore-data-loss"
    ):
        require_same_run(spark, manifest(options, "second"), LOGS.queries, options, said.append)
    lenient = replace(options, fail_on_data_loss=False)
    require_same_run(spark, manifest(lenient, "second"), LOGS.queries, lenient, said.append)
    assert len(said) == 1
    # From now on the checkpoint belongs to the new topic.
    require_same_run(spark, manifest(options, "second"), LOGS.queries, options, said.append)
    assert len(said) == 1


def plan(options: RunOptions, query: str, number: int, *topics: str) -> None:
    """What Spark writes before it carries out a batch."""
    offsets = Path(options.checkpoint) / query / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(number)).write_text("v1\n{}\n" + json.dumps({topic: {"0": 5} for topic in topics}))


def test_a_run_without_a_topic_of_the_checkpoint_is_refused_before_it_plans_a_batch(
    spark: SparkSession, options: RunOptions
) -> None:
    """Spark would plan a batch without the topic, and repeat it for ever, with the right topics too."""
    said: list[str] = []
    both = replace(manifest(options), topic_ids={LOGS_RAW: "first", "nginx": "second"})
    of_both = [replace(query, reads=(LOGS_RAW, "nginx")) for query in LOGS.queries]
    require_same_run(spark, both, of_both, options, said.append)
    plan(options, "logs-events", 0, LOGS_RAW, "nginx")
    refusal = r"query logs-events .* has offsets of topics that it does not read now: nginx\. Read them too"
    with pytest.raises(PipelineFailed, match=refusal):
        require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    # A refused run changes nothing.
    require_same_run(spark, both, of_both, options, said.append)
    assert said == []
    lenient = replace(options, fail_on_data_loss=False)
    require_same_run(spark, manifest(lenient), LOGS.queries, lenient, said.append)
    assert said == ["query logs-events does not read topics nginx any more"]
    # That run has ended before Spark has planned a batch: the next one without the option would fail.
    with pytest.raises(PipelineFailed, match=refusal):
        require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    plan(options, "logs-events", 1, LOGS_RAW)
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    assert len(said) == 1


def test_a_query_that_reads_fewer_topics_of_its_job_than_before_is_refused(
    spark: SparkSession, options: RunOptions
) -> None:
    """The job reads them all as before, and so its manifest is the same."""
    both = replace(manifest(options), topic_ids={LOGS_RAW: "first", "nginx": "second"})
    one, *others = [replace(query, reads=(LOGS_RAW, "nginx")) for query in LOGS.queries]
    require_same_run(spark, both, [one, *others], options, print)
    plan(options, one.name, 0, LOGS_RAW, "nginx")
    fewer = replace(one, reads=("nginx",))
    with pytest.raises(PipelineFailed, match=f"query {one.name} .* does not read now: {LOGS_RAW}"):
        require_same_run(spark, both, [fewer, *others], options, print)


def test_a_topic_of_which_no_batch_is_planned_may_be_left_out(
    spark: SparkSession, options: RunOptions
) -> None:
    """The first run had a mistake in the name of a source, and was stopped at once."""
    said: list[str] = []
    both = replace(manifest(options), topic_ids={LOGS_RAW: "first", "ngnix": "second"})
    require_same_run(spark, both, LOGS.queries, options, said.append)
    require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    assert said == []


def test_a_checkpoint_older_than_manifests_is_told_of_once(spark: SparkSession, options: RunOptions) -> None:
    plan = Path(options.checkpoint) / "logs-events" / "offsets" / "0"
    plan.parent.mkdir(parents=True)
    plan.write_text("v1\n")
    said: list[str] = []
    for _ in range(2):
        require_same_run(spark, manifest(options), LOGS.queries, options, said.append)
    assert len(said) == 1
    assert "has no manifest" in said[0]


def test_a_query_of_another_job_is_not_gone_on_with(spark: SparkSession, options: RunOptions) -> None:
    said: list[str] = []

    def job(name: str, sink: str) -> Job:
        topic = Topic(f"{name}.{sink}", lambda rows, options: rows, ("source",))
        return replace(LOGS, name=name, sinks=(topic,))

    def run(job: Job) -> None:
        kept = manifest_of(job, options, "cluster", {LOGS_RAW: "first"})
        require_same_run(spark, kept, job.queries, options, said.append)

    first, second = job("shop", "orders_daily"), job("shop_orders", "daily")
    assert first.queries[0].name == second.queries[0].name == "shop-orders-daily"
    run(first)
    plan = Path(options.checkpoint) / "shop-orders-daily" / "offsets" / "0"
    plan.parent.mkdir(parents=True)
    plan.write_text("v1\n")
    with pytest.raises(
        PipelineFailed, match="has query shop-orders-daily of job shop, and job shop_orders has one"
    ):
        run(second)
    run(first)
    assert said == []


def test_a_manifest_that_is_none_is_named(spark: SparkSession, options: RunOptions) -> None:
    place = Path(options.checkpoint) / "logs.manifest.json"
    place.write_text("{")
    with pytest.raises(PipelineFailed, match=r"logs\.manifest\.json cannot be read"):
        require_same_run(spark, manifest(options), LOGS.queries, options, print)


@pytest.mark.parametrize("held", ["checkpoint", "output"])
def test_a_second_run_waits_and_is_refused(
    held: str, spark: SparkSession, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process holds the lock, like the JVM of another run."""
    waits: list[float] = []

    def wait(timeout_s: float) -> bool:
        waits.append(timeout_s)
        return False

    monkeypatch.setattr(file_systems, "monotonic_s", lambda: sum(waits))
    place = f"{getattr(options, held)}{'logs.lock' if held == 'checkpoint' else '.logs.lock'}"
    with open(place, "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with (
            pytest.raises(PipelineFailed, match=f"^{held} .* of job logs is in use by another run$"),
            jobs_locked(spark, options, wait),
        ):
            pytest.fail("it is held")
        assert sum(waits) >= file_systems.LOCK_WAIT_S
        # A requested stop ends the wait.
        with jobs_locked(spark, options, lambda timeout_s: True):
            pass
        # Other jobs may share the folders.
        with jobs_locked(spark, replace(options, jobs=("metrics",)), wait):
            pass
    with jobs_locked(spark, options, wait):
        assert is_held(place)
        # Otherwise the JVM would collect the file object and close it.
        for _ in range(3):
            gc.collect()
            spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]
        assert is_held(place)
    assert not is_held(place)


def is_held(place: str) -> bool:
    """Return whether another process has the lock."""
    with open(place, "w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the disk that is always full")
@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_the_manifest_there_was(
    spark: SparkSession, options: RunOptions, is_new: bool
) -> None:
    place = Path(options.checkpoint) / "logs.manifest.json"
    if not is_new:
        require_same_run(spark, manifest(options), LOGS.queries, options, print)
    before = None if is_new else place.read_text()
    lenient = replace(options, fail_on_data_loss=False)
    aside = Path(f"{place}.tmp")
    aside.unlink(missing_ok=True)
    aside.symlink_to("/dev/full")
    with pytest.raises(
        PipelineFailed, match=r"logs\.manifest\.json cannot be written: No space left on device$"
    ):
        require_same_run(spark, manifest(lenient, "second"), LOGS.queries, lenient, lambda said: None)
    assert (place.read_text() if place.exists() else None) == before
    # With room on the disk, the next run continues.
    aside.unlink()
    said: list[str] = []
    require_same_run(spark, manifest(lenient, "second"), LOGS.queries, lenient, said.append)
    assert len(said) == (not is_new)


def test_a_file_system_without_locks_is_named(
    spark: SparkSession, options: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM refuses the lock with an IOException, as on a system without locks."""
    opened = file_systems._file_to_lock

    def closed(session: SparkSession, name: str) -> object:
        file = opened(session, name)
        file.close()
        return file

    monkeypatch.setattr(file_systems, "_file_to_lock", closed)
    with (
        pytest.raises(
            PipelineFailed,
            match=r"^checkpoint .* of job logs cannot be locked, .* two runs .*logs\.lock: ClosedChannelException$",
        ),
        jobs_locked(spark, options, lambda timeout_s: False),
    ):
        pytest.fail("it is not held")


def test_a_lock_file_that_cannot_be_opened_is_named(spark: SparkSession, options: RunOptions) -> None:
    (Path(options.checkpoint) / "logs.lock").mkdir()
    with (
        pytest.raises(
            PipelineFailed, match=r"cannot be locked, because .*logs\.lock cannot be opened: .*Is a directory"
        ),
        jobs_locked(spark, options, lambda timeout_s: False),
    ):
        pytest.fail("it is not held")
