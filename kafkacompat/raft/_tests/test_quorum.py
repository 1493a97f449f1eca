"""Leading, following and changing the voters, one rule at a time. The simulation tests their combination."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.ids import OffsetAndEpoch
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft._tests.quorum_support import NONE, Node, address, directory, key, voter
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.elections import end_epoch_election_backoff_ms
from kafkacompat.raft.log_shape import LogShape, Validity
from kafkacompat.raft.messages import (
    AddRaftVoterRequest,
    Batch,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    RaftVoterResponse,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
    VoteResponse,
)
from kafkacompat.raft.roles import QuorumViolation, Role
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet, VoterSetHistory
from kafkacompat.wire.errors import ErrorCode

EPOCH = 7


def following(**changes: Any) -> Node:
    log = changes.pop("log", None) or LogShape(0, 20, [(3, 0), (5, 10)])
    return Node(log=log, stored=ElectionState(EPOCH, 3), **changes)


def leading(**changes: Any) -> Node:
    log = LogShape(0, 20, [(3, 0), (5, 10)])
    node = Node(log=log, stored=ElectionState(EPOCH), **changes)
    node.become_leader()
    return node


def committed_leader(**changes: Any) -> Node:
    node = leading(**changes)
    node.commit_epoch()
    return node


def records(base: int, count: int = 1, epoch: int = EPOCH, voters: VoterSet | None = None) -> Batch:
    return Batch(base, base + count, epoch, "data", 100, voters, 1)


# Boot.


@pytest.mark.parametrize(
    ("stored", "role", "epoch"),
    [
        (None, Role.UNATTACHED, 5),
        (ElectionState(4, 1), Role.UNATTACHED, 5),
        (ElectionState(EPOCH, 1), Role.RESIGNED, EPOCH),
        (ElectionState(EPOCH, -1, 1, directory(1)), Role.CANDIDATE, EPOCH),
        (ElectionState(EPOCH, -1, 2, directory(2)), Role.UNATTACHED, EPOCH),
        (ElectionState(EPOCH, 3), Role.FOLLOWER, EPOCH),
        (ElectionState(EPOCH, 3, 2, directory(2)), Role.FOLLOWER, EPOCH),
        (ElectionState(EPOCH, 9), Role.UNATTACHED, EPOCH),
    ],
)
def test_the_role_in_which_a_stored_state_starts(
    stored: ElectionState | None, role: Role, epoch: int
) -> None:
    node = Node(log=LogShape(0, 20, [(5, 0)]), stored=stored)
    assert (node.core.role, node.core.epoch) == (role, epoch)


def test_a_sole_voter_goes_straight_to_leadership_of_the_next_epoch() -> None:
    for stored in (None, ElectionState(EPOCH, 1), ElectionState(EPOCH, -1)):
        node = Node(voters=(1,), stored=stored)
        assert node.core.role is Role.LEADER
        assert node.core.epoch == (EPOCH + 1 if stored else 1)
        kinds = [type(each) for each in node.last]
        assert kinds.index(effect.PersistElection) < kinds.index(effect.AppendEpochStart)
        assert node.core.high_watermark == -1
        node.step(events.Synced())
        assert node.core.high_watermark == node.core.log.end == 3


# Leading.


def test_a_new_leader_persists_then_begins_the_epochs_log_then_tells_the_voters() -> None:
    node = leading()
    kinds = [type(each) for each in node.last]
    order = [effect.PersistElection, effect.BecameLeader, effect.AppendEpochStart, effect.Sync, effect.Send]
    assert [kinds.index(each) for each in order] == sorted(kinds.index(each) for each in order)
    (start,) = node.effects(effect.AppendEpochStart)
    assert (start.base_offset, start.epoch, start.leader_id) == (20, EPOCH + 1, 1)
    assert (start.voter_ids, start.granting_ids) == ((1, 2, 3), (1, 2))
    assert [each.node_id for each in node.sent(BeginQuorumEpochRequest)] == [2, 3]


@pytest.mark.parametrize(("kraft_version", "end"), [(0, 21), (1, 23)])
def test_the_first_batch_holds_the_voters_only_when_no_record_does(kraft_version: int, end: int) -> None:
    node = leading(kraft_version=kraft_version)
    (start,) = node.effects(effect.AppendEpochStart)
    assert start.end_offset == end
    assert (start.voters is None) == (kraft_version == 0)


def test_the_leader_counts_itself_only_once_it_has_synced() -> None:
    node = leading()
    node.fetch(2, node.core.log.end)
    assert node.core.high_watermark == -1
    node.step(events.Synced())
    assert node.core.high_watermark == node.core.log.end


def test_nothing_is_committed_before_the_epochs_own_first_batch_is() -> None:
    """A majority that has only records of older epochs commits nothing (figure 8 of the raft paper)."""
    node = leading()
    node.step(events.Synced())
    node.fetch(2, 20)
    node.fetch(3, 20)
    assert node.core.high_watermark == -1
    node.fetch(3, node.core.log.end)
    assert node.core.high_watermark == node.core.log.end


def test_a_fetch_is_parked_until_records_come() -> None:
    node = committed_leader()
    end = node.core.log.end
    assert node.fetch(2, end, high_watermark=end) is None
    request_id = node.last_request_id
    node.step(events.Propose(1, node.core.epoch, "payload", 2, 50))
    kinds = [type(each) for each in node.last]
    assert kinds.index(effect.AppendRecords) < kinds.index(effect.ReplyWithRecords)
    assert node.answer_to(request_id).high_watermark == end


def test_a_parked_fetch_ends_empty_in_time_and_is_replaced_by_a_newer_one() -> None:
    node = committed_leader()
    end = node.core.log.end
    node.fetch(2, end, high_watermark=end)
    first = node.last_request_id
    node.fetch(2, end, high_watermark=end)
    assert node.answer_to(first).error is NONE
    second = node.last_request_id
    node.step(events.Tick(), after_ms=500)
    assert node.answer_to(second).error is NONE


def test_a_fetch_that_knows_an_older_high_watermark_is_answered_at_once() -> None:
    """KIP-1166: -1 means unknown."""
    node = committed_leader()
    end = node.core.log.end
    assert node.fetch(3, end, high_watermark=-1).high_watermark == end
    assert node.fetch(3, end, high_watermark=end - 1) is not None
    assert node.fetch(3, end, high_watermark=end) is None
    assert node.fetch(3, end) is None


def test_a_parked_fetch_without_a_high_watermark_is_answered_when_it_moves() -> None:
    """Fetch below version 18, as of Apache Kafka 4.0, has no field for it."""
    node = leading()
    end = node.core.log.end
    assert node.fetch(3, end) is None
    waiting = node.last_request_id
    node.step(events.Synced())
    assert node.core.high_watermark == end
    assert node.answer_to(waiting).high_watermark == end


def test_a_fetch_of_no_replica_is_answered_and_makes_no_observer() -> None:
    node = committed_leader()
    assert node.fetch(4, 20, replica=ReplicaKey(-1)).error is NONE
    assert node.core.leader is not None
    assert node.core.leader.observers == {}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": EPOCH}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": EPOCH + 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": EPOCH + 2}, ErrorCode.INVALID_REQUEST),
        ({"replica": key(1)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_fetches_name_the_leader(changes: dict[str, Any], error: ErrorCode) -> None:
    node = committed_leader()
    before = node.core.epoch
    values: dict[str, Any] = {
        "replica": key(2),
        "epoch": before,
        "fetch_offset": 20,
        "last_fetched_epoch": 5,
        "max_wait_ms": 0,
        "max_bytes": 100,
    }
    answer = node.ask(FetchRequest(**{**values, **changes}))
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, before)
    assert answer.leader_endpoints == address(1)


def test_a_stepping_down_leader_tells_whoever_waits() -> None:
    node = committed_leader()
    end = node.core.log.end
    node.fetch(2, end, high_watermark=end)
    parked = node.last_request_id
    node.ask(VoteRequest(key(3), key(1), node.core.epoch + 1, 5, 99, False))
    answer = node.answer_to(parked)
    assert (answer.error, answer.epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, EPOCH + 2)


def test_a_leader_that_no_majority_fetches_from_resigns_after_one_and_a_half_timeouts() -> None:
    node = committed_leader()
    node.step(events.Tick(), after_ms=2999)
    assert node.core.role is Role.LEADER
    node.step(events.Tick(), after_ms=1)
    assert node.core.role is Role.RESIGNED
    sent = node.sent(EndQuorumEpochRequest)
    assert [each.node_id for each in sent] == [2, 3]
    assert sent[0].request.preferred_candidates == (key(2), key(3))  # type: ignore[union-attr]


def test_a_resigned_leader_repeats_itself_until_answered_and_leaves_the_epoch() -> None:
    node = committed_leader()
    node.step(events.Resign())
    first, second = node.sent(EndQuorumEpochRequest)
    node.answer(first, QuorumEpochResponse(NONE, EPOCH + 1, 1))
    node.step(events.RequestFailed(second.correlation_id))
    node.wait()
    assert [each.node_id for each in node.sent()] == [second.node_id]
    node.wait_for(Role.UNATTACHED)
    assert node.core.epoch == EPOCH + 2


def test_only_silent_voters_are_told_of_the_epoch_again() -> None:
    node = committed_leader()
    for _ in range(2):
        node.step(events.Tick(), after_ms=450)
        node.fetch(2, node.core.log.end, high_watermark=node.core.log.end)
    for each in (3, 2):
        node.core.request_manager.get(each).correlation_id = -1
    node.step(events.Tick(), after_ms=100)
    assert [each.node_id for each in node.sent(BeginQuorumEpochRequest)] == [3]


def test_proposals_are_refused_unless_for_the_epoch_that_is_led() -> None:
    node = committed_leader()
    node.step(events.Propose(5, EPOCH, "late", 1, 10))
    assert node.effects(effect.RefuseProposal)[0].proposal_id == 5
    other = following()
    other.step(events.Propose(6, EPOCH, "nobody", 1, 10))
    assert other.effects(effect.RefuseProposal)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_sync_is_under_way_at_a_time_and_covers_only_what_was_there() -> None:
    node = committed_leader()
    node.step(events.Propose(1, node.core.epoch, "a", 1, 10))
    assert node.effects(effect.Sync)
    node.step(events.Propose(2, node.core.epoch, "b", 1, 10))
    assert not node.effects(effect.Sync)
    node.step(events.Synced())
    assert node.core.log.durable_end == node.core.log.end - 1
    assert node.effects(effect.Sync)


# Following.


def test_records_are_synced_before_the_next_fetch_acknowledges_them() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    assert (sent.node_id, sent.request.fetch_offset, sent.request.last_fetched_epoch) == (3, 20, 5)  # type: ignore[union-attr]
    node.answer(sent, node.empty_answer(15, records=(records(20, 3), records(23))))
    assert [type(each) for each in node.last] == [
        effect.AppendFetched,
        effect.Sync,
        effect.AdvanceHighWatermark,
    ]
    node.step(events.Synced())
    (again,) = node.sent(FetchRequest)
    assert (again.request.fetch_offset, again.request.high_watermark) == (24, 15)  # type: ignore[union-attr]


def test_a_high_watermark_beyond_our_log_counts_up_to_its_end_and_never_back() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.answer(sent, node.empty_answer(500))
    assert node.core.high_watermark == 20
    (sent,) = node.sent(FetchRequest)
    node.answer(sent, node.empty_answer(-1))
    assert node.core.high_watermark == 20


def test_a_divergence_is_cut_and_says_nothing_of_the_high_watermark() -> None:
    """The log below the cut may still differ from the leader's."""
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.answer(sent, node.empty_answer(18, diverging=OffsetAndEpoch(8, 4)))
    assert node.effects(effect.Truncate) == [effect.Truncate(10)]
    assert node.core.high_watermark == -1
    (again,) = node.sent(FetchRequest)
    assert (again.request.fetch_offset, again.request.last_fetched_epoch) == (10, 3)  # type: ignore[union-attr]


