"""A streams group with one member that has all tasks, by raw requests (KIP-1071)."""

from __future__ import annotations

from typing import Any

from interop_tests.harness.groups import coordinator
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

MEMBER = "one"
REBALANCE_TIMEOUT_MS = 60_000


def subtopology(topic: str, changelog: str) -> dict[str, Any]:
    told = {"Name": changelog, "Partitions": 0, "ReplicationFactor": 1, "TopicConfigs": []}
    return {
        "SubtopologyId": "0",
        "SourceTopics": [topic],
        "SourceTopicRegex": [],
        "StateChangelogTopics": [told],
        "RepartitionSinkTopics": [],
        "RepartitionSourceTopics": [],
        "CopartitionGroups": [],
    }


def begin_streams_group(connection: Connection, group: str, topic: str, changelog: str) -> int:
    """The member joins and reports that it has its tasks. Returns its epoch."""
    coordinator(connection, group)
    body: dict[str, Any] = {"GroupId": group, "MemberId": MEMBER}
    nothing: dict[str, list[Any]] = {"ActiveTasks": [], "StandbyTasks": [], "WarmupTasks": []}
    first = {
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "Topology": {"Epoch": 0, "Subtopologies": [subtopology(topic, changelog)]},
        "ProcessId": "process",
        "ClientTags": [],
    }
    answer = connection.call("StreamsGroupHeartbeat", 1, body | first | nothing)
    assert answer["ErrorCode"] == 0, answer

    def has_tasks() -> bool:
        """The broker creates the changelog, and gives out the tasks after a while."""
        nonlocal answer
        epoch = {"MemberEpoch": answer["MemberEpoch"]}
        answer = connection.call("StreamsGroupHeartbeat", 1, body | epoch)
        assert answer["ErrorCode"] == 0, answer
        return bool(answer["ActiveTasks"])

    wait_until(has_tasks, "the member has tasks", 30, 0.2)
    owned = nothing | {"MemberEpoch": answer["MemberEpoch"], "ActiveTasks": answer["ActiveTasks"]}
    answer = connection.call("StreamsGroupHeartbeat", 1, body | owned)
    assert answer["ErrorCode"] == 0, answer
    return int(answer["MemberEpoch"])


def commit(connection: Connection, group: str, topic: str, offsets: list[int], epoch: int = -1) -> None:
    """Offsets of partitions 0, 1 ... `epoch`: that of the member, or -1 of nobody."""
    partitions = [
        {"PartitionIndex": number, "CommittedOffset": offset, "CommittedMetadata": ""}
        for number, offset in enumerate(offsets)
    ]
    body = {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": epoch,
        "MemberId": MEMBER if epoch >= 0 else "",
        "Topics": [{"Name": topic, "Partitions": partitions}],
    }
    answer = connection.call("OffsetCommit", 9, body)
    assert {each["ErrorCode"] for each in answer["Topics"][0]["Partitions"]} == {0}, answer


def leave(connection: Connection, group: str) -> None:
    body = {"GroupId": group, "MemberId": MEMBER, "MemberEpoch": -1}
    assert connection.call("StreamsGroupHeartbeat", 1, body)["ErrorCode"] == 0
