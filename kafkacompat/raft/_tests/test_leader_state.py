"""A leader's counts: the majority's end offset, the voters heard, the observers dropped."""

from __future__ import annotations

import pytest

from kafkacompat.ids import ZERO_UUID
from kafkacompat.raft._tests.quorum_support import directory, key, voter
from kafkacompat.raft.leader_state import MAX_OBSERVERS, OBSERVER_MEMORY_MS, LeaderState
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import ReplicaKey, VoterSet

LEADER = 1
EPOCH_START, END = 10, 30
TIMEOUT_MS = 3000


def voters_of(*ids: int) -> VoterSet:
    return VoterSet(voter(each) for each in ids)


class Leading:
    def __init__(self, *ids: int, node_id: int = LEADER) -> None:
        self.voters = voters_of(*ids)
        self.state = LeaderState(node_id, EPOCH_START, self.voters, ())

    def change(self, *ids: int) -> None:
        self.voters = voters_of(*ids)
        self.state.update_voter_and_observer_states(self.voters)

    def fetch(self, replica: int, offset: int, now_ms: int = 0) -> bool:
        return self.state.update_replica_state(key(replica), self.voters, offset, END, now_ms)

    def hear(self, replica: ReplicaKey, now_ms: int) -> int:
        """Until when the present majority is enough."""
        self.state.update_check_quorum_for_following_voter(replica, self.voters, TIMEOUT_MS, now_ms)
        return self.state.check_quorum_at_ms

    def majority(self, own_end: int = END) -> int:
        return self.state.majority_end(self.voters, own_end)


@pytest.mark.parametrize(
    ("ids", "ends", "own_end", "majority"),
    [
        ((1,), {}, 30, 30),
        ((1, 2), {2: 20}, 30, 20),
        ((1, 2, 3), {2: 20, 3: 12}, 30, 20),
        ((1, 2, 3), {2: 20, 3: 30}, 15, 20),
        ((1, 2, 3, 4), {2: 20, 3: 12, 4: 11}, 30, 12),
        ((2, 3), {2: 20, 3: 12}, 30, 12),
        ((2, 3, 4), {2: 20, 3: 12, 4: 25}, 30, 20),
        ((1, 2, 3), {}, 30, -1),
    ],
)
def test_the_end_offset_of_a_majority_of_the_voters(
    ids: tuple[int, ...], ends: dict[int, int], own_end: int, majority: int
) -> None:
    leading = Leading(*ids)
    for replica, end in ends.items():
        assert leading.fetch(replica, end)
    assert leading.majority(own_end) == majority


def test_the_high_watermark_moves_past_the_epochs_start_and_never_back() -> None:
    leading = Leading(1, 2)
    told = []
    for end in (EPOCH_START, EPOCH_START + 1, EPOCH_START + 1, EPOCH_START, 20):
        leading.fetch(2, end)
        told.append(
            (leading.state.maybe_update_high_watermark(leading.voters, END), leading.state.high_watermark)
        )
    assert told == [(False, -1), (True, 11), (False, 11), (False, 11), (True, 20)]


def test_a_voter_that_is_removed_counts_no_more_and_is_known_as_an_observer() -> None:
    leading = Leading(1, 2, 3)
    leading.fetch(2, 20)
    leading.fetch(3, 25, now_ms=5)
    assert leading.majority() == 25
    leading.change(1, 2)
    assert leading.majority() == 20
    assert list(leading.state.observer_states(5)) == [key(3)]
    assert not leading.fetch(3, 28, now_ms=6), "no voter's end has moved"
    leading.change(1, 2, 3)
    assert leading.majority() == 28
    assert leading.state.observer_states(6) == {}


def test_a_voter_whose_disk_is_another_one_begins_anew() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 25)
    leading.voters = VoterSet([voter(1), VoterNode(2, directory(9), ())])
    leading.state.update_voter_and_observer_states(leading.voters)
    assert leading.majority() == -1
    assert not leading.fetch(2, 26), "the one of before is an observer now"
    assert leading.majority() == -1


def test_a_voter_whose_disk_becomes_known_begins_anew_and_leaves_no_observer() -> None:
    """kraft.version has become 1."""
    static = VoterSet(VoterNode(each, ZERO_UUID, ()) for each in (1, 2))
    state = LeaderState(LEADER, EPOCH_START, static, ())
    assert state.update_replica_state(key(2), static, 25, END, 1)
    dynamic = voters_of(1, 2)
    state.update_voter_and_observer_states(dynamic)
    assert state.majority_end(dynamic, END) == -1
    assert state.observer_states(1) == {}
    assert state.update_replica_state(key(2), dynamic, 25, END, 2)


