"""The quorum driver on memory logs and disks, over encoded messages: several nodes in one thread."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

import pytest

from kafkacompat.ports import SyncFailed, WorkersBusy
from kafkacompat.raft import metadata_log
from kafkacompat.raft._tests import driver_support
from kafkacompat.raft._tests.driver_support import (
    CLUSTER_ID,
    DIRECTORY,
    LISTENER,
    PARTITION,
    Cluster,
    Node,
    address,
    directory_id,
)
from kafkacompat.raft.contracts import NotLeader
from kafkacompat.raft.leader_state import OBSERVER_MEMORY_MS
from kafkacompat.raft.metadata_log import PartitionMetadataLog
from kafkacompat.raft.packing import PackedValues
from kafkacompat.raft.quorum_files import ANSWER_BYTES_MAX
from kafkacompat.raft.quorum_snapshots import AGAIN_MS, LACK_AGAIN_MS
from kafkacompat.raft.snapshot import SnapshotFormat, SnapshotStore
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import add_raft_voter_request, remove_raft_voter_request, vote_request


def started(**options: object) -> Cluster:
    cluster = Cluster(**options)  # type: ignore[arg-type]
    cluster.start()
    return cluster


def test_a_sole_voter_is_active_without_waiting_for_an_election() -> None:
    cluster = started(voters=(1,))
    cluster.run(10)
    node = cluster.nodes[1]
    assert node.up.is_leader
    assert node.machine.active_epochs == [1]
    assert node.up.is_all_committed
    outcome = node.propose(b"a")
    assert outcome == []
    cluster.run(10)
    assert outcome == ["committed"]


@pytest.mark.parametrize("dynamic", [True, False])
def test_three_nodes_elect_a_leader_and_replicate(dynamic: bool) -> None:
    cluster = started(dynamic=dynamic)
    leader = cluster.leader()
    outcomes = [leader.propose(b"%d" % index) for index in range(20)]
    cluster.settle()
    assert outcomes == [["committed"]] * 20
    for node in cluster.nodes.values():
        assert node.machine.values == [b"%d" % index for index in range(20)]
        assert node.up.leader_id == leader.id
        assert node.up.leader_endpoints == address(leader.id)
    assert [node.machine.kraft_version for node in cluster.nodes.values()] == [1 if dynamic else None] * 3


def test_nothing_is_committed_before_a_majority_has_synced_it() -> None:
    cluster = started()
    leader = cluster.settle()
    for node in cluster.followers():
        node.workers.stopped = True
    outcome = leader.propose(b"a")
    cluster.run(300)
    assert outcome == []
    for node in cluster.followers():
        assert node.up.next_offset == leader.up.next_offset
    cluster.followers()[0].workers.resume()
    cluster.run(50)
    assert outcome == ["committed"]


def test_several_proposals_share_an_fsync_and_come_back_in_order() -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    node.workers.stopped = True
    order: list[int] = []
    for index in range(5):
        node.up.propose(
            PackedValues([b"x"]), lambda index=index: order.append(index), lambda: order.append(-1)
        )
    node.up.when_committed(lambda: order.append(5))
    cluster.run(5)
    node.workers.resume()
    assert order == [0]
    cluster.run(5)
    assert order == [0, 1, 2, 3, 4, 5]


def test_only_the_leader_proposes() -> None:
    cluster = started()
    cluster.settle()
    follower = cluster.followers()[0]
    with pytest.raises(NotLeader):
        follower.propose(b"a")
    told: list[str] = []
    follower.up.when_committed(lambda: told.append("committed"), lambda: told.append("lost"))
    assert told == ["lost"]


def test_when_a_killed_leader_refuses_the_others_elect_soon() -> None:
    cluster = started()
    leader = cluster.settle()
    leader.propose(b"a")
    cluster.settle()
    before_ms = cluster.world.ms
    leader.kill()
    new = cluster.leader()
    assert new is not leader
    assert cluster.world.ms - before_ms < 1000
    assert new.propose(b"b") == []
    cluster.settle()
    leader.start()
    cluster.settle()
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"a", b"b"]] * 3


def test_a_leader_cut_off_loses_its_proposals_before_it_hears_of_another() -> None:
    cluster = started()
    leader = cluster.settle()
    cluster.isolate(leader.id)
    outcome = leader.propose(b"never")
    cluster.run_until(lambda: any(node.up.is_leader for node in cluster.nodes.values() if node is not leader))
    new = next(node for node in cluster.nodes.values() if node is not leader and node.up.is_leader)
    cluster.run_until(lambda: not leader.up.is_leader)
    assert outcome == ["lost"]
    assert leader.machine.events[-1][0] == "leader"
    assert leader.machine.leader[1] == -1
    with pytest.raises(NotLeader):
        leader.propose(b"neither")
    cluster.run_until(lambda: new.machine.active_epochs != [])
    new.propose(b"kept")
    cluster.cut.clear()
    cluster.settle()
    for node in cluster.nodes.values():
        assert node.machine.values == [b"kept"]
    assert leader.up.next_offset == new.up.next_offset


def test_a_lost_proposal_that_was_committed_after_all_comes_by_apply() -> None:
    cluster = started()
    leader = cluster.settle()
    # The followers take the record, but the leader gets no answer.
    cluster.cut |= {(node.id, leader.id) for node in cluster.followers()}
    outcome = leader.propose(b"a")
    cluster.run(2)
    cluster.cut |= {(leader.id, node.id) for node in cluster.nodes.values() if node is not leader}
    cluster.run_until(lambda: not leader.up.is_leader)
    assert outcome == ["lost"]
    cluster.cut.clear()
    cluster.settle()
    for node in cluster.nodes.values():
        assert node.machine.values == [b"a"]


def test_a_state_machine_may_propose_from_within_its_calls() -> None:
    cluster = started()
    for node in cluster.nodes.values():

        def begin(node: Node = node) -> None:
            node.propose(b"first")
            node.up.when_committed(
                lambda: node.up.propose(PackedValues([b"second"]), lambda: None, lambda: None) and None
            )

        node.machine.when_active = begin
    leader = cluster.leader()
    cluster.settle()
    for node in cluster.nodes.values():
        if node is not leader:
            assert node.machine.values == [b"first", b"second"]


def test_an_observer_follows_without_a_sync() -> None:
    cluster = started(observers=(9,))
    cluster.nodes[9].workers.stopped = True
    leader = cluster.leader()
    for index in range(5):
        leader.propose(b"%d" % index)
    cluster.settle()
    observer = cluster.nodes[9]
    assert observer.machine.values == [b"%d" % index for index in range(5)]
    assert observer.workers.kept == []
    assert observer.up.voters.ids == (1, 2, 3)
    assert not observer.up.is_leader


def test_a_stopped_cluster_starts_with_its_votes_and_records() -> None:
    cluster = started()
    leader = cluster.settle()
    leader.propose(b"a")
    epoch = cluster.settle().up.epoch
    for node in cluster.nodes.values():
        node.kill()
    stored = json.loads(cluster.nodes[leader.id].disk.read_bytes(f"{PARTITION}/quorum-state"))
    assert (stored["leaderEpoch"], stored["leaderId"], stored["data_version"]) == (epoch, leader.id, 1)
    cluster.start()
    new = cluster.settle()
    assert new.up.epoch > epoch
    assert [node.machine.values for node in cluster.nodes.values()] == [[b"a"]] * 3


def test_committed_records_survive_the_loss_of_power_everywhere() -> None:
    cluster = started()
    leader = cluster.settle()
    outcome = leader.propose(b"a")
    cluster.run_until(lambda: outcome == ["committed"])
    for node in cluster.nodes.values():
        node.lose_power()
    cluster.start()
    new = cluster.settle()
    assert new.machine.values == [b"a"]


def test_a_node_far_behind_fetches_the_snapshot() -> None:
    cluster = started(settings=None, segment_bytes=1 << 30)
    leader = cluster.settle()
    behind = cluster.followers()[0]
    behind.kill()
    for index in range(200):
        leader.propose(b"%03d" % index)
    cluster.settle()
    for _ in range(2):
        machine = leader.machine
        leader.propose(b"more")
        cluster.settle()
        leader.write_snapshot()
    assert leader.log.log_start_offset > 0
    assert leader.up.bytes_since_snapshot == 0
    behind.start()
    cluster.settle()
    assert behind.machine.values == machine.values
    assert ("snapshot", leader.up.next_offset - 1) in behind.machine.events
    assert not [path for path in behind.disk.files if path.endswith(".part")]
    leader.propose(b"after")
    cluster.settle()
    assert behind.machine.values[-1] == b"after"
    behind.kill()
    behind.start()
    cluster.settle()
    assert behind.machine.values == leader.machine.values
    assert behind.up.voters.ids == (1, 2, 3)


def test_a_snapshot_comes_in_pieces() -> None:
    from kafkacompat.raft.quorum_state import QuorumSettings

    cluster = started(settings=QuorumSettings(fetch_snapshot_max_bytes=100))
    leader = cluster.settle()
    behind = cluster.followers()[0]
    behind.kill()
    leader.propose(b"v" * 1000)
    cluster.settle()
    leader.write_snapshot()
    behind.disk = type(behind.disk)()
    behind.disk.make_directory(DIRECTORY)
    behind.start()
    cluster.settle()
    assert behind.machine.values == [b"v" * 1000]
    pieces = [each for each in cluster.carried if each[2] == "FetchSnapshotRequest"]
    assert len(pieces) > 10


@pytest.mark.parametrize("wanted", [1 << 30, -1])
def test_whatever_is_asked_for_one_answer_reads_a_bounded_piece(
    wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client that reaches the controller's listener may ask, and the files are read in the loop's thread."""
    from kafkacompat.raft.quorum_state import QuorumSettings

    read: list[int] = []
    whole, log_read = SnapshotStore.read_piece, PartitionMetadataLog.read

    def read_piece(store: SnapshotStore, snapshot_id: Any, position: int, max_bytes: int) -> bytes:
        read.append(max_bytes)
        return whole(store, snapshot_id, position, max_bytes)

    def read_log(log: PartitionMetadataLog, offset: int, max_bytes: int, *rest: Any) -> Any:
        if rest[0] == log.log_end_offset and log is leader.log:
            read.append(max_bytes)
        return log_read(log, offset, max_bytes, *rest)

    cluster = started(settings=QuorumSettings(fetch_snapshot_max_bytes=wanted, fetch_max_bytes=wanted))
    leader = cluster.settle()
    behind = cluster.followers()[0]
    behind.kill()
    leader.propose(b"v" * 1000)
    cluster.settle()
    leader.write_snapshot()
    behind.disk = type(behind.disk)()
    behind.disk.make_directory(DIRECTORY)
    monkeypatch.setattr(SnapshotStore, "read_piece", read_piece)
    monkeypatch.setattr(PartitionMetadataLog, "read", read_log)
    behind.start()
    cluster.run(100)
    assert leader.failures == []
    assert read
    assert all(0 <= each <= ANSWER_BYTES_MAX for each in read)


