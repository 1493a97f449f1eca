"""ConsumerGroupCommand: describing a group, and setting, deleting and exporting its offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.harness.java_tools import KafkaTools, ToolOutput
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection

GROUPS = "consumer.group.ConsumerGroupCommand"
FIRST_TIMESTAMP_MS = 1_600_000_000_000  # 2020-09-13T12:26:40Z
HOUR_MS = 3_600_000


def offsets(output: ToolOutput) -> dict[int, str]:
    """NEW-OFFSET or CURRENT-OFFSET by partition."""
    rows = output.rows("GROUP", "TOPIC", "PARTITION")
    column = "NEW-OFFSET" if rows and "NEW-OFFSET" in rows[0] else "CURRENT-OFFSET"
    return {int(row["PARTITION"]): row[column] for row in rows}


@pytest.fixture
def hourly_topic(connection: Connection, make_topic: Callable[..., str]) -> str:
    """Two partitions with a record for each hour, offsets 0 to 9."""
    topic = make_topic(partitions=2, configs={"retention.ms": "-1"})  # old timestamps
    for partition in range(2):
        for n in range(10):
            plan = BatchPlan([b"%d" % n], base_timestamp_ms=FIRST_TIMESTAMP_MS + n * HOUR_MS)
            produce(connection, topic, plan, partition=partition)
    return topic


def test_offsets_of_a_group_are_moved_in_every_way(
    tools: KafkaTools, bootstrap: str, hourly_topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = hourly_topic, unique("group")
    server = [GROUPS, "--bootstrap-server", bootstrap]
    reset = [*server, "--reset-offsets", "--group", group]
    tools.run(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", "20", "--timeout-ms", "30000"),
    )
    described = wait_until(
        lambda: tools.run(*server, "--describe", "--group", group), "the group is described"
    )
    rows = described.rows("GROUP", "TOPIC", "PARTITION")
    assert [
        (row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CONSUMER-ID"])
        for row in rows
    ] == [("0", "10", "10", "0", "-"), ("1", "10", "10", "0", "-")]
    assert f"'{group}' has no active members" in described.err

    def current() -> dict[int, str]:
        return offsets(tools.run(*server, "--describe", "--group", group))

    assert offsets(tools.run(*reset, "--topic", topic, "--to-earliest", "--dry-run")) == {0: "0", 1: "0"}
    assert current() == {0: "10", 1: "10"}, "a dry run moves nothing"
    assert offsets(tools.run(*reset, "--topic", topic, "--to-earliest", "--execute")) == {0: "0", 1: "0"}
    assert current() == {0: "0", 1: "0"}
    tools.run(*reset, "--topic", f"{topic}:0", "--shift-by", "4", "--execute")
    assert current() == {0: "4", 1: "0"}
    tools.run(*reset, "--topic", topic, "--to-datetime", "2020-09-13T15:00:00.000Z", "--execute")
    assert current() == {0: "3", 1: "3"}, "the first record at or after the time"
    tools.run(*reset, "--topic", f"{topic}:1", "--to-offset", "8", "--execute")
    assert current() == {0: "3", 1: "8"}
    beyond = tools.run(*reset, "--topic", f"{topic}:1", "--to-offset", "99", "--dry-run")
    assert offsets(beyond) == {1: "10"}, "an offset past the end becomes the end"

    exported = tools.run(*reset, "--topic", topic, "--to-current", "--dry-run", "--export").lines
    assert sorted(exported) == [f"{topic},0,3", f"{topic},1,8"]
    plan = tmp_path / "offsets.csv"
    plan.write_text(f"{topic},0,2\n{topic},1,5\n")
    tools.run(*reset, "--from-file", str(plan), "--execute")
    assert current() == {0: "2", 1: "5"}
    tools.run(*reset, "--topic", topic, "--to-latest", "--execute")
    assert current() == {0: "10", 1: "10"}

    deleted = tools.run(*server, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert [(row["PARTITION"], row["STATUS"]) for row in deleted.rows("TOPIC", "PARTITION", "STATUS")] == [
        ("0", "Successful")
    ]
    assert current() == {1: "10"}
    assert "was successful" in tools.run(*server, "--delete", "--group", group).out
    assert group not in tools.run(*server, "--list").lines
    missing = tools.run(*server, "--describe", "--group", group, status=None)
    assert f"Group {group} not found" in missing.out


def test_members_and_state_of_a_living_group(
    tools: KafkaTools, bootstrap: str, hourly_topic: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = hourly_topic, unique("group")
    server = [GROUPS, "--bootstrap-server", bootstrap]
    consume = ["consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", topic]
    consume += ["--group", group, "--from-beginning", "--command-property", "client.id=reader"]
    with tools.spawn(*consume, log=tmp_path / "consumer.log"):
        describe_state = [*server, "--describe", "--group", group, "--state"]
        wait_until(
            lambda: [
                line
                for line in tools.run(*describe_state, status=None).lines
                if line.split()[0] == group and line.split()[-2:] == ["Stable", "1"]
            ],
            "the group is stable with one member",
            timeout_s=30,
        )
        members = tools.run(*server, "--describe", "--group", group, "--members", "--verbose")
        assert members.lines[-1].split()[0] == group, str(members)
        assert "reader" in members.lines[-1], str(members)
        assert f"{topic}:0,1" in members.lines[-1], str(members)
        states = tools.run(*server, "--list", "--state", "stable").lines
        assert [group, "Stable"] in [line.split() for line in states]
        rows = tools.run(*server, "--describe", "--group", group).rows("GROUP", "TOPIC", "PARTITION")
        assert [(row["PARTITION"], row["HOST"], row["CLIENT-ID"]) for row in rows] == [
            (str(n), "/127.0.0.1", "reader") for n in range(2)
        ]
        refused = tools.run(
            *server,
            "--reset-offsets",
            "--group",
            group,
            "--topic",
            topic,
            "--to-earliest",
            "--execute",
            status=None,
        )
        assert "inactive" in refused.out + refused.err
        busy = tools.run(*server, "--delete", "--group", group, status=None)
        assert "not empty" in busy.out + busy.err