def test_cutting_below_the_high_watermark_halts_the_node() -> None:
    node = following(high_watermark=15)
    (sent,) = node.sent(FetchRequest)
    with pytest.raises(QuorumViolation):
        node.answer(sent, node.empty_answer(18, diverging=OffsetAndEpoch(8, 4)))


@pytest.mark.parametrize(
    "batch", [records(19), records(21), records(20, epoch=4), records(20, epoch=EPOCH + 1)]
)
def test_records_that_do_not_follow_our_log_are_not_taken(batch: Batch) -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.answer(sent, node.empty_answer(20, records=(batch,)))
    assert not node.effects(effect.AppendFetched)
    assert node.core.log.end == 20


@pytest.mark.parametrize("role", [Role.PROSPECTIVE, Role.CANDIDATE])
def test_a_nominee_asks_for_votes_once_the_log_that_it_tells_of_is_durable(role: Role) -> None:
    """A voter grants a repeated request of one epoch without a look at the log, so a crash may not have shortened it."""
    if role is Role.PROSPECTIVE:
        node = following()
        (sent,) = node.sent(FetchRequest)
        node.answer(sent, node.empty_answer(20, records=(records(20, 3),)))
        end = 23
    else:
        node = Node(
            log=LogShape(0, end := 20, [(5, 0)]), stored=ElectionState(EPOCH, -1, 1, directory(1)), synced=10
        )
        assert node.effects(effect.Sync)
    node.wait_for(role)
    assert not node.sent(VoteRequest)
    node.step(events.Synced())
    assert [(each.node_id, each.request.last_offset) for each in node.sent(VoteRequest)] == [
        (2, end),
        (3, end),
    ]  # type: ignore[union-attr]


