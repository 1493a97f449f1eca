"""The states of a quorum member's disk at a start: earlier formats, truncated and contradicting files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkacompat.config import ServerConfig
from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft._tests import driver_support
from kafkacompat.raft._tests.driver_support import (
    PARTITION,
    Cluster,
    Node,
    RecordingMachine,
    directory_id,
    static_voter,
    voter,
)
from kafkacompat.raft.contracts import MetadataLogProblem
from kafkacompat.raft.metadata_log import metadata_log_config, open_metadata_log
from kafkacompat.raft.quorum_config import quorum_member, quorum_settings, static_voters
from kafkacompat.raft.quorum_files import READ_BATCH_MS, LoadedQuorum, load_quorum, read_election
from kafkacompat.raft.snapshot import (
    SnapshotContent,
    SnapshotStore,
    format_snapshot,
    parse_snapshot,
    snapshot_file_name,
)
from kafkacompat.raft.voter_set import VoterSet

GOLDEN = Path(__file__).parent / "golden" / "one_node"
FIRST_SNAPSHOT = "00000000000000000000-0000000000.checkpoint"


def load(node: Node) -> LoadedQuorum:
    log = open_metadata_log(
        node.disk,
        driver_support.DIRECTORY,
        metadata_log_config(1 << 30, 1 << 40),
        node.cluster.world,
        clean=False,
    )
    store = SnapshotStore(node.disk, PARTITION)
    return load_quorum(log, store, VoterSet([static_voter(1)]), node.notes.append)


def grown(records: int = 3) -> Node:
    """A stopped node, alone in its quorum, with some records."""
    cluster = Cluster(voters=(1,))
    cluster.start()
    node = cluster.leader()
    for index in range(records):
        node.propose(b"%d" % index)
    cluster.settle()
    return node


def test_a_directory_of_the_one_node_broker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by the release in which a quorum had only one member."""
    (stored_voter,) = parse_snapshot((GOLDEN / FIRST_SNAPSHOT).read_bytes()).voters
    monkeypatch.setattr(driver_support, "directory_id", lambda node_id: stored_voter.directory_id)
    monkeypatch.setattr(driver_support, "address", lambda node_id: stored_voter.listeners)
    cluster = Cluster(voters=(1,))
    node = cluster.nodes[1]
    for path in GOLDEN.iterdir():
        node.disk.write_atomic(f"{PARTITION}/{path.name}", path.read_bytes())
    node.start()
    cluster.run(10)
    assert node.machine.active_epochs == [2]
    assert node.machine.kraft_version == 1
    assert len(node.machine.values) == 20
    assert any(b"words" in value for value in node.machine.values)
    assert node.up.next_offset == 24
    assert node.up.voters.voters == (stored_voter,)
    outcome = node.propose(b"more")
    cluster.run(10)
    assert outcome == ["committed"]


def test_nodes_that_never_run_for_long_write_snapshots_too() -> None:
    """Each batch that a start has to read brings the next snapshot nearer."""
    node = grown(records=3)
    node.kill()
    node.start()
    assert node.up.bytes_since_snapshot > 0
    read = node.up.ms_since_snapshot // READ_BATCH_MS
    assert read > 3
    for value in (b"3", b"4"):
        node.propose(value)
        node.cluster.settle()
    node.kill()
    node.start()
    assert node.up.ms_since_snapshot // READ_BATCH_MS == read + 3, "each leadership begins with a batch, too"
    node.cluster.settle()
    node.write_snapshot()
    assert node.up.ms_since_snapshot < READ_BATCH_MS
    node.kill()
    node.start()
    assert node.up.ms_since_snapshot == 0


def test_a_log_that_was_not_synced_does_not_count_as_durable() -> None:
    node = grown()
    node.kill()
    loaded = load(node)
    assert loaded.shape.end > 0
    assert loaded.shape.durable_end == 0


def test_a_snapshot_ahead_of_the_log_replaces_it() -> None:
    node = grown()
    end = node.up.next_offset + 10
    node.kill()
    content = SnapshotContent([b"all"], 5, 1, (voter(1), voter(2), voter(3)))
    name = snapshot_file_name(end, 1)
    node.disk.write_atomic(f"{PARTITION}/{name}", format_snapshot(content, 1, 0))
    loaded = load(node)
    assert loaded.snapshot_id == OffsetAndEpoch(end, 1)
    assert (loaded.shape.start, loaded.shape.end) == (end, end)
    assert loaded.voters.latest.ids == (1, 2, 3)
    assert node.disk.list_directory(PARTITION).count(name) == 1
    assert not node.disk.exists(f"{PARTITION}/{FIRST_SNAPSHOT}")


