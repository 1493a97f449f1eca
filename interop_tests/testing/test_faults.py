"""Each fault of kafkacompat.testing, as clients see it: what Kafka's documentation calls retriable is retried, and what it calls
fatal reaches the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from kafkacompat.testing.kafka import Kafka

pytestmark = [pytest.mark.needs_control, pytest.mark.kafka(scope="module")]
WAIT_S = 30


class Failed(Exception):
    """What a client tells its caller. `name` is Kafka's name of the error."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Client(Protocol):
    """A producer and a consumer of one library. Produce and commit raise Failed."""

    def produce(
        self, topic: str, value: bytes, *, idempotent: bool = False, timeout_s: float = WAIT_S
    ) -> None: ...

    def consume(
        self, topic: str, count: int, *, group: str | None = None, commit: bool = False
    ) -> list[bytes]: ...


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._open: list[Any] = []

    def produce(
        self, topic: str, value: bytes, *, idempotent: bool = False, timeout_s: float = WAIT_S
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=idempotent,
            acks="all",
            request_timeout_ms=1_000,
            retry_backoff_ms=20,
            delivery_timeout_ms=int(timeout_s * 1000),
            max_block_ms=int(timeout_s * 1000),
        )
        self._open.append(producer)
        try:
            producer.send(topic, value, partition=0).get(timeout_s)
        except kafka_errors.KafkaError as error:
            raise Failed(type(error).__name__) from error

    def consume(
        self, topic: str, count: int, *, group: str | None = None, commit: bool = False
    ) -> list[bytes]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=11_000,
            retry_backoff_ms=20,
        )
        self._open.append(consumer)
        found: list[bytes] = []
        try:
            if group is None:
                consumer.assign([TopicPartition(topic, 0)])
            else:
                consumer.subscribe([topic])
            end_s = time.monotonic() + WAIT_S
            while len(found) < count and time.monotonic() < end_s:
                for records in consumer.poll(200).values():
                    found += [each.value for each in records]
            if commit:
                consumer.commit()
        except kafka_errors.KafkaError as error:
            raise Failed(type(error).__name__) from error
        return found

    def close(self) -> None:
        for each in self._open:
            each.close(timeout=1) if isinstance(each, KafkaProducer) else each.close(autocommit=False)


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._open: list[Any] = []

    def produce(
        self, topic: str, value: bytes, *, idempotent: bool = False, timeout_s: float = WAIT_S
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "request.timeout.ms": 1_000,
                "socket.timeout.ms": 1_000,
                "retry.backoff.ms": 20,
                "message.timeout.ms": int(timeout_s * 1000),
                "log_level": 0,
            }
        )
        told: list[KafkaError | None] = []
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: told.append(error))
        producer.flush(timeout_s + 5)
        assert told
        if told[0] is not None:
            raise Failed(told[0].name())

    def consume(
        self, topic: str, count: int, *, group: str | None = None, commit: bool = False
    ) -> list[bytes]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group or "none",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "check.crcs": True,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._open.append(consumer)
        found: list[bytes] = []
        try:
            if group is None:
                consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            else:
                consumer.subscribe([topic])
            end_s = time.monotonic() + WAIT_S
            while len(found) < count and time.monotonic() < end_s:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is not None:
                    raise Failed(message.error().name())
                found.append(message.value())
            if commit:
                consumer.commit(asynchronous=False)
        except KafkaException as error:
            raise Failed(error.args[0].name()) from error
        return found

    def close(self) -> None:
        for each in self._open:
            each.close()


@pytest.fixture(params=[KafkaPython, Confluent], ids=["kafka-python", "confluent"])
def client(request: pytest.FixtureRequest, kafka: Kafka) -> Iterator[Client]:
    made = request.param(kafka.bootstrap_servers)
    yield made
    made.close()


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


@pytest.mark.parametrize(
    "code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT"]
)
def test_a_retriable_error_of_produce_is_retried(kafka: Kafka, client: Client, code: str) -> None:
    topic = kafka.topic("retried")
    fault = kafka.faults.error(code, api="Produce", topic=topic, partition=0, times=2)
    client.produce(topic, b"1")
    assert values(kafka, topic) == [b"1"]
    assert fault.hits == 2


@pytest.mark.parametrize("code", ["TOPIC_AUTHORIZATION_FAILED", "INVALID_RECORD", "MESSAGE_TOO_LARGE"])
def test_a_fatal_error_of_produce_reaches_the_caller(kafka: Kafka, client: Client, code: str) -> None:
    topic = kafka.topic("fatal")
    kafka.faults.error(code, api="Produce", topic=topic, times=None)
    with pytest.raises(Failed) as failed:
        client.produce(topic, b"1", timeout_s=10)
    names = {
        "TOPIC_AUTHORIZATION_FAILED": ("TopicAuthorizationFailedError", "TOPIC_AUTHORIZATION_FAILED"),
        "INVALID_RECORD": ("InvalidRecordError", "INVALID_RECORD"),
        "MESSAGE_TOO_LARGE": ("MessageSizeTooLargeError", "MSG_SIZE_TOO_LARGE"),
    }
    assert failed.value.name in names[code]
    assert values(kafka, topic) == []


