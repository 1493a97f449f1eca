"""confluent-kafka (librdkafka), unmodified: produce, consume, groups, offsets and admin calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from interop_tests.harness.waiting import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def make_producer(bootstrap: str) -> Callable[..., Producer]:
    return lambda settings=None: Producer({"bootstrap.servers": bootstrap} | (settings or {}))


@pytest.fixture
def make_consumer(bootstrap: str, unique: Any) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(settings: dict[str, Any] | None = None) -> Consumer:
        made.append(
            Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "group.id": unique("group"),
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 6000,
                    "heartbeat.interval.ms": 300,
                }
                | (settings or {})
            )
        )
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def take(consumer: Consumer, count: int, timeout_s: float = 20.0) -> list[Message]:
    """Exactly count records, in the order of arrival."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records in {timeout_s} s"
        for message in consumer.consume(count - len(messages), 0.5):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def send_all(
    producer: Producer, topic: str, values: list[bytes], **options: Any
) -> list[tuple[Any, Message]]:
    """Produce values and return (error, message) of each in order of delivery."""
    delivered: list[tuple[Any, Message]] = []
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, message: delivered.append((error, message)), **options
        )
    assert producer.flush(20) == 0
    assert len(delivered) == len(values)
    return delivered


def numbers(count: int) -> list[bytes]:
    return [b"%d" % each for each in range(count)]


