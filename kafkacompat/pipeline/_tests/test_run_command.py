"""The command line of `pipeline run`, the messages about missing parts, and the lines about progress. No Spark."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkacompat.__main__ import main
from kafkacompat.pipeline import failure, progress, run_command, session, submit, topics
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.loading import OWN, load
from kafkacompat.pipeline.options import (
    DEFAULT_DUPLICATE_HORIZON_S,
    DEFAULT_SESSION_GAP_S,
    DEFAULT_WATERMARK_S,
    DEFAULT_WINDOW_S,
    RunOptions,
    log_sources,
)
from kafkacompat.pipeline.packages import connector
from kafkacompat.pipeline.topics import plans
from kafkacompat.security.cluster_address import ClusterAddress


def parsed(*words: str) -> RunOptions:
    parser = argparse.ArgumentParser()
    run_command.add_arguments(parser)
    return run_command.options_of(parser.parse_args(words))


def test_every_word_reaches_the_options() -> None:
    options = parsed(
        *("all", "--master", "spark://h:1", "--bootstrap", "b:2", "--checkpoint", "c", "--output", "o"),
        *(
            "--trigger",
            "0.5",
            "--table-trigger",
            "7",
            "--until-caught-up",
            "--progress",
            "p",
            "--starting",
            "group",
            "--group-prefix",
            "team-",
            "--no-group-commits",
        ),
        *("--isolation-level", "read_uncommitted"),
        *("--window", "10", "--session-gap", "20", "--watermark", "30", "--duplicate-horizon", "40"),
        *("--max-records-per-batch", "50", "--shuffle-partitions", "6", "--files-per-batch", "7"),
        *("--table-format", "delta"),
        *("--log-format", "combined"),
        *("--ignore-data-loss", "--ivy", "i", "--conf", "a.b=c=d", "--conf", "e="),
    )
    assert options == RunOptions(
        jobs=("logs", "activity", "metrics"),
        checkpoint="c",
        output="o",
        bootstrap=ClusterAddress("b:2"),
        master="spark://h:1",
        starting="group",
        group_prefix="team-",
        commits_to_groups=False,
        isolation_level="read_uncommitted",
        fail_on_data_loss=False,
        until_caught_up=True,
        trigger_s=0.5,
        table_trigger_s=7.0,
        window_s=10,
        session_gap_s=20,
        watermark_s=30,
        duplicate_horizon_s=40,
        records_per_batch_max=50,
        shuffle_partitions=6,
        files_per_batch=7,
        table_format="delta",
        log_format="combined",
        progress="p",
        ivy="i",
        spark_conf={"a.b": "c=d", "e": ""},
    )


def test_a_run_maintains_its_tables_only_if_it_can(tmp_path: Path) -> None:
    options = parsed("logs", "--maintain-every", "0.5", "--keep-days", "9", "--output", str(tmp_path))
    assert (options.maintain_every_s, options.keep_days) == (1800, 9)
    assert (parsed("logs").maintain_every_s, parsed("logs").keep_days) == (None, None)
    for words, why in (
        (("--keep-days", "9"), "is for --maintain-every"),
        (("--maintain-every", "1", "--until-caught-up"), "that goes on"),
        (("--maintain-every", "1", "--output", "hdfs://x/y"), "not on this machine"),
        (("--maintain-every", "1", "--keep-days", "999999999999"), "before the first date"),
    ):
        with pytest.raises(PipelineFailed, match=why):
            parsed("logs", *words)


def test_the_reference_has_the_defaults_of_times() -> None:
    page = Path(__file__).parents[3].joinpath("docs/reference/pipeline.md").read_text(encoding="utf-8")
    times = f"{DEFAULT_WINDOW_S}, {DEFAULT_SESSION_GAP_S}, {DEFAULT_WATERMARK_S} s"
    assert f"\n| `--window`, `--session-gap`, `--watermark` | {times} |" in page
    assert f"\n| `--duplicate-horizon` | {DEFAULT_DUPLICATE_HORIZON_S} s |" in page


def test_tables_wait_at_least_as_long_as_live_topics() -> None:
    assert parsed("logs").table_trigger_s == 30
    assert parsed("logs", "--trigger", "120").table_trigger_s == 120
    assert parsed("logs", "--trigger", "120", "--table-trigger", "60").table_trigger_s == 60


@pytest.mark.parametrize(
    "words",
    [
        ("nothing",),
        ("logs", "--log-format", "combnied"),
        ("logs", "--source", "combined"),
        ("logs", "--source", "a topic=combined"),
        ("logs", "--source", "a=combnied"),
        ("logs", "--window", "0"),
        ("logs", "--trigger", "nan"),
        ("logs", "--conf", "key"),
    ],
)
def test_a_wrong_call_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_sources_are_the_topics_that_the_job_reads() -> None:
    assert log_sources(parsed("logs")) == {"logs.raw": "auto"}
    assert log_sources(parsed("logs", "--log-format", "main")) == {"logs.raw": "main"}
    taken = parsed("all", "--source", "a=docker+caddy", "--source", "logs.raw=json time=t:iso status=s")
    assert log_sources(taken) == {"a": "docker+caddy", "logs.raw": "json time=t:iso status=s"}
    assert plans(["a"])[0].configs == plans(["logs.raw"])[0].configs


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("--source", "a=common", "--source", "a=main"),
            "--source has topic a twice: a topic has one format",
        ),
        (
            ("--source", "metrics.raw=common"),
            "--source metrics.raw: this topic of the pipeline has no log lines",
        ),
        (("--source", "a=common", "--log-format", "main"), "--log-format is for logs.raw alone"),
        (
            tuple(word for n in range(17) for word in ("--source", f"t{n}=common")),
            "--source was given 17 times, at most 16 are possible",
        ),
    ],
)
def test_sources_that_cannot_be_used_together_are_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(PipelineFailed, match=why):
        parsed("logs", *words)


@pytest.mark.parametrize(
    ("option", "most"),
    [
        ("--partitions", 2**31 - 1),
        ("--replication", 2**15 - 1),
        ("--shuffle-partitions", 2**31 - 1),
        ("--files-per-batch", 2**31 - 1),
    ],
)
def test_no_number_is_taken_that_its_reader_has_no_room_for(
    option: str, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    run_command.add_arguments(parser)
    taken = parser.parse_args(["logs", option, str(most)])
    assert getattr(taken, option.removeprefix("--").replace("-", "_")) == most
    with pytest.raises(SystemExit):
        parser.parse_args(["logs", option, str(most + 1)])
    said = capsys.readouterr().err
    assert f"argument {option}: must be a whole number from 1 to {most:,}, not '{most + 1}'" in said


def options(**changes: Any) -> RunOptions:
    return RunOptions(**{"jobs": ("logs",), "checkpoint": "c", "output": "o", **changes})


def test_the_connector_comes_by_package_unless_jars_are_given() -> None:
    assert session.settings(options())["spark.jars.packages"] == connector()
    assert "spark.jars.packages" not in session.settings(options(spark_conf={"spark.jars": "x.jar"}))
    # spark-submit has loaded its packages before this code runs.
    assert "spark.jars.packages" not in session.settings(options(master=None))


def test_only_a_local_master_is_bound_to_loopback() -> None:
    assert session.settings(options())["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in session.settings(options(master="spark://h:1"))


class Builder:
    """Replaces Spark's builder: records its settings, and is also the session."""

    def __init__(self) -> None:
        self.masters: list[str] = []
        self.configs: dict[str, str] = {}

    def master(self, address: str) -> Builder:
        self.masters.append(address)
        return self

    def config(self, key: str, value: str) -> Builder:
        self.configs[key] = value
        return self

    def __getattr__(self, name: str) -> Any:
        return self if name in ("sparkContext", "read") else lambda *words: self


