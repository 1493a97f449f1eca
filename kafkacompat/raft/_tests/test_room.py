"""Full disks of a quorum: which node leads, which one waits, and that everything continues once there is space."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import METADATA_TOPIC
from kafkacompat.raft import metadata_log
from kafkacompat.raft._tests.driver_support import PARTITION, Cluster, Node
from kafkacompat.raft.contracts import NotLeader
from kafkacompat.raft.quorum_files import LEAST_ROOM_BYTES, LOOK_AGAIN_MS, NOTE_AGAIN_MS, RoomWatch
from kafkacompat.wire.messages import vote_request


def started(**options: object) -> Cluster:
    cluster = Cluster(**options)  # type: ignore[arg-type]
    cluster.start()
    return cluster


def others(cluster: Cluster, node: Node) -> list[Node]:
    return [each for each in cluster.nodes.values() if each is not node]


def refuse(node: Node) -> None:
    """A proposal meets the full disk, and the node resigns."""
    with pytest.raises(OSError, match="full") as refused:
        node.propose(b"refused")
    assert node.up.resign_for_room(9, refused.value)


def test_a_leader_that_cannot_append_hands_over_and_stands_again_once_there_is_room() -> None:
    cluster = started()
    full = cluster.settle()
    kept = full.propose(b"a")
    cluster.settle()
    full.disk.failing = PARTITION
    refuse(full)
    assert not full.up.is_leader
    new = cluster.leader()
    assert new is not full
    outcome = new.propose(b"b")
    cluster.run_until(lambda: outcome == ["committed"])
    # The others follow their leader. The full node logs it, waits, and neither halts nor stands for election.
    for node in others(cluster, full):
        cluster.run_until(lambda node=node: node.machine.values == [b"a", b"b"])  # type: ignore[misc]
    epoch = new.up.epoch
    cluster.run(20_000)
    assert (new.up.is_leader, new.up.epoch, full.failures, kept) == (True, epoch, [], ["committed"])
    assert any("leads no more" in note for note in full.notes)
    assert "quorum-state.tmp" not in full.disk.list_directory(PARTITION)
    full.disk.failing = None
    cluster.run(2 * LOOK_AGAIN_MS)
    cluster.settle()
    assert full.machine.values == [b"a", b"b"]
    for node in others(cluster, full):
        node.kill()
    others(cluster, full)[0].start()
    assert cluster.leader() is not None


def test_a_node_stands_for_no_election_while_only_large_records_find_no_room() -> None:
    """Votes and small records may fit where the next large record does not: the node would win and resign forever."""
    cluster = started(voters=(1, 2))
    full = cluster.settle()
    full.disk.failing = ".log"
    refuse(full)
    other = others(cluster, full)[0]
    other.kill()
    full.disk.failing = "quorum-state.tmp"
    cluster.run(10_000)
    assert full.up.epoch == 1 or not full.up.is_leader
    assert not full.failures
    full.disk.failing = None
    other.start()
    cluster.settle()


def test_when_every_disk_is_full_nobody_halts_and_all_go_on_with_room() -> None:
    cluster = started()
    leader = cluster.settle()
    for node in cluster.nodes.values():
        node.disk.failing = PARTITION
    refuse(leader)
    cluster.run(30_000)
    for node in cluster.nodes.values():
        node.disk.failing = None
    cluster.run(3 * LOOK_AGAIN_MS)
    outcome = cluster.leader().propose(b"a")
    cluster.settle()
    assert outcome == ["committed"]
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"a"]] * 3


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_lack_of_descriptors_is_waited_for_like_a_full_disk(number: int) -> None:
    cluster = started()
    leader = cluster.settle()
    waiting = others(cluster, leader)
    for node in waiting:
        node.disk.refuse = lambda operation, path: (
            OSError(number, "not now", path) if operation in ("create", "write", "write_atomic") else None
        )
    leader.propose(b"a")
    cluster.run(2_000)
    leader.kill()
    cluster.run(20_000)
    assert [node.failures for node in waiting] == [[], []]
    assert all(any("the quorum waits" in note for note in node.notes) for node in waiting)
    for node in waiting:
        node.disk.refuse = None
    cluster.run(3 * LOOK_AGAIN_MS)
    outcome = cluster.leader().propose(b"b")
    cluster.run_until(lambda: outcome == ["committed"])


def test_a_sole_voter_stays_and_refuses_until_there_is_room() -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    node.disk.failing = PARTITION
    with pytest.raises(OSError, match="full") as refused:
        node.propose(b"a")
    assert not node.up.resign_for_room(9, refused.value)
    cluster.run(10_000)
    assert node.up.is_leader
    node.disk.failing = None
    outcome = node.propose(b"b")
    cluster.run(10)
    assert outcome == ["committed"]


def test_a_leader_that_waits_in_the_middle_of_a_step_takes_no_proposals() -> None:
    """Its log does not have all the records it counts: a later record would get the offset of a missing one."""
    cluster = started()
    old = cluster.settle()
    for node in others(cluster, old):
        node.disk.failing = ".log"
    old.kill()
    cluster.run_until(lambda: any(node.notes for node in cluster.nodes.values()))
    (waiting,) = [node for node in others(cluster, old) if node.notes][:1]
    if waiting.up.is_leader:
        with pytest.raises(OSError, match="room"):
            waiting.propose(b"a")
    else:
        with pytest.raises(NotLeader):
            waiting.propose(b"a")
    cluster.run(5_000)
    for node in others(cluster, old):
        node.disk.failing = None
    outcome = cluster.leader().propose(b"b")
    old.start()
    cluster.settle()
    assert outcome == ["committed"]
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"b"]] * 3


@pytest.mark.parametrize("refused", [".log", "leader-epoch-checkpoint", PARTITION])
def test_a_node_without_room_drops_an_epoch_that_its_next_leader_does_not_have(refused: str) -> None:
    cluster = started()
    first = cluster.settle()
    cluster.isolate(first.id)
    led: list[Node] = []
    while not led:
        cluster.run(1)
        led = [node for node in others(cluster, first) if node.up.is_leader]
    old = led[0]
    end = old.up.next_offset
    cluster.cut.clear()
    cluster.isolate(old.id)
    assert all(node.log.log_end_offset < end for node in others(cluster, old))
    old.disk.failing = refused
    cluster.run_until(lambda: any(node.up.is_leader for node in others(cluster, old) if node is not first))
    new = next(node for node in others(cluster, old) if node.up.is_leader)
    outcome = new.propose(b"kept")
    cluster.run_until(lambda: outcome == ["committed"])
    cluster.cut.clear()
    cluster.run(20_000)
    old.disk.failing = None
    cluster.run(3 * LOOK_AGAIN_MS)
    cluster.settle()
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"kept"]] * 3
    old.kill()
    old.start()
    cluster.settle()
    assert old.machine.values == [b"kept"]


@pytest.mark.parametrize("refused", [".log", "leader-epoch-checkpoint", ".deleted"])
def test_segments_below_a_snapshot_may_stay_until_there_is_room(refused: str) -> None:
    cluster = started(voters=(1,), segment_bytes=400)
    node = cluster.leader()
    for number in range(20):
        node.propose(b"%d" % number * 30)
    cluster.run(50)
    node.begin_snapshot()
    node.disk.failing = refused
    cluster.run(50)
    assert node.up.is_leader
    node.disk.failing = None
    outcome = node.propose(b"more")
    cluster.run(50)
    assert outcome == ["committed"]
    node.write_snapshot()
    values = node.machine.values
    assert len([name for name in node.disk.list_directory(PARTITION) if name.endswith(".log")]) == 1
    node.kill()
    node.start()
    cluster.run(50)
    assert node.machine.values == values


class Files:
    """A disk with this much space."""

    def __init__(self) -> None:
        self.room_bytes = 0
        self.tried: list[int] = []

    def try_room(self, size_bytes: int) -> None:
        self.tried.append(size_bytes)
        if size_bytes > self.room_bytes:
            raise OSError(errno.ENOSPC, "full")


def test_there_is_room_again_once_as_much_can_be_written_as_was_refused() -> None:
    files: Any = Files()
    time = HandTime()
    notes: list[str] = []
    found: list[int] = []
    watch = RoomWatch(files, time, time, notes.append, lambda: found.append(time.monotonic_ms()))
    wanted = 3 * LEAST_ROOM_BYTES
    watch.wait(wanted, OSError(errno.ENOSPC, "full"))
    watch.wait(1, OSError(errno.ENOSPC, "full"))
    files.room_bytes = LEAST_ROOM_BYTES - 1
    time.advance(5 * LOOK_AGAIN_MS)
    assert files.tried == [LEAST_ROOM_BYTES] * 5, "one look a time, for what was refused last"
    assert found == []
    assert len(notes) == 1, "said once in a while"
    files.room_bytes = LEAST_ROOM_BYTES
    time.advance(LOOK_AGAIN_MS)
    assert len(found) == 1
    time.advance(NOTE_AGAIN_MS)
    assert (len(found), len(files.tried)) == (1, 6)
    watch.wait(wanted, OSError(errno.ENOSPC, "full"))
    assert len(notes) == 2
    time.advance(LOOK_AGAIN_MS)
    assert files.tried[-1] == wanted
    watch.is_closed = True
    time.advance(NOTE_AGAIN_MS)
    assert (len(found), len(files.tried)) == (1, 7)


def test_a_full_disk_that_refuses_only_an_index_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then a sync includes the indexes, and writes them. The log's last block may still have a little space."""
    monkeypatch.setattr(metadata_log, "FULL_FLUSH_BYTES", 10_000)
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    node.disk.failing = ".index"
    outcomes = [node.propose(bytes(5_000)) for _ in range(4)]
    cluster.run(5_000)
    assert outcomes == [["committed"]] * 4
    assert any("the quorum waits" in note for note in node.notes)


