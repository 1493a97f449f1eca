"""The broker's data after kill -9 and a restart, and how clients continue."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.harness.broker import BrokerProcess, chosen_kind
from interop_tests.harness.groups import Member, coordinator, settle
from interop_tests.harness.raw_kafka import (
    ErrorCode,
    create_topic,
    fetch,
    fetch_batches,
    fetch_body,
    fetch_records,
    list_offset,
    metadata,
    produce,
    produce_body,
    topic_id,
)
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed

pytestmark = pytest.mark.needs_control
MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """For tests that kill or stop it, and start it again. Each has its own topic and group."""
    process = BrokerProcess(chosen_kind(), tmp_path_factory.mktemp("restarts") / "broker")
    process.start()
    yield process
    process.kill()


@pytest.fixture
def broker(shared: BrokerProcess) -> BrokerProcess:
    if shared.process is None or shared.process.poll() is not None:
        shared.start()  # the test before has failed
    return shared


def wait_for_log(connection: Connection, topic: str, partition: int = 0) -> None:
    """Wait until the leader serves the partition again after a restart."""
    wait_until(lambda: list_offset(connection, topic, partition, -1)[0] == 0, f"{topic} is served", 60)


def test_everything_acknowledged_is_there_after_kill_9(broker: BrokerProcess) -> None:
    """Records of every codec, settings, topic ids, committed offsets, producer state."""
    create_topic(broker.bootstrap, "kept", 3, {"retention.ms": "-1", "segment.bytes": "1048576"})
    acknowledged: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    # Current timestamps, because the state of a producer without records for a day is dropped.
    now_ms = int(time.time() * 1000)
    idempotent = BatchPlan(producer_id=77_000, producer_epoch=0, base_sequence=0, base_timestamp_ms=now_ms)
    with Connection(broker.bootstrap) as connection:
        number = topic_id(connection, "kept")
        for partition in acknowledged:
            for each in range(60):
                codec = ["none", "gzip", "snappy", "lz4", "zstd"][each % 5]
                value = b"%d/%d " % (partition, each) + bytes(each * 100)
                result = produce(connection, "kept", BatchPlan(values=[value], codec=codec), partition)
                assert (result["ErrorCode"], result["BaseOffset"]) == (0, each)
                acknowledged[partition].append(value)
        assert produce(connection, "kept", idempotent)["BaseOffset"] == 60
        coordinator(connection, "group")
        assert Member(broker.bootstrap, "group").commit("kept", 41, "here") == 0
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        for partition, values in acknowledged.items():
            wait_for_log(connection, "kept", partition)
            offset, found = 0, []
            while offset < 60:
                records = fetch_records(connection, "kept", offset, partition)
                found += records
                offset = records[-1].offset + 1
            assert [each.value for each in found if each.offset < 60] == values
            assert [each.offset for each in found] == list(range(len(found)))
        assert topic_id(connection, "kept") == number
        again = produce(connection, "kept", idempotent)
        assert (again["ErrorCode"], again["BaseOffset"]) == (0, 60), "a retry across the restart is known"
        resource = {"ResourceType": 2, "ResourceName": "kept", "ConfigurationKeys": ["retention.ms"]}
        reply = connection.call("DescribeConfigs", 4, {"Resources": [resource]})
        assert reply["Results"][0]["Configs"][0]["Value"] == "-1"
        coordinator(connection, "group")
        asked = {"GroupId": "group", "Topics": [{"Name": "kept", "PartitionIndexes": [0]}]}
        reply = wait_until(
            lambda: next(
                (answer for answer in [connection.call("OffsetFetch", 7, asked)] if answer["ErrorCode"] == 0),
                None,
            ),
            "the group is loaded",
        )
        (found_offset,) = reply["Topics"][0]["Partitions"]
        assert (found_offset["CommittedOffset"], found_offset["Metadata"]) == (41, "here")


def test_a_torn_tail_is_cut_and_the_log_goes_on(broker: BrokerProcess) -> None:
    """Half a batch at the end of the newest segment, as after a kill in the middle of a write."""
    create_topic(broker.bootstrap, "torn")
    with Connection(broker.bootstrap) as connection:
        for _ in range(5):
            produce(connection, "torn", BatchPlan(values=[b"whole"]))
    broker.kill()
    (segment,) = sorted((broker.data_dir / "torn-0").glob("*.log"))
    with open(segment, "ab") as file:
        file.write(BatchPlan(values=[bytes(500)], base_offset=5).encode()[:200])
    broker.start()
    with Connection(broker.bootstrap) as connection:
        wait_for_log(connection, "torn")
        assert list_offset(connection, "torn", 0, -1)[1] == 5
        assert [each.value for each in fetch_records(connection, "torn")] == [b"whole"] * 5
        assert produce(connection, "torn", BatchPlan(values=[b"after"]))["BaseOffset"] == 5
        assert fetch_records(connection, "torn", 5)[0].value == b"after"


def test_a_clean_stop_ends_with_status_0_and_loses_nothing(broker: BrokerProcess) -> None:
    create_topic(broker.bootstrap, "stopped")
    with Connection(broker.bootstrap) as connection:
        for acks in (1, -1, 0):
            connection.send("Produce", 9, _body(acks)) if acks == 0 else produce(
                connection, "stopped", BatchPlan(values=[b"%d" % acks]), acks=acks
            )
        wait_until(lambda: list_offset(connection, "stopped", 0, -1)[1] == 3, "all three are there")
    assert broker.stop() in (0, 143)
    broker.start()
    with Connection(broker.bootstrap) as connection:
        wait_for_log(connection, "stopped")
        assert [each.value for each in fetch_records(connection, "stopped")] == [b"1", b"-1", b"0"]


def _body(acks: int) -> dict[str, Any]:
    return produce_body("stopped", BatchPlan(values=[b"0"]), acks=acks)


def test_epochs_after_a_restart(broker: BrokerProcess) -> None:
    """Each record keeps its leader epoch. A follower with the older epoch gets the offset of divergence."""
    create_topic(broker.bootstrap, "epochs")
    with Connection(broker.bootstrap) as connection:
        produce(connection, "epochs", BatchPlan(values=[b"a", b"b"]))
        first = metadata(connection, "epochs")["Partitions"][0]["LeaderEpoch"]
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        wait_for_log(connection, "epochs")
        second = metadata(connection, "epochs")["Partitions"][0]["LeaderEpoch"]
        assert second > first, "a new leader, a new epoch"
        produce(connection, "epochs", BatchPlan(values=[b"c"]))
        assert [batch.leader_epoch for batch in fetch_batches(connection, "epochs")] == [first, second]
        result = fetch(connection, "epochs", 3, MaxWaitMs=0, last_fetched_epoch=first)
        assert result["DivergingEpoch"] == {"Epoch": first, "EndOffset": 2}
        asked = {"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": first}
        body = {"ReplicaId": -1, "Topics": [{"Topic": "epochs", "Partitions": [asked]}]}
        (end,) = connection.call("OffsetForLeaderEpoch", 4, body)["Topics"][0]["Partitions"]
        assert (end["LeaderEpoch"], end["EndOffset"]) == (first, 2)
        # A client with an older epoch gets an error. From version 16 the response includes the present leader.
        fenced = fetch(connection, "epochs", 0, MaxWaitMs=0, current_leader_epoch=first)
        assert fenced["ErrorCode"] == ErrorCode.FENCED_LEADER_EPOCH
        body = fetch_body("epochs", 0, MaxWaitMs=0, current_leader_epoch=first)
        body["Topics"][0].pop("Topic")
        body["Topics"][0]["TopicId"] = topic_id(connection, "epochs")
        body.pop("ReplicaId")
        reply = connection.call("Fetch", 16, body)
        (fenced,) = reply["Responses"][0]["Partitions"]
        assert fenced["ErrorCode"] == ErrorCode.FENCED_LEADER_EPOCH
        assert fenced["CurrentLeader"] == {"LeaderId": 1, "LeaderEpoch": second}
        assert [(each["NodeId"], each["Port"]) for each in reply["NodeEndpoints"]] == [(1, broker.port)]


def test_a_producer_and_a_consumer_go_on_across_kill_9(broker: BrokerProcess) -> None:
    """No acknowledged record is lost, no record of an idempotent producer is duplicated, and the order is kept."""
    create_topic(broker.bootstrap, "flow")
    delivered: list[int] = []
    stop = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 200,
        }
    )

    def produce_on() -> None:
        number = 0
        while not stop.is_set():
            value = number

            def note(error: Any, _: Any, value: int = value) -> None:
                assert error is None
                delivered.append(value)

            producer.produce("flow", b"%d" % value, on_delivery=note)
            producer.poll(0.001)
            number += 1
        assert producer.flush(60) == 0

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "flow",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(["flow"])
    seen: list[int] = []

    def consume_until(count: int, what: str) -> None:
        def step() -> bool:
            for each in consumer.consume(500, 0.2):
                if not each.error():
                    seen.append(int(each.value()))
            return len(seen) >= count

        wait_until(step, what, 60, 0)

    thread = threading.Thread(target=produce_on)
    thread.start()
    try:
        consume_until(200, "records flow")
        broker.kill()
        broker.start()
        consume_until(len(seen) + 500, "records flow again")
    finally:
        stop.set()
        thread.join(90)
    consume_until(len(delivered), "all that was acknowledged is seen")
    consumer.close()
    assert sorted(set(seen)) == list(range(max(seen) + 1))
    first_time = list(dict.fromkeys(seen))
    assert first_time == sorted(first_time)
    with Connection(broker.bootstrap) as connection:
        assert list_offset(connection, "flow", 0, -1)[1] == len(delivered), "nothing is stored twice"


def test_members_of_a_group_go_on_after_a_restart(broker: BrokerProcess) -> None:
    """The group is loaded with its members and generation. A member that heartbeats in time stays."""
    create_topic(broker.bootstrap, "joined")
    with Connection(broker.bootstrap) as connection:
        coordinator(connection, "members")
    member = Member(broker.bootstrap, "members", session_timeout_ms=30_000)
    settle([member])
    assert member.commit("joined", 3) == 0
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        coordinator(connection, "members")
    member.connection = Connection(broker.bootstrap)

    def is_known() -> bool:
        try:
            return member.heartbeat() == 0
        except ConnectionClosed:
            member.connection = Connection(broker.bootstrap)
            return False

    wait_until(is_known, "the member is known again")
    assert member.sync()["Assignment"] == b"plan 0"
    assert member.commit("joined", 4) == 0
    member.close()


def test_the_coordinator_answers_from_the_first_second(make_broker: MakeBroker) -> None:
    """While the offsets topic is created, the response is the retriable COORDINATOR_NOT_AVAILABLE."""
    broker = make_broker()
    with Connection(broker.bootstrap) as connection:
        assert coordinator(connection, "first") == 1


def test_auto_creation_switched_off(make_broker: MakeBroker) -> None:
    """The broker's setting forbids what the request permits."""
    broker = make_broker({"auto.create.topics.enable": "false"})
    with Connection(broker.bootstrap) as connection:
        asked = {"Topics": [{"Name": "never"}], "AllowAutoTopicCreation": True}
        for _ in range(3):
            assert connection.call("Metadata", 12, asked)["Topics"][0]["ErrorCode"] == 3
        assert connection.call("Metadata", 12, {"Topics": None})["Topics"] == []