def test_only_voters_are_heard_and_a_majority_of_them_is_enough() -> None:
    leading = Leading(1, 2, 3, 4, 5)
    assert leading.hear(key(2), 100) == 0
    for nobody in (key(2), key(LEADER), key(6), ReplicaKey(3, directory(9))):
        assert leading.hear(nobody, 200) == 0
    assert leading.hear(key(3), 300) == 300 + TIMEOUT_MS
    assert leading.hear(key(3), 400) == 300 + TIMEOUT_MS, "each time a majority anew"
    assert leading.hear(key(4), 500) == 500 + TIMEOUT_MS


def test_a_leader_that_is_no_voter_needs_one_more() -> None:
    leading = Leading(2, 3, 4)
    assert leading.hear(key(2), 100) == 0
    assert leading.hear(key(3), 200) == 200 + TIMEOUT_MS


def test_a_removed_voter_does_not_count_as_heard() -> None:
    leading = Leading(1, 2, 3, 4, 5)
    leading.hear(key(2), 100)
    leading.change(1, 3, 4, 5)
    assert leading.hear(key(3), 200) == 0
    assert leading.hear(key(4), 300) == 300 + TIMEOUT_MS


def test_a_voter_without_a_known_disk_is_heard_whatever_its_disk() -> None:
    leading = Leading()
    leading.voters = VoterSet([voter(1), VoterNode(2, ZERO_UUID, ())])
    assert leading.hear(key(2), 100) == 100 + TIMEOUT_MS


def test_an_observer_is_told_of_until_it_has_been_silent_for_long() -> None:
    leading = Leading(1, 2)
    leading.fetch(6, 12, now_ms=1000)
    assert list(leading.state.observer_states(1000 + OBSERVER_MEMORY_MS - 1)) == [key(6)]
    assert leading.state.observer_states(1000 + OBSERVER_MEMORY_MS) == {}
    leading.fetch(7, 12, now_ms=999 + OBSERVER_MEMORY_MS)
    assert list(leading.state.observers) == [key(6), key(7)]
    leading.fetch(8, 12, now_ms=1000 + OBSERVER_MEMORY_MS)
    assert list(leading.state.observers) == [key(7), key(8)]
    leading.fetch(7, 13, now_ms=1000 + OBSERVER_MEMORY_MS)
    assert list(leading.state.observers) == [key(8), key(7)], "the last is who was heard last"


def test_of_very_many_observers_the_one_that_was_heard_of_longest_ago_goes() -> None:
    leading = Leading(1, 2)
    for at in range(MAX_OBSERVERS + 3):
        disk = at.to_bytes(16, "big")
        leading.state.get_or_create_replica_state(
            ReplicaKey(6, disk), leading.voters, 0
        ).last_fetch_ms = OBSERVER_MEMORY_MS
    assert len(leading.state.observers) == MAX_OBSERVERS
    assert next(iter(leading.state.observers)).directory_id == (3).to_bytes(16, "big")


def test_the_voter_with_most_of_the_log_comes_first() -> None:
    leading = Leading(1, 2, 3, 4)
    for replica, end in ((2, 12), (3, 20), (4, 20)):
        leading.fetch(replica, end)
    order = leading.state.non_leader_voters_by_descending_fetch_offset(leading.voters)
    assert order == (key(3), key(4), key(2))


def test_a_replica_with_the_whole_log_is_caught_up() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, END - 1, now_ms=5)
    assert leading.state.voters[2].last_caught_up_ms == -1
    leading.fetch(2, END, now_ms=6)
    assert (leading.state.voters[2].last_caught_up_ms, leading.state.voters[2].last_fetch_ms) == (6, 6)
    assert not leading.fetch(2, END, now_ms=7), "its end has not moved"


def test_a_replica_that_has_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    """Otherwise one that keeps up with a log that always grows would never be caught up."""
    leading = Leading(1, 2)
    replica = leading.state.voters[2]
    for now_ms, offset, end, caught_up_ms in (
        (5, 20, 22, -1),
        (6, 22, 24, 5),
        (7, 23, 26, 5),
        (8, 26, 27, 7),
    ):
        leading.state.update_replica_state(key(2), leading.voters, offset, end, now_ms)
        assert replica.last_caught_up_ms == caught_up_ms