def test_requests_whose_connections_are_closed_do_not_wait_for_room() -> None:
    """Others ask a node that waits again and again, each time over a new connection."""
    cluster = started()
    leader = cluster.settle()
    full = others(cluster, leader)[0]
    full.disk.failing = PARTITION
    leader.propose(b"a")
    cluster.run(1_000)
    assert full.up.is_held
    partition = vote_request.PartitionData(
        replica_epoch=9, replica_id=leader.id, last_offset=9, pre_vote=True
    )
    topic = vote_request.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    events, requests = full.up._pump._events, full.up._calls._waiting
    before = len(events), len(requests)
    answer = full.up.handle(vote_request.VoteRequest(topics=[topic]), 2)
    assert not answer.done
    assert (len(events), len(requests)) == (before[0] + 1, before[1] + 1)
    answer.abandon()
    assert (len(events), len(requests)) == before
    full.disk.failing = None
    cluster.settle()


def test_a_lack_of_memory_ends_no_look_for_room() -> None:
    class Lacking(Files):
        def try_room(self, size_bytes: int) -> None:
            super().try_room(size_bytes)
            if len(self.tried) == 1:
                raise MemoryError

    files: Any = Lacking()
    files.room_bytes = LEAST_ROOM_BYTES
    time = HandTime()
    found: list[int] = []
    watch = RoomWatch(files, time, time, lambda text: None, lambda: found.append(1))
    watch.wait(1, OSError(errno.ENOSPC, "full"))
    time.advance(2 * LOOK_AGAIN_MS)
    assert (len(files.tried), found) == (2, [1])
