"""Commits of queries to groups: what is committed of progress and checkpoints, and what a broker makes of it. No Spark runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka

from kafkacompat.pipeline import groups
from kafkacompat.pipeline.groups import (
    Finished,
    GroupCommits,
    address_of_options,
    batch_of,
    finished_by,
    logged_offsets,
    metadata_of,
    starting_offsets,
)
from kafkacompat.testing import Kafka

ID = "5c9f5f0e-0000-4000-8000-000000000001"


def progress(batch: int, ends: Any, *, name: str | None = "totals", is_batch: bool = True) -> dict[str, Any]:
    """As Spark tells it."""
    return {
        "id": ID,
        "runId": "another",
        "name": name,
        "batchId": batch,
        "timestamp": "2026-11-21T10:00:00.000Z",
        "numInputRows": 1,
        "durationMs": {"triggerExecution": 5, **({"addBatch": 3} if is_batch else {})},
        "sources": [{"description": "KafkaV2[Subscribe[t]]", "startOffset": None, "endOffset": ends}],
    }


def of(progress: dict[str, Any]) -> Finished:
    found = finished_by(progress)
    assert found is not None
    return found


# What is finished.


def test_a_batch_has_finished_what_it_has_read() -> None:
    assert finished_by(progress(3, {"t": {"0": 7, "1": 0}})) == Finished(
        "totals", ID, 3, {("t", 0): 7, ("t", 1): 0}
    )


def test_a_query_without_new_records_has_finished_the_batch_before() -> None:
    """Spark then reports the number of the batch that it would run next."""
    assert of(progress(4, {"t": {"0": 7}}, is_batch=False)).batch == 3
    assert finished_by(progress(0, {"t": {"0": 7}}, is_batch=False)) is None


def test_a_query_without_a_name_has_its_id() -> None:
    assert of(progress(0, {"t": {"0": 7}}, name=None)).query == ID


@pytest.mark.parametrize("ends", [None, 12, "x", {"logOffset": 3}, {"t": {}}, {"t": {"0": -2}}])
def test_other_sources_have_no_offsets_of_topics(ends: Any) -> None:
    assert finished_by(progress(3, ends)) is None


def test_what_two_sources_of_a_query_have_read_is_what_both_have_read() -> None:
    told = progress(1, {"t": {"0": 9}})
    told["sources"].append({"endOffset": {"t": {"0": 4}, "u": {"0": 1}}})
    assert of(told).offsets == {("t", 0): 4, ("u", 0): 1}


def test_a_checkpoint_has_a_line_for_each_source() -> None:
    planned = 'v1\n{"batchWatermarkMs":0,"conf":{"a":"b"}}\n{"t":{"1":5,"0":7}}\n-\n17'
    assert logged_offsets(planned) == {("t", 0): 7, ("t", 1): 5}
    assert logged_offsets("v1\n{}\n") == {}


def test_the_metadata_of_an_offset_tells_the_batch_of_its_query_only() -> None:
    assert batch_of(metadata_of("totals", ID, 12), ID) == 12
    assert batch_of(metadata_of("totals", "another checkpoint", 12), ID) is None
    for text in (None, "", "no JSON", "[]", "{}", f'{{"id":"{ID}","batch":"1"}}'):
        assert batch_of(text, ID) is None


def test_the_cluster_is_that_of_the_sources_options() -> None:
    options = {
        "subscribe": "t",
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="p";',
    }
    settings = address_of_options(options).librdkafka()
    assert settings == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    with pytest.raises(KeyError, match=r"no kafka\.bootstrap\.servers"):
        address_of_options({"subscribe": "t"})


# What a broker makes of it.


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka() as kafka:
        yield kafka


def options(kafka: Kafka) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers}


def test_a_query_commits_as_a_group_without_members(kafka: Kafka) -> None:
    topic = kafka.topic("t", partitions=2)
    commits = GroupCommits(options(kafka), prefix="spark-")
    finished = of(progress(3, {topic: {"0": 7, "1": 0}}))
    commits.commit(finished)
    commits.close()
    assert commits.committed == {"spark-totals": finished}
    assert commits.refusals == {}
    committed = kafka.committed("spark-totals")
    assert {place: each.offset for place, each in committed.items()} == {(topic, 0): 7, (topic, 1): 0}
    assert json.loads(committed[topic, 0].metadata.rstrip("\0")) == {"query": "totals", "id": ID, "batch": 3}
    assert kafka.groups()["spark-totals"].members == ()


def test_a_query_that_starts_again_from_the_beginning_takes_its_group_back(kafka: Kafka) -> None:
    topic = kafka.topic("t")
    commits = GroupCommits(options(kafka))
    for batch, offset in ((0, 10), (1, 20), (0, 10)):
        commits.commit(of(progress(batch, {topic: {"0": offset}}, name="again")))
        commits.close()
        assert kafka.committed("again")[topic, 0].offset == offset


def test_the_last_of_several_batches_counts(kafka: Kafka) -> None:
    topic = kafka.topic("t")
    commits = GroupCommits(options(kafka))
    for batch in range(50):
        commits.commit(of(progress(batch, {topic: {"0": batch}}, name="many")))
    commits.close()
    assert kafka.committed("many")[topic, 0].offset == 49


def test_a_group_with_members_is_refused_and_told_once(kafka: Kafka) -> None:
    topic = kafka.topic("t")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "taken",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while "taken" not in kafka.groups() or kafka.groups()["taken"].state != "Stable":
        consumer.poll(0.05)
    said: list[str] = []
    commits = GroupCommits(options(kafka), say=said.append)
    commits.commit(of(progress(0, {topic: {"0": 1}}, name="taken")))
    commits.close()
    commits.commit(of(progress(1, {topic: {"0": 2}}, name="taken")))
    commits.close()
    assert len(said) == 1
    assert "group taken: it has members" in said[0]
    assert list(commits.refusals) == ["taken"]
    assert kafka.committed("taken") == {}
    consumer.close()
    commits.close()
    assert commits.refusals == {}
    assert kafka.committed("taken")[topic, 0].offset == 2


def test_a_topic_that_is_gone_is_refused_by_name(kafka: Kafka) -> None:
    said: list[str] = []
    commits = GroupCommits(options(kafka), say=said.append)
    commits.commit(of(progress(0, {"no-such-topic": {"0": 1}}, name="gone")))
    commits.close()
    assert len(said) == 1
    assert "group gone" in said[0]


class Admin:
    """An admin client that answers when it is told to."""

    def __init__(self) -> None:
        from concurrent.futures import Future

        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self._future = Future

    def alter_consumer_group_offsets(self, asked: list[Any], **_: Any) -> dict[str, Any]:
        self.asked.append([(each.offset, each.metadata) for each in asked[0].topic_partitions])
        self.answers.append(self._future())
        return {asked[0].group_id: self.answers[-1]}

    def answer(self, *errors: Any) -> None:
        parts = [SimpleNamespace(error=error) for error in errors or (None,)]
        self.answers[-1].set_result(SimpleNamespace(topic_partitions=parts))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


def scripted(said: list[str]) -> tuple[GroupCommits, Admin]:
    commits = GroupCommits({"kafka.bootstrap.servers": "127.0.0.1:1"}, say=said.append)
    admin = Admin()
    commits._admin = admin  # type: ignore[assignment]
    return commits, admin


def test_one_commit_of_a_group_is_under_way(clock: SimpleNamespace) -> None:
    commits, admin = scripted([])
    for batch in range(3):
        commits.commit(of(progress(batch, {"t": {"0": batch}})))
    assert [asked[0][0] for asked in admin.asked] == [0]
    admin.answer()
    commits.poll()
    assert [asked[0][0] for asked in admin.asked] == [0, 2]


def test_an_unchanged_position_is_committed_again_before_a_broker_forgets_it(clock: SimpleNamespace) -> None:
    commits, admin = scripted([])
    commits.commit(of(progress(0, {"t": {"0": 5}})))
    admin.answer()
    commits.renew()
    commits.renew()
    assert len(admin.asked) == 1
    clock.s += groups.RENEW_S
    commits.renew()
    assert len(admin.asked) == 2


def test_a_refusal_is_tried_again_after_a_while_and_told_when_it_is_another(clock: SimpleNamespace) -> None:
    said: list[str] = []
    commits, admin = scripted(said)
    commits.commit(of(progress(0, {"t": {"0": 5}})))
    for _ in range(2):
        admin.answer(confluent_kafka.KafkaError(confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED))
        commits.poll()
        asked = len(admin.asked)
        commits.poll()
        assert len(admin.asked) == asked
        clock.s += groups.RETRY_S
        commits.poll()
        assert len(admin.asked) == asked + 1
    assert len(said) == 1
    admin.answer()
    commits.poll()
    assert commits.refusals == {}


# Where a query starts.


def test_a_query_starts_from_the_commits_of_a_group(kafka: Kafka) -> None:
    topic, other = kafka.topic("t", partitions=2), kafka.topic("u")
    commits = GroupCommits(options(kafka))
    commits.commit(of(progress(0, {topic: {"1": 3}}, name="start")))
    commits.close()
    found = json.loads(starting_offsets(options(kafka), "start", [topic, other]))
    assert found == {topic: {"0": -2, "1": 3}, other: {"0": -2}}
    latest = json.loads(starting_offsets(options(kafka), "nobody", [other], "latest"))
    assert latest == {other: {"0": -1}}
    with pytest.raises(LookupError, match="topic none does not exist"):
        starting_offsets(options(kafka), "start", ["none"])
    assert "none" not in kafka.topics()