def test_a_segment_that_a_kill_left_without_a_durable_name_is_durable_before_it_counts() -> None:
    """The node was killed between the rename and the sync of the directory. The power fails after the next start,
    which has dropped the log."""
    node = grown()
    node.kill()
    path = f"{PARTITION}/{snapshot_file_name(30, 1)}"
    file = node.disk.open(path + ".tmp", create=True)
    file.write_now(format_snapshot(SnapshotContent([b"all"], 5), 1, 0))
    file.sync()
    node.disk.rename(path + ".tmp", path)
    node.start()
    node.lose_power()
    assert path in node.disk.files


def test_the_directory_of_votes_has_a_durable_name_before_the_first_vote() -> None:
    """Without a 0-0 snapshot the start has made it. A power loss would take the vote away with it, and the voter might vote
    twice."""
    cluster = Cluster(voters=(1, 2), dynamic=False)
    done: list[tuple[str, str]] = []
    cluster.nodes[2].disk.refuse = lambda operation, path: done.append((operation, path))  # type: ignore[func-returns-value]
    cluster.start()
    cluster.leader()
    votes = done.index(("write_atomic", f"{PARTITION}/quorum-state"))
    assert ("sync_directory", driver_support.DIRECTORY) in done[:votes]


def test_a_snapshot_that_is_broken_is_left_aside_while_the_log_is_whole() -> None:
    node = grown()
    node.kill()
    node.disk.write_atomic(f"{PARTITION}/{snapshot_file_name(3, 1)}", b"garbage")
    node.disk.write_atomic(f"{PARTITION}/{snapshot_file_name(9, 1)}.part", b"cut off")
    node.disk.write_atomic(f"{PARTITION}/{snapshot_file_name(8, 1)}.tmp", b"cut off")
    node.start()
    node.cluster.settle()
    assert node.machine.values == [b"0", b"1", b"2"]
    assert len(node.notes) == 1
    assert not [name for name in node.disk.list_directory(PARTITION) if name.endswith((".part", ".tmp"))]


def test_what_a_killed_apache_kafka_left_of_snapshots_is_removed() -> None:
    """Kafka gives a file that it writes a number of its own, and a deleted one a suffix."""
    node = grown()
    node.kill()
    left = [f"{9:020d}-{1:010d}-8261549360283746.checkpoint.part", f"{8:020d}-{1:010d}.checkpoint.deleted"]
    kept = [FIRST_SNAPSHOT, "notes-1.checkpoint.part"]
    for name in (*left, kept[1]):
        node.disk.write_atomic(f"{PARTITION}/{name}", b"cut off")
    load(node)
    assert set(node.disk.list_directory(PARTITION)).isdisjoint(left)
    assert set(node.disk.list_directory(PARTITION)) >= set(kept)


def test_a_log_without_the_snapshot_it_rests_on_does_not_start() -> None:
    node = grown()
    node.write_snapshot()
    path = next(path for path in node.disk.files if path.endswith("1.checkpoint"))
    node.kill()
    whole = node.disk.files.pop(path)
    with pytest.raises(MetadataLogProblem, match="no snapshot reaches"):
        node.start()
    node.disk.files[path] = whole[:-10]
    with pytest.raises(MetadataLogProblem, match=r"1\.checkpoint"):
        node.start()


def test_a_log_that_begins_above_its_newest_snapshot_does_not_start() -> None:
    """The records in between are lost."""
    node = grown()
    node.write_snapshot()
    path = next(path for path in node.disk.files if path.endswith("1.checkpoint"))
    node.kill()
    del node.disk.files[path]
    older = format_snapshot(SnapshotContent([b"0"], 5), 1, 0)
    node.disk.write_atomic(f"{PARTITION}/{snapshot_file_name(2, 1)}", older)
    with pytest.raises(MetadataLogProblem, match="no snapshot reaches"):
        node.start()


def test_a_broken_quorum_state_does_not_start() -> None:
    node = grown()
    node.kill()
    node.disk.write_atomic(f"{PARTITION}/quorum-state", b"{")
    with pytest.raises(MetadataLogProblem, match="quorum-state"):
        read_election(node.disk, PARTITION)


