"""A sole voter's way to leadership, what it writes first, and when something counts as committed."""

from __future__ import annotations

import pytest

from kafkacompat.raft.core import (
    AdvanceHighWatermark,
    AppendEpochStart,
    IllegalTransition,
    NotAVoter,
    PersistElection,
    QuorumView,
    RaftCore,
    Role,
)
from kafkacompat.raft.election_state import ElectionState
from kafkacompat.raft.voters import Voter

HERE = bytes(15) + b"\x80"
LISTENERS = (("CONTROLLER", "127.0.0.1", 9093),)


def view(**changes: object) -> QuorumView:
    values: dict[str, object] = {
        "node_id": 1,
        "directory_id": HERE,
        "voters": (Voter(1, HERE, LISTENERS),),
        "kraft_version": 1,
        "voters_in_log": True,
        "own_listeners": LISTENERS,
        "stored": ElectionState(leader_epoch=4, leader_id=1),
        "last_epoch": 4,
        "log_end_offset": 100,
    }
    return QuorumView(**{**values, **changes})  # type: ignore[arg-type]


def test_it_votes_for_itself_durably_before_it_leads_the_next_epoch() -> None:
    core = RaftCore(1)
    effects = core.boot(view())
    assert core.role is Role.LEADER
    assert core.epoch == 5
    vote, won, start = effects
    assert isinstance(vote, PersistElection)
    assert (vote.state.voted_id, vote.state.leader_id, vote.state.leader_epoch) == (1, -1, 5)
    assert isinstance(won, PersistElection)
    assert (won.state.voted_id, won.state.leader_id, won.state.leader_epoch) == (-1, 1, 5)
    assert start == AppendEpochStart(5, 1, (Voter(1, HERE, LISTENERS),), with_voters=False)


@pytest.mark.parametrize(
    ("changes", "with_voters"),
    [
        ({"voters_in_log": False}, True),
        ({"own_listeners": (("CONTROLLER", "127.0.0.1", 9999),)}, True),
        ({"kraft_version": 0, "voters_in_log": False}, False),
        ({}, False),
    ],
)
def test_voters_are_restated_only_when_the_log_lacks_them(
    changes: dict[str, object], with_voters: bool
) -> None:
    start = RaftCore(1).boot(view(**changes))[-1]
    assert isinstance(start, AppendEpochStart)
    assert start.with_voters is with_voters


def test_the_log_may_know_a_later_epoch_than_the_file() -> None:
    core = RaftCore(1)
    core.boot(view(stored=ElectionState(), last_epoch=7))
    assert core.epoch == 8


def test_nothing_is_committed_before_the_epochs_first_batch_is_durable() -> None:
    core = RaftCore(1)
    core.boot(view())
    assert core.synced(100) == []
    assert core.synced(101) == [AdvanceHighWatermark(101)]
    assert core.synced(101) == []
    assert core.synced(90) == []
    assert core.high_watermark == 101


@pytest.mark.parametrize(
    "voters",
    [(), (Voter(2, HERE),), (Voter(1, HERE), Voter(2, HERE)), (Voter(1, bytes(15) + b"\x99"),)],
)
def test_anyone_but_the_sole_voter_refuses_to_lead(voters: tuple[Voter, ...]) -> None:
    with pytest.raises(NotAVoter):
        RaftCore(1).boot(view(voters=voters))


def test_a_resigned_leader_stays_resigned() -> None:
    core = RaftCore(1)
    core.boot(view())
    core.resign()
    with pytest.raises(IllegalTransition):
        core.resign()
