"""Options of `format`: who votes first, and the levels of features."""

from __future__ import annotations

import argparse
from base64 import b64encode
from pathlib import Path

import pytest

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.cli.format import add_arguments, formatted
from kafkacompat.cli.format_options import (
    parse_feature_levels,
    parse_initial_controllers,
    parse_release,
    parse_scram_credential,
)
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_to_text
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.raft.snapshot import parse_snapshot
from kafkacompat.raft.storage import FormatRequest, StorageProblem, format_storage, load_directories
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.security.scram import SCRAM_BY_NAME

# The ids that CountingRandom gives first: a voter's id is given to no other directory.
ONE, TWO = (1000).to_bytes(16, "big"), (1001).to_bytes(16, "big")
CHECKPOINT = "/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
NOW_MS = 1_700_000_000_000


def voters() -> tuple[VoterNode, ...]:
    text = f"2@[::1]:19093:{uuid_to_text(TWO)}, 1@host:9093:{uuid_to_text(ONE)}"
    return parse_initial_controllers(text, "CONTROLLER")


def test_initial_controllers_are_voters_by_id() -> None:
    assert voters() == (
        VoterNode(1, ONE, (("CONTROLLER", "host", 9093),)),
        VoterNode(2, TWO, (("CONTROLLER", "::1", 19093),)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no controller"),
        ("1", "does not have the form"),
        ("1@host:9093", "does not have the form"),
        (f"1@:9093:{uuid_to_text(ONE)}", "does not have the form"),
        (f"1@::1:9093:{uuid_to_text(ONE)}", "does not have the form"),
        (f"x@host:9093:{uuid_to_text(ONE)}", "is not a node id"),
        (f"-1@host:9093:{uuid_to_text(ONE)}", "is not a node id"),
        (f"1@host:70000:{uuid_to_text(ONE)}", "is not a port"),
        ("1@host:9093:short", "not a uuid"),
        (f"1@host:9093:{uuid_to_text(bytes(16))}", "reserved"),
        (f"1@a:1:{uuid_to_text(ONE)},1@b:1:{uuid_to_text(TWO)}", "more than once"),
        (f"1@a:1:{uuid_to_text(ONE)},2@b:1:{uuid_to_text(ONE)}", "another node"),
    ],
)
def test_other_initial_controllers_are_refused(text: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=said):
        parse_initial_controllers(text, "CONTROLLER")


def ask(node_id: int, *log_dirs: str) -> FormatRequest:
    return FormatRequest(log_dirs, None, node_id, "c", (b"\x01",), initial_voters=voters())


def test_every_node_is_given_the_voters_and_a_voter_its_directory_id() -> None:
    disk = MemoryDisk()
    format_storage(disk, ask(2, "/a", "/b"), CountingRandom(), NOW_MS)
    content = parse_snapshot(disk.files[CHECKPOINT])
    assert (content.voters, content.kraft_version) == (voters(), 1)
    identity = load_directories(disk, ["/a", "/b"], None, 2, CountingRandom(), NOW_MS)
    assert identity.metadata_directory_id == TWO
    assert identity.directory_ids["/b"] not in (ONE, TWO)


def test_a_node_that_does_not_vote_gets_an_id_of_its_own() -> None:
    disk = MemoryDisk()
    format_storage(disk, ask(7, "/a"), CountingRandom(), NOW_MS)
    identity = load_directories(disk, ["/a"], None, 7, CountingRandom(), NOW_MS)
    assert identity.metadata_directory_id not in (ONE, TWO)
    assert parse_snapshot(disk.files[CHECKPOINT]).voters == voters()
    with pytest.raises(StorageProblem, match="already formatted"):
        format_storage(disk, ask(7, "/a"), CountingRandom(), NOW_MS)


def test_feature_levels() -> None:
    asked = ["group.version=0", "transaction.version=0", "share.version=0", "streams.version=0"]
    assert parse_feature_levels(asked, dynamic=False) == (
        ("metadata.version", 33),
        ("eligible.leader.replicas.version", 1),
    )
    assert dict(parse_feature_levels(["metadata.version=30"], dynamic=True))["share.version"] == 1
    assert parse_feature_levels(["streams.version=1", "group.version=1"], False, 22) == (
        ("metadata.version", 22),
        ("group.version", 1),
        ("streams.version", 1),
    )
    assert dict(parse_feature_levels(["kraft.version=1"], dynamic=True))["transaction.version"] == 2


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("group.version", "name=level"),
        ("group.version=x", "name=level"),
        ("nope=1", "unknown"),
        ("transaction.version=3", "levels 0 to 2"),
        ("kraft.version=1", "kraft.version is 0"),
        ("metadata.version=34", "levels 7 to 33"),
        ("share.version=3", "levels 0 to 2"),
    ],
)
def test_other_feature_levels_are_refused(entry: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=said):
        parse_feature_levels([entry], dynamic=False)


