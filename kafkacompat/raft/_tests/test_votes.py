"""Which candidate gets a vote: the table of roles for pre-vote and binding vote, and the checks before it (KIP-595,
KIP-853, KIP-996)."""

from __future__ import annotations

from dataclasses import replace
from math import isnan
from typing import Any

import pytest

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft._tests.quorum_support import NONE, Node, address, key, voter
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.elections import EPOCHS_MISSED_MAX
from kafkacompat.raft.epoch_election import EpochElection
from kafkacompat.raft.log_shape import LogShape
from kafkacompat.raft.messages import BeginQuorumEpochRequest, VoteRequest, VoteResponse
from kafkacompat.raft.roles import Role
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet
from kafkacompat.wire.errors import ErrorCode

EPOCH = 7


def log() -> LogShape:
    return LogShape(0, 20, [(3, 0), (5, 10)])


def vote(node: Node, *, pre_vote: bool = False, epoch: int | None = None, **changes: Any) -> VoteResponse:
    request = VoteRequest(
        key(2), key(1), node.core.epoch if epoch is None else epoch, 5, 20, pre_vote, "cluster"
    )
    return node.ask(replace(request, **changes))  # type: ignore[no-any-return]


def unattached() -> Node:
    return Node(log=log(), stored=ElectionState(EPOCH))


def voted_for(node_id: int) -> Node:
    voted = key(node_id)
    return Node(log=log(), stored=ElectionState(EPOCH, -1, voted.id, voted.directory_id))


def knowing_the_leader() -> Node:
    return Node(log=log(), stored=ElectionState(EPOCH, 9))


def prospective() -> Node:
    node = unattached()
    node.become_prospective()
    return node


def candidate() -> Node:
    node = unattached()
    node.become_candidate()
    return node


def leader() -> Node:
    node = unattached()
    node.become_leader()
    return node


def follower() -> Node:
    return Node(log=log(), stored=ElectionState(EPOCH, 3))


def follower_that_fetched() -> Node:
    node = follower()
    (sent,) = node.sent()
    node.answer(sent, node.empty_answer())
    return node


def resigned() -> Node:
    return Node(log=log(), stored=ElectionState(EPOCH, 1))


@pytest.mark.parametrize(
    ("make", "role", "pre_vote", "real_vote"),
    [
        (unattached, Role.UNATTACHED, True, True),
        (lambda: voted_for(2), Role.UNATTACHED, True, True),
        (lambda: voted_for(3), Role.UNATTACHED, True, False),
        (knowing_the_leader, Role.UNATTACHED, True, False),
        (prospective, Role.PROSPECTIVE, True, True),
        (candidate, Role.CANDIDATE, True, False),
        (follower, Role.FOLLOWER, True, False),
        (follower_that_fetched, Role.FOLLOWER, False, False),
        (leader, Role.LEADER, False, False),
        (resigned, Role.RESIGNED, True, False),
    ],
)
def test_the_table_of_votes(make: Any, role: Role, pre_vote: bool, real_vote: bool) -> None:
    node = make()
    assert node.core.role is role
    enough = {"last_epoch": node.core.log.last_epoch, "last_offset": node.core.log.end}
    # A candidate's last epoch is below the one it stands for. A leader has written records of its own epoch.
    real = vote(node, **enough) if enough["last_epoch"] < node.core.epoch else None
    if real is not None:
        assert (real.error, real.granted) == (NONE, real_vote)
    node = make()
    answer = vote(node, pre_vote=True, **enough)
    assert (answer.error, answer.granted) == (NONE, pre_vote)
    assert not node.effects(effect.PersistElection)
    assert node.core.role is role


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "granted"),
    [(5, 20, True), (5, 21, True), (6, 1, True), (5, 19, False), (4, 900, False)],
)
def test_the_log_decides(pre_vote: bool, last_epoch: int, last_offset: int, granted: bool) -> None:
    """Epoch first, then end offset."""
    answer = vote(unattached(), pre_vote=pre_vote, last_epoch=last_epoch, last_offset=last_offset)
    assert answer.granted is granted


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_of_an_epoch_that_leaves_none_for_others_is_not_believed(pre_vote: bool) -> None:
    node = unattached()
    answer = vote(node, pre_vote=pre_vote, epoch=2**31 - 1)
    assert (answer.error, answer.granted) == (ErrorCode.INVALID_REQUEST, False)
    assert node.core.epoch == EPOCH
    assert vote(node, epoch=EPOCH + EPOCHS_MISSED_MAX).granted