def test_a_silent_leader_is_doubted_after_the_fetch_timeout() -> None:
    node = following()
    node.step(events.Tick(), after_ms=1999)
    assert node.core.role is Role.FOLLOWER
    node.step(events.Tick(), after_ms=1)
    assert node.core.role is Role.PROSPECTIVE


def test_a_refused_connection_to_the_leader_counts_as_its_silence_and_a_closed_one_does_not() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.step(events.RequestFailed(sent.correlation_id))
    assert node.core.role is Role.FOLLOWER
    node.step(events.PeerRefused(2))
    assert node.core.role is Role.FOLLOWER
    node.step(events.PeerRefused(3))
    assert node.core.role is Role.PROSPECTIVE
    assert all(each.request.pre_vote for each in node.sent(VoteRequest))  # type: ignore[union-attr]


def test_an_observer_never_stands_and_asks_the_bootstrap_servers_in_between() -> None:
    node = following(node_id=9, bootstrap=True)
    node.step(events.Tick(), after_ms=2000)
    assert node.core.role is Role.FOLLOWER
    assert any(each.node_id <= -2 for each in node.sent(FetchRequest))


def test_a_fresh_node_finds_the_leader_by_a_bootstrap_server() -> None:
    node = Node(bootstrap=True)
    (sent,) = node.sent(FetchRequest)
    assert sent.node_id <= -2
    assert (sent.request.epoch, sent.request.fetch_offset) == (0, 0)  # type: ignore[union-attr]
    answer = node.empty_answer()
    answer.error, answer.epoch, answer.leader_id = ErrorCode.FENCED_LEADER_EPOCH, 4, 2
    answer.leader_endpoints = address(2)
    node.answer(sent, answer)
    assert (node.core.role, node.core.epoch, node.core.election.leader_id) == (Role.FOLLOWER, 4, 2)
    assert [each.node_id for each in node.sent(FetchRequest)] == [2]


