"""Rejected records are written again to their topics, each once, whatever ends a call. No Spark runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka

from kafkacompat.pipeline import replay as replaying
from kafkacompat.pipeline import replay_command
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.replay import (
    HEADER,
    Replayed,
    decode,
    is_same,
    ledger_of,
    reasons_in,
    replay,
)
from kafkacompat.pipeline.topics import create_missing, plans
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.testing import Kafka

LINE = "malformed line: field 1 (client): expected an address"
JSON = "malformed JSON"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


class Job:
    """A job's topics: the input with records, and those that it has rejected."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.address = ClusterAddress(kafka.bootstrap_servers)
        self.input = kafka.topic("in", partitions=2)
        self.topic = f"{self.input}.rejected"
        create_missing(self.address, plans([self.topic], partitions=1))
        self._producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self.offsets = [0, 0]

    def send(self, value: bytes | None, partition: int = 0, reason: str | None = None) -> dict[str, object]:
        """Write a record, and if there is a reason its rejected record too, which is returned."""
        timestamp_ms = 1_700_000_000_000 + self.offsets[partition]
        self._produce(self.input, value, partition, timestamp_ms)
        text = None if value is None else value.decode(errors="replace")[:2048]
        told: dict[str, object] = {
            "event_id": f"{self.input}-{partition}-{self.offsets[partition]}",
            "reason": reason,
            "line": text,
            "topic": self.input,
            "partition": partition,
            "offset": self.offsets[partition],
            "received_ms": timestamp_ms,
        }
        self.offsets[partition] += 1
        if reason is not None:
            self.reject(told)
        return told

    def reject(self, told: object) -> None:
        self._produce(self.topic, json.dumps(told).encode(), 0, 1)

    def _produce(self, topic: str, value: bytes | None, partition: int, timestamp_ms: int) -> None:
        self._producer.produce(
            topic, value, b"key", partition, timestamp=timestamp_ms, headers=[("file", b"f"), ("none", None)]
        )
        assert self._producer.flush(30) == 0

    def written(self) -> list[tuple[int, bytes | None]]:
        """Partition and value of what was replayed, as readers of committed records see it."""
        reader = replaying._reader(self.address, "read_committed")
        found = [
            (each.partition(), each.value())
            for each in replaying._messages(reader, self.input)
            if HEADER in dict(each.headers() or [])
        ]
        reader.close()
        return sorted(found, key=str)

    def replay(self, *reasons: str, records_max: int = 1000) -> Replayed:
        return replay(self.address, self.topic, reasons or (JSON,), records_max=records_max)


@pytest.fixture
def job(kafka: Kafka) -> Job:
    return Job(kafka)


def test_records_of_a_reason_are_written_once_with_key_and_headers(job: Job) -> None:
    job.send(b"good")
    job.send(b"bad", reason=JSON)
    job.send(b"other", reason=LINE)
    told = job.send(b"\xff\xfe", partition=1, reason=JSON)
    # Spark may write a rejected record twice.
    job.reject(told)
    assert reasons_in(job.address, job.topic) == {JSON: 2, LINE: 1}
    done = job.replay()
    assert (done.topics, done.before, done.gone, done.left) == ({job.input: 2}, 0, 0, 0)
    assert job.written() == [(0, b"bad"), (1, b"\xff\xfe")]
    again = job.replay(JSON, "malformed line")
    assert (again.topics, again.before) == ({job.input: 1}, 2)
    assert job.written() == [(0, b"bad"), (0, b"other"), (1, b"\xff\xfe")]
    reader = replaying._reader(job.address, "read_committed")
    copy = next(
        each
        for each in replaying._messages(reader, job.input)
        if each.value() == b"other" and len(each.headers()) > 2
    )
    reader.close()
    assert copy.key() == b"key"
    assert copy.headers() == [("file", b"f"), ("none", None), (HEADER, f"{job.input}-0-2".encode())]
    # The time of arrival is that of the replay.
    assert copy.timestamp()[1] > 1_700_000_000_000 + 1000


def test_a_record_that_is_rejected_again_may_be_replayed_again(job: Job) -> None:
    told = job.send(b"bad", reason=JSON)
    assert job.replay().topics.total() == 1
    # The copy is at offset 1, and the end of its transaction at 2.
    job.reject({**told, "offset": 1, "event_id": f"{job.input}-0-1"})
    job.reject({**told, "offset": 2, "event_id": f"{job.input}-0-2"})
    done = job.replay()
    assert (done.topics.total(), done.before, done.gone) == (1, 1, 1)
    assert job.written() == [(0, b"bad"), (0, b"bad")]