@pytest.mark.parametrize(
    "master", ["yarn", "k8s://https://api:6443", "spark://one:7077,two:7077", "local[3]"]
)
def test_the_master_is_handed_to_spark_as_it_is(
    master: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr(session, "require_java", lambda: None)
    # Set it first, so that monkeypatch removes what the call leaves behind.
    monkeypatch.setenv("SPARK_LOCAL_IP", "")
    monkeypatch.delenv("SPARK_LOCAL_IP")
    builder = Builder()
    monkeypatch.setattr(sql, "SparkSession", SimpleNamespace(builder=builder))
    session.start_session(parsed("logs", "--master", master, "--checkpoint", str(tmp_path)))
    assert builder.masters == [master]
    assert builder.configs["spark.jars.packages"] == connector()
    # Executors on other machines must reach the driver.
    is_local = master.startswith("local")
    assert ("SPARK_LOCAL_IP" in os.environ) is is_local
    assert ("spark.driver.host" in builder.configs) is is_local


def test_the_callers_own_settings_come_last() -> None:
    assert (
        session.settings(options(spark_conf={"spark.scheduler.mode": "FIFO"}))["spark.scheduler.mode"]
        == "FIFO"
    )


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/a/b", Path("/a/b")),
        ("a", Path("a")),
        ("file:///a", Path("/a")),
        ("hdfs://n/a", None),
        ("s3a://b/a", None),
    ],
)
def test_only_local_folders_are_looked_at(place: str, path: Path | None) -> None:
    assert session.local_path(place) == path


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(
        failure.PipelineFailed, match=f"output folder {file}/tables cannot be written: Not a directory"
    ):
        session.require_writable(f"{file}/tables", "output")
    session.require_writable(str(tmp_path / "new" / "folder"), "output")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(failure.PipelineFailed, match="java is not on PATH"):
        session.require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(failure.PipelineFailed, match=f"JAVA_HOME is {tmp_path}"):
        session.require_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    session.require_java()