def test_a_node_that_joins_a_dynamic_quorum_later_has_kraft_version_one(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(
        "node.id=2\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9193\n"
        f"log.dirs={tmp_path / 'logs'}\n"
    )
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    asked = ["-t", "c", "--no-initial-controllers", "-c", str(settings)]
    with pytest.raises(CommandFailed, match=r"kraft\.version is 1"):
        formatted(parser.parse_args([*asked, "-f", "kraft.version=0"]), print)
    assert formatted(parser.parse_args([*asked, "-f", "kraft.version=1"]), print) == 0
    (checkpoint,) = tmp_path.glob("logs/__cluster_metadata-0/*.checkpoint")
    assert parse_snapshot(checkpoint.read_bytes()).kraft_version == 1


def test_feature_levels_that_depend_on_others_or_are_said_twice_are_refused() -> None:
    with pytest.raises(CommandFailed, match=r"requires metadata\.version at level 23"):
        parse_feature_levels(["metadata.version=22", "eligible.leader.replicas.version=1"], dynamic=False)
    with pytest.raises(CommandFailed, match="give one of them"):
        parse_feature_levels(["metadata.version=30"], False, 30)


@pytest.mark.parametrize(
    ("release", "level", "others"),
    [
        ("3.3", 7, {}),
        ("3.9.2", 21, {}),
        ("4.0", 25, {"group": 1, "transaction": 2}),
        ("4.1", 27, {"eligible.leader.replicas": 1, "group": 1, "transaction": 2}),
        ("4.2-IV0", 28, {"eligible.leader.replicas": 1, "group": 1, "share": 1, "transaction": 2}),
        (
            "4.3.1",
            30,
            {"eligible.leader.replicas": 1, "group": 1, "share": 1, "streams": 1, "transaction": 2},
        ),
        ("4.4", 33, {"eligible.leader.replicas": 1, "group": 1, "share": 2, "streams": 1, "transaction": 2}),
    ],
)
def test_the_levels_of_a_release_are_those_of_kafka_storage(
    release: str, level: int, others: dict[str, int]
) -> None:
    """As `kafka-storage version-mapping` of Apache Kafka 4.4.0 says."""
    assert parse_release(release) == level
    found = parse_feature_levels([], False, level)
    assert found == (
        ("metadata.version", level),
        *((f"{name}.version", each) for name, each in others.items()),
    )


@pytest.mark.parametrize("release", ["4.5", "4.5-IV0", "4", "", "3.2", "4.4-IV3", "x"])
def test_a_release_of_no_known_level_is_refused(release: str) -> None:
    with pytest.raises(CommandFailed, match=r"is unknown; known are 3\.3-IV3, .*4\.4-IV2"):
        parse_release(release)


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_gets_in_with_the_password_of_add_scram(mechanism: str, quote: str) -> None:
    scram = SCRAM_BY_NAME[mechanism]
    kept = parse_scram_credential(
        f" {mechanism}=[name={quote}alice{quote},iterations=5000,password={quote}a=b{quote}]"
    )
    assert (kept.name, kept.mechanism, kept.iterations) == ("alice", scram.type, 5000)
    expected = scram.credential(bytes(kept.salt), scram.salted_password("a=b", bytes(kept.salt), 5000), 5000)
    assert (kept.stored_key, kept.server_key) == (expected.stored_key, expected.server_key)


def test_a_salted_password_needs_no_password() -> None:
    scram = SCRAM_BY_NAME["SCRAM-SHA-256"]
    salted = scram.salted_password("secret", b"salt", 4096)
    said = f"name=a,salt=c2FsdA==,saltedpassword={b64encode(salted).decode()}"
    kept = parse_scram_credential(f"SCRAM-SHA-256=[{said}]")
    assert (kept.salt, kept.iterations) == (b"salt", 4096)
    assert kept.stored_key == scram.credential(b"salt", salted, 4096).stored_key


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SCRAM-SHA-0=[name=a,password=s3cret]", "SCRAM-SHA-256"),
        ("SCRAM-SHA-256", "equals sign"),
        ("SCRAM-SHA-256=name=a,password=s3cret", "square brackets"),
        ("SCRAM-SHA-256=[password=s3cret]", "needs a name"),
        ("SCRAM-SHA-256=[name=a]", "needs a password"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]", "with its salt"),
        ("SCRAM-SHA-256=[name=a,salt=%,password=s3cret]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,iterations=4095,password=s3cret]", "4096 to 16384, not 4095"),
        ("SCRAM-SHA-256=[name=a,iterations=x,password=s3cret]", "4096 to 16384, not x"),
        ("SCRAM-SHA-256=[name=a,password=s3,cret]", "part 3"),
        ("SCRAM-SHA-256=[name=a,password=s3cret,more=1]", "has unknown fields: more"),
    ],
)
def test_other_credentials_are_refused_without_a_password(text: str, told: str) -> None:
    with pytest.raises(CommandFailed, match=told) as refused:
        parse_scram_credential(text)
    assert "s3" not in str(refused.value)