@pytest.mark.parametrize("kind", ["lost reply", "error", "cut", "late reply"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_was_done_and_not_told_is_done_twice_without_idempotence(
    kafka: Kafka, client: Client, kind: str, idempotent: bool
) -> None:
    topic = kafka.topic("twice")
    make: dict[str, Callable[[], object]] = {
        "lost reply": lambda: kafka.faults.close(applied=True, api="Produce", topic=topic),
        "error": lambda: kafka.faults.error("REQUEST_TIMED_OUT", applied=True, api="Produce", topic=topic),
        "cut": lambda: kafka.faults.cut(api="Produce", topic=topic),
        "late reply": lambda: kafka.faults.delay(4_000, reply=True, api="Produce", topic=topic),
    }
    make[kind]()
    client.produce(topic, b"1", idempotent=idempotent)
    assert values(kafka, topic) == ([b"1"] if idempotent else [b"1", b"1"])


@pytest.mark.parametrize("kind", ["closed", "late"])
def test_what_was_not_done_is_done_once(kafka: Kafka, client: Client, kind: str) -> None:
    topic = kafka.topic("once")
    if kind == "closed":
        kafka.faults.close(api="Produce", topic=topic, times=2)
    else:
        kafka.faults.delay(4_000, api="Produce", topic=topic)
    client.produce(topic, b"1")
    assert values(kafka, topic) == [b"1"]


def test_a_throttle_time_is_kept(kafka: Kafka, client: Client) -> None:
    topic = kafka.topic("throttled")
    kafka.faults.throttle(300, api="Produce", topic=topic)
    client.produce(topic, b"1")
    (told,) = [each for each in kafka.requests(api="Produce") if each.faults][-1:]
    assert told.response.throttle_time_ms == 300


def test_what_is_produced_can_be_there_twice(kafka: Kafka, client: Client) -> None:
    topic = kafka.topic("doubled")
    kafka.faults.duplicate(topic=topic)
    client.produce(topic, b"1", idempotent=True)
    assert client.consume(topic, 2) == [b"1", b"1"]


def test_a_damaged_batch_is_noticed(kafka: Kafka, client: Client) -> None:
    topic = kafka.topic("damaged")
    kafka.produce(topic, [b"1"])
    kafka.faults.corrupt(topic=topic)
    with pytest.raises(Failed, match=r"CorruptRecord|_BAD_MSG"):
        client.consume(topic, 1)
    assert client.consume(topic, 1) == [b"1"]
    assert values(kafka, topic) == [b"1"]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("Fetch", "OFFSET_OUT_OF_RANGE"),
        ("Metadata", "LEADER_NOT_AVAILABLE"),
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_consumer_goes_on_after_an_error(kafka: Kafka, client: Client, api: str, code: str) -> None:
    topic = kafka.topic("read")
    kafka.produce(topic, [b"1", b"2"])
    fault = kafka.faults.error(code, api=api, topic=topic, optional=api == "ListOffsets")
    assert client.consume(topic, 2) == [b"1", b"2"]
    assert fault.hits or api == "ListOffsets"


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_a_group_goes_on_after_an_error(kafka: Kafka, client: Client, api: str, code: str) -> None:
    topic, group = kafka.topic("grouped"), f"group-{api}-{type(client).__name__}"
    kafka.produce(topic, [b"1"])
    kafka.faults.error(code, api=api, group=group)
    assert client.consume(topic, 1, group=group, commit=True) == [b"1"]
    assert kafka.committed(group)[topic, 0].offset == 1


def test_a_member_that_was_fenced_may_not_commit(kafka: Kafka, client: Client) -> None:
    topic, group = kafka.topic("fenced"), f"group-fenced-{type(client).__name__}"
    kafka.produce(topic, [b"1"])
    kafka.faults.error("UNKNOWN_MEMBER_ID", api="OffsetCommit", group=group)
    with pytest.raises(Failed, match=r"CommitFailedError|UNKNOWN_MEMBER_ID"):
        client.consume(topic, 1, group=group, commit=True)
    assert not kafka.committed(group)


def transactional(kafka: Kafka, name: str) -> Any:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    return producer


@pytest.mark.parametrize("lost", ["error", "lost reply"])
def test_the_end_of_a_transaction_is_tried_again(kafka: Kafka, lost: str) -> None:
    topic, name = kafka.topic("ended"), f"tx-{lost}"
    producer = transactional(kafka, name)
    producer.produce(topic, b"1")
    if lost == "error":
        kafka.faults.error("CONCURRENT_TRANSACTIONS", api="EndTxn", transactional_id=name, times=2)
    else:
        kafka.faults.close(applied=True, api="EndTxn", transactional_id=name)
    producer.commit_transaction(WAIT_S)
    assert [each.transaction for each in kafka.records(topic)] == ["committed"]


def test_a_fenced_transaction_is_fatal(kafka: Kafka) -> None:
    topic = kafka.topic("lost")
    producer = transactional(kafka, "tx-fenced")
    producer.produce(topic, b"1")
    kafka.faults.error("PRODUCER_FENCED", api="EndTxn", transactional_id="tx-fenced")
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(WAIT_S)
    assert failed.value.args[0].fatal()
    assert [each.transaction for each in kafka.records(topic)] == ["open"]


def test_a_full_disk_is_tried_again(kafka: Kafka, client: Client) -> None:
    topic = kafka.topic("full")
    client.produce(topic, b"0")
    kafka.faults.full_disk(topic=topic)
    client.produce(topic, b"1")
    assert values(kafka, topic) == [b"0", b"1"]
    assert kafka.node.is_running