def test_a_bootstrap_server_that_fails_is_followed_by_another_at_once() -> None:
    """No server is asked a second time before all others were asked."""
    node = Node(node_id=9, bootstrap=True)
    asked: set[int] = set()
    for _ in range(3):
        (sent,) = node.sent(FetchRequest)
        asked.add(sent.node_id)
        assert not [each for each in node.step(events.Tick()) if isinstance(each, effect.Send)]
        node.step(events.RequestFailed(sent.correlation_id))
    assert asked == {-2, -3, -4}
    assert not node.sent()
    node.wait()
    assert node.sent(FetchRequest)


def test_two_leaders_in_one_epoch_halt_the_node() -> None:
    node = following()
    with pytest.raises(QuorumViolation):
        node.ask(BeginQuorumEpochRequest(key(1), 2, EPOCH, address(2)))


def test_a_node_that_lost_its_disk_waits_for_a_leader_other_than_its_former_self() -> None:
    node = Node(bootstrap=True)
    for _ in range(3):
        (sent,) = node.sent(FetchRequest)
        answer = node.empty_answer()
        answer.error, answer.epoch, answer.leader_id = ErrorCode.FENCED_LEADER_EPOCH, 4, 1
        node.answer(sent, answer)
        assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 0)
    assert not node.sent()
    node.wait()
    assert node.sent(FetchRequest)
    begin = BeginQuorumEpochRequest(key(1), 1, 4, address(1))
    assert node.ask(begin).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("request_class", [BeginQuorumEpochRequest, EndQuorumEpochRequest])
def test_a_leader_of_an_epoch_that_leaves_none_for_others_is_not_believed(request_class: Any) -> None:
    node = following()
    of_request = {
        BeginQuorumEpochRequest: BeginQuorumEpochRequest(key(1), 2, 2**31 - 1, address(2)),
        EndQuorumEpochRequest: EndQuorumEpochRequest(2, 2**31 - 1, (), address(2)),
    }
    assert node.ask(of_request[request_class]).error is ErrorCode.INVALID_REQUEST
    assert node.core.epoch == EPOCH


def test_begin_is_believed_before_its_voter_key_is_looked_at() -> None:
    node = following()
    answer = node.ask(BeginQuorumEpochRequest(key(2), 2, EPOCH + 1, address(2)))
    assert answer.error is ErrorCode.INVALID_VOTER_KEY
    assert (node.core.role, node.core.election.leader_id) == (Role.FOLLOWER, 2)


@pytest.mark.parametrize(
    ("preferred", "backoff_ms"),
    [((1, 2, 3), 0), ((2, 1, 3), 250), ((2, 3, 1), 500), ((2, 3), 1000), ((4, 3, 2, 1), 500), ((), 1000)],
)
def test_the_place_among_the_preferred_candidates_sets_the_backoff(
    preferred: tuple[int, ...], backoff_ms: int
) -> None:
    assert end_epoch_election_backoff_ms(key(1), tuple(key(each) for each in preferred), 1000) == backoff_ms