def add_voter(node_id: int, **changes: object) -> add_raft_voter_request.AddRaftVoterRequest:
    message = add_raft_voter_request.AddRaftVoterRequest(
        cluster_id="cluster",
        timeout_ms=5000,
        voter_id=node_id,
        voter_directory_id=directory_id(node_id),
        listeners=[
            add_raft_voter_request.Listener(name=name, host=host, port=port)
            for name, host, port in address(node_id)
        ],
    )
    for name, value in changes.items():
        setattr(message, name, value)
    return message


def test_voters_are_added_and_removed() -> None:
    cluster = Cluster(voters=(1,))
    cluster.bootstrap = (1, 2)
    new = cluster.nodes[2] = Node(cluster, 2)
    cluster.nodes[1].start()
    cluster.run(100)
    new.start()
    leader = cluster.settle()
    assert leader is cluster.nodes[1]
    cluster.run(1000)
    answer = cluster.ask(leader, add_voter(2))
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    cluster.settle()
    assert [node.up.voters.ids for node in cluster.nodes.values()] == [(1, 2), (1, 2)]
    assert cluster.ask(leader, add_voter(2)).error_code == ErrorCode.DUPLICATE_VOTER
    answer = cluster.ask(
        leader,
        remove_raft_voter_request.RemoveRaftVoterRequest(
            cluster_id="cluster", voter_id=1, voter_directory_id=directory_id(1)
        ),
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    new_leader = cluster.leader()
    assert new_leader is new
    cluster.settle()
    assert new.up.voters.ids == (2,)


def test_a_controller_joins_by_itself() -> None:
    cluster = started(voters=(1,))
    new = cluster.nodes[2] = Node(cluster, 2)
    new.joins = True
    new.start()
    cluster.run_until(lambda: new.up.voters.ids == (1, 2))
    cluster.settle()
    requests = [each for each in cluster.carried if each[2] == "AddRaftVoterRequest"]
    cluster.run(10_000)
    assert requests == [each for each in cluster.carried if each[2] == "AddRaftVoterRequest"]


def test_a_controller_whose_disk_was_lost_takes_its_former_selfs_place() -> None:
    cluster = started()
    leader = cluster.settle()
    lost = cluster.followers()[0]
    lost.kill()
    lost.disk = type(lost.disk)()
    lost.disk.make_directory(DIRECTORY)
    lost.directory_id = bytes([8]) * 16
    lost.joins = True
    lost.start()
    cluster.run_until(lambda: any(each.directory_id == bytes([8]) * 16 for each in leader.up.voters.voters))
    cluster.settle()
    assert lost.up.voters.ids == (1, 2, 3)
    assert len([each for each in cluster.carried if each[2] == "RemoveRaftVoterRequest"]) == 1


def test_an_added_voter_that_does_not_answer_is_refused() -> None:
    cluster = started(voters=(1,))
    leader = cluster.settle()
    cluster.nodes[2] = Node(cluster, 2)
    assert cluster.ask(leader, add_voter(2)).error_code == ErrorCode.REQUEST_TIMED_OUT
    listener = add_raft_voter_request.Listener(name="CONTROLLER", host="h", port=1)
    many = cluster.ask(leader, add_voter(2, listeners=[listener] * 200_000))
    assert (many.error_code, many.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "voter 2 has more than 100 endpoints",
    )
    wrong = cluster.ask(leader, add_voter(2, cluster_id="other"))
    assert wrong.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_static_quorum_becomes_dynamic() -> None:
    cluster = started(dynamic=False)
    leader = cluster.settle()
    assert leader.up.kraft_version == 0
    # Each voter reports itself after a fetch timeout.
    cluster.run(3000)
    leader = cluster.settle()
    outcome: list[ErrorCode] = []
    leader.up.upgrade_kraft_version(outcome.append)
    cluster.settle()
    assert outcome == [ErrorCode.NONE]
    for node in cluster.nodes.values():
        assert node.up.kraft_version == 1
        assert node.machine.kraft_version == 1
        assert [each.directory_id for each in node.up.voters.voters] == [directory_id(n) for n in (1, 2, 3)]
    again: list[ErrorCode] = []
    leader.up.upgrade_kraft_version(again.append)
    assert again == [ErrorCode.INVALID_UPDATE_VERSION]


def test_a_peer_without_pre_vote_does_not_stop_an_election() -> None:
    cluster = Cluster()
    for node in cluster.nodes.values():
        node.max_version = 1
    cluster.start()
    assert cluster.settle().up.is_leader


def test_a_resigning_leader_hands_over_soon() -> None:
    cluster = started()
    leader = cluster.settle()
    left = leader.up.shut_down(5000)
    cluster.run_until(lambda: left.done, 200)
    assert leader.machine.leader == (leader.up.epoch, -1)
    leader.kill()
    before_ms = cluster.world.ms
    assert cluster.leader() is not leader
    assert cluster.world.ms - before_ms < 200


def test_a_sole_voter_leads_until_it_is_closed() -> None:
    cluster = started(voters=(1,))
    node = cluster.settle()
    outcome = node.propose(b"a")
    assert node.up.shut_down(5000).done
    node.up.flush_now()
    assert outcome == ["committed"]


def test_a_follower_leaves_at_once() -> None:
    cluster = started()
    cluster.settle()
    assert cluster.followers()[0].up.shut_down(5000).done


def test_the_leader_reports_voters_and_observers_with_their_lag() -> None:
    cluster = started(observers=(9,))
    leader = cluster.settle()
    assert cluster.followers()[0].up.report() is None
    slow = next(node for node in cluster.followers() if node.can_vote)
    cluster.isolate(slow.id)
    leader.propose(b"a")
    cluster.run(1000)
    report = leader.up.report()
    assert report is not None
    assert (report.leader_id, report.epoch) == (leader.id, leader.up.epoch)
    assert report.high_watermark == leader.up.next_offset
    now_ms = cluster.world.now_ms()
    by_id = {each.id: each for each in (*report.voters, *report.observers)}
    assert sorted(each.id for each in report.voters) == [1, 2, 3]
    assert [each.id for each in report.observers] == [9]
    assert by_id[9].log_end_offset == leader.up.next_offset
    assert by_id[leader.id].last_fetch_ms == now_ms
    assert by_id[slow.id].log_end_offset == leader.up.next_offset - 1
    assert now_ms - 1600 < by_id[slow.id].last_fetch_ms < now_ms - 400
    assert by_id[slow.id].listeners == address(slow.id)
    assert by_id[9].directory_id == directory_id(9)


def test_an_observer_that_left_is_reported_for_five_minutes() -> None:
    cluster = started(observers=(9,))
    leader = cluster.settle()
    cluster.isolate(9)
    cluster.run(OBSERVER_MEMORY_MS - 2000)
    assert [each.id for each in leader.up.report().observers] == [9]
    cluster.run(2000)
    assert leader.up.report().observers == ()


def test_a_full_disk_refuses_a_proposal_and_the_node_goes_on() -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    node.disk.failing = ".log"
    with pytest.raises(OSError, match="full"):
        node.propose(b"a")
    node.disk.failing = None
    outcome = node.propose(b"b")
    cluster.run(10)
    assert outcome == ["committed"]
    assert node.machine.values == [b"b"]


def test_a_follower_whose_disk_fails_halts() -> None:
    cluster = started()
    leader = cluster.settle()
    broken = cluster.followers()[0]
    broken.disk.refuse = lambda operation, path: (
        OSError(errno.EIO, "the disk is broken") if operation == "write" and ".log" in path else None
    )
    leader.propose(b"a")
    cluster.world.advance(100)
    assert [type(each) for each in broken.failures] == [OSError]
    cluster.world.advance(5000)
    assert leader.up.is_all_committed


def test_flush_now_commits_for_a_sole_voter() -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    node.workers.stopped = True
    first = node.propose(b"a")
    second = node.propose(b"b")
    node.up.flush_now()
    assert (first, second) == (["committed"], ["committed"])
    node.workers.resume()
    cluster.run(10)
    node.up.close()


def test_a_sole_voter_drops_the_log_below_its_snapshot() -> None:
    cluster = started(voters=(1,))
    node = cluster.settle()
    node.propose(b"a")
    cluster.settle()
    node.write_snapshot()
    assert node.log.log_start_offset == node.up.next_offset
    node.propose(b"b")
    cluster.settle()
    node.kill()
    node.start()
    cluster.settle()
    assert node.machine.values == [b"a", b"b"]
    assert node.machine.kraft_version == 1
    assert ("snapshot", 3) in node.machine.events


def test_snapshots_end_segments_of_small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle cluster writes small records for ever, and a start checks all that is left of them."""
    monkeypatch.setattr(metadata_log, "ROLLED_AT_A_SNAPSHOT_BYTES", 2_000)
    cluster = started()
    leader = cluster.settle()
    sizes = []
    for _ in range(6):
        for number in range(30):
            leader.propose(b"%d" % number)
        cluster.settle()
        leader.begin_snapshot()
        leader.propose(b"meanwhile")
        cluster.settle()
        cluster.run(3)
        sizes.append(sum(segment.size for segment in leader.log.log.segments))
    assert max(sizes) < 4 * sizes[0]
    values = list(leader.machine.values)
    for node in cluster.nodes.values():
        node.kill()
    cluster.start()
    cluster.settle()
    assert [node.machine.values for node in cluster.nodes.values()] == [values] * 3


def test_committed_records_of_several_segments_survive_a_power_loss_of_all() -> None:
    """A segment's name is durable before its records count."""
    cluster = started(segment_bytes=2000)
    leader = cluster.settle()
    for number in range(60):
        leader.propose(b"%d" % number * 40)
        cluster.run(20)
    cluster.settle()
    leader = cluster.leader()
    assert len(leader.log.log.segments) > 2
    before = list(leader.machine.values)
    for node in cluster.nodes.values():
        node.lose_power()
    for node in cluster.nodes.values():
        node.start()
    cluster.settle()
    assert cluster.leader().machine.values == before


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_of_the_metadata_log_halts_whatever_the_error(error: int) -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    node.disk.lost_syncs[".log"] = OSError(error, "lost")
    outcome = node.propose(b"a")
    cluster.world.advance(10)
    assert [type(each) for each in node.failures] == [SyncFailed]
    assert outcome == []


def test_a_sync_that_fails_in_a_worker_is_not_made_good_by_the_next_one() -> None:
    """`flush_now` does not wait for the worker's answer, and Linux reports the failure only once."""
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    outcome = node.propose(b"a")
    node.disk.lost_syncs[".log"] = OSError(errno.EIO, "lost")
    with pytest.raises(SyncFailed):
        node.log.begin_sync()()
    with pytest.raises(SyncFailed):
        node.up.flush_now()
    assert outcome == []


def test_quorum_state_that_could_not_be_synced_halts() -> None:
    cluster = started()
    node = cluster.settle()
    node.disk.lost_syncs["quorum-state"] = OSError(errno.ENOSPC, "lost")
    cluster.isolate(node.id)
    cluster.world.advance(20_000)
    assert [type(each) for each in node.failures] == [SyncFailed]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_snapshot_that_could_not_be_synced_halts(error: int) -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    node.propose(b"a")
    cluster.run(10)
    node.disk.lost_syncs[".checkpoint"] = OSError(error, "lost")
    node.begin_snapshot()
    cluster.world.advance(10)
    assert [type(each) for each in node.failures] == [SyncFailed]


def test_a_snapshot_that_finds_no_room_is_noted_and_what_is_unexpected_halts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    node.propose(b"a")
    cluster.run(10)
    node.disk.failing = ".checkpoint"
    node.begin_snapshot()
    cluster.world.advance(10)
    assert node.failures == []
    assert "is not written" in node.notes[-1]
    node.disk.failing = None
    cluster.world.advance(AGAIN_MS)

    problems: list[Exception] = [MemoryError(), WorkersBusy("too many jobs"), KeyError("a bug")]

    def fail(*_: object) -> int:
        raise problems.pop(0)

    monkeypatch.setattr(SnapshotStore, "freeze", fail)
    for _ in range(2):
        node.begin_snapshot()
        cluster.world.advance(10)
        assert node.failures == []
        cluster.world.advance(AGAIN_MS)
    node.begin_snapshot()
    cluster.world.advance(10)
    assert [type(each) for each in node.failures] == [KeyError]


def test_a_snapshot_for_whose_end_there_is_no_memory_keeps_no_later_one_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = started(voters=(1,))
    node = cluster.leader()
    node.propose(b"a")
    cluster.run(10)
    right, lacking = SnapshotFormat.finish, [MemoryError()]

    def finish(self: SnapshotFormat) -> list[bytearray]:
        if lacking:
            raise lacking.pop()
        return right(self)

    monkeypatch.setattr(SnapshotFormat, "finish", finish)
    with pytest.raises(MemoryError):
        node.begin_snapshot()
    cluster.world.advance(AGAIN_MS)
    node.write_snapshot()
    assert node.failures == []


LACK_MS = 5_000


@pytest.mark.parametrize(
    "operation", ["open", "create", "read", "write", "write_atomic", "list_directory", "read_bytes"]
)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_nodes_without_descriptors_for_a_while_all_go_on(operation: str, number: int) -> None:
    """One of them fetches a snapshot meanwhile, another one writes one, and the log gets new segments."""
    cluster = started(settings=None, segment_bytes=2_000)
    leader = cluster.settle()
    late = cluster.followers()[0]
    late.kill()
    for index in range(20):
        leader.propose(b"%d" % index + b"." * 200)
        cluster.settle()
    leader.write_snapshot()
    leader.propose(b"more")
    cluster.settle()
    leader.write_snapshot()
    assert leader.log.log_start_offset > 0
    late.start()
    met: list[str] = []

    def refuse(each: str, path: str) -> OSError | None:
        if each != operation:
            return None
        met.append(path)
        return OSError(number, "not now", path)

    for node in cluster.nodes.values():
        node.disk.refuse = refuse
    for _ in range(10):
        with suppress(OSError, NotLeader):
            leader.propose(b"." * 500)
        cluster.run(LACK_MS // 10)
    with suppress(AssertionError):  # none is begun while one is written, or soon after one has failed
        leader.write_snapshot()
    cluster.run(LACK_MS)
    for node in cluster.nodes.values():
        node.disk.refuse = None
    cluster.run(3 * LACK_MS)
    cluster.settle()
    assert met
    assert [node.failures for node in cluster.nodes.values()] == [[], [], []]
    outcome = cluster.leader().propose(b"last")
    cluster.settle()
    assert outcome == ["committed"]
    assert late.machine.values[-1] == b"last"


def test_a_sync_that_cannot_begin_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[Exception] = [
        OSError(errno.EMFILE, "not now"),
        WorkersBusy("too many jobs"),
        MemoryError(),
    ]
    right = PartitionMetadataLog.begin_sync

    def begin(log: PartitionMetadataLog) -> Any:
        sync = right(log)

        def run() -> None:
            if problems:
                raise problems.pop()
            sync()

        return run

    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    monkeypatch.setattr(PartitionMetadataLog, "begin_sync", begin)
    outcome = node.propose(b"a")
    cluster.run(10)
    assert outcome == []
    cluster.run(10 * LACK_AGAIN_MS)
    assert (problems, outcome, node.failures) == ([], ["committed"], [])


@pytest.mark.parametrize("method", ["read_part", "freeze", "drop_part"])
@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.EMFILE, "too many open files"),
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "full"),
        MemoryError(),
        WorkersBusy("too many jobs"),
    ],
)
def test_a_fetched_snapshot_is_installed_later_where_something_is_lacking(
    method: str, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, lacking = getattr(SnapshotStore, method), [problem]

    def once(self: SnapshotStore, *arguments: object) -> object:
        if self is late.up._files.snapshots and lacking:
            raise lacking.pop()
        return right(self, *arguments)

    cluster = started()
    leader = cluster.settle()
    late = cluster.followers()[0]
    late.kill()
    leader.propose(b"v")
    cluster.settle()
    leader.write_snapshot()
    late.disk = type(late.disk)()
    late.disk.make_directory(DIRECTORY)
    monkeypatch.setattr(SnapshotStore, method, once)
    late.start()
    cluster.settle()
    assert lacking == []
    assert late.failures == []
    assert late.machine.values == cluster.leader().machine.values


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_fetched_snapshot_that_could_not_be_synced_halts(number: int) -> None:
    cluster = started()
    leader = cluster.settle()
    late = cluster.followers()[0]
    late.kill()
    leader.propose(b"v")
    cluster.settle()
    leader.write_snapshot()
    late.disk = type(late.disk)()
    late.disk.make_directory(DIRECTORY)
    late.disk.lost_syncs[".checkpoint"] = OSError(number, "lost")
    late.start()
    cluster.world.advance(5_000)
    assert [type(each) for each in late.failures] == [SyncFailed]


def test_the_start_after_a_failed_sync_reads_the_disk() -> None:
    """Data in the page cache may be missing on the disk, and no majority may depend on it."""
    cluster = started(voters=(1,))
    node = cluster.leader()
    cluster.run(10)
    assert node.propose(b"a") == []
    cluster.run(10)
    node.disk.lost_syncs[".log"] = OSError(errno.EIO, "lost")
    node.propose(b"lost")
    cluster.world.advance(10)
    node.failures.clear()
    node.kill()
    node.start()
    cluster.settle()
    assert node.machine.values == [b"a"]
    node.propose(b"b")
    cluster.settle()
    node.lose_power()
    node.start()
    cluster.settle()
    assert node.machine.values == [b"a", b"b"]


def test_a_leader_is_told_by_its_address_on_the_listener_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks by an encrypted listener cannot speak to another one."""
    second = "SAFE"
    monkeypatch.setattr(
        driver_support,
        "address",
        lambda node_id: ((LISTENER, "127.0.0.1", 9000 + node_id), (second, "127.0.0.1", 9500 + node_id)),
    )
    cluster = Cluster()
    cluster.start()
    leader = cluster.leader()
    cluster.settle()
    partition = vote_request.PartitionData(
        replica_epoch=0, replica_id=2, replica_directory_id=directory_id(2), last_offset_epoch=0
    )
    topic = vote_request.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    request = vote_request.VoteRequest(cluster_id=CLUSTER_ID, voter_id=leader.id, topics=[topic])
    for listener, port in ((None, 9000), (LISTENER, 9000), (second, 9500), ("OTHER", None)):
        answer = leader.up.handle(request, 2, listener)
        cluster.run_until(lambda: answer.done)  # noqa: B023
        told = [(each.node_id, each.port) for each in answer.result().node_endpoints]
        assert told == ([] if port is None else [(leader.id, port + leader.id)]), listener
