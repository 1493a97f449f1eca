"""GetOffsetShell, DeleteRecords, log directories, versions and features."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection

# Kafka 4.4's version ranges on one node. Ranges of later APIs are not checked here.
VERSIONS = {
    "Produce(0)": "0 to 13",
    "Fetch(1)": "4 to 18",
    "ListOffsets(2)": "1 to 11",
    "Metadata(3)": "0 to 13",
    "OffsetCommit(8)": "2 to 10",
    "OffsetFetch(9)": "1 to 10",
    "FindCoordinator(10)": "0 to 6",
    "JoinGroup(11)": "0 to 9",
    "Heartbeat(12)": "0 to 4",
    "LeaveGroup(13)": "0 to 5",
    "SyncGroup(14)": "0 to 5",
    "DescribeGroups(15)": "0 to 6",
    "ListGroups(16)": "0 to 5",
    "SaslHandshake(17)": "0 to 1",
    "ApiVersions(18)": "0 to 5",
    "CreateTopics(19)": "2 to 7",
    "DeleteTopics(20)": "1 to 6",
    "DeleteRecords(21)": "0 to 2",
    "InitProducerId(22)": "0 to 5",
    "OffsetForLeaderEpoch(23)": "2 to 4",
}


def test_offsets_by_every_time(
    tools: KafkaTools, bootstrap: str, connection: Connection, make_topic: Callable[..., str]
) -> None:
    """Latest, earliest, the newest timestamp and a plain time, each answered as by Kafka. A lookup without a result
    prints no line."""
    topic = make_topic(partitions=2, configs={"retention.ms": "-1"})  # old timestamps
    for timestamp_ms in (5_000, 9_000, 7_000):
        produce(connection, topic, BatchPlan([b"x"], base_timestamp_ms=timestamp_ms))

    def at(time: str) -> list[str]:
        output = tools.run(
            "GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", topic, "--time", time
        )
        return output.lines

    assert at("-1") == at("latest") == [f"{topic}:0:3", f"{topic}:1:0"]
    assert at("-2") == at("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert at("-3") == at("max-timestamp") == [f"{topic}:0:1"]
    assert at("5000") == [f"{topic}:0:0"]
    assert at("5001") == [f"{topic}:0:1"]
    assert at("9001") == []


def test_deleted_records_are_gone(
    tools: KafkaTools, bootstrap: str, connection: Connection, topic: str, tmp_path: Path
) -> None:
    produce(connection, topic, BatchPlan([b"%d" % n for n in range(5)]))
    plan = tmp_path / "delete.json"

    def delete(offset: int) -> str:
        entries = [{"topic": topic, "partition": 0, "offset": offset}]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        return tools.run(
            "DeleteRecordsCommand", "--bootstrap-server", bootstrap, "--offset-json-file", str(plan)
        ).out

    assert f"partition: {topic}-0\tlow_watermark: 2" in delete(2)
    earliest = tools.run(
        "GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", topic, "--time", "earliest"
    )
    assert earliest.lines == [f"{topic}:0:2"]
    assert "error" in delete(6), "past the end"
    assert f"partition: {topic}-0\tlow_watermark: 5" in delete(-1)


def test_log_directories_and_sizes(
    tools: KafkaTools, bootstrap: str, connection: Connection, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    plan = BatchPlan([b"x" * 1000])
    produce(connection, topic, plan)
    output = tools.run("LogDirsCommand", "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    (broker,) = json.loads(output.lines[-1])["brokers"]
    assert broker["broker"] == 1
    (directory,) = broker["logDirs"]
    assert directory["error"] is None
    assert directory["logDir"].startswith("/")
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sizes.keys() == {f"{topic}-0", f"{topic}-1"}
    assert 1000 < sizes[f"{topic}-0"] < 1200
    assert sizes[f"{topic}-1"] == 0
    assert all(entry["offsetLag"] == 0 and not entry["isFuture"] for entry in directory["partitions"])


def test_versions_are_kafkas(tools: KafkaTools, bootstrap: str) -> None:
    """Produce is advertised from 0, and the other ranges are those of Kafka 4.4."""
    output = tools.run("BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
    assert output.lines[0].startswith(f"{bootstrap} (id: 1 rack: null isFenced: false) -> (")
    ranges = dict(re.findall(r"\t(\w+\(\d+\)): (\d+ to \d+|\d+) \[usable", output.out))
    assert {name: ranges.get(name) for name in VERSIONS} == VERSIONS


def test_features_are_listed(tools: KafkaTools, bootstrap: str) -> None:
    output = tools.run("FeatureCommand", "--bootstrap-server", bootstrap, "describe")
    found = dict(re.findall(r"Feature: (\S+)\s+.*FinalizedVersionLevel: (\S+)", output.out))
    assert found["metadata.version"] == "4.4-IV2"
