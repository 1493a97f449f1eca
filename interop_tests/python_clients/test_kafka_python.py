"""kafka-python, unmodified: produce, consume, groups, offsets and admin calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka.errors
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, KafkaAdminClient, MemberToRemove, OffsetSpec
from kafka.structs import OffsetAndMetadata

from interop_tests.harness.waiting import wait_until

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def make_producer(bootstrap: str) -> Iterator[Callable[..., KafkaProducer]]:
    made: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=bootstrap, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=5)


@pytest.fixture
def make_consumer(bootstrap: str) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def make(*topics: str, **options: Any) -> KafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False} | options
        made.append(KafkaConsumer(*topics, bootstrap_servers=bootstrap, **settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(autocommit=False, timeout_ms=3000)


def take(consumer: KafkaConsumer, count: int, timeout_s: float = 20.0) -> list[Any]:
    """Exactly count records, in the order of arrival."""
    records: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {timeout_s} s"
        for batch in consumer.poll(timeout_ms=500).values():
            records += batch
    assert len(records) == count
    return records


def send_all(producer: KafkaProducer, topic: str, count: int, partition: int | None = None) -> None:
    for number in range(count):
        producer.send(topic, f"{number}".encode(), partition=partition)
    producer.flush(timeout=20)


class Member:
    """A consumer with its own thread, so that several consumers can take part in rebalances."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.seen: list[tuple[int, int]] = []
        self.assignment: set[TopicPartition] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition, records in self.consumer.poll(timeout_ms=100).items():
                self.seen += [(partition.partition, record.offset) for record in records]
            self.assignment = set(self.consumer.assignment())

    def leave(self) -> None:
        """Stop polling, leave the group."""
        self._stop.set()
        self._thread.join(15)
        self.assignment = set()
        self.consumer.close(autocommit=True, timeout_ms=5000)


def is_complete(members: list[Member], partitions: int) -> bool:
    """Every partition has one owner, and every member has partitions."""
    held = [each.partition for member in members for each in member.assignment]
    return sorted(held) == list(range(partitions)) and all(member.assignment for member in members)


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_every_codec_brings_back_keys_values_headers_and_nulls(
    codec: str | None, topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer(compression_type=codec, linger_ms=20)
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"key", b"value" * 200, [("trace", b"1"), ("trace", b"2"), ("empty", b"")]),
        (None, b"no key", []),
        (b"tombstone", None, []),
        (b"", b"", []),
    ]
    futures = [
        producer.send(topic, value, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + number)
        for number, (key, value, headers) in enumerate(sent)
    ]
    assert [future.get(timeout=20).offset for future in futures] == [0, 1, 2, 3]
    got = take(make_consumer(topic), 4)
    assert [(each.key, each.value, list(each.headers)) for each in got] == sent
    assert [each.timestamp for each in got] == [1_700_000_000_000 + number for number in range(4)]


@pytest.mark.smoke
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(acks: int | str, topic: str, make_producer: Any, make_consumer: Any) -> None:
    producer = make_producer(acks=acks, enable_idempotence=acks == "all")
    send_all(producer, topic, 20)
    assert [each.value for each in take(make_consumer(topic), 20)] == [b"%d" % each for each in range(20)]