def test_a_missing_extra_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    assert main(["pipeline", "run", "logs", "--output", str(tmp_path), "--checkpoint", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "kafkacompat: pyspark is not installed; install with: pip install 'kafkacompat[spark]'\n"
    )


def test_a_broker_that_does_not_answer_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(failure.PipelineFailed, match=f"no broker answers at {address}"):
            topics.create_missing(ClusterAddress(address), topics.plans(), timeout_s=1.0)


def test_a_log_of_spark_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed) as failed, session._spoken_into(tmp_path):
        pytest.fail("nothing is said into it")
    assert str(failed.value) == f"Spark's log {tmp_path} cannot be written: Is a directory"


def test_the_words_of_a_failed_start_name_the_connector(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("old: unresolved dependency\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.write('Exception in thread "main" java.lang.Error: no\n')
    assert session._why(log, start).startswith('Exception in thread "main" java.lang.Error: no (')
    start = log.stat().st_size
    with log.open("a") as file:
        file.write("26/11/21 18:48:34 WARN ExecutorPodsSnapshotsStoreImpl: Exception when notifying.\n")
        file.write("org.apache.spark.SparkException: Must specify the executor container image\n")
    assert session._why(log, start).startswith("org.apache.spark.SparkException: Must specify the executor")
    with log.open("a") as file:
        file.write(f"unresolved dependency: {connector()}: not found\n")
    assert "--conf spark.jars=FILES" in session._why(log, start)


def test_all_topics_are_planned_and_read_or_written_by_a_job() -> None:
    jobs = [load(name) for name in OWN]
    used = {name for job in jobs for name in (*job.inputs, *job.outputs)}
    assert used == set(topics.CONFIGS)
    # All jobs write pipeline.progress. A request that names a topic twice is refused, and can crash the client library.
    every = [name for job in jobs for name in job.outputs]
    assert {name: configs for job in jobs for name, configs in job.configs.items()} == topics.CONFIGS
    assert set(topics.INPUTS) == {name for job in jobs for name in job.inputs}
    assert sorted(plan.name for plan in topics.plans(every)) == sorted(set(every))
    (plan,) = topics.plans([topics.METRICS_LATEST], partitions=5, replication=2)
    assert (plan.name, plan.partitions, plan.replication) == ("metrics.latest", 5, 2)
    # The cluster's default decides how many replicas a topic has; -1 requests that.
    assert {plan.replication for plan in topics.plans()} == {-1}
    # The latest record of a service is kept, however old it is.
    assert plan.configs["cleanup.policy"] == "compact"


def test_no_record_of_a_raw_topic_can_have_a_time_that_spark_has_no_room_for() -> None:
    """The source multiplies milliseconds by 1000 and fails beyond a long. The broker's default limits timestamps in the future."""
    for name in topics.INPUTS:
        (plan,) = topics.plans([name])
        oldest_ms = int(plan.configs["message.timestamp.before.max.ms"])
        assert 0 < oldest_ms < (2**63 - 1) // 1000
        # Recorded events are replayed with their own times, and some data sets are old.
        assert oldest_ms > 50 * 366 * 86_400_000


def test_the_dispatcher_names_its_actions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert all(f"  {action} " in said for action in ("run", "demo", "generate", "collect"))
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "dance"])
    assert ended.value.code == 2