def test_records_that_are_gone_are_counted(job: Job) -> None:
    told = job.send(b"bad", reason=JSON)
    job.reject({**told, "topic": f"{job.input}-none", "event_id": "a"})
    job.reject({**told, "offset": 99, "event_id": "b"})
    job.reject({**told, "line": "another text", "event_id": "c"})
    job.reject({**told, "received_ms": 1_800_000_000_000, "event_id": "d"})
    job.reject({"reason": JSON})
    job.reject("text")
    done = job.replay()
    assert (done.topics.total(), done.gone) == (1, 4)
    assert job.written() == [(0, b"bad")]


def test_a_record_of_an_aborted_transaction_is_replayed_only_for_a_job_that_reads_it(job: Job) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": job.kafka.bootstrap_servers, "transactional.id": job.input}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(job.input, b"bad", b"key", 0, timestamp=1_700_000_000_000)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    told = {"topic": job.input, "partition": 0, "offset": 0, "received_ms": 1_700_000_000_000, "line": "bad"}
    job.reject({**told, "event_id": f"{job.input}-0-0", "reason": JSON})
    done = job.replay()
    assert (done.topics.total(), done.gone) == (0, 1)
    assert replay(job.address, job.topic, (JSON,), "read_uncommitted").topics.total() == 1
    assert job.written() == [(0, b"bad")]


def test_records_without_a_value_are_replayed(job: Job) -> None:
    job.send(None, reason=JSON)
    assert job.replay().topics.total() == 1
    assert job.written() == [(0, None)]


def test_a_record_is_as_large_as_its_topic_takes(job: Job) -> None:
    """Not as a client does that is asked for nothing else."""
    large = b"x" * 1_020_000
    job._producer = confluent_kafka.Producer(
        {"bootstrap.servers": job.kafka.bootstrap_servers, "message.max.bytes": 1_048_576}
    )
    job.send(large, reason=JSON)
    job.send(b"bad", reason=JSON)
    assert job.replay().topics.total() == 2
    assert job.written() == [(0, b"bad"), (0, large)]


class WithOddHeader:
    """A record with a header whose name is not UTF-8. The client library gives no headers then, and raises only once."""

    def __init__(self, message: Any) -> None:
        self._message = message
        self._is_read = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def headers(self) -> list[Any]:
        if not self._is_read:
            self._is_read = True
            raise SystemError("<method 'headers'> returned a result with an exception set")
        return [("file", b"f")]


