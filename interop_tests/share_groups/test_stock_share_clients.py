"""Stock clients and tools with share groups (KIP-932) on Apache Kafka and on kafkacompat: the same tests on both."""

from __future__ import annotations

import json

import pytest

from interop_tests.harness.java_tools import KafkaTools, ToolOutput
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.looking import described, fill, lag, wait_until_members
from interop_tests.share_groups.workers import (
    CONFLUENT,
    FRANZ_GO,
    IMPLICIT,
    JAVA,
    Delivered,
    Join,
    Worker,
)

pytestmark = pytest.mark.needs_control

GROUPS = "consumer.group.ShareGroupCommand"


def numbers(records: list[Delivered]) -> list[int]:
    return sorted(each.offset for each in records)


def taken(worker: Worker, count: int) -> list[Delivered]:
    """Poll and accept until so many records have come."""
    found: list[Delivered] = []

    def are_enough() -> bool:
        records = worker.poll(500)
        worker.acknowledge("accept", records)
        found.extend(records)
        return len(found) >= count

    wait_until(are_enough, f"{count} records come", interval_s=0)
    worker.commit()
    return found


KINDS = pytest.mark.parametrize("kind", [JAVA, CONFLUENT, FRANZ_GO])


@KINDS
def test_each_kind_of_acknowledgement(raw: Connection, group: str, topic: str, join: Join, kind: str) -> None:
    worker = join(kind, "worker")
    fill(raw, topic, 6)
    records: list[Delivered] = []
    while len(records) < 6:
        some = worker.some()
        records += some
        for record in some:
            worker.acknowledge(("accept", "release", "reject")[record.offset % 3], [record])
    outcome = worker.commit().outcome
    assert {*outcome.values()} <= {None}
    assert [each[1:] for each in sorted(records)][:6] == [(number, 1, str(number)) for number in range(6)]
    again = taken(worker, 2 - (len(records) - 6))
    assert sorted((each.offset, each.count) for each in [*records[6:], *again]) == [(1, 2), (4, 2)]
    assert lag(raw, group) == 0
    worker.close()
    wait_until(lambda: described(raw, group)["GroupState"] == "Empty", "the member has left")


@KINDS
def test_records_of_a_killed_worker_go_to_another(
    raw: Connection, group: str, topic: str, join: Join, kind: str
) -> None:
    fill(raw, topic, 4)
    lost = join(kind, "lost")
    held = lost.some()
    assert held[0] == Delivered(0, 0, 1, "0")
    other = join(kind, "other")
    lost.kill()
    records = taken(other, 4)
    counts = {each.offset: each.count for each in records}
    assert [*counts] == sorted(counts) == [0, 1, 2, 3] or {*counts} == {0, 1, 2, 3}
    assert all(counts[each.offset] == 2 for each in held)
    assert lag(raw, group) == 0


@KINDS
def test_two_workers_share_a_partition(
    raw: Connection, group: str, topic: str, join: Join, kind: str
) -> None:
    one, two = (join(kind, name, records="1", acquire="record_limit") for name in ("one", "two"))
    wait_until_members(raw, group, one, two)
    fill(raw, topic, 20)
    delivered: dict[str, list[Delivered]] = {"one": [], "two": []}

    def is_all_delivered() -> bool:
        for name, worker in (("one", one), ("two", two)):
            records = worker.poll(200)
            worker.acknowledge("accept", records)
            delivered[name] += records
        return sum(map(len, delivered.values())) >= 20

    wait_until(is_all_delivered, "all records are delivered", interval_s=0)
    for worker in (one, two):
        worker.commit()
    assert numbers(delivered["one"] + delivered["two"]) == [*range(20)]
    assert delivered["one"]
    assert delivered["two"]
    wait_until(lambda: lag(raw, group) == 0, "all is acknowledged")


@KINDS
def test_implicit_acknowledgement(raw: Connection, group: str, topic: str, join: Join, kind: str) -> None:
    worker = join(kind, "worker", mode=IMPLICIT)
    fill(raw, topic, 3)
    seen: list[Delivered] = []
    wait_until(lambda: len(seen) >= 3 or seen.extend(worker.poll(500)), "three records come", interval_s=0)
    if kind != FRANZ_GO:
        # This client accepts at the next poll only.
        worker.commit()
    wait_until(lambda: (worker.poll(100), lag(raw, group) == 0)[1], "they are accepted")
    assert numbers(seen) == [0, 1, 2]
    fill(raw, topic, 2, first=3)
    assert numbers(worker.some())[0] == 3
    worker.close()


def test_asynchronous_acknowledgement(raw: Connection, group: str, topic: str, join: Join) -> None:
    for number, kind in enumerate((JAVA, CONFLUENT)):
        worker = join(kind, kind)
        fill(raw, topic, 1, first=number)
        records = worker.some()
        worker.acknowledge("accept", records)
        assert worker.commit("async").outcome == {f"{topic}-0": None}
        assert lag(raw, group) == 0
        worker.close()


# tools