def test_settings_become_a_member() -> None:
    config = ServerConfig.from_properties(
        {
            "process.roles": "controller",
            "node.id": "2",
            "listeners": "CONTROLLER://127.0.0.1:9002",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9001,127.0.0.1:9002,[::1]:9003",
            "controller.quorum.fetch.timeout.ms": "3000",
            "controller.quorum.election.timeout.ms": "0",
        }
    )
    member = quorum_member(config, directory_id(2), "cluster", (("CONTROLLER", "127.0.0.1", 9002),))
    assert member.can_vote
    assert member.bootstrap == (
        (-2, (("CONTROLLER", "127.0.0.1", 9001),)),
        (-4, (("CONTROLLER", "::1", 9003),)),
    )
    settings = quorum_settings(config)
    assert (settings.fetch_timeout_ms, settings.election_timeout_ms) == (3000, 1)
    assert static_voters(config) == ()


def test_static_voters_are_also_who_is_asked_for_the_leader() -> None:
    config = ServerConfig.from_properties(
        {
            "process.roles": "broker",
            "node.id": "7",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": "1@127.0.0.1:9001,2@127.0.0.1:9002",
        }
    )
    member = quorum_member(config, directory_id(7), "cluster", ())
    assert not member.can_vote
    assert [servers for _, servers in member.bootstrap] == [
        (("CONTROLLER", "127.0.0.1", 9001),),
        (("CONTROLLER", "127.0.0.1", 9002),),
    ]
    assert static_voters(config) == (static_voter(1), static_voter(2))


def test_the_own_log_is_not_taken_for_all_that_is_committed() -> None:
    cluster = Cluster()
    cluster.start()
    leader = cluster.leader()
    leader.propose(b"before")
    cluster.settle()
    assert all(node.up.has_caught_up for node in cluster.nodes.values())
    (first, second) = cluster.followers()
    first.write_snapshot()
    first.kill()
    leader.propose(b"a denial")
    cluster.settle()
    leader.kill()
    second.kill()
    first.start()
    cluster.run(20_000)
    assert first.machine.values == [b"before"]
    assert "caught up" in first.machine.events
    assert not first.up.has_caught_up
    for node in (leader, second):
        node.start()
    cluster.settle()
    assert first.machine.values == [b"before", b"a denial"]
    assert all(node.up.has_caught_up for node in cluster.nodes.values())


def test_a_machine_publishes_when_it_hears_that_nothing_more_is_committed() -> None:
    """The quorum is idle, and the snapshot has everything. Whoever waits for the others' word is told by an image."""
    cluster = Cluster()
    cluster.start()
    cluster.leader().propose(b"all")
    cluster.settle()
    node = cluster.followers()[0]
    node.write_snapshot()
    node.kill()
    cluster.run(10)
    node.start()
    assert node.machine.events.count("caught up") == 1
    assert not node.up.has_caught_up
    cluster.run_until(lambda: node.up.has_caught_up)
    assert node.machine.events.count("caught up") == 2
    assert node.machine.values == [b"all"]


@pytest.mark.parametrize("later", [[b"a denial"], []])
def test_a_snapshot_of_the_leader_is_not_taken_for_all_that_is_committed(
    later: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may go on after it. If it does not, the leader says so, and the machine hears of it."""
    cluster = Cluster()
    cluster.start()
    leader = cluster.leader()
    behind = cluster.followers()[0]
    behind.kill()
    for value in (b"one", b"two"):
        leader.propose(value)
        cluster.settle()
        leader.write_snapshot()
    assert leader.log.log_start_offset > 0
    for value in later:
        leader.propose(value)
    cluster.settle()
    published: list[tuple[list[bytes], bool]] = []

    def publish(machine: RecordingMachine) -> None:
        if machine is behind.machine:
            published.append((list(machine.values), behind.up.has_caught_up))

    monkeypatch.setattr(RecordingMachine, "caught_up", publish)
    behind.start()
    cluster.settle()
    cluster.run_until(lambda: behind.up.has_caught_up)  # a fetch without news is answered after a while
    assert ([b"one", b"two"], False) in published
    assert published[-1] == ([b"one", b"two", *later], True)
    assert not [values for values, is_all in published if is_all and values != [b"one", b"two", *later]]