def test_the_initial_delay_is_the_brokers_setting(make_broker: MakeBroker) -> None:
    broker = make_broker({"group.initial.rebalance.delay.ms": "1200"})
    with Connection(broker.bootstrap) as connection:
        coordinator(connection, "group")
    member = Member(broker.bootstrap, "group")
    number = member.begin()
    started = time.monotonic()
    assert member.receive_join(number)["ErrorCode"] == 0
    assert time.monotonic() - started > 0.9
    member.close()


def test_a_full_group_refuses(make_broker: MakeBroker) -> None:
    """GROUP_MAX_SIZE_REACHED from group.max.size on."""
    broker = make_broker({"group.max.size": "1"})
    with Connection(broker.bootstrap) as connection:
        coordinator(connection, "group")
    first, second = (Member(broker.bootstrap, "group") for _ in range(2))
    settle([first])
    assert second.join()["ErrorCode"] == 81
    assert first.heartbeat() == 0


STARTS = 20 if os.environ.get("KAFKACOMPAT_SOAK") else 3
CONNECT_TIMEOUT_S = 60.0


def connected_at_once(broker: BrokerProcess) -> Connection:
    """The first connection that the broker's port accepts, at most a few milliseconds after the port opens."""
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        assert broker.process is not None
        assert broker.process.poll() is None, broker.log_text()[-3000:]
        try:
            return Connection(broker.bootstrap)
        except OSError:
            assert time.monotonic() < deadline, "the port does not open"
            time.sleep(0.002)