def test_the_console_share_consumer(
    served: str, raw: Connection, group: str, topic: str, tools: KafkaTools
) -> None:
    fill(raw, topic, 5)
    consume = (
        "consumer.ConsoleShareConsumer",
        "--bootstrap-server",
        served,
        "--topic",
        topic,
        "--group",
        group,
    )
    prints = ("--formatter-property", "print.offset=true", "--formatter-property", "print.delivery=true")
    end = ("--timeout-ms", "20000", "--max-messages")
    released = tools.run(*consume, *prints, "--release", *end, "5")
    rejected = tools.run(*consume, *prints, "--reject", *end, "2")
    accepted = tools.run(*consume, *prints, *end, "3")
    assert released.lines == [f"Offset:{number}\tDelivery:1\t{number}" for number in range(5)]
    assert rejected.lines == [f"Offset:{number}\tDelivery:2\t{number}" for number in range(2)]
    assert [line.split("\t")[::2] for line in accepted.lines] == [
        [f"Offset:{number}", str(number)] for number in range(2, 5)
    ]
    assert "Processed a total of 3 messages" in accepted.err
    wait_until(lambda: lag(raw, group) == 0, "all is acknowledged")


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_the_verifiable_share_consumer(
    served: str, raw: Connection, group: str, topic: str, tools: KafkaTools, mode: str
) -> None:
    fill(raw, topic, 20)
    output = tools.run(
        "VerifiableShareConsumer",
        *("--bootstrap-server", served, "--topic", topic, "--group-id", group, "--max-messages", "20"),
        *("--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in output.lines if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names[0] == "startup_complete"
    assert {"offset_reset_strategy_set", "records_consumed", "offsets_acknowledged", "shutdown_complete"} <= {
        *names
    }
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert sum(event["count"] for event in acknowledged if event["success"]) == 20
    assert lag(raw, group) == 0


def test_the_share_consumer_performance_tool(
    served: str, raw: Connection, group: str, topic: str, tools: KafkaTools
) -> None:
    for _ in range(20):
        assert produce(raw, topic, BatchPlan([b"x" * 100] * 100))["ErrorCode"] == 0
    output = tools.run(
        "ShareConsumerPerformance",
        *("--bootstrap-server", served, "--topic", topic, "--group", group, "--num-records", "2000"),
        *("--timeout", "30000", "--show-consumer-stats", "--threads", "1"),
    )
    assert "2000" in output.out
    wait_until(lambda: lag(raw, group) == 0, "all is acknowledged")


class Command:
    """kafka-share-groups.sh on one group."""

    def __init__(self, tools: KafkaTools, bootstrap: str, group: str) -> None:
        self._tools = tools
        self._server = (GROUPS, "--bootstrap-server", bootstrap)
        self._group = group

    def __call__(self, *words: str, status: int | None = 0) -> ToolOutput:
        return self._tools.run(*self._server, *words, "--group", self._group, status=status)

    def listed(self, *words: str) -> list[str]:
        """What --list says of the group after its name."""
        lines = [line.split() for line in self._tools.run(*self._server, "--list", *words).lines]
        return next((line[1:] for line in lines if line[0] == self._group), ["is not listed"])

    def lag(self) -> list[str]:
        """How far the group lags behind in each partition."""
        rows = self("--describe", "--offsets").rows("GROUP", "TOPIC", "PARTITION")
        return [row["LAG"] for row in rows]


def test_the_group_command(
    served: str, raw: Connection, group: str, topic: str, join: Join, tools: KafkaTools
) -> None:
    fill(raw, topic, 10)
    worker = join(CONFLUENT, "one")
    taken(worker, 10)
    command = Command(tools, served, group)
    assert command.listed() == []
    assert command.listed("--state") == ["Stable"]
    assert command.listed("--state", "stable") == ["Stable"]
    assert command.listed("--state", "Empty") == ["is not listed"]
    (state,) = command("--describe", "--state").rows("GROUP", "COORDINATOR")
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    found = described(raw, group)
    (state,) = command("--describe", "--state", "--verbose").rows("GROUP", "COORDINATOR")
    assert (state["GROUP-EPOCH"], state["ASSIGNMENT-EPOCH"]) == (
        str(found["GroupEpoch"]),
        str(found["AssignmentEpoch"]),
    )
    (member,) = command("--describe", "--members").rows("GROUP", "CONSUMER-ID")
    assert (member["CLIENT-ID"], member["#PARTITIONS"], member["ASSIGNMENT"]) == ("one", "1", f"{topic}:0")
    command("--describe", "--members", "--verbose")
    assert command.lag() == ["0"]
    (row,) = command("--describe", "--offsets", "--verbose").rows("GROUP", "TOPIC", "PARTITION")
    assert row["LEADER-EPOCH"] == "0"
    reset = ("--reset-offsets", "--topic", topic)
    # What the tool says of its failures is the same on both brokers, wherever it says it.
    refused = [
        command("--delete", status=None),
        command(*reset, "--to-earliest", "--execute", status=None),
        command("--delete-offsets", "--topic", topic, status=None),
    ]
    for each in refused:
        assert "rror" in each.out + each.err or "not empty" in each.out + each.err, str(each)
    assert command.lag() == ["0"]
    worker.close()
    wait_until(lambda: command.listed("--state") == ["Empty"], "the member has left")
    assert command(*reset, "--to-earliest", "--dry-run").rows("GROUP", "TOPIC", "PARTITION")
    assert command.lag() == ["0"]
    command(*reset, "--to-earliest", "--execute")
    assert command.lag() == ["10"]
    command(*reset, "--to-latest", "--execute")
    assert command.lag() == ["0"]
    command("--reset-offsets", "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert command.lag() == ["10"]
    again = join(CONFLUENT, "again")
    assert numbers(taken(again, 10)) == [*range(10)]
    again.close()
    wait_until(lambda: command.listed("--state") == ["Empty"], "the member has left")
    command("--delete-offsets", "--topic", topic)
    assert command.lag() == []
    command("--delete")
    assert command.listed() == ["is not listed"]