def test_the_submitted_script_hides_no_module_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(submit.__file__).parent)
    monkeypatch.setattr(sys, "path", [folder, *sys.path])
    monkeypatch.setattr(sys, "argv", ["submit.py", "logs", "--output", "/dev/null/x"])
    assert submit.main() == 1
    assert folder not in sys.path


def told(batch: int, second: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-11-21T11:00:{second:02}.000Z",
        "numInputRows": 1000,
        "processedRowsPerSecond": 500.0,
        "durationMs": {"triggerExecution": 2000},
        "eventTime": {"watermark": "2026-11-21T10:50:00.000Z"},
        "stateOperators": [
            {
                "numRowsTotal": 7,
                "numRowsDroppedByWatermark": 2,
                "customMetrics": {"numDroppedDuplicateRows": 3},
            },
            {"numRowsTotal": 5, "numRowsDroppedByWatermark": 1},
        ],
        **more,
    }


def test_a_progress_is_added_once_and_told_in_a_line() -> None:
    totals = progress.Totals()
    for said in (told(0, 0), told(0, 0), told(1, 5), told(1, 9, numInputRows=0)):
        if totals.is_new(said["batchId"], said["timestamp"]):
            totals.add(said)
    assert (totals.batches, totals.records, totals.late, totals.copies, totals.state) == (3, 2000, 9, 9, 12)
    line = progress.line_of("logs-events", told(1, 5), totals)
    assert line[9:].split() == [
        *("logs-events", "batch", "1", "1,000", "records", "500/s", "2.0", "s", "total", "2,000"),
        *("copies", "9", "late", "9", "state", "12", "watermark", "2026-11-21T10:50:00Z"),
    ]
    timed = told(1, 5) | {
        "timestamp": "2026-11-21T10:52:00.000Z",
        "eventTime": {"max": "2026-11-21T10:51:52.000Z"},
    }
    assert progress.line_of("logs-events", timed, totals).endswith("behind 10 s")
    assert "2,000         9         9        12" in progress.summary_of({"logs-events": totals})


def test_a_query_without_state_is_told_without_it() -> None:
    totals = progress.Totals()
    bare = {
        "batchId": 0,
        "timestamp": "t",
        "numInputRows": 1,
        "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"},
    }
    totals.add(bare)
    assert progress.line_of("logs-rejected", bare, totals).endswith("total 1")


def test_a_report_tells_the_last_batch_with_records_and_the_watermark() -> None:
    sources = [{"endOffset": {"a": {"0": 5, "1": 7}}}, {"endOffset": {"b": {"0": 100}}}]
    dedupe = {
        "operatorName": "dedupeWithinWatermark",
        "numRowsUpdated": 600,
        "numRowsDroppedByWatermark": 300,
        "customMetrics": {"numDroppedDuplicateRows": 100},
    }
    batch = {"batchId": 4, "timestamp": "2026-11-21T10:55:00.500Z", "stateOperators": [dedupe]}
    totals = progress.Totals()
    totals.add(told(4, 0, **batch, sources=sources, eventTime={"max": "2026-11-21T10:54:58.000Z"}))
    idle = {"batchId": 5, "timestamp": "2026-11-21T10:55:10.000Z", "numInputRows": 0}
    totals.add(told(5, 0, **idle, stateOperators=[], eventTime={"watermark": "2026-11-21T10:54:00.000Z"}))
    found = progress.report_of("activity-live", ("a", "b"), 2.5, totals, progress.RUNNING, None, 17)
    start_ms = 1_795_258_500_500
    assert found == {
        "event_id": "activity-live-17",
        "query": "activity-live",
        "job": "activity",
        "state": "running",
        "reason": None,
        "at_ms": 17,
        "reads": "a,b",
        "trigger_ms": 2500,
        "read_to": None,
        "records": 1000,
        "late": 300,
        "copies": 100,
        "recent_late": 300,
        "recent_kept": 600,
        "watermark_ms": start_ms - 60_500,
        "newest_event_ms": start_ms - 2_500,
        "batch": 4,
        "batch_records": 1000,
        "batch_start_ms": start_ms,
        "batch_ms": 2000,
    }
    totals.add(told(6, 0, timestamp="2026-11-21T10:55:20.000Z", numInputRows=0, sources=sources))
    assert progress.report_of("q", (), 1.0, totals, progress.RUNNING, None, 18)["read_to"] == 112


