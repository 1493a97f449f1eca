"""The oracles of groups find the errors they exist for, and accept correct behaviour."""

from __future__ import annotations

import pytest

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.group_oracles import NOTHING, Grant, GroupHistory, Owners


def test_what_was_answered_is_fetched_or_something_later() -> None:
    ledger = GroupHistory("g")
    for _ in range(3):
        ledger.issue(0)
    ledger.committed(0, 2)
    ledger.fetched({0: 2}, {0: 2})
    ledger.fetched({0: 2}, {0: 3})
    for number in (1, NOTHING, 4):
        with pytest.raises(Breach, match="answered commits are fetched"):
            ledger.fetched({0: 2}, {0: number})


def test_what_was_shown_once_stays() -> None:
    ledger = GroupHistory("g")
    ledger.issue(0)
    ledger.fetched({}, {0: NOTHING})
    ledger.fetched({}, {0: 1})
    with pytest.raises(Breach, match="answered or shown was 1"):
        ledger.fetched(dict(ledger.settled), {0: NOTHING})


def test_nothing_is_left_of_a_deleted_group() -> None:
    ledger = GroupHistory("g")
    ledger.issue(0)
    ledger.is_deleted = True
    ledger.fetched({}, {0: NOTHING})
    with pytest.raises(Breach, match="deleted groups stay deleted"):
        ledger.fetched({}, {0: 1})
    ledger.may_return = True
    ledger.fetched({}, {0: 1})
    with pytest.raises(Breach, match="deleted groups stay deleted"):
        ledger.fetched({}, {0: 2})


def test_a_partition_has_one_owner_in_each_generation() -> None:
    ledger = GroupHistory("g")
    first = ledger.assigned_last
    ledger.assigned(1, "a", [0, 1], first)
    ledger.assigned(1, "a", [0, 1], first)
    ledger.assigned(2, "b", [0], first)
    with pytest.raises(Breach, match="of a and of b in generation 1"):
        ledger.assigned(1, "b", [1], first)


def test_generations_begin_anew_once_a_group_without_offsets_is_gone() -> None:
    ledger = GroupHistory("g")
    first = ledger.assigned_last
    ledger.fetched({}, {0: NOTHING})
    ledger.assigned(2, "a", [0], first)
    second = ledger.assigned_last
    ledger.assigned(2, "b", [0], second)
    ledger.assigned(2, "c", [1], second)
    with pytest.raises(Breach, match="of b and of c in generation 2"):
        ledger.assigned(2, "c", [0], second)
    third = ledger.assigned_last
    ledger.assigned(3, "d", [0], third)
    ledger.issue(0)
    ledger.committed(0, 1)
    with pytest.raises(Breach, match="a group with offsets stays"):
        ledger.assigned(1, "e", [0], third)


SESSION_US = 700


def owners() -> Owners:
    found = Owners("g", SESSION_US)
    found.heard("a", 0)
    found.heard("b", 20)
    found.told("a", [0, 1], Grant(0, 10), is_asked_first=True)
    return found


def test_a_partition_has_one_owner_until_it_gives_it_up() -> None:
    ledger = owners()
    with pytest.raises(Breach, match="g-1 is of a, and b is told that it is its own"):
        ledger.told("b", [1], Grant(20, 30), is_asked_first=True)
    ledger = owners()
    ledger.gives_up("a", [1])
    ledger.told("b", [1], Grant(20, 30), is_asked_first=True)
    with pytest.raises(Breach, match="one owner a partition"):
        ledger.told("a", [0, 1], Grant(40, 50), is_asked_first=True)


def test_a_member_that_was_silent_for_its_session_counts_no_longer() -> None:
    ledger = owners()
    with pytest.raises(Breach):
        ledger.told("b", [0], Grant(20, SESSION_US - 1), is_asked_first=True)
    owners().told("b", [0], Grant(20, SESSION_US), is_asked_first=True)


def test_an_answer_that_took_longer_than_a_session_proves_nothing() -> None:
    ledger = owners()
    ledger.heard("a", 500)
    ledger.told("b", [0], Grant(20, 20 + SESSION_US), is_asked_first=True)


def test_partitions_stay_with_the_instance_of_a_static_member_until_its_session_ends() -> None:
    def left() -> Owners:
        ledger = owners()
        ledger.leaves_for_a_while("a", "i")
        ledger.gives_up("a")
        return ledger

    with pytest.raises(Breach, match="g-1 is of i, and b is told that it is its own"):
        left().told("b", [1], Grant(30, 40), is_asked_first=True)
    left().told("b", [1], Grant(30, SESSION_US), is_asked_first=True)
    ledger = left()
    ledger.comes_back("i")
    ledger.told("b", [1], Grant(30, 40), is_asked_first=True)


def test_partitions_are_named_by_their_topics_ids() -> None:
    ledger = GroupHistory("g")
    with pytest.raises(Breach, match="g-07070707-3 has 1, answered or shown was -1"):
        ledger.fetched({}, {(b"\7" * 16, 3): 1})


def test_only_the_last_owner_commits() -> None:
    ledger = Owners("g", SESSION_US)
    for member, since in (("a", 0), ("b", 20)):
        ledger.heard(member, since)
        ledger.told(member, [0], Grant(since, since + 10), is_asked_first=False)
    ledger.committed("a", [0], 25, 40)  # on its way when the other got the partition
    ledger.committed("b", [0], 35, 40)
    ledger.committed("a", [1], 35, 40)
    with pytest.raises(Breach, match="g-0 is of b since 30, and a, which had it before, commits at 35"):
        ledger.committed("a", [0], 35, 40)
    ledger.committed("a", [0], 35, 20 + SESSION_US)