def test_idempotent_producer_by_default_with_five_in_flight_keeps_order(
    topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer(batch_size=200, max_in_flight_requests_per_connection=5)
    assert producer.config["enable_idempotence"]
    send_all(producer, topic, 1000)
    assert [int(each.value) for each in take(make_consumer(topic), 1000)] == list(range(1000))


def test_five_in_flight_without_idempotence_keeps_order(
    topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer(
        batch_size=200, max_in_flight_requests_per_connection=5, enable_idempotence=False, acks=1
    )
    send_all(producer, topic, 1000)
    assert [int(each.value) for each in take(make_consumer(topic), 1000)] == list(range(1000))


def test_large_records_up_to_the_limit_pass_and_larger_ones_are_refused(
    topic: str, make_producer: Any, make_consumer: Any
) -> None:
    producer = make_producer(max_request_size=8 << 20)
    value = bytes(1_000_000)
    assert producer.send(topic, value).get(timeout=20).offset == 0
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        producer.send(topic, bytes(2_000_000)).get(timeout=20)
    # After that error kafka-python's idempotent producer cannot be used any more.
    assert make_producer().send(topic, b"after").get(timeout=20).offset == 1
    assert [len(each.value) for each in take(make_consumer(topic), 2)] == [1_000_000, 5]


def test_seek_to_offsets_and_ends(make_topic: Any, make_producer: Any, make_consumer: Any) -> None:
    topic = make_topic()
    send_all(make_producer(), topic, 50)
    partition = TopicPartition(topic, 0)
    consumer = make_consumer()
    consumer.assign([partition])
    consumer.seek(partition, 40)
    assert [each.offset for each in take(consumer, 10)] == list(range(40, 50))
    consumer.seek_to_beginning(partition)
    assert take(consumer, 50)[0].offset == 0
    consumer.seek_to_end(partition)
    assert consumer.position(partition) == 50
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 50}


def test_offsets_for_times(topic: str, make_producer: Any, make_consumer: Any) -> None:
    producer = make_producer()
    start_ms = 1_700_000_000_000
    for number in range(10):
        producer.send(topic, b"x", timestamp_ms=start_ms + 1000 * number).get(timeout=20)
    partition = TopicPartition(topic, 0)
    consumer = make_consumer()
    found = consumer.offsets_for_times({partition: start_ms + 3500})[partition]
    assert (found.offset, found.timestamp) == (4, start_ms + 4000)
    assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
    assert consumer.offsets_for_times({partition: start_ms + 9001})[partition] is None
    consumer.assign([partition])
    consumer.seek(partition, found.offset)
    assert take(consumer, 6)[0].timestamp == start_ms + 4000


def test_a_position_outside_the_log_is_reset(topic: str, make_producer: Any, make_consumer: Any) -> None:
    send_all(make_producer(), topic, 5)
    partition = TopicPartition(topic, 0)
    consumer = make_consumer(auto_offset_reset="earliest")
    consumer.assign([partition])
    consumer.seek(partition, 1000)
    assert [each.offset for each in take(consumer, 5)] == list(range(5))


def test_a_long_poll_on_an_empty_topic_ends_and_sees_a_late_record(
    topic: str, make_producer: Any, make_consumer: Any
) -> None:
    consumer = make_consumer(topic, fetch_max_wait_ms=300)
    assert consumer.poll(timeout_ms=1000) == {}
    make_producer().send(topic, b"late").get(timeout=20)
    assert take(consumer, 1)[0].value == b"late"


@pytest.mark.smoke
def test_manual_commit_with_metadata_is_where_the_next_member_starts(
    topic: str, unique: Any, make_producer: Any, make_consumer: Any
) -> None:
    """The metadata text of a committed offset is returned unchanged."""
    group, partition = unique("group"), TopicPartition(topic, 0)
    send_all(make_producer(), topic, 20)
    first = make_consumer(topic, group_id=group)
    take(first, 20)
    text = '{"where": "hälfte"}'
    first.commit({partition: OffsetAndMetadata(12, text, -1)})
    committed = first.committed(partition, metadata=True)
    assert (committed.offset, committed.metadata) == (12, text)
    first.close(autocommit=False)
    second = make_consumer(topic, group_id=group)
    assert take(second, 8)[0].offset == 12


def test_automatic_commits_and_commit_on_close(
    topic: str, unique: Any, make_producer: Any, make_consumer: Any
) -> None:
    group, partition = unique("group"), TopicPartition(topic, 0)
    send_all(make_producer(), topic, 10)
    consumer = make_consumer(topic, group_id=group, enable_auto_commit=True, auto_commit_interval_ms=200)
    take(consumer, 10)

    def is_committed() -> bool:
        consumer.poll(timeout_ms=100)
        return consumer.committed(partition) == 10

    wait_until(is_committed, "the commit interval has passed")
    send_all(make_producer(), topic, 5)
    take(consumer, 5)
    consumer.close(autocommit=True)
    assert make_consumer(group_id=group).committed(partition) == 15


def test_group_shares_partitions_over_joins_and_leaves_without_loss(
    make_topic: Any, unique: Any, make_producer: Any, make_consumer: Any
) -> None:
    topic, group = make_topic(partitions=6), unique("group")
    producer = make_producer()
    options = {
        "group_id": group,
        "enable_auto_commit": True,
        "auto_commit_interval_ms": 200,
        "heartbeat_interval_ms": 300,
        "session_timeout_ms": 6000,
    }
    send_all(producer, topic, 60)
    members = [Member(make_consumer(topic, **options)) for _ in range(2)]
    wait_until(lambda: is_complete(members, 6), "two members share six partitions")
    members.append(Member(make_consumer(topic, **options)))
    wait_until(lambda: is_complete(members, 6), "three members share six partitions")
    send_all(producer, topic, 60)
    gone = members.pop(0)
    gone.leave()
    wait_until(lambda: is_complete(members, 6), "the two left share six partitions")
    send_all(producer, topic, 60)
    everyone = [gone, *members]
    wait_until(
        lambda: len({each for member in everyone for each in member.seen}) == 180, "all records are seen", 30
    )
    for member in members:
        member.leave()


def test_group_survives_the_loss_of_a_member(
    make_topic: Any, unique: Any, make_producer: Any, make_consumer: Any, doomed_member: Any
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    doomed = doomed_member("kafka-python", group, topic)
    doomed.wait_for_partitions(4)
    survivor = Member(
        make_consumer(topic, group_id=group, session_timeout_ms=6000, heartbeat_interval_ms=500)
    )
    wait_until(lambda: len(survivor.assignment) == 2, "both share")
    send_all(make_producer(), topic, 40)
    doomed.kill()
    wait_until(lambda: len(survivor.assignment) == 4, "the survivor has all after the session timeout")
    # The lost member never committed, so the other member reads its partitions from the start.
    wait_until(lambda: len(set(survivor.seen)) == 40, "nothing is lost")
    survivor.leave()


def test_static_member_comes_back_to_its_partitions_without_a_rebalance(
    make_topic: Any, unique: Any, make_consumer: Any, admin: KafkaAdminClient
) -> None:
    topic, group = make_topic(partitions=4), unique("group")
    options = {"group_id": group, "session_timeout_ms": 20000, "heartbeat_interval_ms": 300}
    stays = Member(make_consumer(topic, group_instance_id="stays", **options))
    returns = Member(make_consumer(topic, group_instance_id="returns", **options))
    wait_until(lambda: is_complete([stays, returns], 4), "both share")
    held, kept = set(returns.assignment), set(stays.assignment)
    returns.leave()
    again = Member(make_consumer(topic, group_instance_id="returns", **options))
    wait_until(lambda: again.assignment == held, "the same partitions are back")
    assert stays.assignment == kept
    members = admin.describe_groups([group])[group]["members"]
    assert sorted(each["group_instance_id"] for each in members) == ["returns", "stays"]
    stays.leave()
    again.leave()
    removed = admin.remove_group_members(
        group, [MemberToRemove(group_instance_id=name) for name in ("stays", "returns")]
    )
    assert [error.errno for error in removed.values()] == [0, 0]


def test_admin_topics(admin: KafkaAdminClient, unique: Any) -> None:
    name = unique("made")
    created = admin.create_topics(
        {name: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}},
        wait_for_metadata=True,
    )
    assert created["topics"][0]["num_partitions"] == 2
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
    assert name in admin.list_topics()
    admin.create_partitions({name: 5})
    wait_until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5, "there are 5 partitions")
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        admin.create_partitions({name: 3})
    admin.delete_topics([name])
    wait_until(lambda: name not in admin.list_topics(), "the topic is gone")
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_admin_configs(admin: KafkaAdminClient, topic: str) -> None:
    resource = ConfigResource("TOPIC", topic)

    def read(key: str) -> dict[str, Any]:
        described = admin.describe_configs([resource], config_filter="all")
        return next(iter(described.values()))[topic][key]

    assert read("cleanup.policy")["config_source"] == "DEFAULT_CONFIG"
    change = {
        "retention.ms": "7200000",
        "cleanup.policy": (AlterConfigOp.APPEND, "compact"),
    }
    assert admin.alter_configs([ConfigResource("TOPIC", topic, change)]) == {"topic": {topic: "OK"}}
    wait_until(lambda: read("retention.ms")["value"] == "7200000", "the setting is there")
    assert read("retention.ms")["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert read("cleanup.policy")["value"] == "delete,compact"
    back = {"retention.ms": (AlterConfigOp.DELETE, None)}
    admin.alter_configs([ConfigResource("TOPIC", topic, back)])
    wait_until(lambda: read("retention.ms")["value"] == "604800000", "the default is back")
    refused = admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "soon"})])
    assert "retention.ms" in refused["topic"][topic]