def test_a_granted_vote_is_durable_before_its_answer() -> None:
    node = unattached()
    assert vote(node).granted
    kinds = [type(each) for each in node.last]
    assert kinds.index(effect.PersistElection) < kinds.index(effect.Reply)
    (persisted,) = node.effects(effect.PersistElection)
    assert (persisted.state.voted_id, persisted.state.voted_directory_id) == key(2)
    assert not vote(node, candidate=key(3)).granted
    assert vote(node).granted
    assert not node.effects(effect.PersistElection)


def test_a_vote_outlives_a_restart() -> None:
    assert not vote(voted_for(3)).granted


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": EPOCH}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": EPOCH + 1, "pre_vote": True}, ErrorCode.INVALID_REQUEST),
        ({"epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"candidate": ReplicaKey(-1)}, ErrorCode.INVALID_REQUEST),
        ({"voter": key(3)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter": ReplicaKey(1, bytes([5]) * 16)}, ErrorCode.INVALID_VOTER_KEY),
    ],
)
def test_votes_that_are_refused_before_the_question_of_the_vote(
    changes: dict[str, Any], error: ErrorCode
) -> None:
    answer = vote(unattached(), **changes)
    assert (answer.error, answer.granted, answer.epoch) == (error, False, EPOCH)


def test_another_cluster_is_refused_at_the_top_and_changes_nothing() -> None:
    node = unattached()
    answer = vote(node, cluster_id="another", epoch=EPOCH + 5)
    assert answer.top_level_error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert node.core.epoch == EPOCH


@pytest.mark.parametrize("voter_key", [None, ReplicaKey(1), key(1)])
def test_a_voter_key_without_directory_or_none_is_for_us(voter_key: ReplicaKey | None) -> None:
    assert vote(unattached(), voter=voter_key).granted


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    "make", [unattached, prospective, candidate, leader, follower_that_fetched, resigned]
)
def test_any_vote_of_a_higher_epoch_moves_the_receiver(make: Any, pre_vote: bool) -> None:
    """Even a pre-vote, and even with the wrong key."""
    node = make()
    vote(node, pre_vote=pre_vote, epoch=50, voter=key(3))
    assert (node.core.role, node.core.epoch) == (Role.UNATTACHED, 50)
    assert node.effects(effect.PersistElection)


def test_three_answers_make_a_tally() -> None:
    epoch_election = EpochElection(VoterSet(voter(each) for each in (1, 2, 3, 4, 5)), 3)
    assert (epoch_election.granting_voters, epoch_election.unrecorded_voters) == ([3], [1, 2, 4, 5])
    epoch_election.record_vote(1, False)
    epoch_election.record_vote(2, False)
    assert not epoch_election.is_vote_rejected
    epoch_election.record_vote(4, False)
    assert epoch_election.is_vote_rejected
    epoch_election.record_vote(4, True)
    assert epoch_election.granting_voters == [3]
    epoch_election.record_vote(5, True)
    assert not epoch_election.is_vote_granted


def test_one_that_is_no_voter_does_not_count_itself() -> None:
    epoch_election = EpochElection(VoterSet([voter(2)]), 1)
    assert not epoch_election.is_vote_granted
    epoch_election.record_vote(2, True)
    assert epoch_election.is_vote_granted


# Campaigns.


def test_a_prospective_changes_nothing_on_disk_and_asks_every_other_voter() -> None:
    node = unattached()
    sent = node.become_prospective()
    assert [each.node_id for each in sent] == [2, 3]
    assert all(each.request.pre_vote and each.request.epoch == EPOCH for each in sent)  # type: ignore[union-attr]
    assert not node.effects(effect.PersistElection)


def test_a_majority_of_pre_votes_makes_a_candidate_whose_vote_is_durable_first() -> None:
    node = unattached()
    node.become_candidate()
    kinds = [type(each) for each in node.last]
    assert kinds.index(effect.PersistElection) < kinds.index(effect.Send)
    (persisted,) = node.effects(effect.PersistElection)
    assert (persisted.state.leader_epoch, persisted.state.voted_id) == (EPOCH + 1, 1)


def test_a_lost_pre_vote_goes_back_to_the_known_leader() -> None:
    node = follower()
    sent = node.become_prospective()
    for each in sent:
        node.answer(each, VoteResponse(NONE, EPOCH, 3, False))
    assert node.core.role is Role.FOLLOWER
    assert node.core.epoch == EPOCH


def test_a_lost_pre_vote_without_leader_waits_anew() -> None:
    node = unattached()
    for each in node.become_prospective():
        node.answer(each, VoteResponse(NONE, EPOCH, -1, False))
    assert node.core.role is Role.UNATTACHED
    assert node.core.wake_ms > node.now_ms


def test_a_candidate_that_was_rejected_waits_and_then_asks_before_it_stands_again() -> None:
    node = unattached()
    for each in node.become_candidate():
        node.answer(each, VoteResponse(NONE, EPOCH + 1, -1, False))
    assert node.core.role is Role.CANDIDATE
    node.wait_for(Role.PROSPECTIVE)
    assert node.core.election.voted_id == 1
    assert node.core.epoch == EPOCH + 1


def test_a_voter_without_pre_vote_is_asked_in_the_older_way() -> None:
    """UNSUPPORTED_VERSION for a pre-vote makes it a candidate at once."""
    node = unattached()
    first, *_ = node.become_prospective()
    node.step(events.RequestFailed(first.correlation_id, ErrorCode.UNSUPPORTED_VERSION))
    assert node.core.role is Role.CANDIDATE


def test_answers_to_an_older_campaign_do_not_count() -> None:
    node = unattached()
    first, second = node.become_prospective()
    node.answer(first, VoteResponse(NONE, EPOCH, -1, True))
    assert node.core.role is Role.CANDIDATE
    node.answer(second, VoteResponse(NONE, EPOCH + 1, -1, True))
    assert node.core.role is Role.CANDIDATE


def test_a_failed_vote_request_is_sent_again_after_the_backoff() -> None:
    node = unattached()
    first, _ = node.become_prospective()
    node.step(events.RequestFailed(first.correlation_id))
    assert not node.sent()
    node.wait()
    assert [each.node_id for each in node.sent(VoteRequest)] == [first.node_id]


def test_a_vote_answer_that_names_a_leader_is_followed() -> None:
    node = unattached()
    first, _ = node.become_prospective()
    node.answer(first, VoteResponse(NONE, EPOCH, 3, False, address(3)))
    assert node.core.role is Role.FOLLOWER
    assert node.core.election.leader_id == 3


def test_a_vote_is_kept_when_the_leader_is_found() -> None:
    node = unattached()
    vote(node)
    answer = node.ask(BeginQuorumEpochRequest(key(1), 3, EPOCH, address(3), "cluster"))
    assert answer.error is NONE
    assert (node.core.election.leader_id, node.core.election.voted_id) == (3, 2)


# How long elections take.


def test_an_election_takes_from_the_last_candidacy_until_there_is_a_leader() -> None:
    node = unattached()
    first, _ = node.become_prospective()
    node.now_ms += 30
    node.answer(first, VoteResponse(NONE, EPOCH, -1, True))
    assert isnan(node.core.election_times.mean_and_max(node.now_ms)[1])
    node.now_ms += 7
    node.answer(node.sent(VoteRequest)[0], VoteResponse(NONE, EPOCH + 1, -1, True))
    assert node.core.role is Role.LEADER
    assert node.core.election_times.mean_and_max(node.now_ms) == (7, 7)


def test_an_election_that_another_one_wins_takes_its_time_too() -> None:
    node = unattached()
    first, _ = node.become_prospective()
    node.now_ms += 11
    node.answer(first, VoteResponse(NONE, EPOCH, 3, False, address(3)))
    assert node.core.election_times.mean_and_max(node.now_ms) == (11, 11)
    node.now_ms += 50
    node.ask(BeginQuorumEpochRequest(key(1), 2, EPOCH + 1, address(2), "cluster"))
    assert node.core.election_times.mean_and_max(node.now_ms) == (11, 11), "it did not stand again"


def test_a_node_that_held_no_election_has_no_election_time() -> None:
    node = unattached()
    node.ask(BeginQuorumEpochRequest(key(1), 3, EPOCH, address(3), "cluster"))
    assert node.core.role is Role.FOLLOWER
    sole = Node(voters=(1,))
    sole.wait_for(Role.LEADER)
    for each in (node, sole):
        assert isnan(each.core.election_times.mean_and_max(each.now_ms)[1])
