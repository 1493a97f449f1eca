"""The settings that a run must share with its checkpoint, and the messages if it does not."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline.job import Job
from kafkacompat.pipeline.loading import OWN, load
from kafkacompat.pipeline.manifest import (
    Manifest,
    ManifestUnreadable,
    decode,
    difference,
    encode,
    manifest_of,
    topics_made_anew,
    upgrade,
)
from kafkacompat.pipeline.options import (
    DEFAULT_SESSION_GAP_S,
    DEFAULT_WATERMARK_S,
    DEFAULT_WINDOW_S,
    OF_EVERY_JOB,
    OPTIONS,
    RunOptions,
)
from kafkacompat.pipeline.queries import JOBS
from kafkacompat.pipeline.spark_failures import STATE_HELP
from kafkacompat.pipeline.topics import CONFIGS

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "jobs.md"
OPTIONS_OF_RUN = RunOptions(jobs=("activity",), checkpoint="c", output="t")
IDS = {name: f"id of {name}" for name in JOBS["activity"].inputs}


def manifest(options: RunOptions = OPTIONS_OF_RUN, job: str = "activity") -> Manifest:
    return manifest_of(JOBS[job], options, "cluster", IDS)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode(encode(manifest())) == manifest()


def test_what_is_said_of_a_state_that_spark_refuses_can_be_done() -> None:
    """The manifest has the newer state_version by then, so the earlier version of the job is refused as it was."""
    before = replace(JOBS["activity"], state_version=1)
    newer = replace(before, state_version=2, continues_from=1)
    first, kept, again = (
        manifest_of(job, OPTIONS_OF_RUN, "cluster", IDS)
        for job in (before, newer, replace(before, state_version=2))
    )
    assert difference(first, kept) is None
    assert "which is older" in str(difference(kept, first))
    assert difference(kept, again) is None
    assert "Run that version with the state_version of this one" in STATE_HELP


def test_a_manifest_of_an_earlier_release_is_read() -> None:
    text = """{
  "cluster_id": "cluster",
  "format": 1,
  "job": "activity",
  "settings": {
    "--watermark": 600
  },
  "topic_ids": {
    "activity.searches": "some id"
  },
  "version": 2
}
"""
    kept = Manifest("activity", 2, {"--watermark": 600}, "cluster", {"activity.searches": "some id"})
    assert decode(text) == kept
    assert encode(kept) == text


def test_the_same_run_goes_on() -> None:
    assert difference(manifest(), manifest()) is None
    assert topics_made_anew(manifest(), manifest()) == []


def test_every_job_can_be_run() -> None:
    """One that lacks a row somewhere would end with a KeyError when it is started."""
    assert list(OWN) == list(JOBS)
    for name, job in JOBS.items():
        assert set(job.settings) <= set(OPTIONS) - set(OF_EVERY_JOB)
        assert all(query.name.startswith(f"{name}-") for query in job.queries)
        assert {*job.inputs, *job.outputs} <= set(CONFIGS)
        assert load(name) is job
        assert manifest_of(job, OPTIONS_OF_RUN, "cluster", {}).settings.keys() == {
            *job.settings,
            *OF_EVERY_JOB,
        }
    assert set(OPTIONS.values()) <= {field.name for field in fields(RunOptions)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window_s": 300}, f"started with --window {DEFAULT_WINDOW_S}, this run has --window 300"),
        (
            {"session_gap_s": 60},
            f"started with --session-gap {DEFAULT_SESSION_GAP_S}, this run has --session-gap 60",
        ),
        ({"watermark_s": 1}, f"started with --watermark {DEFAULT_WATERMARK_S}, this run has --watermark 1"),
    ],
)
def test_another_window_is_refused_by_both_values(change: dict[str, Any], said: str) -> None:
    found = difference(manifest(), manifest(replace(OPTIONS_OF_RUN, **change)))
    assert found is not None
    assert said in found


def test_a_setting_that_a_job_does_not_use_may_change() -> None:
    changed = replace(OPTIONS_OF_RUN, session_gap_s=60, duplicate_horizon_s=1)
    assert difference(manifest(job="metrics"), manifest(changed, "metrics")) is None


def test_every_job_has_the_options_on_which_all_depend() -> None:
    """A manifest without one of them would let a backfill compute rows with its default. Earlier releases have left it out."""
    now = manifest_of(replace(JOBS["metrics"], settings=()), OPTIONS_OF_RUN, "cluster", {})
    assert now.settings == {word: getattr(OPTIONS_OF_RUN, OPTIONS[word]) for word in OF_EVERY_JOB}
    for word, value in now.settings.items():
        assert difference(replace(now, settings={word: value + 1}), now) is not None
        assert difference(replace(now, settings={}), now) is None


def test_the_reference_has_the_settings_of_a_job() -> None:
    default = next(each.default for each in fields(Job) if each.name == "settings")
    rest = [word for word in OPTIONS if word not in default and word not in OF_EVERY_JOB]
    row = next(
        line for line in REFERENCE.read_text("utf-8").splitlines() if line.startswith("| `settings` |")
    )
    assert row.split(" | ")[1] == ", ".join(f"`{word}`" for word in default)
    assert f"{' and '.join(f'`{word}`' for word in rest)} are the others" in row
    assert f"{' and '.join(f'`{word}`' for word in OF_EVERY_JOB)} is one of every job" in row


def test_another_cluster_job_or_version_is_refused() -> None:
    kept = manifest()
    for now, said in (
        (
            replace(kept, cluster_id="other"),
            "offsets of cluster cluster, the broker belongs to cluster other",
        ),
        (replace(kept, job="metrics"), "belongs to job activity"),
        (
            replace(kept, state_version=kept.state_version - 1),
            "which is older. Run the version of the job that has it",
        ),
        (
            replace(kept, state_version=kept.state_version + 1, continues_from=kept.state_version + 1),
            "does not continue earlier ones (continues_from)",
        ),
    ):
        found = difference(kept, now)
        assert found is not None
        assert said in found


@pytest.mark.parametrize(("version", "goes_on"), [(1, False), (2, True), (3, True), (4, True), (5, False)])
def test_a_job_continues_from_the_versions_that_it_names(version: int, goes_on: bool) -> None:
    job = replace(JOBS["activity"], state_version=4, continues_from=2)
    now = manifest_of(job, OPTIONS_OF_RUN, "cluster", IDS)
    kept = replace(now, state_version=version)
    assert (difference(decode(encode(kept)), now) is None) is goes_on
    if goes_on:
        assert (upgrade(kept, now) is None) is (version == 4)


def test_a_topic_made_anew_is_named_unless_a_broker_gives_no_ids() -> None:
    name = JOBS["activity"].inputs[1]
    now = replace(manifest(), topic_ids=IDS | {name: "another"})
    assert topics_made_anew(manifest(), now) == [name]
    without = replace(manifest(), topic_ids=dict.fromkeys(IDS, ""))
    assert topics_made_anew(without, now) == []
    assert topics_made_anew(now, without) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"format": 2}',
        encode(replace(manifest(), state_version=99)).replace("99", '"x"'),
    ],
)
def test_what_is_no_manifest_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ManifestUnreadable):
        decode(text)