def test_the_first_successor_stands_at_once() -> None:
    node = following()
    answer = node.ask(EndQuorumEpochRequest(3, EPOCH, (key(1), key(2)), address(3)))
    assert answer.error is NONE
    assert node.core.role is Role.PROSPECTIVE


def test_an_answer_to_another_fetch_than_the_last_is_ignored() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.step(events.Tick(), after_ms=1900)
    node.step(events.RequestFailed(sent.correlation_id))
    node.answer(sent, node.empty_answer(20, records=(records(20),)))
    assert node.core.log.end == 20


# Snapshots.


def test_a_snapshot_is_fetched_in_chunks_and_replaces_the_log() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    snapshot_id = OffsetAndEpoch(90, 6)
    node.answer(sent, node.empty_answer(95, snapshot_id=snapshot_id))
    for position, data in ((0, b"abc"), (3, b"de")):
        (chunk,) = node.sent(FetchSnapshotRequest)
        assert (chunk.request.snapshot_id, chunk.request.position) == (snapshot_id, position)  # type: ignore[union-attr]
        node.answer(chunk, FetchSnapshotResponse(NONE, EPOCH, 3, address(3), snapshot_id, 5, position, data))
    assert node.effects(effect.InstallSnapshot) == [effect.InstallSnapshot(snapshot_id, 5)]
    assert not node.sent()
    node.step(events.SnapshotInstalled(snapshot_id, 5, None, 0))
    assert (node.core.log.start, node.core.log.end, node.core.high_watermark) == (90, 90, 90)
    (again,) = node.sent(FetchRequest)
    assert (again.request.fetch_offset, again.request.last_fetched_epoch) == (90, 6)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("top", "error"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, NONE),
        (NONE, ErrorCode.SNAPSHOT_NOT_FOUND),
        (NONE, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_a_snapshot_that_cannot_be_had_is_forgotten(top: ErrorCode, error: ErrorCode) -> None:
    """Kafka 4.3 answers a partition error of FetchSnapshot with -1 at the top level."""
    node = following()
    (sent,) = node.sent(FetchRequest)
    node.answer(sent, node.empty_answer(95, snapshot_id=OffsetAndEpoch(90, 6)))
    (chunk,) = node.sent(FetchSnapshotRequest)
    node.answer(chunk, FetchSnapshotResponse(error, EPOCH, 3, address(3), top_level_error=top))
    node.wait()
    assert node.sent(FetchRequest)


def test_a_leader_hands_out_the_snapshots_it_has() -> None:
    node = committed_leader()
    snapshot_id = OffsetAndEpoch(15, 5)
    node.step(events.SnapshotFrozen(snapshot_id, 40))

    def ask(position: int, wanted: OffsetAndEpoch = snapshot_id, epoch: int = EPOCH + 1) -> Any:
        return node.ask(FetchSnapshotRequest(key(3), epoch, wanted, position, 10))

    answer = ask(0)
    assert (answer.error, answer.size_bytes, answer.snapshot_id) == (NONE, 40, snapshot_id)
    assert ask(40).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(-1).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert ask(0, OffsetAndEpoch(14, 5)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(0, OffsetAndEpoch(0, 0)).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert ask(0, epoch=EPOCH).error is ErrorCode.FENCED_LEADER_EPOCH
    assert node.fetch(3, 0, 0).snapshot_id == snapshot_id


def test_a_voter_that_fetches_a_snapshot_counts_as_heard() -> None:
    """Fetching a large snapshot may take longer than a majority may be silent."""
    node = committed_leader()
    snapshot_id = OffsetAndEpoch(15, 5)
    node.step(events.SnapshotFrozen(snapshot_id, 40))
    node.step(events.Tick(), after_ms=2000)
    node.ask(FetchSnapshotRequest(key(3), EPOCH + 1, snapshot_id, 0, 10))
    node.step(events.Tick(), after_ms=2999)
    assert node.core.role is Role.LEADER
    node.step(events.Tick(), after_ms=1)
    assert node.core.role is Role.RESIGNED


def test_a_snapshot_above_the_high_watermark_is_a_bug() -> None:
    node = committed_leader()
    with pytest.raises(ValueError):
        node.step(events.SnapshotFrozen(OffsetAndEpoch(node.core.log.end + 1, EPOCH + 1), 40))


# The shape of the log.


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (10, 3, (Validity.VALID, None)),
        (25, 5, (Validity.VALID, None)),
        (10, 2, (Validity.SNAPSHOT, OffsetAndEpoch(8, 3))),
        (7, 3, (Validity.SNAPSHOT, OffsetAndEpoch(8, 3))),
        (8, 3, (Validity.VALID, None)),
        (8, 5, (Validity.SNAPSHOT, OffsetAndEpoch(8, 3))),
        (0, 0, (Validity.SNAPSHOT, OffsetAndEpoch(8, 3))),
        (15, 4, (Validity.DIVERGING, OffsetAndEpoch(12, 3))),
        (13, 3, (Validity.DIVERGING, OffsetAndEpoch(12, 3))),
        (31, 5, (Validity.DIVERGING, OffsetAndEpoch(30, 5))),
        (20, 9, (Validity.DIVERGING, OffsetAndEpoch(30, 5))),
    ],
)
def test_the_answers_to_a_fetch(offset: int, epoch: int, expected: Any) -> None:
    log = LogShape(8, 30, [(3, 8), (5, 12)], [(OffsetAndEpoch(8, 3), 10)], 3)
    assert log.validate(offset, epoch) == expected


