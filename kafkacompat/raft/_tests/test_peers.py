"""Peers that are late, of another cluster, restarted, or with id 0, and the answers to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkacompat.ids import ZERO_UUID, OffsetAndEpoch
from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.raft._tests.quorum_support import NONE, Node, address, directory, key
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.elections import end_epoch_election_backoff_ms
from kafkacompat.raft.log_shape import LogShape
from kafkacompat.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    QuorumEpochResponse,
    VoteRequest,
)
from kafkacompat.raft.roles import Role
from kafkacompat.raft.voter_set import ReplicaKey
from kafkacompat.wire.errors import ErrorCode

EPOCH = 7
ANOTHER = "another cluster"


def log() -> LogShape:
    return LogShape(0, 20, [(3, 0), (5, 10)])


def following(leader_id: int = 3, **changes: Any) -> Node:
    return Node(log=log(), stored=ElectionState(EPOCH, leader_id), **changes)


def leading(**changes: Any) -> Node:
    """A leader in the next epoch, with its first batch committed."""
    node = Node(log=log(), stored=ElectionState(EPOCH), **changes)
    node.become_leader()
    node.commit_epoch()
    return node


# Another cluster.


@pytest.mark.parametrize(
    "request_of",
    [
        lambda epoch: VoteRequest(key(2), key(1), epoch + 1, 5, 20, False, ANOTHER),
        lambda epoch: BeginQuorumEpochRequest(key(1), 2, epoch + 1, address(2), ANOTHER),
        lambda epoch: EndQuorumEpochRequest(2, epoch + 1, (key(1),), address(2), ANOTHER),
        lambda epoch: FetchRequest(key(3), epoch, 21, epoch, 0, 1000, cluster_id=ANOTHER),
        lambda epoch: FetchSnapshotRequest(key(3), epoch, OffsetAndEpoch(15, 5), 0, 10, ANOTHER),
    ],
)
@pytest.mark.parametrize("make", [following, leading])
def test_nothing_is_believed_of_another_cluster(
    make: Callable[[], Node], request_of: Callable[[int], Any]
) -> None:
    node = make()
    core = node.core
    before = core.role, core.epoch, core.election.leader_id, core.high_watermark
    answer = node.ask(request_of(core.epoch))
    assert answer.top_level_error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (core.role, core.epoch, core.election.leader_id, core.high_watermark) == before


# A past epoch.


@pytest.mark.parametrize(
    "late",
    [
        BeginQuorumEpochRequest(key(1), 2, EPOCH - 1, address(2)),
        EndQuorumEpochRequest(2, EPOCH - 1, (key(1),), address(2)),
    ],
)
def test_a_leader_whose_epoch_is_over_is_told_so_and_not_followed(late: Any) -> None:
    node = following()
    answer = node.ask(late)
    assert (answer.error, answer.epoch, answer.leader_id) == (ErrorCode.FENCED_LEADER_EPOCH, EPOCH, 3)
    assert (node.core.role, node.core.election.leader_id) == (Role.FOLLOWER, 3)


def test_records_after_another_epoch_than_the_last_of_the_log_are_not_taken() -> None:
    node = following()
    (sent,) = node.sent(FetchRequest)
    assert isinstance(sent.request, FetchRequest)
    sent.request.last_fetched_epoch = 4
    node.answer(sent, node.empty_answer(20, diverging=OffsetAndEpoch(8, 3)))
    assert node.core.log.end == 20
    assert node.core.high_watermark == -1


# The id 0.


def test_node_0_leads_and_is_followed() -> None:
    node = following(2, voters=(0, 1, 2))
    answer = node.ask(BeginQuorumEpochRequest(key(1), 0, EPOCH + 1, address(0)))
    assert (answer.error, answer.leader_id) == (NONE, 0)
    assert (node.core.role, node.core.election.leader_id) == (Role.FOLLOWER, 0)
    (sent,) = node.sent(FetchRequest)
    assert sent.node_id == 0


def test_node_0_is_heard_of_from_others() -> None:
    node = following(2, voters=(0, 1, 2))
    (sent,) = node.sent(FetchRequest)
    told = node.empty_answer(
        error=ErrorCode.FENCED_LEADER_EPOCH, epoch=EPOCH + 1, leader_id=0, leader_endpoints=address(0)
    )
    node.answer(sent, told)
    assert (node.core.role, node.core.epoch, node.core.election.leader_id) == (Role.FOLLOWER, EPOCH + 1, 0)


def test_node_0_is_voted_for_and_counts() -> None:
    node = Node(log=log(), stored=ElectionState(EPOCH, 2), voters=(0, 1, 2))
    node.wait_for(Role.PROSPECTIVE)
    answer = node.ask(VoteRequest(key(0), key(1), EPOCH + 1, 5, 20, False))
    assert (answer.error, answer.granted) == (NONE, True)
    assert (node.core.election.voted_id, node.core.election.voted_directory_id) == key(0)


def test_node_0_may_have_an_empty_log() -> None:
    node = Node(voters=(0, 1, 2), stored=ElectionState(EPOCH, 2))
    answer = node.ask(VoteRequest(key(0), key(1), EPOCH + 1, 0, 0, False))
    assert (answer.error, answer.granted) == (NONE, True)


# A restarted peer.


@pytest.mark.parametrize(
    ("mine", "backoff_ms"),
    [
        (directory(1), 500),
        (ZERO_UUID, 500),
        (directory(9), 1000),
    ],
)
def test_a_voter_with_another_directory_than_the_preferred_candidates_is_none(
    mine: bytes, backoff_ms: int
) -> None:
    me = ReplicaKey(1, directory(1))
    preferred = (key(2), ReplicaKey(1, mine))
    assert end_epoch_election_backoff_ms(me, preferred, 1000) == backoff_ms


# Fetches to a leader.


def answered(node: Node) -> list[int]:
    """Ids of the requests that the last step has answered."""
    kinds = effect.Reply, effect.ReplyWithRecords, effect.ReplyWithSnapshot
    return [each.request_id for each in node.last if isinstance(each, kinds)]


def test_every_fetch_is_answered_once() -> None:
    node = leading()
    end, parked_id = node.core.log.end, node.last_request_id
    asked: list[tuple[int, dict[str, int], OffsetAndEpoch | None]] = [
        (end, {"max_wait_ms": 0}, None),
        (12, {"epoch": 4}, OffsetAndEpoch(10, 3)),
        (12, {}, None),
        (end, {"high_watermark": end - 1}, None),
    ]
    for offset, terms, diverging in asked:
        answer = node.fetch(3, offset, **terms)
        assert (answer.diverging, answer.snapshot_id) == (diverging, None)
        assert answered(node) == [node.last_request_id]
    node.step(events.Propose(1, node.core.epoch, "data", 2, 100))
    assert answered(node) == [parked_id], "that of node 2 alone has waited"
    node.step(events.Tick(), after_ms=1000)
    assert answered(node) == []


def test_a_voter_that_has_fetched_and_is_silent_is_told_again_who_leads() -> None:
    node = leading()
    node.fetch(3, node.core.log.end, max_wait_ms=0)
    told = set()
    for _ in range(4):
        node.fetch(2, node.core.log.end, max_wait_ms=0)
        for each in (2, 3):
            node.core.request_manager.get(each).correlation_id = -1
        node.step(events.Tick(), after_ms=500)
        told |= {each.node_id for each in node.sent(BeginQuorumEpochRequest)}
    assert told == {3}


# A leader that has resigned.


def test_a_voter_that_knows_of_the_epochs_end_is_not_told_again() -> None:
    node = leading()
    node.step(events.Resign())
    told = [each.node_id for each in node.sent(EndQuorumEpochRequest)]
    assert told == [2, 3]
    for each in node.sent(EndQuorumEpochRequest):
        node.answer(each, QuorumEpochResponse(NONE, node.core.epoch, 1))
        told += [again.node_id for again in node.sent(EndQuorumEpochRequest)]
    while node.core.role is Role.RESIGNED:
        node.step(events.Tick(), after_ms=50)
        told += [each.node_id for each in node.sent(EndQuorumEpochRequest)]
    assert told == [2, 3]