def test_an_event_of_a_year_with_six_digits_does_not_end_the_run() -> None:
    """A broker takes such a CreateTime, and Spark has room for it."""
    totals = progress.Totals()
    batch = told(4, 0, timestamp="2026-11-21T10:55:00.500Z", eventTime={"max": "+283000-01-01T00:00:00.000Z"})
    totals.add(batch)
    assert "behind" not in progress.line_of("metrics-windows", batch, totals)
    report = progress.report_of("metrics-windows", ("a",), 2.5, totals, progress.RUNNING, None, 17)
    assert report["newest_event_ms"] is None


def test_a_report_of_a_query_without_a_batch_tells_only_its_state() -> None:
    report = progress.report_of(
        "logs-events", ("logs.raw",), 0.0, progress.Totals(), progress.FAILED, "x" * 999, 5
    )
    told_of = {name: value for name, value in report.items() if value}
    assert told_of.pop("reason") == "x" * progress.REASON_CHARACTERS_MAX
    assert told_of == {
        "event_id": "logs-events-5",
        "query": "logs-events",
        "job": "logs",
        "state": "failed",
        "at_ms": 5,
        "reads": "logs.raw",
    }


def test_what_is_late_is_judged_over_the_last_batches_with_records() -> None:
    totals = progress.Totals()
    late = {"stateOperators": [{"operatorName": "dedupeWithinWatermark", "numRowsDroppedByWatermark": 9}]}
    for number in range(progress.RECENT_BATCHES):
        totals.add(told(number, 0, timestamp="2026-11-21T10:55:00.000Z", **late))
    totals.add(told(99, 0, timestamp="2026-11-21T10:56:00.000Z", numInputRows=0, **late))
    report = progress.report_of("q", (), 1.0, totals, progress.RUNNING, None, 1)
    assert (report["recent_late"], report["recent_kept"]) == (90, 0)
    for number in range(progress.RECENT_BATCHES):
        kept = {"stateOperators": [{"operatorName": "dedupeWithinWatermark", "numRowsUpdated": 3}]}
        totals.add(told(100 + number, 0, timestamp="2026-11-21T10:57:00.000Z", **kept))
    report = progress.report_of("q", (), 1.0, totals, progress.RUNNING, None, 1)
    assert (report["recent_late"], report["recent_kept"]) == (0, 30)


def test_what_is_kept_counts_over_all_checks_for_duplicates() -> None:
    """A query may check the events of each input by itself, and some inputs have none in a batch."""
    checks = [{"operatorName": "dedupeWithinWatermark", "numRowsUpdated": kept} for kept in (0, 3, 4)]
    assert progress.kept(told(1, 0, stateOperators=[{"operatorName": "stateStoreSave"}, *checks])) == 7
    assert progress.kept(told(1, 0, numInputRows=9, stateOperators=[])) == 9


def test_reports_that_cannot_be_written_do_not_end_the_run() -> None:
    """Nobody listens at this address. The bound of the queue is reached, and the run says so once."""
    pytest.importorskip("confluent_kafka")
    from kafkacompat.pipeline import reports

    said: list[str] = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        told_to = reports.Reports(ClusterAddress(f"127.0.0.1:{nobody.getsockname()[1]}"), said.append)
        for number in range(reports.QUEUED_MAX + 10):
            told_to.tell({"query": "logs-events", "at_ms": number})
    assert len(said) == 1
    assert "pipeline.progress" in said[0]
