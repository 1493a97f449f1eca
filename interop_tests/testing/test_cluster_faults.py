"""What a test does to a cluster, as clients see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.waiting import wait_until
from kafkacompat.exchanges.reasons import PartitionState
from kafkacompat.server.node_state import NodeState
from kafkacompat.testing.kafka import Kafka
from kafkacompat.wire.messages.metadata_request import MetadataRequest

pytestmark = [pytest.mark.needs_control, pytest.mark.kafka(scope="module")]
WAIT_S = 30


@pytest.fixture
def kafka(kafka_cluster: Kafka) -> Iterator[Kafka]:
    """Three nodes, which all serve before each test and after it."""
    yield kafka_cluster
    kafka_cluster.heal()
    for node_id, node in kafka_cluster.nodes.items():
        kafka_cluster.resume_node(node_id)
        if not node.is_running:
            kafka_cluster.start_node(node_id)
    request = MetadataRequest(topics=[])
    wait_until(
        lambda: all(len(kafka_cluster.ask(each, request).brokers) == 3 for each in kafka_cluster.nodes),
        "all brokers serve",
    )


def state(kafka: Kafka, topic: str, index: int = 0, node_id: int = 1) -> PartitionState:
    node = kafka.nodes[node_id]
    found = node.call(lambda: NodeState(node.server, node_id).partition(topic, index))
    assert found is not None
    return found


def produce(kafka: Kafka, topic: str, value: bytes, **settings: Any) -> None:
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, **settings})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(WAIT_S)
    assert told == [None]


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def test_a_leader_moves_and_a_client_follows(kafka: Kafka) -> None:
    topic = kafka.topic("moved", replication_factor=3)
    produce(kafka, topic, b"0")
    for node_id in (1, 2, 3, 1):
        kafka.move_leader(topic, to=node_id)
        assert state(kafka, topic).leader == node_id
        produce(kafka, topic, b"%d" % node_id)
    assert values(kafka, topic) == [b"0", b"1", b"2", b"3", b"1"]


def test_a_refusal_names_the_leader_that_a_client_does_not_know_yet(kafka: Kafka) -> None:
    topic = kafka.topic("refused", replication_factor=3)
    kafka.move_leader(topic, to=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "client.id": "stale", "log_level": 0})
    producer.produce(topic, b"1")
    producer.flush(WAIT_S)
    kafka.move_leader(topic, to=2)
    producer.produce(topic, b"2")
    producer.flush(WAIT_S)
    refused = [each for each in kafka.requests(api="Produce", client_id="stale") if each.errors]
    epoch = state(kafka, topic).leader_epoch
    since = f"since epoch {epoch}, which began after move_leader made node 2 the leader of {topic}-0"
    assert [each.reasons for each in refused] == [
        (f"NOT_LEADER_OR_FOLLOWER: {topic}-0 is led by node 2 {since}; node 1 follows it",)
    ]
    assert values(kafka, topic) == [b"1", b"2"]


def test_too_few_replicas_in_sync(kafka: Kafka) -> None:
    topic = kafka.topic("shrunk", replication_factor=3, configs={"min.insync.replicas": 2})
    kafka.move_leader(topic, to=1)
    fault = kafka.shrink_isr(topic, to=[1])
    assert set(state(kafka, topic, node_id=3).isr) == {1}
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "acks": "all",
            "message.timeout.ms": 1500,
            "log_level": 0,
        }
    )
    told: list[Any] = []
    producer.produce(topic, b"lost", on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(WAIT_S)
    assert told
    reasons = {each for request in kafka.requests(api="Produce") for each in request.reasons}
    why = f"{topic}-0 has 1 replicas in sync (nodes 1), and min.insync.replicas is 2; shrink_isr left only nodes [1] in sync"
    assert f"NOT_ENOUGH_REPLICAS: {why}" in reasons
    fault.remove()
    wait_until(lambda: set(state(kafka, topic).isr) == {1, 2, 3}, "the replicas are in sync again")
    produce(kafka, topic, b"kept")
    assert values(kafka, topic)[-1] == b"kept"


def test_a_leader_that_stands_still(kafka: Kafka) -> None:
    topic = kafka.topic("paused", replication_factor=3)
    kafka.move_leader(topic, to=3)
    kafka.pause_node(3)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "acks": "all",
            "socket.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    told: list[Any] = []
    producer.produce(topic, b"1", on_delivery=lambda error, _: told.append(error))
    wait_until(lambda: producer.poll(0.1) or told, "another node leads and takes the record", 60)
    assert told == [None]
    assert state(kafka, topic).leader != 3
    kafka.resume_node(3)
    wait_until(lambda: 3 in state(kafka, topic).isr, "it follows again", 60)
    assert values(kafka, topic) == [b"1"]


def test_a_node_that_is_cut_off_loses_its_partitions_and_comes_back(kafka: Kafka) -> None:
    topic = kafka.topic("cut", replication_factor=3)
    kafka.move_leader(topic, to=1)
    kafka.partition([1], [2, 3])
    wait_until(lambda: state(kafka, topic, node_id=2).leader != 1, "another node leads", 60)
    kafka.heal()
    wait_until(lambda: set(state(kafka, topic).isr) == {1, 2, 3}, "all are in sync", 60)
    produce(kafka, topic, b"1")
    assert values(kafka, topic) == [b"1"]


@pytest.mark.parametrize("end", ["kill_node", "stop_node"])
def test_a_node_ends_and_comes_back_with_its_records(kafka: Kafka, end: str) -> None:
    topic = kafka.topic("ended", replication_factor=1)
    kafka.move_leader(topic, to=2)
    produce(kafka, topic, b"1")
    getattr(kafka, end)(2)
    kafka.start_node(2)
    kafka.restart_node(2)
    produce(kafka, topic, b"2")
    assert values(kafka, topic) == [b"1", b"2"]


def test_a_coordinator_moves_and_a_producer_is_fenced(kafka: Kafka) -> None:
    topic = kafka.topic("fenced")
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "moved", "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    for node_id in (1, 2):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % node_id)
        kafka.move_coordinator(transactional_id="moved", to=node_id)
        producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"3")
    producer.flush(WAIT_S)
    kafka.fence_producer("moved")
    with pytest.raises(KafkaException) as failed:
        producer.commit_transaction(WAIT_S)
    assert failed.value.args[0].fatal()
    outcomes = [each.transaction for each in kafka.records(topic)]
    assert outcomes == ["committed", "committed", "aborted"]


class Member:
    """A consumer that notes what it is given."""

    def __init__(self, kafka: Kafka, group: str, topic: str, protocol: str) -> None:
        self.partitions: set[int] = set()
        self.given = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        self.consumer = Consumer(settings)
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def _assigned(self, _: Any, partitions: Any) -> None:
        self.given += 1
        self.partitions |= {each.partition for each in partitions}

    def _revoked(self, _: Any, partitions: Any) -> None:
        self.partitions -= {each.partition for each in partitions}

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        def polled() -> bool:
            self.consumer.poll(0.05)
            return condition()

        wait_until(polled, what)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_whose_session_has_ended_joins_again(kafka: Kafka, protocol: str) -> None:
    topic, group = kafka.topic("left", partitions=2), f"left-{protocol}"
    member = Member(kafka, group, topic, protocol)
    member.poll_until(lambda: member.partitions == {0, 1}, "it has both partitions")
    first = kafka.groups()[group].members[0].member_id
    before = member.given
    kafka.expire_session(group, first)
    assert first not in {each.member_id for each in kafka.groups()[group].members}
    member.poll_until(lambda: member.given > before and member.partitions == {0, 1}, "it has them again")
    reasons = [
        each for request in kafka.requests() for each in request.reasons if "UNKNOWN_MEMBER_ID" in each
    ]
    assert any(f"has no member {first!r}" in each for each in reasons)
    member.consumer.close()


def test_a_target_assignment_is_the_tests(kafka: Kafka) -> None:
    topic, group = kafka.topic("assigned", partitions=3), "assigned"
    member = Member(kafka, group, topic, "consumer")
    member.poll_until(lambda: member.partitions == {0, 1, 2}, "it has all partitions")
    (joined,) = kafka.groups()[group].members
    kafka.assign(group, {joined.member_id: {topic: [1]}})
    member.poll_until(lambda: member.partitions == {1}, "it has what it is given")
    kafka.assign(group, {joined.member_id: {topic: [0, 2]}})
    member.poll_until(lambda: member.partitions == {0, 2}, "it has what it is given")
    with pytest.raises(ValueError, match="no member 'nobody'"):
        kafka.assign(group, {"nobody": {topic: [0]}})
    member.consumer.close()


def test_a_forwarded_request_meets_a_fault_once_and_is_an_envelope_at_the_controller(kafka: Kafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    asked_for = kafka.faults.delay(10, api="CreateTopics", times=None)
    envelope = kafka.faults.close(api="Envelope", optional=True)
    before = len(kafka.requests(api="CreateTopics"))
    (made,) = admin.create_topics([NewTopic("forwarded", 1, 1)], request_timeout=WAIT_S).values()
    made.result(WAIT_S)
    assert asked_for.hits == 1
    assert [each.errors for each in kafka.requests(api="CreateTopics")[before:]] == [()]
    for each in kafka.requests(api="Envelope"):  # none if the client has asked the controller's node
        assert each.request.request_data == b"(masked)"
    assert envelope.hits <= 1
    kafka.delete_topic("forwarded")