class Member:
    """A consumer with its own thread. It commits its progress when partitions are taken away."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, int]] = []
        self.held: set[int] = set()
        self.revocations: list[set[int]] = []
        self.losses = 0
        self._stop = threading.Event()
        consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.held |= {each.partition for each in partitions}

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        taken = {each.partition for each in partitions}
        self.revocations.append(taken)
        self.held -= taken

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.losses += 1
        self.held -= {each.partition for each in partitions}

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.1)
            if message is not None and not message.error():
                self.seen.append((message.partition(), message.offset()))
                self.consumer.store_offsets(message)

    def leave(self) -> None:
        """Stop polling, commit, leave the group."""
        self._stop.set()
        self._thread.join(15)
        self.consumer.close()
        self.held = set()


def is_complete(members: list[Member], partitions: int) -> bool:
    """Every partition has one owner, and every member has partitions."""
    held = sorted(each for member in members for each in member.held)
    return held == list(range(partitions)) and all(member.held for member in members)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_brings_back_keys_values_headers_and_nulls(
    codec: str, topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer({"compression.type": codec, "linger.ms": 50})
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
        (b"key", b"value" * 200, [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]),
        (None, b"no key", None),
        (b"tombstone", None, None),
        (b"", b"", None),
    ]
    for number, (key, value, headers) in enumerate(sent):
        producer.produce(topic, value, key, headers=headers or [], timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0
    consumer = make_consumer()
    consumer.subscribe([topic])
    got = take(consumer, 4)
    assert [(each.key(), each.value(), each.headers()) for each in got] == sent
    assert [each.timestamp() for each in got] == [(1, 1_700_000_000_000 + number) for number in range(4)]
    assert [each.offset() for each in got] == [0, 1, 2, 3]


@pytest.mark.smoke
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(acks: int, topic: str, make_producer: Any, make_consumer: Any) -> None:
    """With acks=0 no response is sent, and the connection stays usable."""
    delivered = send_all(make_producer({"acks": acks}), topic, numbers(100))
    assert all(error is None for error, _ in delivered)
    consumer = make_consumer()
    consumer.subscribe([topic])
    assert [each.value() for each in take(consumer, 100)] == numbers(100)


@pytest.mark.parametrize("idempotent", [True, False])
def test_five_in_flight_keeps_order(
    idempotent: bool, topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer(
        {
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5,
            "batch.num.messages": 10,
            "linger.ms": 0,
        }
    )
    delivered = send_all(producer, topic, numbers(3000))
    assert [message.offset() for _, message in delivered] == list(range(3000))
    consumer = make_consumer()
    consumer.subscribe([topic])
    assert [each.value() for each in take(consumer, 3000)] == numbers(3000)


def test_records_above_the_limit_are_refused(topic: str, make_producer: Any, make_consumer: Any) -> None:
    producer = make_producer({"message.max.bytes": 8 << 20})
    ((error, _),) = send_all(producer, topic, [bytes(1_000_000)])
    assert error is None
    ((error, _),) = send_all(producer, topic, [bytes(2_000_000)])
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    ((error, message),) = send_all(producer, topic, [b"after"])
    assert error is None
    assert message.offset() == 1
    consumer = make_consumer()
    consumer.subscribe([topic])
    assert [len(each.value()) for each in take(consumer, 2)] == [1_000_000, 5]


def test_a_record_without_a_key_for_a_compacted_topic_is_refused(make_topic: Any, make_producer: Any) -> None:
    topic = make_topic(configs={"cleanup.policy": "compact"})
    ((error, _),) = send_all(make_producer(), topic, [b"no key"])
    assert error.code() == KafkaError.INVALID_RECORD
    ((error, _),) = send_all(make_producer(), topic, [b"with key"], key=b"key")
    assert error is None


def test_a_producer_makes_its_topic(unique: Any, make_producer: Any, admin: AdminClient) -> None:
    topic = unique("auto")
    ((error, _),) = send_all(make_producer(), topic, [b"first"])
    assert error is None
    brokers = admin.list_topics(timeout=10).brokers
    resource = ConfigResource(ResourceType.BROKER, str(next(iter(brokers))))
    settings = admin.describe_configs([resource])[resource].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == int(
        settings["num.partitions"].value
    )


def test_seek_to_offset_beginning_end_and_time(topic: str, make_producer: Any, make_consumer: Any) -> None:
    """Lookups by time before, within and beyond the log."""
    producer, start_ms = make_producer(), 1_700_000_000_000
    for number in range(10):
        producer.produce(topic, b"x", timestamp=start_ms + 1000 * number)
        assert producer.flush(20) == 0
    consumer = make_consumer()
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=10) == (0, 10)

    def at(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=10)
        return found.offset

    assert at(start_ms + 3500) == 4
    assert at(0) == 0
    assert at(start_ms + 60_000) == OFFSET_END
    consumer.assign([TopicPartition(topic, 0, at(start_ms + 3500))])
    assert [each.offset() for each in take(consumer, 6)] == list(range(4, 10))
    consumer.seek(TopicPartition(topic, 0, 8))
    assert [each.offset() for each in take(consumer, 2)] == [8, 9]
    consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert [each.offset() for each in take(consumer, 10)] == list(range(10))
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))
    assert consumer.poll(1.0) is None
    send_all(producer, topic, [b"new"])
    assert take(consumer, 1)[0].offset() == 10


def test_a_long_poll_on_an_empty_topic_sees_a_late_record(
    topic: str, make_producer: Any, make_consumer: Any
) -> None:
    consumer = make_consumer({"fetch.wait.max.ms": 300})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(1.2) is None
    send_all(make_producer(), topic, [b"late"])
    assert take(consumer, 1)[0].value() == b"late"


def test_many_partitions_with_small_fetch_limits_all_arrive(
    make_topic: Any, make_producer: Any, make_consumer: Any
) -> None:
    """Limits below a record's size must not stop a consumer (librdkafka's tests 0041 and 0082)."""
    topic, producer = make_topic(partitions=4), make_producer()
    for partition in range(4):
        send_all(producer, topic, [bytes(30_000)] * 10, partition=partition)
    consumer = make_consumer(
        {"fetch.max.bytes": 20_000, "max.partition.fetch.bytes": 1000, "message.max.bytes": 20_000}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(4)])
    got = take(consumer, 40, 30)
    assert sorted({each.partition() for each in got}) == [0, 1, 2, 3]


@pytest.mark.smoke
def test_manual_commits_and_their_metadata(
    topic: str, make_producer: Any, make_consumer: Any, unique: Any
) -> None:
    """As in librdkafka's tests 0099 and 0140."""
    group = unique("group")
    send_all(make_producer(), topic, numbers(20))
    consumer = make_consumer({"group.id": group})
    consumer.subscribe([topic])
    take(consumer, 20)
    consumer.commit(offsets=[TopicPartition(topic, 0, 12, "état")], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert (committed.offset, committed.metadata) == (12, "état")
    consumer.close()
    second = make_consumer({"group.id": group})
    second.subscribe([topic])
    assert take(second, 8)[0].offset() == 12


def test_automatic_commits_and_commit_on_close(
    topic: str, make_producer: Any, make_consumer: Any, unique: Any
) -> None:
    group = unique("group")
    send_all(make_producer(), topic, numbers(10))
    consumer = make_consumer({"group.id": group, "enable.auto.commit": True, "auto.commit.interval.ms": 200})
    consumer.subscribe([topic])
    take(consumer, 10)

    def is_committed() -> bool:
        consumer.poll(0.1)
        return consumer.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 10

    wait_until(is_committed, "the commit interval has passed")
    send_all(make_producer(), topic, numbers(5))
    take(consumer, 5)
    consumer.close()
    onlooker = make_consumer({"group.id": group})
    assert onlooker.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 15


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_group_shares_partitions_over_joins_and_leaves_without_loss(
    strategy: str, make_topic: Any, make_producer: Any, make_consumer: Any, unique: Any
) -> None:
    """Eager and cooperative assignors (librdkafka's test 0113)."""
    topic, group, producer = make_topic(partitions=6), unique("group"), make_producer()
    settings = {
        "group.id": group,
        "partition.assignment.strategy": strategy,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 200,
        "enable.auto.offset.store": False,
    }

    def send_to_all_partitions() -> None:
        for partition in range(6):
            send_all(producer, topic, numbers(10), partition=partition)

    send_to_all_partitions()
    members = [Member(make_consumer(settings), topic) for _ in range(2)]
    wait_until(lambda: is_complete(members, 6), "two members share six partitions")
    members.append(Member(make_consumer(settings), topic))
    wait_until(lambda: is_complete(members, 6), "three members share six partitions")
    if strategy == "cooperative-sticky":
        taken = [each for member in members for each in member.revocations]
        assert all(len(each) < 6 for each in taken[-2:]), "cooperative members keep what they may"
    send_to_all_partitions()
    gone = members.pop(0)
    gone.leave()
    wait_until(lambda: is_complete(members, 6), "the two left share six partitions")
    send_to_all_partitions()
    everyone = [gone, *members]
    wait_until(
        lambda: len({each for member in everyone for each in member.seen}) == 180, "all records are seen", 30
    )
    assert all(member.losses == 0 for member in everyone)
    for member in members:
        member.leave()


def test_group_survives_the_loss_of_a_member(
    make_topic: Any, make_producer: Any, make_consumer: Any, unique: Any, doomed_member: Any
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    doomed = doomed_member("confluent", group, topic)
    doomed.wait_for_partitions(4)
    survivor = Member(
        make_consumer(
            {
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.offset.store": False,
            }
        ),
        topic,
    )
    wait_until(lambda: len(survivor.held) == 2, "both share")
    for partition in range(4):
        send_all(make_producer(), topic, numbers(10), partition=partition)
    doomed.kill()
    wait_until(lambda: len(survivor.held) == 4, "the survivor has all after the session timeout")
    wait_until(lambda: len(set(survivor.seen)) == 40, "nothing is lost")
    survivor.leave()


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    make_topic: Any, make_consumer: Any, unique: Any
) -> None:
    topic, group = make_topic(partitions=4), unique("group")

    def member(instance: str) -> Member:
        settings = {"group.id": group, "group.instance.id": instance, "session.timeout.ms": 20000}
        return Member(make_consumer(settings | {"enable.auto.offset.store": False}), topic)

    stays, returns = member("stays"), member("returns")
    wait_until(lambda: is_complete([stays, returns], 4), "both share")
    held, revocations = set(returns.held), len(stays.revocations)
    returns.leave()
    again = member("returns")
    wait_until(lambda: again.held == held, "the same partitions are back")
    assert len(stays.revocations) == revocations, "the other member was not disturbed"
    stays.leave()
    again.leave()


def test_a_second_static_member_of_the_same_name_fences_the_first(
    topic: str, make_consumer: Any, unique: Any
) -> None:
    """The replaced member gets the error at its next call."""
    group = unique("group")
    settings = {"group.id": group, "group.instance.id": "only one"}
    first = make_consumer(settings)
    first.subscribe([topic])
    wait_until(lambda: first.poll(0.1) is None and first.assignment(), "the first has the partition")
    second = make_consumer(settings)
    second.subscribe([topic])

    def is_fenced() -> bool:
        second.poll(0.05)
        message = first.poll(0.05)
        error = message.error() if message is not None else None
        return error is not None and error.code() == KafkaError._FATAL and "fenced" in str(error)

    wait_until(is_fenced, "the first is fenced")


def test_admin_topics(admin: AdminClient, unique: Any) -> None:
    """Valid and invalid topics in one call, added partitions, deletion."""
    good, bad = unique("good"), unique("bad")
    created = admin.create_topics(
        [
            NewTopic(good, 2, 1, config={"retention.ms": "3600000"}),
            NewTopic(bad, 2, 1, config={"retention.ms": "soon"}),
        ]
    )
    assert created[good].result(15) is None
    with pytest.raises(KafkaException) as refused:
        created[bad].result(15)
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert bad not in admin.list_topics(timeout=10).topics
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(good, 2, 1)])[good].result(15)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(good, 5)])[good].result(15)
    wait_until(
        lambda: len(admin.list_topics(good, timeout=10).topics[good].partitions) == 5,
        "there are 5 partitions",
    )
    described = admin.describe_topics(TopicCollection([good]))[good].result(15)
    assert len(described.partitions) == 5
    assert all(each.leader is not None and len(each.isr) == 1 for each in described.partitions)
    admin.delete_topics([good])[good].result(15)
    wait_until(lambda: good not in admin.list_topics(timeout=10).topics, "the topic is gone")