def test_a_record_whose_headers_cannot_be_read_does_not_keep_the_others_back(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (b"one", b"odd", b"two"):
        job.send(value, reason=JSON)
    next_of = replaying._next

    def next_message(reader: Any) -> Any:
        message = next_of(reader)
        is_odd = message.error() is None and message.value() == b"odd"
        return WithOddHeader(message) if is_odd else message

    with monkeypatch.context() as patch:
        patch.setattr(replaying, "_next", next_message)
        done = job.replay()
        assert (done.topics.total(), done.before, done.gone, done.unreadable) == (2, 0, 0, 1)
        again = job.replay()
        assert (again.topics.total(), again.before, again.unreadable) == (0, 2, 1)
        parser = argparse.ArgumentParser()
        replay_command.add_arguments(parser)
        words = [job.topic, "--bootstrap", job.kafka.bootstrap_servers, "--reason", JSON]
        assert replay_command.run(parser.parse_args(words)) == 0
    assert "1 have a header whose name is no UTF-8 text, and stay as they are\n" in capsys.readouterr().out
    assert job.written() == [(0, b"one"), (0, b"two")]


def test_a_call_ends_after_a_number_of_records_and_the_next_goes_on(job: Job) -> None:
    for number in range(5):
        job.send(b"%d" % number, reason=JSON)
    assert job.replay(records_max=3).left == 2
    done = job.replay(records_max=3)
    assert (done.topics.total(), done.before, done.left) == (2, 3, 0)
    assert job.written() == [(0, b"%d" % number) for number in range(5)]


def test_records_that_are_gone_leave_room_for_those_that_are_there(job: Job) -> None:
    told = job.send(b"bad")
    for offset in range(10, 15):
        job.reject({**told, "reason": JSON, "offset": offset, "event_id": f"{offset}"})
    job.send(b"there", partition=1, reason=JSON)
    done = job.replay(records_max=3)
    assert (done.topics.total(), done.gone, done.left) == (1, 5, 0)
    assert job.written() == [(1, b"there")]


def test_records_far_apart_are_found(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "SKIPPED_MAX", 2)
    monkeypatch.setattr(replaying, "TRANSACTION_RECORDS", 2)
    for number in range(12):
        job.send(b"%d" % number, number % 2, reason=JSON if number in (0, 1, 3, 10, 11) else None)
    assert job.replay().topics.total() == 5
    assert job.written() == [(0, b"0"), (0, b"10"), (1, b"1"), (1, b"11"), (1, b"3")]


def test_a_call_that_dies_before_its_commit_has_written_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(b"bad", reason=JSON)

    class Died(BaseException):
        pass

    def die(call: object, end_s: float) -> None:
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr(replaying, "patiently", die)
        # A process that dies aborts nothing. The next call does.
        dying.setattr(replaying, "abort", lambda producer: None)
        with pytest.raises(Died):
            job.replay()
    assert job.written() == []
    assert job.replay().topics.total() == 1
    assert job.written() == [(0, b"bad")]


def test_a_call_that_dies_after_its_commit_has_written_everything(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(b"bad", reason=JSON)

    def die(records: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(job.address, job.topic, (JSON,), written=die)
    assert job.replay().before == 1
    assert job.written() == [(0, b"bad")]


def test_an_earlier_call_that_still_runs_is_fenced(job: Job) -> None:
    job.send(b"one", reason=JSON)
    job.send(b"two", reason=JSON)
    replaying_at_once: list[Replayed] = []

    def meanwhile(records: int) -> None:
        replaying_at_once.append(job.replay())

    # The first call has committed one transaction when the second begins.
    with pytest.MonkeyPatch.context() as small:
        small.setattr(replaying, "TRANSACTION_RECORDS", 1)
        with pytest.raises(PipelineFailed, match="cannot be replayed"):
            replay(job.address, job.topic, (JSON,), written=meanwhile)
    assert [(each.topics.total(), each.before) for each in replaying_at_once] == [(1, 1)]
    assert job.written() == [(0, b"one"), (0, b"two")]


def test_a_topic_that_is_none_of_rejected_records_is_refused(job: Job) -> None:
    assert ledger_of("logs.rejected") == "logs.replayed"
    for name in ("logs.raw", ".rejected"):
        with pytest.raises(PipelineFailed, match="is not the topic"):
            ledger_of(name)
    with pytest.raises(PipelineFailed, match=r"none\.rejected cannot be replayed"):
        replay(job.address, "none.rejected", (JSON,))


def test_a_record_of_a_new_topic_of_the_same_name_is_another_one() -> None:
    told = {"event_id": "t-0-0", "reason": JSON, "topic": "t", "partition": 0, "offset": 0, "received_ms": 5}
    rejected = decode(json.dumps({**told, "line": "x" * 2048}).encode())
    assert rejected is not None
    assert rejected.key == "t-0-0@5"
    assert is_same(rejected, b"x" * 3000, 5)
    # A clock that is ahead: the time at which Spark has read the record is told.
    assert is_same(rejected, b"x" * 2048, 9)
    assert not is_same(rejected, b"x" * 3000, 4)
    assert not is_same(rejected, b"y" * 3000, 5)
    assert not is_same(rejected, None, 5)


def test_the_command_shows_the_reasons_and_says_what_it_has_done(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.send(b"bad", reason=JSON)
    parser = argparse.ArgumentParser()
    replay_command.add_arguments(parser)
    words = [job.topic, "--bootstrap", job.kafka.bootstrap_servers]
    assert replay_command.run(parser.parse_args(words)) == 0
    assert capsys.readouterr().out == (
        f"        1  {JSON}\n1 rejected records; nothing is replayed without --reason\n"
    )
    assert replay_command.run(parser.parse_args([*words, "--reason", "malformed"])) == 0
    assert capsys.readouterr().out == (
        f"1 records written to {job.input}\n1 replayed, 0 had been replayed before, 0 are not in their topics any more\n"
    )
