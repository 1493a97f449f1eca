"""StreamsGroupCommand: listing, describing and deleting a streams group (KIP-1071), and its offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interop_tests.harness.groups import coordinator
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

GROUPS = "streams.StreamsGroupCommand"
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


def test_a_streams_group_is_shown_moved_and_deleted(
    tools: KafkaTools,
    bootstrap: str,
    connection: Connection,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> None:
    topic, group = make_topic(partitions=2), unique("application")
    changelog = f"{group}-store-changelog"
    for partition in range(2):
        produce(connection, topic, BatchPlan([b"%d" % n for n in range(10)]), partition=partition)
    coordinator(connection, group)
    body = {"GroupId": group, "MemberId": "one"}
    first = {
        "MemberEpoch": 0,
        "RebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "Topology": {"Epoch": 0, "Subtopologies": [subtopology(topic, changelog)]},
        "ProcessId": "process",
        "ClientTags": [],
        "ActiveTasks": [],
        "StandbyTasks": [],
        "WarmupTasks": [],
    }
    answer = connection.call("StreamsGroupHeartbeat", 1, body | first)
    assert answer["ErrorCode"] == 0, answer

    def has_tasks() -> bool:
        """The broker creates the changelog, and gives out the tasks after a while."""
        nonlocal answer
        epoch = {"MemberEpoch": answer["MemberEpoch"]}
        answer = connection.call("StreamsGroupHeartbeat", 1, body | epoch)
        assert answer["ErrorCode"] == 0, answer
        return bool(answer["ActiveTasks"])

    wait_until(has_tasks, "the member has tasks", 30, 0.2)
    offsets = [
        {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": ""}
        for partition, offset in ((0, 4), (1, 7))
    ]
    committed = connection.call(
        "OffsetCommit",
        9,
        {
            "GroupId": group,
            "GenerationIdOrMemberEpoch": answer["MemberEpoch"],
            "MemberId": "one",
            "Topics": [{"Name": topic, "Partitions": offsets}],
        },
    )
    assert [each["ErrorCode"] for each in committed["Topics"][0]["Partitions"]] == [0, 0]

    server = [GROUPS, "--bootstrap-server", bootstrap]
    listed = tools.run(*server, "--list", "--state")
    assert [row["STATE"] for row in listed.rows("GROUP", "STATE") if row["GROUP"] == group] == ["Stable"]
    (state,) = tools.run(*server, "--describe", "--group", group, "--state", "--verbose").rows("GROUP")
    assert [state[column] for column in ("ASSIGNOR", "STATE", "#MEMBERS")] == ["sticky", "Stable", "1"]
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == str(answer["MemberEpoch"])
    members = tools.run(*server, "--describe", "--group", group, "--members", "--verbose")
    (line,) = [line for line in members.lines if line.startswith(group)]
    assert line.split()[2:] == [
        *("0", "one", "streams", str(answer["MemberEpoch"]), "process", "interop"),
        *("ACTIVE:", "0:[0,1];", "TARGET-ACTIVE:", "0:[0,1];"),
    ]
    described = tools.run(*server, "--describe", "--group", group, "--offsets", "--verbose")
    rows = described.rows("GROUP", "TOPIC", "PARTITION")
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "OFFSET-LAG")
    assert sorted([row[column] for column in columns] for row in rows) == [
        [topic, "0", "4", "10", "6"],
        [topic, "1", "7", "10", "3"],
    ]

    reset = [*server, "--reset-offsets", "--group", group, "--input-topic", topic]
    refused = tools.run(*reset, "--to-earliest", "--execute")
    assert "can only be reset if the group" in refused.out, refused
    left = connection.call("StreamsGroupHeartbeat", 1, body | {"MemberEpoch": -1})
    assert left["ErrorCode"] == 0, left
    for how, offset in ((["--to-earliest"], "0"), (["--shift-by", "3"], "3")):
        moved = tools.run(*reset, *how, "--execute").rows("GROUP", "TOPIC", "PARTITION")
        assert {row["PARTITION"]: row["NEW-OFFSET"] for row in moved} == {"0": offset, "1": offset}
    deleted = tools.run(*server, "--delete-offsets", "--group", group, "--input-topic", topic)
    assert [row["STATUS"] for row in deleted.rows("TOPIC", "PARTITION")] == ["Successful", "Successful"]
    gone = tools.run(*server, "--delete", "--group", group, "--delete-all-internal-topics")
    assert gone.out.count("was successful") == 2, gone
    assert group not in tools.run(*server, "--list").out
