"""MetadataQuorum, LeaderElection, ReassignPartitions and Feature commands, as far as they work with one node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until

REASSIGN = "reassign.ReassignPartitionsCommand"
Unique = Callable[[str], str]


def test_the_quorums_status(tools: KafkaTools, bootstrap: str) -> None:
    output = tools.run("MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(.*?)\s*$", output.out, re.M))
    assert (found["LeaderId"], found["MaxFollowerLag"], found["MaxFollowerLagTimeMs"]) == ("1", "0", "0")
    assert len(found["ClusterId"]) == 22
    assert int(found["LeaderEpoch"]) >= 1
    assert int(found["HighWatermark"]) > 0
    assert found["CurrentObservers"] == "[]"
    assert re.fullmatch(
        r'\[\{"id": 1, "endpoints": \["CONTROLLER://127\.0\.0\.1:\d+"\]\}\]', found["CurrentVoters"]
    )


def test_the_quorums_replication(tools: KafkaTools, bootstrap: str) -> None:
    command = ["MetadataQuorumCommand", "--bootstrap-server", bootstrap, "describe", "--replication"]
    (row,) = tools.run(*command).rows("NodeId", "DirectoryId")
    assert (row["NodeId"], row["Lag"], row["Status"]) == ("1", "0", "Leader")
    assert row["DirectoryId"] == "A" * 22, "controller.quorum.voters names no directories"
    assert int(row["LogEndOffset"]) > 0
    assert int(row["LastFetchTimestamp"]) >= int(row["LastCaughtUpTimestamp"]) > 0
    assert " ms ago" in tools.run(*command, "--human-readable").out


def test_leaders_are_elected_where_needed(
    tools: KafkaTools, bootstrap: str, topic: str, unique: Unique
) -> None:
    def elect(kind: str, *what: str, status: int = 0) -> str:
        arguments = ["--bootstrap-server", bootstrap, "--election-type", kind, *what]
        return tools.run("LeaderElectionCommand", *arguments, status=status).out

    for kind in ("preferred", "unclean"):
        assert elect(kind, "--all-topic-partitions").strip() == ""
        said = elect(kind, "--topic", topic, "--partition", "0")
        assert said.strip() == f"Valid replica already elected for partitions {topic}-0"
        missing = unique("missing")
        said = elect(kind, "--topic", missing, "--partition", "0", status=1)
        assert f"UnknownTopicOrPartitionException: No such topic as {missing}" in said


def test_a_reassignment_to_where_a_partition_is(
    tools: KafkaTools, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": 0, "replicas": [1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    def reassign(*what: str, status: int = 0) -> str:
        return tools.run(REASSIGN, "--bootstrap-server", bootstrap, *what, status=status).out

    of_plan = ("--reassignment-json-file", str(plan))
    assert f"Successfully started partition reassignment for {topic}-0" in reassign(*of_plan, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed." in reassign(*of_plan, "--verify")
    assert "No partition reassignments found." in reassign("--list")
    assert "None of the specified partition reassignments are active." in reassign(*of_plan, "--cancel")
    partitions[0]["replicas"] = [999]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    assert "Unknown broker id 999" in reassign(*of_plan, "--execute", status=1)


@pytest.mark.needs_control
def test_features_change_by_command(tools: KafkaTools, make_broker: MakeBroker) -> None:
    """Only features that the broker advertises, because not every broker shows the finalized level of others."""
    elr = "eligible.leader.replicas.version"
    broker = make_broker()

    def feature(*what: str, status: int = 0) -> str:
        return tools.run("FeatureCommand", "--bootstrap-server", broker.bootstrap, *what, status=status).out

    def levels() -> dict[str, str]:
        return dict(re.findall(r"Feature: (\S+)\s+.*FinalizedVersionLevel: (\S+)", feature("describe")))

    def is_at(name: str, level: str) -> None:
        wait_until(lambda: levels()[name] == level, f"{name} is {level}")

    assert (levels()["metadata.version"], levels()[elr], levels()["kraft.version"]) == ("4.4-IV2", "1", "0")
    assert f"{elr} was downgraded to 0." in feature("downgrade", "--feature", f"{elr}=0")
    is_at(elr, "0")
    assert f"{elr} can be upgraded to 1." in feature("upgrade", "--feature", f"{elr}=1", "--dry-run")
    is_at(elr, "0")
    assert f"{elr} was upgraded to 1." in feature("upgrade", "--feature", f"{elr}=1")
    is_at(elr, "1")
    assert "share.version was downgraded to 0." in feature("downgrade", "--feature", "share.version=0")
    is_at("share.version", "0")
    assert "share.version was upgraded to 1." in feature("upgrade", "--feature", "share.version=1")
    is_at("share.version", "1")
    assert "kraft.version was upgraded to 1." in feature("upgrade", "--feature", "kraft.version=1")
    is_at("kraft.version", "1")
    said = feature("downgrade", "--feature", "kraft.version=0", status=1)
    assert "Can't downgrade the version of this feature." in said
    assert "might delete metadata information" in feature("downgrade", "--metadata", "4.2", status=1)
    assert "Feature nope not found." in feature("downgrade", "--feature", "nope=0", status=1)
