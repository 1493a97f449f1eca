"""What the command that computes dates again refuses before Spark starts, and what it learns of a run. No Spark runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka
from confluent_kafka.admin import AdminClient

from kafkacompat.pipeline import backfill as backfilling
from kafkacompat.pipeline import backfill_command
from kafkacompat.pipeline.backfill import Backfill, kept_manifest, oldest_records, options_of_run, said
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.job import Field, Job, Kind, Table
from kafkacompat.pipeline.maintenance.local_folder import LocalFolder
from kafkacompat.pipeline.manifest import Manifest, encode, manifest_of
from kafkacompat.pipeline.options import RunOptions
from kafkacompat.pipeline.recomputing import Batch, Range
from kafkacompat.pipeline.topics import create_missing, identity_of, plans
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.testing import Kafka

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


def arguments_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    backfill_command.add_arguments(parser)
    return parser.parse_args(["logs", *words])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "2026-11-20", "--to", "2026-11-19"), "is after --to"),
        (("--from", "2026-11-20", "--to", "2026-11-20", "--output", "hdfs://x/y"), "not on this machine"),
        (("--from", "2026-11-20", "--to", "2026-11-20"), "there is no table logs"),
    ],
)
def test_what_cannot_be_computed_is_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    places = ("--output", str(tmp_path), "--checkpoint", str(tmp_path))
    with pytest.raises(PipelineFailed, match=told):
        backfill_command.run(arguments_of(*places, *words))


def test_a_date_is_year_month_and_day() -> None:
    assert arguments_of("--from", "2026-11-20", "--to", "2026-11-21").last == date(2026, 11, 21)
    with pytest.raises(argparse.ArgumentError, match="not a date"):
        arguments_of("--from", "yesterday", "--to", "2026-11-21")


def test_a_checkpoint_without_a_run_of_the_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="has no run of job shop"):
        kept_manifest(tmp_path, "shop")
    (tmp_path / "shop.manifest.json").write_text("{")
    with pytest.raises(PipelineFailed, match="cannot be read"):
        kept_manifest(tmp_path, "shop")
    kept = Manifest("shop", 1, {"--window": 60}, "cluster", {})
    (tmp_path / "shop.manifest.json").write_text(encode(kept))
    assert kept_manifest(tmp_path, "shop") == kept


def test_the_settings_are_those_of_the_run(kafka: Kafka) -> None:
    address = ClusterAddress(kafka.bootstrap_servers)
    topic = kafka.topic("in", partitions=1)
    fields = (Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER))
    job = Job(name="shop", inputs=(topic,), fields=fields, sinks=())
    options = RunOptions(jobs=("shop",), checkpoint="c", output="o", bootstrap=address)
    cluster_id, topic_ids = identity_of(address, [topic])
    ran = RunOptions(jobs=("shop",), checkpoint="c", output="o", bootstrap=address, window_s=7, watermark_s=9)
    found = options_of_run(job, options, manifest_of(job, ran, cluster_id, topic_ids))
    assert (found.window_s, found.watermark_s) == (7, 9)
    with pytest.raises(PipelineFailed, match="it holds offsets of cluster other"):
        options_of_run(job, options, manifest_of(job, ran, "other", topic_ids))
    other = {topic: "AAAAAAAAAAAAAAAAAAAAAQ"}
    with pytest.raises(PipelineFailed, match="were deleted and created again"):
        options_of_run(job, options, manifest_of(job, ran, cluster_id, other))


def test_topics_that_are_gone_are_left_out_if_they_may_be(kafka: Kafka) -> None:
    address = ClusterAddress(kafka.bootstrap_servers)
    topic = kafka.topic("in", partitions=1)
    found = identity_of(address, [topic, f"{topic}-gone"], may_lack=True)
    assert found == identity_of(address, [topic])


def test_the_first_records_of_partitions_that_have_lost_some_are_known(kafka: Kafka) -> None:
    address = ClusterAddress(kafka.bootstrap_servers)
    topic = kafka.topic("in", partitions=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in range(3):
        for number in range(4):
            producer.produce(topic, b"x", partition=partition, timestamp=FIRST_MS + number)
    assert producer.flush(30) == 0
    gone = [confluent_kafka.TopicPartition(topic, 1, 2), confluent_kafka.TopicPartition(topic, 2, 4)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records(gone).values():
        future.result(30)
    found = oldest_records(address, {(topic, partition): 4 for partition in range(3)})
    assert found[topic, 1] == FIRST_MS + 2
    # Nothing is left of this one, so no date before now can be computed.
    assert found.keys() == {(topic, 1), (topic, 2)}
    assert found[topic, 2] > FIRST_MS + 4
    with pytest.raises(PipelineFailed, match="the first records cannot be read"):
        oldest_records(address, {("none", 0): 4})


def test_a_partition_with_nothing_but_the_end_of_a_transaction_has_no_first_record(kafka: Kafka) -> None:
    address = ClusterAddress(kafka.bootstrap_servers)
    topic = kafka.topic("in", partitions=1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, b"x", timestamp=FIRST_MS)
        assert producer.flush(30) == 0
        end(30)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # Offset 0 is committed, and its end is 1. Offset 2 is aborted, and its end is 3.
    for first, uncommitted in ((1, [FIRST_MS]), (3, [])):
        gone = [confluent_kafka.TopicPartition(topic, 0, first)]
        for future in admin.delete_records(gone).values():
            future.result(30)
        assert oldest_records(address, {(topic, 0): 4})[topic, 0] > FIRST_MS
        found = oldest_records(address, {(topic, 0): 4}, "read_uncommitted")[topic, 0]
        assert found > FIRST_MS if not uncommitted else [found] == uncommitted


def test_a_file_is_moved_from_aside_to_a_new_partition(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path, tmp_path / "lock", lambda: pytest.fail("no Spark is needed"))
    aside = tmp_path / "_maintenance/.backfilled-r/date=2026-11-20"
    aside.mkdir(parents=True)
    (aside / "part-0").write_bytes(b"rows")
    place = "date=2026-11-20/hour=01/backfilled-r-0"
    size, modified_ms = folder.adopt("_maintenance/.backfilled-r/date=2026-11-20/part-0", place)
    assert (tmp_path / place).read_bytes() == b"rows"
    assert size == 4
    assert modified_ms == (tmp_path / place).stat().st_mtime_ns // 1_000_000
    folder.clean()
    assert not any((tmp_path / "_maintenance").iterdir())
    with pytest.raises(PipelineFailed, match="is not below"):
        folder.adopt("../x", place)


def test_what_was_done_is_said_in_a_line() -> None:
    assert said([]) == "every row is as computed, nothing changed"
    days = [date(2026, 11, 20), date(2026, 11, 22)]
    assert said(days) == "computed again: 2026-11-20, 2026-11-22"
    assert said(days, is_open=True).endswith("may undo that with its next compact file: call again after it")


def test_a_topic_that_is_remade_while_it_is_read_publishes_nothing(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does one that loses records meanwhile. Otherwise a date would get the rows of other records."""
    address = ClusterAddress(kafka.bootstrap_servers)
    topic = kafka.topic("in", partitions=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    fields = (Field("event_id", Kind.TEXT), Field("event_time_ms", Kind.INTEGER))
    table = Table("shop/totals", lambda events, options: events)
    job = Job(name="shop", inputs=(topic,), fields=fields, sinks=(table,))
    options = RunOptions(jobs=("shop",), checkpoint="c", output=str(tmp_path), bootstrap=address)
    day = date(2023, 11, 13)
    batch = Batch(0, {(topic, 0): 2}, 1 << 50)
    monkeypatch.setattr(backfilling, "_batch_of", lambda *given: batch)
    monkeypatch.setattr(backfilling, "changed_dates", lambda present, rows, may_lack: [day])

    def send() -> None:
        for number in range(2):
            producer.produce(topic, b"x", timestamp=FIRST_MS + number)
        assert producer.flush(30) == 0

    def changed(meanwhile: Callable[[], object]) -> object:
        kept = manifest_of(job, options, *identity_of(address, [topic]))
        backfill = Backfill(MagicMock(), job, options, kept, Range(day, day))
        monkeypatch.setattr(backfilling, "recomputed", lambda *given, **more: meanwhile())
        return backfill._changed(table, job.queries[0], 0, None)

    def lose() -> None:
        gone = [confluent_kafka.TopicPartition(topic, 0, 1)]
        for future in admin.delete_records(gone).values():
            future.result(30)

    def remake() -> None:
        for future in admin.delete_topics([topic]).values():
            future.result(30)
        # For a moment the topic may still be listed.
        while not create_missing(address, plans([topic], partitions=1)):
            pass

    send()
    assert changed(lambda: "rows") == ("rows", [day])
    with pytest.raises(PipelineFailed, match="were deleted and created again"):
        changed(remake)
    send()
    with pytest.raises(PipelineFailed, match="are deleted, and those from"):
        changed(lose)


def test_a_table_that_is_refused_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("aside", "events", "totals"):
        (tmp_path / "logs" / name / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "logs.manifest.json").write_text(encode(Manifest("logs", 1, {}, "c", {})))
    asked = []

    class Tables:
        def __init__(
            self, session: object, job: Job, options: RunOptions, kept: Manifest, dates: Range
        ) -> None:
            asked.append(dates)

        def table(self, name: str, form: str, grace_ms: int) -> str:
            assert (form, grace_ms) == ("parquet", 3_600_000)
            if name == "logs/events":
                raise PipelineFailed("why")
            if name == "logs/aside":
                raise OSError(28, "No space left on device")
            return "done"

    stopped: list[object] = []
    monkeypatch.setattr("kafkacompat.pipeline.backfill.Backfill", Tables)
    monkeypatch.setattr("kafkacompat.pipeline.backfill.options_of_run", lambda job, options, kept: options)
    monkeypatch.setattr(backfill_command, "start_session", lambda options, formats: sorted(formats))
    monkeypatch.setattr(backfill_command, "stop_session", stopped.append)
    places = ("--output", str(tmp_path), "--checkpoint", str(tmp_path))
    words = ("--from", "2026-11-19", "--to", "2026-11-20", "--keep-replaced", "1")
    assert backfill_command.run(arguments_of(*places, *words)) == 1
    told = capsys.readouterr()
    assert told.out == "logs/totals: done\n"
    assert told.err.splitlines() == [
        "kafkacompat: logs/aside was not computed again: [Errno 28] No space left on device",
        "kafkacompat: logs/events was not computed again: why",
    ]
    assert asked == [Range(date(2026, 11, 19), date(2026, 11, 20))]
    assert stopped == [["parquet"]]
