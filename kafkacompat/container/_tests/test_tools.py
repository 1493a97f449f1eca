"""Kafka's tools under their own names: options, refusals, formats. What needs a broker is in the interop tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkacompat.cli.reader import EARLIEST, LATEST
from kafkacompat.container.tools.__main__ import TOOLS, main
from kafkacompat.container.tools.cluster import told
from kafkacompat.container.tools.console import headers_text, line_of, refuse_others, start_of
from kafkacompat.container.tools.options import pairs_of
from kafkacompat.container.tools.quorum import replication_lines, status_lines
from kafkacompat.failure import CommandFailed
from kafkacompat.records.record import Record
from kafkacompat.wire.messages.api_versions_response import ApiVersion
from kafkacompat.wire.messages.describe_quorum_response import Listener, Node, PartitionData, ReplicaState

DOCKERFILE = Path(__file__).resolve().parents[3] / "Dockerfile"
NOWHERE = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_tells_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"{name}.sh", "--help"])
    assert ended.value.code == 0
    assert f"usage: {name}.sh" in capsys.readouterr().out


def test_a_tool_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Health checks of compose files ask for it, because it needs no broker."""
    with pytest.raises(SystemExit) as ended:
        main(["kafka-topics.sh", "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("4.4.0 ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kafka-topics", "--list"], "--bootstrap-server"),
        (
            ["kafka-topics", *NOWHERE, "--list", "--partition-size-limit-per-response=3"],
            "--partition-size-limit",
        ),
        (["kafka-topics.sh", *NOWHERE, "--zookeeper", "z:2181", "--list"], "--zookeeper"),
        (["kafka-storage", "info"], "info"),
        (["kafka-cluster", "unregister", *NOWHERE], "unregister"),
    ],
)
def test_an_option_that_is_not_served_is_refused_by_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["kafka-topics", *NOWHERE], "exactly one action"),
        (["kafka-topics", *NOWHERE, "--list", "--describe"], "exactly one action"),
        (["kafka-topics", *NOWHERE, "--create"], "[topic]"),
        (["kafka-consumer-groups", *NOWHERE, "--describe"], "[group]"),
        (["kafka-consumer-groups", *NOWHERE, "--list", "--delete"], "exactly one action"),
        (["kafka-console-consumer", *NOWHERE, "--topic", "t", "--offset", "3"], "The partition is required"),
        (
            ["kafka-console-consumer", *NOWHERE, "--topic", "t", "--property", "print.epoch=true"],
            "print.epoch",
        ),
        (["kafka-console-producer", *NOWHERE, "--topic", "t", "--property", "headers=x"], "headers"),
        (["kafka-get-offsets", *NOWHERE, "--topic", "t", "--time", "soon"], "soon"),
        (["kafka-metadata-quorum", "describe", *NOWHERE], "--status, --replication"),
        (["kafka-storage", "format", "-t", "5L6g3nShT-eMCtK--X86sw"], "--config"),
        (["kafka-topics", *NOWHERE, "--list"], "no broker answers at 127.0.0.1:1"),
        (["kafka-acls", *NOWHERE], "there is no tool 'kafka-acls'"),
        ([], "there is no tool ''"),
    ],
)
def test_a_refused_command_is_one_line_and_status_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err.splitlines()[0]


def test_a_random_id_has_the_form_of_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kafka-storage.sh", "random-uuid"]) == 0
    assert re.fullmatch(r"[\w-]{22}", capsys.readouterr().out.strip())


def test_records_are_printed_as_kafkas_formatter_prints_them() -> None:
    record = Record(0, 1_000, b"k", None, (("a", b"1"), ("b", None)))
    everything = {f"print.{each}": "true" for each in ("partition", "offset", "headers", "key")}
    assert line_of({})(3, 7, record) == b"null\n"
    assert line_of({**everything, "key.separator": "|"})(3, 7, record) == (
        b"Partition:3|Offset:7|a:1,b:null|k|null\n"
    )
    assert line_of({"print.key": "true", "print.value": "false"})(3, 7, record) == b"k\n"
    assert headers_text(()) == b"NO_HEADERS"


def test_where_a_console_consumer_starts() -> None:
    assert start_of(None, from_beginning=False) == (LATEST, None)
    assert start_of(None, from_beginning=True) == (EARLIEST, None)
    assert start_of("earliest", from_beginning=False) == (EARLIEST, None)
    assert start_of("latest", from_beginning=False) == (LATEST, None)
    assert start_of("12", from_beginning=False)[1] == 12
    with pytest.raises(CommandFailed, match="'-3' is incorrect"):
        start_of("-3", from_beginning=False)


def test_properties_are_pairs() -> None:
    assert pairs_of(["a=b=c", "d"], "property") == {"a": "b=c", "d": ""}
    with pytest.raises(CommandFailed, match="NAME=VALUE"):
        pairs_of(["=b"], "property")
    with pytest.raises(CommandFailed, match="takes a here, not b, c"):
        refuse_others({"c": "", "a": "", "b": ""}, ("a",), "--property")


def test_versions_are_told_with_the_highest_that_both_know() -> None:
    assert told(ApiVersion(api_key=0, min_version=0, max_version=99)) == "Produce(0): 0 to 99 [usable: 13]"
    assert (
        told(ApiVersion(api_key=0, min_version=50, max_version=99))
        == "Produce(0): 50 to 99 [unusable: node too new]"
    )
    assert (
        told(ApiVersion(api_key=0, min_version=0, max_version=0)) == "Produce(0): 0 [unusable: node too old]"
    )
    assert told(ApiVersion(api_key=9999, min_version=1, max_version=1)) == "UNKNOWN(9999): 1"


def test_the_image_has_every_tool() -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    for name in TOOLS:
        assert f"{name.removeprefix('kafka-')}" in text, name


def test_a_quorum_is_described_as_kafkas_tool_describes_it() -> None:
    told = PartitionData(
        leader_id=2,
        leader_epoch=7,
        high_watermark=90,
        current_voters=[
            ReplicaState(
                replica_id=1, log_end_offset=80, last_fetch_timestamp=5, last_caught_up_timestamp=60
            ),
            ReplicaState(
                replica_id=2,
                replica_directory_id=bytes(range(16)),
                log_end_offset=100,
                last_fetch_timestamp=100,
                last_caught_up_timestamp=100,
            ),
        ],
        observers=[ReplicaState(replica_id=3)],
    )
    nodes = [Node(node_id=1, listeners=[Listener(name="C", host="::1", port=9)])]
    assert status_lines("c", told, nodes) == [
        "ClusterId:              c",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          90",
        "MaxFollowerLag:         20",
        "MaxFollowerLagTimeMs:   40",
        'CurrentVoters:          [{"id": 1, "endpoints": ["C://[::1]:9"]}, {"id": 2, "directoryId": "AAECAwQFBgcICQoLDA0ODw"}]',
        'CurrentObservers:       [{"id": 3}]',
    ]
    rows = [line.split("\t") for line in replication_lines(told)]
    assert [row[0].strip() for row in rows] == ["NodeId", "2", "1", "3"]
    assert [cell.strip() for cell in rows[2]] == ["1", "A" * 22, "80", "20", "5", "60", "Follower", ""]
    assert len({tuple(map(len, row)) for row in rows}) == 1
    with pytest.raises(CommandFailed, match="no leader"):
        replication_lines(PartitionData(leader_id=-1))
