"""Java: transactional producers of the kafka-clients jar, the copier of Kafka's system tests, and kafka-transactions.sh."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import fetch, list_offset, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import NEW, Producer
from interop_tests.transactions.test_clients import read_all

MakeTopic = Callable[..., str]
TRANSACTIONS = "TransactionsCommand"


def rows(tools: KafkaTools, bootstrap: str, *arguments: str) -> list[dict[str, str]]:
    """A table of kafka-transactions.sh. Tabs separate its columns."""
    output = tools.run(TRANSACTIONS, "--bootstrap-server", bootstrap, *arguments)
    assert output.status == 0, output
    lines = [[word.strip() for word in line.split("\t")] for line in output.lines]
    return [dict(zip(lines[0], line, strict=False)) for line in lines[1:]]


def test_java_producer_commits_one_transaction_after_another(
    tools: KafkaTools, bootstrap: str, connection: Connection, make_topic: MakeTopic, unique: Any
) -> None:
    topic, name = make_topic(), unique("tx")
    output = tools.run(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "2000", "--record-size", "50", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={bootstrap}"),
        timeout_s=90,
    )
    assert output.status == 0, output
    assert len(read_all(bootstrap, topic)) == 2000

    def described() -> dict[str, str]:
        (found,) = rows(tools, bootstrap, "describe", "--transactional-id", name)
        return found

    # The markers are written a moment before the coordinator stores that.
    wait_until(lambda: described()["TransactionState"] == "CompleteCommit", "the transaction is complete")
    assert described()["TransactionalId"] == name
    ids = [row for row in rows(tools, bootstrap, "list") if row["TransactionalId"] == name]
    assert [row["TransactionState"] for row in ids] == ["CompleteCommit"]


def test_java_copier_copies_each_message_once(
    tools: KafkaTools, bootstrap: str, make_topic: MakeTopic, unique: Any
) -> None:
    source, target = make_topic(), make_topic()
    with Connection(bootstrap) as connection:
        for start in range(0, 500, 50):
            values: list[bytes | None] = [b"%d" % number for number in range(start, start + 50)]
            plan = BatchPlan(values, base_timestamp_ms=time.time_ns() // 1_000_000)
            assert produce(connection, source, plan)["ErrorCode"] == 0
    output = tools.run(
        "TransactionalMessageCopier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "500", "--consumer-group", unique("group")),
        *("--transaction-size", "40", "--transactional-id", unique("tx"), "--enable-random-aborts"),
        timeout_s=90,
    )
    assert output.status == 0, output
    assert read_all(bootstrap, target) == [b"%d" % number for number in range(500)]


def test_a_hanging_transaction_is_found_and_aborted(
    tools: KafkaTools, make_broker: Any, unique: Any, tmp_path: Path
) -> None:
    """A transaction that its coordinator does not know holds back the last stable offset until the tool ends it."""
    from interop_tests.harness.raw_kafka import create_topic

    broker = make_broker({"transaction.partition.verification.enable": "false"})
    create_topic(broker.bootstrap, "t")
    with Connection(broker.bootstrap) as connection:
        hanging = Producer(connection, unique("tx"), NEW).init()
        plan = hanging.batch("t", b"hangs")
        plan.base_timestamp_ms -= 3_600_000
        body = {
            "TransactionalId": hanging.transactional_id,
            "Acks": -1,
            "TimeoutMs": 10_000,
            "TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": plan.encode()}]}],
        }
        # The version of an older client, for which the broker does not verify the transaction.
        reply = connection.call("Produce", 9, body)
        assert reply["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0
        assert fetch(connection, "t", 0, IsolationLevel=1)["LastStableOffset"] == 0
        (producer,) = rows(tools, broker.bootstrap, "describe-producers", "--topic", "t", "--partition", "0")
        assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (str(hanging.id), "0")
        (found,) = rows(
            tools, broker.bootstrap, "find-hanging", "--topic", "t", "--max-transaction-timeout", "1"
        )
        assert found["ProducerId"] == str(hanging.id)
        output = tools.run(
            TRANSACTIONS,
            *("--bootstrap-server", broker.bootstrap, "abort", "--topic", "t", "--partition", "0"),
            *("--start-offset", "0"),
        )
        assert output.status == 0, output
        wait_until(
            lambda: fetch(connection, "t", 0, IsolationLevel=1)["LastStableOffset"] == 2, "it is aborted"
        )
        assert list_offset(connection, "t", 0, -1, isolation=1)[1] == 2


test_a_hanging_transaction_is_found_and_aborted.pytestmark = [pytest.mark.needs_control]  # type: ignore[attr-defined]


def test_force_terminate(
    tools: KafkaTools, bootstrap: str, connection: Connection, make_topic: MakeTopic, unique: Any
) -> None:
    topic = make_topic()
    producer = Producer(connection, unique("tx"), NEW).init()
    producer.send(topic, b"open")
    output = tools.run(
        TRANSACTIONS,
        *("--bootstrap-server", bootstrap, "forceTerminateTransaction"),
        *("--transactionalId", producer.transactional_id),
    )
    assert output.status == 0, output
    producer.wait_for("CompleteAbort", "Empty")
    assert read_all(bootstrap, topic) == []