def test_admin_groups(
    admin: KafkaAdminClient, topic: str, unique: Any, make_producer: Any, make_consumer: Any
) -> None:
    group, partition = unique("group"), TopicPartition(topic, 0)
    send_all(make_producer(), topic, 10)
    consumer = make_consumer(topic, group_id=group)
    take(consumer, 10)
    consumer.commit()
    described = admin.describe_groups([group])[group]
    assert described["group_state"] == "Stable"
    assert len(described["members"]) == 1
    assert group in [each["group_id"] for each in admin.list_groups(states_filter=["Stable"])]
    assert group not in [each["group_id"] for each in admin.list_groups(states_filter=["Empty"])]
    assert admin.list_group_offsets([group])[group][partition].offset == 10
    assert admin.delete_groups([group])[group] != "OK"
    consumer.close()
    wait_until(lambda: admin.describe_groups([group])[group]["group_state"] == "Empty", "the group is empty")
    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(3, "", -1)})
    assert admin.list_group_offsets([group])[group][partition].offset == 3
    admin.reset_group_offsets(group, {partition: OffsetSpec.LATEST})
    assert admin.list_group_offsets([group])[group][partition].offset == 10
    admin.delete_group_offsets(group, [partition])
    assert partition not in admin.list_group_offsets([group])[group]
    admin.delete_groups([group])
    assert group not in [each["group_id"] for each in admin.list_groups()]


def test_admin_records_offsets_cluster_and_log_dirs(
    admin: KafkaAdminClient, topic: str, make_producer: Any
) -> None:
    partition = TopicPartition(topic, 0)
    send_all(make_producer(), topic, 10)
    assert admin.list_partition_offsets({partition: OffsetSpec.LATEST})[partition].offset == 10
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert admin.list_partition_offsets({partition: OffsetSpec.EARLIEST})[partition].offset == 4
    cluster = admin.describe_cluster()
    ids = [broker["broker_id"] for broker in cluster["brokers"]]
    assert cluster["controller_id"] in ids
    assert cluster["cluster_id"]
    (of_broker,) = admin.describe_log_dirs([topic])
    sizes = [
        each["partition_size"]
        for log_dir in of_broker["log_dirs"]
        for of_topic in log_dir["topics"]
        for each in of_topic["partitions"]
        if of_topic["name"] == topic
    ]
    assert len(sizes) == 1
    assert sizes[0] > 0