def test_admin_configs(admin: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    every = admin.describe_configs([resource])[resource].result(15)
    assert len(every) >= 25
    assert every["cleanup.policy"].value == "delete"
    assert every["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value

    def alter(*entries: tuple[str, str | None, AlterConfigOpType]) -> None:
        wanted = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=operation)
                for name, value, operation in entries
            ],
        )
        admin.incremental_alter_configs([wanted])[wanted].result(15)

    def read(key: str) -> ConfigEntry:
        return admin.describe_configs([resource])[resource].result(15)[key]

    alter(
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ("retention.ms", "1000", AlterConfigOpType.SET),
    )
    wait_until(lambda: read("cleanup.policy").value == "delete,compact", "the policy is appended")
    assert read("retention.ms").source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    alter(
        ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT),
        ("retention.ms", None, AlterConfigOpType.DELETE),
    )
    wait_until(lambda: read("cleanup.policy").value == "compact", "the policy is taken away")
    assert read("retention.ms").value == "604800000"
    with pytest.raises(KafkaException) as refused:
        alter(("retention.ms", "soon", AlterConfigOpType.SET))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_admin_groups(
    admin: AdminClient, topic: str, make_producer: Any, make_consumer: Any, unique: Any
) -> None:
    """ListGroups returns a group once, in its current state."""
    group = unique("group")
    send_all(make_producer(), topic, numbers(10))
    consumer = make_consumer({"group.id": group})
    consumer.subscribe([topic])
    take(consumer, 10)
    consumer.commit(asynchronous=False)

    def listed(*states: ConsumerGroupState) -> list[str]:
        found = admin.list_consumer_groups(states=set(states)).result(15)
        assert not found.errors
        return [each.group_id for each in found.valid]

    assert listed().count(group) == 1
    assert group in listed(ConsumerGroupState.STABLE)
    assert group not in listed(ConsumerGroupState.EMPTY)
    described = admin.describe_consumer_groups([group])[group].result(15)
    assert described.state == ConsumerGroupState.STABLE
    (member,) = described.members
    assert [(each.topic, each.partition) for each in member.assignment.topic_partitions] == [(topic, 0)]
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(15)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    consumer.close()

    def committed() -> int:
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
        found = admin.list_consumer_group_offsets(wanted)[group].result(15)
        return found.topic_partitions[0].offset

    assert committed() == 10
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])]
    wait_until(lambda: group in listed(ConsumerGroupState.EMPTY), "the group is empty")
    admin.alter_consumer_group_offsets(wanted)[group].result(15)
    assert committed() == 3
    admin.delete_consumer_groups([group])[group].result(15)
    assert group not in listed()


def test_admin_records_offsets_and_cluster(admin: AdminClient, topic: str, make_producer: Any) -> None:
    send_all(make_producer(), topic, numbers(10))
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return admin.list_offsets({partition: spec})[partition].result(15).offset

    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.max_timestamp()) >= 0
    deleted = TopicPartition(topic, 0, 4)
    assert admin.delete_records([deleted])[deleted].result(15).low_watermark == 4
    assert offset(OffsetSpec.earliest()) == 4
    cluster = admin.describe_cluster(include_authorized_operations=True).result(15)
    assert cluster.cluster_id
    assert cluster.controller.id in [node.id for node in cluster.nodes]
    assert cluster.authorized_operations