def test_the_first_answer_of_a_port_that_opens_names_brokers_and_a_controller(
    make_broker: MakeBroker,
) -> None:
    """A client that waits for the port connects at this moment. librdkafka asks once, and after an empty response not
    again for minutes."""
    broker = make_broker(start=False)
    for number in range(STARTS):
        broker.launch()
        with connected_at_once(broker) as connection:
            answer = connection.call("Metadata", 12, {"Topics": []})
            assert [each["NodeId"] for each in answer["Brokers"]] == [1], number
            assert answer["ControllerId"] == 1
        broker.kill()


def test_a_topic_is_made_by_whoever_asks_as_the_port_opens(make_broker: MakeBroker) -> None:
    broker = make_broker(start=False)
    for number in range(STARTS):
        broker.launch()
        body = {
            "Topics": [
                {
                    "Name": f"t{number}",
                    "NumPartitions": 1,
                    "ReplicationFactor": 1,
                    "Assignments": [],
                    "Configs": [],
                }
            ],
            "timeoutMs": 15000,
        }
        with connected_at_once(broker) as connection:
            assert connection.call("CreateTopics", 7, body)["Topics"][0]["ErrorCode"] == 0
        broker.kill()


def test_librdkafka_makes_a_topic_as_the_port_opens(make_broker: MakeBroker) -> None:
    broker = make_broker(start=False)
    for number in range(STARTS):
        broker.launch()
        connected_at_once(broker).close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (made,) = admin.create_topics([NewTopic(f"t{number}", 1, 1)], operation_timeout=15).values()
        made.result(20)
        broker.kill()
