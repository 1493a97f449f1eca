"""StreamsGroupCommand: listing, describing and deleting a streams group (KIP-1071), and its offsets."""

from __future__ import annotations

from collections.abc import Callable

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.streams_groups import begin_streams_group, commit, leave
from interop_tests.harness.wire import Connection

GROUPS = "streams.StreamsGroupCommand"


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
    epoch = begin_streams_group(connection, group, topic, changelog)
    commit(connection, group, topic, [4, 7], epoch)

    server = [GROUPS, "--bootstrap-server", bootstrap]
    listed = tools.run(*server, "--list", "--state")
    assert [row["STATE"] for row in listed.rows("GROUP", "STATE") if row["GROUP"] == group] == ["Stable"]
    (state,) = tools.run(*server, "--describe", "--group", group, "--state", "--verbose").rows("GROUP")
    assert [state[column] for column in ("ASSIGNOR", "STATE", "#MEMBERS")] == ["sticky", "Stable", "1"]
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] == str(epoch)
    members = tools.run(*server, "--describe", "--group", group, "--members", "--verbose")
    (line,) = [line for line in members.lines if line.startswith(group)]
    assert line.split()[2:] == [
        *("0", "one", "streams", str(epoch), "process", "interop"),
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
    leave(connection, group)
    for how, offset in ((["--to-earliest"], "0"), (["--shift-by", "3"], "3")):
        moved = tools.run(*reset, *how, "--execute").rows("GROUP", "TOPIC", "PARTITION")
        assert {row["PARTITION"]: row["NEW-OFFSET"] for row in moved} == {"0": offset, "1": offset}
    deleted = tools.run(*server, "--delete-offsets", "--group", group, "--input-topic", topic)
    assert [row["STATUS"] for row in deleted.rows("TOPIC", "PARTITION")] == ["Successful", "Successful"]
    gone = tools.run(*server, "--delete", "--group", group, "--delete-all-internal-topics")
    assert gone.out.count("was successful") == 2, gone
    assert group not in tools.run(*server, "--list").out
