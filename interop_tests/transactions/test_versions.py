"""Clients use the finalized transaction.version: at 0 and 1 one epoch for all transactions, at 2 a new epoch for each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.raw.test_cluster_admin import SAFE, UPGRADE, finalized, update_features
from interop_tests.transactions.by_hand import NEW, OLD, Producer, Protocol
from interop_tests.transactions.test_by_hand import committed
from interop_tests.transactions.test_clients import confluent_producer, read_all

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
FEATURE = "transaction.version"
RECORDS = 300


def set_level(connection: Connection, level: int, kind: int) -> None:
    assert update_features(connection, 2, (FEATURE, level, kind))["ErrorCode"] == 0
    wait_until(lambda: finalized(connection).get(FEATURE, 0) == level, f"{FEATURE} is {level}")


def run_java(tools: KafkaTools, bootstrap: str, topic: str, name: str) -> None:
    """Kafka's producer, one transaction after the other."""
    output = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "50", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "5"),
        *("--producer-props", f"bootstrap.servers={bootstrap}"),
        timeout_s=90,
    )
    assert output.status == 0, output


def run_librdkafka(bootstrap: str, topic: str, name: str) -> None:
    producer = confluent_producer(bootstrap, name)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        if number % 2:
            producer.flush()
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)


def run_by_hand(connection: Connection, topic: str, name: str, protocol: Protocol) -> list[int]:
    """Two transactions. Returns the coordinator's epochs after each step."""
    producer = Producer(connection, name, protocol).init()
    epochs = [producer.epoch]
    for commit in (True, False):
        producer.send(topic, b"%r" % commit)
        producer.finish(commit)
        producer.wait_for("CompleteCommit", "CompleteAbort")
        epochs.append(producer.describe()["ProducerEpoch"])
    return epochs


@pytest.mark.parametrize("level", [0, 1])
def test_the_level_is_what_clients_go_by(tools: KafkaTools, make_broker: MakeBroker, level: int) -> None:
    broker = make_broker()
    with Connection(broker.bootstrap) as connection:
        set_level(connection, level, SAFE)
        for topic in ("before", "by-hand", "after"):
            create_topic(broker.bootstrap, topic)
        run_java(tools, broker.bootstrap, "before", "java")
        run_librdkafka(broker.bootstrap, "before", "librdkafka")
        assert len(read_all(broker.bootstrap, "before")) == RECORDS + 2
        idle = Producer(connection, "java", OLD)
        assert idle.describe()["ProducerEpoch"] == 0, "one epoch, however many transactions"
        assert run_by_hand(connection, "by-hand", "old", OLD) == [0, 0, 0]
        # A client with an outdated level is served in the versions that it sends. At level 0, Apache Kafka's records
        # have no field for the state that it stores for such a client.
        if level == 1:
            assert run_by_hand(connection, "by-hand", "new", NEW) == [0, 1, 2]
        open_one = Producer(connection, "open", OLD).init()
        open_one.send("by-hand", b"over the upgrade")

        set_level(connection, 2, UPGRADE)
        open_one.finish(True)
        open_one.wait_for("CompleteCommit")
        assert committed(connection, "by-hand") == [b"True"] * (1 + level) + [b"over the upgrade"]
        run_java(tools, broker.bootstrap, "after", "java")
        run_librdkafka(broker.bootstrap, "after", "librdkafka")
        assert len(read_all(broker.bootstrap, "after")) == RECORDS + 2
        assert idle.describe()["ProducerEpoch"] > 1, (
            "the second producer's own is 1, each transaction has the next"
        )
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert finalized(connection)[FEATURE] == 2
        assert len(read_all(broker.bootstrap, "after")) == RECORDS + 2