def test_truncation_and_trimming_keep_epochs_and_voters_in_step() -> None:
    log = LogShape(0, 30, [(3, 0), (5, 12), (6, 20)], [(OffsetAndEpoch(15, 5), 10)])
    assert log.truncation_point(OffsetAndEpoch(99, 5)) == 20
    assert log.truncation_point(OffsetAndEpoch(14, 5)) == 14
    assert log.truncation_point(OffsetAndEpoch(14, 4)) == 12
    assert log.truncation_point(OffsetAndEpoch(0, 0)) == 0
    log.truncate(20)
    assert (log.end, log.last_epoch) == (20, 5)
    log.trim(OffsetAndEpoch(15, 5))
    assert (log.start, log.epoch_before(16), log.base_epoch) == (15, 5, 5)
    first, second = VoterSet([voter(1)]), VoterSet([voter(1), voter(2)])
    history = VoterSetHistory(first, 1)
    history.add_at(5, second, 1)
    assert history.at(5) == (first, 1)
    assert history.at(6) == (second, 1)
    assert history.truncate_new_entries(5)
    assert history.latest == first
    history.add_at(6, second, 1)
    with pytest.raises(ValueError):
        history.add_at(9, VoterSet([voter(3)]), 1)


# Changing the voters.


def with_observer(node_id: int = 4) -> Node:
    node = committed_leader()
    node.fetch(node_id, node.core.log.end)
    return node


def add(node: Node, new: VoterNode, **changes: Any) -> Any:
    return node.ask(AddRaftVoterRequest(new, 5000, **changes))


def test_a_voter_is_added_once_probed_caught_up_and_committed() -> None:
    node = with_observer()
    assert add(node, voter(4)) is None
    request_id = node.last_request_id
    (probe,) = node.effects(effect.ProbeVoter)
    assert (probe.voter, probe.endpoints) == (key(4), address(4))
    base = node.core.log.end
    node.step(events.VoterProbed(key(4), (0, 1)))
    (appended,) = node.effects(effect.AppendVoters)
    assert (appended.base_offset, appended.voters.ids) == (base, (1, 2, 3, 4))
    assert node.core.voters.latest.ids == (1, 2, 3, 4)
    node.step(events.Synced())
    node.fetch(2, base + 1)
    assert node.core.high_watermark == base
    node.fetch(4, base + 1)
    assert node.core.high_watermark == base + 1
    assert node.answer_to(request_id).error is NONE


def test_a_sole_voter_that_has_led_for_long_stays_the_leader_when_a_second_one_comes() -> None:
    node = Node(voters=(1,))
    node.step(events.Synced(), after_ms=3_600_000)
    node.fetch(4, node.core.log.end)
    add(node, voter(4))
    node.step(events.VoterProbed(key(4), (0, 1)))
    assert node.core.voters.latest.ids == (1, 4)
    assert node.core.role is Role.LEADER
    added_ms = node.now_ms
    node.wait_for(Role.RESIGNED)
    assert node.now_ms == added_ms + node.core.check_quorum_ms


def test_a_sole_voter_stays_the_leader_when_the_second_one_is_between_two_fetches() -> None:
    node = Node(voters=(1,))
    node.step(events.Synced(), after_ms=3_600_000)
    node.fetch(4, node.core.log.end, max_wait_ms=0)
    add(node, voter(4))
    node.step(events.VoterProbed(key(4), (0, 1)))
    assert node.core.role is Role.LEADER
    node.step(events.Tick(), after_ms=node.core.check_quorum_ms)
    assert node.core.role is Role.RESIGNED


