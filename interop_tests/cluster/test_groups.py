"""Consumer groups continue when the node of their coordinator dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.conftest import Measure
from interop_tests.cluster.workload import ConfluentWork, parse
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

PARTITIONS = 3
COORDINATOR_MOVES = (14, 15, 16)
"""The coordinator is loading, is not available, or has moved."""


class Member:
    """A member of a group that commits the records that it has read, batch by batch."""

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.read: list[tuple[int, int]] = []
        """(partition, number) in the order of reading."""
        self.commits = 0
        self.committed: dict[int, int] = {}
        """The last number by partition that this member committed."""
        self.faults: list[str] = []
        self._settings = settings
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(40)
        assert not self._thread.is_alive(), "the member hangs"
        assert not self.faults, self.faults

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        is_behind = False
        try:
            while not self._ended.is_set():
                messages = [each for each in consumer.consume(200, 0.2) if each.error() is None]
                is_behind |= bool(messages)
                if not is_behind:
                    continue
                for message in messages:
                    _, partition, number = parse(message.value())
                    if number <= self.committed.get(partition, 0):
                        self.faults.append(f"{partition}: {number} came again after {self.committed}")
                    self.read.append((partition, number))
                try:
                    done = consumer.commit(asynchronous=False)
                except KafkaException as error:
                    # The coordinator moves. Records may be read again, or are committed with the next attempt. For
                    # partitions that were taken away there is nothing to commit.
                    is_behind = error.args[0].code() != KafkaError._NO_OFFSET
                    continue
                is_behind = False
                self.commits += 1
                # The only writer's numbers start with 1 at offset 0.
                self.committed |= {each.partition: each.offset for each in done if each.offset > 0}
        except Exception as error:
            self.faults.append(repr(error))
        finally:
            consumer.close()


def coordinator(cluster: Cluster, group: str) -> int:
    """The node id of a group's coordinator. Waits until it is known."""

    def question(connection: Connection) -> int:
        reply = connection.call("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        (found,) = reply["Coordinators"]
        return found["NodeId"] if found["ErrorCode"] == 0 else 0

    return cluster.wait(lambda: cluster.ask(question), f"{group} has a coordinator")


def offsets(cluster: Cluster, group: str) -> dict[str, Any] | None:
    """The committed offsets of a group from OffsetFetch. None while its coordinator moves."""
    body = {
        "Groups": [{"GroupId": group, "Topics": None, "MemberId": None, "MemberEpoch": -1}],
        "RequireStable": True,
    }
    with Connection(cluster.nodes[coordinator(cluster, group)].bootstrap) as connection:
        (found,) = connection.call("OffsetFetch", 9, body)["Groups"]
    assert found["ErrorCode"] in (0, *COORDINATOR_MOVES), found
    return found if found["ErrorCode"] == 0 else None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_survives_its_coordinator(
    cluster: Cluster, unique: Callable[[str], str], protocol: str, measure: Measure
) -> None:
    """Two members continue with their partitions. Every record is read, and a record that its reader committed is not
    read again."""
    topic, group = cluster.create_topic(unique("group"), PARTITIONS), unique("group")
    settings = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **CONNECTED_TO_ALL,
        "log_level": 0,
        **({"session.timeout.ms": 10000} if protocol == "classic" else {}),
    }
    work = ConfluentWork(cluster.bootstrap, topic, PARTITIONS, "writer")
    members = [Member(settings, topic) for _ in range(2)]
    try:
        work.start()
        wait_until(lambda: all(member.commits > 1 for member in members), "both members commit")
        victim = coordinator(cluster, group)
        cluster.nodes[victim].kill()
        work.wait_for_progress()
        before = [member.commits for member in members]
        wait_until(
            lambda: all(member.commits > count for member, count in zip(members, before, strict=True)),
            "both members commit again",
        )
        assert coordinator(cluster, group) != victim
        cluster.mend()
        measure(f"coordinator killed, {protocol}", work.stop())
        wanted = {(each, number) for each, count in work.sent.items() for number in range(1, count + 1)}

        def all_read() -> bool:
            return wanted <= {each for member in members for each in member.read}

        wait_until(all_read, "everything is read")

        def all_committed() -> bool:
            found = [member.committed.copy() for member in members]
            return {
                each: max(of_member.get(each, 0) for of_member in found) for each in work.sent
            } == work.sent

        wait_until(all_committed, "everything is committed")
    finally:
        work._ended.set()
        for member in members:
            member._ended.set()
    for member in members:
        member.stop()
    # A third member finds the commits: no record is left to read.
    found = cluster.wait(lambda: offsets(cluster, group), "the coordinator tells the offsets")
    (of_topic,) = found["Topics"]
    committed = {each["PartitionIndex"]: each["CommittedOffset"] for each in of_topic["Partitions"]}
    assert committed == work.sent
