"""Jobs and checkpoints of Spark Declarative Pipelines, without Spark: what can be declared, and what the command reads and runs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import declarative_command, groups
from kafkacompat.pipeline.declarative import dataset_of, declarable
from kafkacompat.pipeline.declarative_command import MANIFEST, finished_flows, storage_of
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.groups import Finished
from kafkacompat.pipeline.job import APPEND, JobProblem, Topic
from kafkacompat.pipeline.queries import ACTIVITY, LOGS, METRICS


def test_a_sink_that_a_pipeline_cannot_have_is_named() -> None:
    with pytest.raises(JobProblem, match=r"logs\.summary .* update mode.*leave_out"):
        declarable(LOGS, ())
    with pytest.raises(JobProblem, match=r"activity-live .* update mode"):
        declarable(ACTIVITY, ())
    with pytest.raises(JobProblem, match="metrics-live"):
        declarable(METRICS, ())
    once = Topic("activity.closed", lambda rows, options: rows, ("user_id",), APPEND, is_exactly_once=True)
    with pytest.raises(JobProblem, match=r"activity\.closed .* writes each batch itself"):
        declarable(replace(ACTIVITY, sinks=(once,)), ())


def test_what_is_left_of_a_job_is_declared_with_its_rejected_records() -> None:
    assert [dataset_of(query) for query in declarable(LOGS, ("logs.summary",))] == [
        "logs_events",
        "logs_rejected",
    ]
    assert [dataset_of(query) for query in declarable(ACTIVITY, ("activity-live",))] == [
        "activity_sessions",
        "activity_top_pages",
        "activity_visitors",
        "activity_sessions_live",
        "activity_rejected",
    ]


def checkpoint(folder: Path, *, ended: tuple[int, ...], offset: int, planned: int | None = None) -> None:
    for name in ("commits", "offsets"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": f"id-{offset}"}))
    for batch in ended:
        (folder / "commits" / str(batch)).write_text("v1\n{}")
        (folder / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"orders.raw":{{"0":{offset + batch}}}}}')
    if planned is not None:
        (folder / "offsets" / str(planned)).write_text('v1\n{}\n{"orders.raw":{"0":999}}')


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """The storage of a pipeline: a flow of a table that was refreshed once, one of a sink, and one that has just begun."""
    flows = tmp_path / "storage" / "_checkpoints"
    checkpoint(flows / "spark_catalog/default/orders/orders/0", ended=(0, 1), offset=100)
    checkpoint(flows / "spark_catalog/default/orders/orders/1", ended=(0, 1, 2), offset=10, planned=3)
    checkpoint(flows / "rejects/rejects_flow/0", ended=(0,), offset=5)
    checkpoint(flows / "begun/begun_flow/0", ended=(), offset=0, planned=0)
    (flows / "spark_catalog/default/orders/orders/1/state/0/metadata").mkdir(parents=True)
    return tmp_path / "storage"


FINISHED = [
    Finished("rejects_flow", "id-5", 0, {("orders.raw", 0): 5}),
    Finished("orders", "id-10", 2, {("orders.raw", 0): 12}),
]


def test_a_flow_has_finished_what_its_newest_checkpoint_has_ended(storage: Path) -> None:
    assert list(finished_flows(storage)) == FINISHED
    assert list(finished_flows(storage / "nothing")) == []


SPEC = "name: orders\nstorage: {}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name: orders\n", "it has no storage"),
        ("storage: /a\n", "it has no name"),
        ("- a\n", "is no specification"),
        ("name: [\n", "is no specification"),
        ("name: 1\nstorage: /a\n", "must be texts"),
        (SPEC.format("s3a://bucket/a"), "is not on this machine's file system"),
    ],
)
def test_a_specification_that_cannot_be_used_is_named(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "spec.yml").write_text(text)
    with pytest.raises(PipelineFailed, match=why):
        storage_of(tmp_path / "spec.yml")


class Commits:
    """Stands for GroupCommits."""

    def __init__(self, kafka_options: dict[str, str], prefix: str, say: Any) -> None:
        self.servers, self.prefix = kafka_options["kafka.bootstrap.servers"], prefix
        self.committed: list[Finished] = []
        self.closed = False
        made.append(self)

    def commit(self, finished: Finished) -> None:
        self.committed.append(finished)

    def close(self) -> None:
        self.closed = True


made: list[Commits] = []


@pytest.fixture
def world(storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A broker with a cluster id and a topic id, and a program that says with which words it was run."""
    told: dict[str, Any] = {"cluster": "one", "topic": "first"}
    made.clear()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(f"file://{storage}"))
    program = tmp_path / "bin" / "spark-pipelines"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/run\nexit $(cat {tmp_path}/status)\n')
    program.chmod(0o755)
    (tmp_path / "status").write_text("0")
    module = ModuleType("pyspark")
    module.__file__ = str(tmp_path / "__init__.py")
    module.__version__ = "4.2.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", module)
    monkeypatch.setattr(declarative_command, "require_extra", lambda extra, *modules: None)
    monkeypatch.setattr(
        declarative_command,
        "identity_of",
        lambda address, names, *, may_lack: (
            told["cluster"],
            {} if told["topic"] is None else dict.fromkeys(names, told["topic"]),
        ),
    )
    monkeypatch.setattr(groups, "GroupCommits", Commits)
    monkeypatch.chdir(tmp_path)
    return told