@pytest.mark.parametrize(
    ("supported", "observed", "error"),
    [
        (None, True, ErrorCode.REQUEST_TIMED_OUT),
        ((0, 0), True, ErrorCode.INVALID_REQUEST),
        ((0, 1), False, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_voter_that_does_not_fit_is_not_added(
    supported: tuple[int, int] | None, observed: bool, error: ErrorCode
) -> None:
    node = with_observer() if observed else committed_leader()
    add(node, voter(4))
    node.step(events.VoterProbed(key(4), supported))
    assert node.answer_to(node.last_request_id).error is error
    assert not node.effects(effect.AppendVoters)
    assert add(node, voter(4)) is None


def test_reasons_that_refuse_a_change_of_the_voters() -> None:
    assert add(following(), voter(4)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert add(leading(), voter(4)).error is ErrorCode.REQUEST_TIMED_OUT
    assert add(committed_leader(kraft_version=0), voter(4)).error is ErrorCode.UNSUPPORTED_VERSION
    node = with_observer()
    assert add(node, voter(4), cluster_id="x").error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert add(node, VoterNode(-1, directory(4), address(4))).error is ErrorCode.INVALID_REQUEST
    assert add(node, VoterNode(4, bytes(16), address(4))).error is ErrorCode.INVALID_REQUEST
    assert add(node, VoterNode(4, directory(4), (("OTHER", "h", 1),))).error is ErrorCode.INVALID_REQUEST
    assert add(node, voter(3)).error is ErrorCode.DUPLICATE_VOTER
    assert node.ask(RemoveRaftVoterRequest(key(4))).error is ErrorCode.VOTER_NOT_FOUND
    wrong = ReplicaKey(3, directory(9))
    assert node.ask(RemoveRaftVoterRequest(wrong)).error is ErrorCode.VOTER_NOT_FOUND
    assert add(node, voter(4)) is None
    assert node.ask(RemoveRaftVoterRequest(key(3))).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_change_that_is_not_committed_in_time_is_answered_but_stays() -> None:
    node = committed_leader()
    assert node.ask(RemoveRaftVoterRequest(key(3))) is None
    request_id = node.last_request_id
    node.step(events.Tick(), after_ms=2000)
    assert node.answer_to(request_id).error is ErrorCode.REQUEST_TIMED_OUT
    assert node.core.voters.latest.ids == (1, 2)
    assert node.ask(RemoveRaftVoterRequest(key(2))).error is ErrorCode.REQUEST_TIMED_OUT


def test_a_leader_that_removes_itself_commits_without_counting_itself_and_then_resigns() -> None:
    node = committed_leader()
    assert node.ask(RemoveRaftVoterRequest(key(1))) is None
    request_id = node.last_request_id
    node.step(events.Synced())
    end = node.core.log.end
    node.fetch(2, end)
    assert node.core.role is Role.LEADER
    node.fetch(3, end)
    assert node.core.role is Role.RESIGNED
    assert node.answer_to(request_id) is None or node.answer_to(request_id).error is NONE
    assert node.core.high_watermark == end


def test_the_last_voter_is_not_removed() -> None:
    node = Node(voters=(1,))
    node.step(events.Synced())
    assert node.ask(RemoveRaftVoterRequest(key(1))).error is ErrorCode.VOTER_NOT_FOUND


def test_an_uncommitted_voter_set_counts_at_once_and_goes_with_a_truncation() -> None:
    node = following(high_watermark=10)
    (sent,) = node.sent(FetchRequest)
    fewer = VoterSet([voter(2), voter(3)])
    node.answer(sent, node.empty_answer(20, records=(records(20, 1, EPOCH, fewer),)))
    assert node.core.voters.latest == fewer
    assert not node.core.is_voter
    assert node.core.stands
    node.core.truncate(20)
    assert node.core.is_voter


def test_a_removed_voter_stops_standing_once_the_removal_is_committed() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    fewer = VoterSet([voter(2), voter(3)])
    node.answer(sent, node.empty_answer(21, records=(records(20, 1, EPOCH, fewer),)))
    assert node.core.high_watermark == 21
    assert not node.core.stands


def test_a_voter_whose_address_changed_tells_the_leader() -> None:
    moved = VoterNode(2, directory(2), (("CONTROLLER", "elsewhere", 1),))
    node = committed_leader()
    answer = node.ask(UpdateRaftVoterRequest(EPOCH + 1, moved))
    assert (answer.error, answer.leader_id) == (NONE, 1)
    assert node.core.voters.latest.get(2) == moved
    assert node.ask(UpdateRaftVoterRequest(EPOCH, moved)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert node.ask(UpdateRaftVoterRequest(EPOCH + 2, moved)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert node.ask(UpdateRaftVoterRequest(EPOCH + 1, voter(3))).error is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    "changed",
    [
        VoterNode(2, bytes(16), address(2)),
        VoterNode(2, directory(2), address(2), -1, 1),
        VoterNode(2, directory(2), address(2), 1, 0),
        VoterNode(2, directory(2), (("OTHER", "h", 1),)),
    ],
)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_voter_without_a_key_an_address_or_a_range_of_versions_is_not_taken(
    changed: VoterNode, kraft_version: int
) -> None:
    node = committed_leader(kraft_version=kraft_version)
    assert node.ask(UpdateRaftVoterRequest(EPOCH + 1, changed)).error is ErrorCode.INVALID_REQUEST
    assert node.core.leader is not None
    assert node.core.leader.reported == {}


def test_a_voter_tells_the_leader_of_itself_once_an_epoch_under_kraft_version_0() -> None:
    node = following(kraft_version=0)
    for _ in range(2):
        sent = node.sent(FetchRequest)
        node.step(events.Tick(), after_ms=1000)
        node.answer(sent[0], node.empty_answer(20))
    (update,) = node.sent(UpdateRaftVoterRequest)
    assert update.request.voter == voter(1)  # type: ignore[union-attr]


def next_update(node: Node) -> effect.Send | None:
    """The request with which a voter tells the leader of itself, if it sends one within the time of a fetch timeout."""
    for _ in range(6):
        while not node.sent():
            node.wait()
        (sent,) = node.sent()
        if isinstance(sent.request, UpdateRaftVoterRequest):
            return sent
        node.step(events.Tick(), after_ms=400)
        node.answer(sent, node.empty_answer(20))
    return None


@pytest.mark.parametrize(
    ("error", "is_repeated"),
    [
        (NONE, False),
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (None, True),
        (ErrorCode.UNSUPPORTED_VERSION, False),
    ],
)
def test_a_voter_tells_of_itself_under_kraft_version_0_until_the_leader_has_taken_it(
    error: ErrorCode | None, is_repeated: bool
) -> None:
    node = following(kraft_version=0)
    sent = next_update(node)
    assert sent is not None
    if error is None:
        node.step(events.RequestFailed(sent.correlation_id))
    elif error is ErrorCode.UNSUPPORTED_VERSION:
        node.step(events.RequestFailed(sent.correlation_id, error))
    else:
        node.answer(sent, RaftVoterResponse(error, None, EPOCH, 3, address(3)))
    assert (next_update(node) is not None) == is_repeated


def test_a_leader_that_takes_no_reports_is_told_of_a_voter_once_and_fetched_from_at_once() -> None:
    """Apache Kafka 3.9 answers so while kraft.version is 0."""
    node = following(kraft_version=0)
    sent = next_update(node)
    assert sent is not None
    node.answer(sent, RaftVoterResponse(ErrorCode.UNSUPPORTED_VERSION, None, EPOCH, 3, address(3)))
    assert node.sent(FetchRequest)
    assert next_update(node) is None


def test_a_second_vote_answer_of_one_voter_does_not_count_twice() -> None:
    node = Node(voters=(1, 2, 3, 4, 5), stored=ElectionState(EPOCH))
    sent = node.become_prospective()
    node.answer(sent[0], VoteResponse(NONE, EPOCH, -1, True))
    node.answer(sent[0], VoteResponse(NONE, EPOCH, -1, True))
    assert node.core.role is Role.PROSPECTIVE


# kraft.version.


def test_a_static_quorum_becomes_dynamic_once_every_voter_has_said_who_it_is() -> None:
    node = Node(voters=(1, 2), kraft_version=0, stored=ElectionState(EPOCH))
    node.become_leader()
    node.step(events.RaiseKraftVersion(1))
    assert node.effects(effect.RefuseProposal)[0].error is ErrorCode.REQUEST_TIMED_OUT
    node.commit_epoch()
    node.step(events.RaiseKraftVersion(2))
    assert node.effects(effect.RefuseProposal)[0].error is ErrorCode.INVALID_UPDATE_VERSION
    assert node.ask(UpdateRaftVoterRequest(node.core.epoch, voter(2))).error is NONE
    node.step(events.RaiseKraftVersion(3))
    (appended,) = node.effects(effect.AppendVoters)
    assert (appended.kraft_version, appended.end_offset - appended.base_offset) == (1, 2)
    assert [each.id for each in appended.voters.voters] == [1, 2]
    assert node.core.voters.kraft_version == 1
    node.step(events.RaiseKraftVersion(4))
    assert node.effects(effect.RefuseProposal)[0].error is ErrorCode.INVALID_UPDATE_VERSION


def test_an_upgrade_that_is_cut_off_leaves_the_quorum_static() -> None:
    history = VoterSetHistory(VoterSet([voter(1)]), 0)
    history.add_at(5, VoterSet([voter(1)]), 1)
    assert history.kraft_version == 1
    assert history.at(5)[1] == 0
    history.truncate_new_entries(5)
    assert history.kraft_version == 0


def test_only_a_leader_raises_the_version() -> None:
    node = following(kraft_version=0)
    node.step(events.RaiseKraftVersion(1))
    assert node.effects(effect.RefuseProposal)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
