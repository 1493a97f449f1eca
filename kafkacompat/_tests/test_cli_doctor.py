"""What `kafkacompat doctor` concludes, and what it sees on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkacompat.__main__ import main
from kafkacompat.cli.diagnosis import Finding, Level, diagnose, is_loopback, listed
from kafkacompat.cli.examination import examine_machine
from kafkacompat.cli.facts import (
    BrokerFacts,
    ClusterFacts,
    LocalFacts,
    LogDir,
    PartitionFacts,
    QuorumFacts,
)
from kafkacompat.config import ServerConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "watch-a-cluster.md"
GB = 1_000_000_000
ROOM = LogDir("/data", 100 * GB, 50 * GB)
APIS = {0: (3, 13), 18: (0, 4)}
BROKER = BrokerFacts(
    1,
    "one:9092",
    answers_as=("c", 1),
    log_dirs=(ROOM,),
    apis=APIS,
    supported={"metadata.version": 29},
    finalized={"metadata.version": 29},
)
QUORUM = QuorumFacts(1, {1: 100_000, 2: 99_900, 3: 99_000}, {}, (99_990, 100_010))
WELL = ClusterFacts(
    "c", ["one"], [BROKER, replace(BROKER, node_id=2, answers_as=("c", 2))], QUORUM, PartitionFacts(9)
)


def complaints(cluster: ClusterFacts | None = None, local: LocalFacts | None = None) -> list[tuple[str, str]]:
    found = [each for each in diagnose(cluster, local) if each.level is not Level.OK]
    assert all(each.action for each in found), "each complaint says what to do"
    return [(each.level.value, each.text) for each in found]


def broker(**changes: Any) -> ClusterFacts:
    return replace(WELL, brokers=[replace(BROKER, **changes)])


def test_a_cluster_that_is_well_has_no_complaint_and_every_check_is_told() -> None:
    found = diagnose(WELL, None)
    assert {each.level for each in found} == {Level.OK}
    assert [each.check for each in found] == [
        "brokers",
        "advertised listeners",
        "metadata quorum",
        "clock",
        "partitions",
        "disks",
        "disks",
        "versions",
    ]
    assert found[0] == Finding("brokers", Level.OK, "2 are registered, and none is fenced")


def test_the_page_has_a_row_for_every_check() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("| check | fails | warns |\n")[2].partition("\n\n")[0]
    told = re.findall(r"^\| ([a-z ]+) \|", text, re.MULTILINE)
    local = LocalFacts((ROOM,), ("/data2",), descriptors=-1)
    assert told == list(dict.fromkeys(each.check for each in diagnose(WELL, local)))


@pytest.mark.parametrize(
    ("cluster", "level", "text"),
    [
        (broker(is_fenced=True), "FAIL", "broker 1 is registered and fenced"),
        (broker(problem="no broker answers"), "FAIL", "broker 1 advertises one:9092: no broker answers"),
        (
            broker(problem="timed out", hangs=True),
            "FAIL",
            "broker 1 advertises one:9092, takes connections there and does not answer",
        ),
        (broker(address="127.0.0.1:9092"), "FAIL", "which other machines cannot reach"),
        (broker(address="[::1]:9092"), "FAIL", "which other machines cannot reach"),
        (broker(answers_as=("other", 7)), "FAIL", "but node 7 of cluster other answers there"),
        (replace(WELL, quorum=None), "FAIL", "there is no active controller"),
        (replace(WELL, quorum=replace(QUORUM, leader=-1)), "FAIL", "there is no active controller"),
        (
            replace(WELL, quorum=replace(QUORUM, voters={1: 100_000, 2: 60_000, 3: 100_000})),
            "FAIL",
            "voter 2 was 40 s ago at the end",
        ),
        (
            replace(WELL, quorum=replace(QUORUM, observers={9: -1})),
            "WARN",
            "observer 9 has not been at the end of the metadata log since node 1 leads",
        ),
        (
            replace(WELL, quorum=replace(QUORUM, voters={1: 100_000, 2: 100_000})),
            "WARN",
            "2 voters survive no more failures than 1",
        ),
        (replace(WELL, quorum=replace(QUORUM, asked_ms=(95_000, 95_010))), "WARN", "is 5.0 s ahead of this"),
        (replace(WELL, quorum=replace(QUORUM, asked_ms=(103_000, 103_010))), "WARN", "is 3.0 s behind this"),
        (replace(WELL, partitions=PartitionFacts(9, ["a-0"])), "FAIL", "1 of 9 have no leader: a-0"),
        (replace(WELL, partitions=PartitionFacts(9, (), ["a-0"])), "FAIL", "refuse acks=all: a-0"),
        (replace(WELL, partitions=PartitionFacts(9, (), (), ["a-0"])), "WARN", "not in sync: a-0"),
        (broker(log_dirs=[LogDir("/data", error="KAFKA_STORAGE_ERROR")]), "FAIL", "/data is offline"),
        (broker(log_dirs=[replace(ROOM, usable_bytes=GB)]), "WARN", "/data has 1.0 GB free (1%)"),
        (broker(log_dirs=[replace(ROOM, usable_bytes=GB // 20)]), "FAIL", "/data has 0.1 GB free (0%)"),
        (
            replace(
                WELL, brokers=[BROKER, replace(BROKER, node_id=2, answers_as=("c", 2), apis={0: (3, 12)})]
            ),
            "WARN",
            "the brokers serve different versions: broker 1; broker 2",
        ),
        (broker(finalized={"metadata.version": 25}), "WARN", "metadata.version is 25 of 29"),
        (replace(WELL, refused={"metadata quorum": "no right"}), "FAIL", "no answer: no right"),
        (replace(WELL, refused={"partitions": "no right"}), "FAIL", "no answer: no right"),
        (
            broker(log_dirs=(), log_dirs_untold="CLUSTER_AUTHORIZATION_FAILED"),
            "WARN",
            "broker 1 does not tell its log directories: CLUSTER_AUTHORIZATION_FAILED",
        ),
        (broker(log_dirs=[replace(ROOM, usable_files=9_999)]), "WARN", "/data has room for 9999 more files"),
        (broker(log_dirs=[replace(ROOM, usable_files=0)]), "FAIL", "/data has room for 0 more files"),
    ],
)
def test_each_fault_is_one_complaint(cluster: ClusterFacts, level: str, text: str) -> None:
    ((said, told),) = complaints(cluster)
    assert (said, text in told) == (level, True), told


def test_a_quorum_whose_clock_is_unknown_is_not_judged_by_it() -> None:
    """Before version 1 of DescribeQuorum there are no times."""
    unknown = replace(QUORUM, voters={1: -1, 2: -1, 3: -1})
    assert complaints(replace(WELL, quorum=unknown)) == []


def test_a_loopback_address_is_fine_for_who_is_on_that_machine() -> None:
    here = broker(address="localhost:9092")
    assert complaints(replace(here, bootstrap_hosts=["127.0.0.1"])) == []
    assert [is_loopback(each) for each in ("localhost", "127.1.2.3", "::1", "10.0.0.1", "one.example")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_machine_of_a_node_is_judged_by_its_settings(tmp_path: Path) -> None:
    (tmp_path / "a" / "t-0").mkdir(parents=True)
    (tmp_path / "a" / "meta.properties").write_text("version=1\n")
    (tmp_path / "a" / "t-0" / "00000000000000000000.log").write_bytes(b"")
    config = ServerConfig.from_properties(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        }
    )
    seen = examine_machine(config)
    first, second = seen.log_dirs
    assert (first.path, first.is_writable, first.log_files) == (f"{tmp_path}/a", True, 1)
    assert first.usable_bytes > 0
    assert (second.usable_bytes, seen.unformatted) == (-1, [f"{tmp_path}/b"])
    told = complaints(
        None, replace(seen, descriptors=1000, log_dirs=[replace(first, usable_bytes=1 << 40), second])
    )
    assert told == [
        ("WARN", f"{tmp_path}/b does not exist"),
        ("WARN", f"{tmp_path}/b is not formatted"),
        ("FAIL", "a node that this shell starts may open 1000 files, about 1001 are needed"),
    ]
    assert first.usable_files != 0


def test_a_node_that_runs_is_judged_by_its_own_limit(tmp_path: Path) -> None:
    """Not by the limit of the shell in which the doctor runs."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    program = (
        "import resource, sys; from kafkacompat.log.disk import RealDisk;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500));"
        "held = RealDisk().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, f"{tmp_path}/.lock"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stdout.readline() == b"locked\n"
        config = ServerConfig.from_properties(
            {
                "node.id": "1",
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "localhost:9093",
                "listeners": "PLAINTEXT://:9092",
                "controller.listener.names": "CONTROLLER",
                "log.dirs": str(tmp_path),
            }
        )
        seen = examine_machine(config)
        node.stdin.close()
    assert (seen.pid, seen.descriptors) == (node.pid, 500)
    judged = replace(seen, log_dirs=[ROOM])
    assert complaints(None, judged) == [
        ("FAIL", f"the node (process {node.pid}) may open 500 files, about 1000 are needed")
    ]
    assert examine_machine(config).pid == 0


def test_a_directory_without_write_access_fails() -> None:
    local = LocalFacts([replace(ROOM, is_writable=False)], [], -1)
    assert complaints(None, local) == [("FAIL", "/data cannot be written")]


def test_many_names_are_cut() -> None:
    assert listed([f"t-{each}" for each in range(7)]) == "t-0, t-1, t-2, t-3, t-4 and 2 more"


def test_a_cluster_that_is_away_is_one_failed_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bootstrap", "127.0.0.1:1", "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["check"], told["result"]) == ("brokers", "FAIL")
    assert "127.0.0.1:1" in told["text"]
    assert "--bootstrap" in told["action"]