def ran(*words: str) -> int:
    parser = argparse.ArgumentParser()
    declarative_command.add_arguments(parser)
    return declarative_command.run(parser.parse_args(words))


def test_a_run_commits_what_flows_have_finished_and_writes_the_manifest(
    world: dict[str, Any], storage: Path, tmp_path: Path
) -> None:
    assert ran("--bootstrap", "broker:1", "--group-prefix", "p-", "--remote", "local[2]") == 0
    assert (tmp_path / "run").read_text() == "--remote local[2] run --spec spark-pipeline.yml\n"
    (commits,) = made
    assert (commits.servers, commits.prefix, commits.closed) == ("broker:1", "p-", True)
    assert commits.committed[-2:] == FINISHED
    kept = json.loads((storage / MANIFEST).read_text())
    assert (kept["cluster_id"], kept["topic_ids"]) == ("one", {"orders.raw": "first"})
    (tmp_path / "status").write_text("3")
    assert ran() == 3


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster": "two"}, "it holds offsets of cluster one, the broker belongs to cluster two"),
        ({"topic": "second"}, "topics orders.raw were deleted and created again. Use --full-refresh-all"),
    ],
)
def test_offsets_of_other_records_are_not_continued(
    world: dict[str, Any], tmp_path: Path, change: dict[str, str], why: str
) -> None:
    assert ran() == 0
    world.update(change)
    with pytest.raises(PipelineFailed, match=why):
        ran()
    assert (tmp_path / "run").read_text().count("\n") == 1
    assert ran("--full-refresh-all") == 0
    assert (tmp_path / "run").read_text().splitlines()[
        -1
    ] == "run --spec spark-pipeline.yml --full-refresh-all"
    assert ran() == 0


def test_a_topic_that_no_flow_reads_any_more_may_be_gone(world: dict[str, Any], storage: Path) -> None:
    """A flow that was taken out leaves its checkpoint."""
    assert ran() == 0
    world["topic"] = None
    assert ran() == 0
    assert json.loads((storage / MANIFEST).read_text())["topic_ids"] == {"orders.raw": "first"}


def test_a_refresh_that_fails_does_not_make_old_offsets_those_of_a_new_topic(
    world: dict[str, Any], tmp_path: Path
) -> None:
    assert ran() == 0
    world["topic"] = "second"
    (tmp_path / "status").write_text("1")
    assert ran("--full-refresh-all") == 1
    with pytest.raises(PipelineFailed, match="deleted and created again"):
        ran()


def test_a_topic_that_is_made_anew_during_a_run_is_noticed_by_the_next(
    world: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran() == 0
    monkeypatch.setattr(Commits, "commit", lambda commits, finished: world.update(topic="second"))
    assert ran() == 0
    with pytest.raises(PipelineFailed, match="deleted and created again"):
        ran()


def test_a_first_run_that_is_killed_leaves_a_manifest(
    world: dict[str, Any], storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(commits: Commits, finished: Finished) -> None:
        raise KeyboardInterrupt

    (tmp_path / "bin" / "spark-pipelines").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(declarative_command, "LOOK_S", 0.01)
    monkeypatch.setattr(Commits, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ran()
    assert json.loads((storage / MANIFEST).read_text())["topic_ids"] == {"orders.raw": "first"}


def test_a_stop_of_the_command_stops_spark(
    world: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    (tmp_path / "bin" / "spark-pipelines").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(declarative_command, "LOOK_S", 0.01)
    monkeypatch.setattr(Commits, "commit", lambda commits, finished: os.kill(os.getpid(), signal.SIGTERM))
    assert ran() == 128 + signal.SIGTERM
    assert made[0].closed
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_spark_without_pipelines_is_named(world: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "bin" / "spark-pipelines").unlink()
    assert shutil.which("spark-pipelines") is None
    with pytest.raises(PipelineFailed, match=r"PySpark 4\.2\.0 has no spark-pipelines.*4\.1 or later"):
        ran()


def test_a_manifest_that_is_none_is_named(world: dict[str, Any], storage: Path) -> None:
    (storage / MANIFEST).write_text("{")
    with pytest.raises(PipelineFailed, match=r"manifest .* cannot be read"):
        ran()
