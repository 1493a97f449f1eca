"""One share group over a raw connection: its settings, its records, and what there is to see of it."""

from __future__ import annotations

from typing import Any

from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.workers import Worker

GROUP_RESOURCE = 32


def configure(raw: Connection, group: str, name: str, value: str) -> None:
    config = {"Name": name, "ConfigOperation": 0, "Value": value}
    resource = {"ResourceType": GROUP_RESOURCE, "ResourceName": group, "Configs": [config]}
    answer = raw.call("IncrementalAlterConfigs", 1, {"Resources": [resource]})
    assert answer["Responses"][0]["ErrorCode"] == 0, answer


def fill(raw: Connection, topic: str, count: int, first: int = 0) -> None:
    """Batches of one record each, whose values are numbers."""
    for number in range(first, first + count):
        assert produce(raw, topic, BatchPlan.of_now(b"%d" % number))["ErrorCode"] == 0


def lag(raw: Connection, group: str, topic: str | None = None) -> int:
    """How many records of its only partition, or of the only one of a topic, the group has not acknowledged."""
    asked = None if topic is None else [{"TopicName": topic, "Partitions": [0]}]
    body = {"Groups": [{"GroupId": group, "Topics": asked}]}
    (found,) = raw.call("DescribeShareGroupOffsets", 1, body)["Groups"]
    assert found["ErrorCode"] == 0, found
    (of_topic,) = found["Topics"]
    (partition,) = of_topic["Partitions"]
    return int(partition["Lag"])


def described(raw: Connection, group: str) -> Any:
    (found,) = raw.call("ShareGroupDescribe", 1, {"GroupIds": [group]})["Groups"]
    return found


def wait_until_members(raw: Connection, group: str, *workers: Worker) -> None:
    """Wait until all have joined. There is nothing to read yet."""

    def have_joined() -> bool:
        assert not any(worker.poll(50) for worker in workers)
        return len(described(raw, group)["Members"]) == len(workers)

    wait_until(have_joined, f"{len(workers)} are members")
