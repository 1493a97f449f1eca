from __future__ import annotations

from kafkacompat.share.in_flight import USELESS_TOLERATED, LockDeadlines, Locked


def test_the_earliest_deadline_counts() -> None:
    deadlines: LockDeadlines[Locked] = LockDeadlines()
    first, second = Locked(), Locked()
    deadlines.add(30, first)
    deadlines.add(20, second)
    deadlines.add(25, first)
    deadlines.add(40, first)
    assert deadlines.next_ms() == 20
    assert deadlines.due(19) == []
    assert deadlines.due(25) == [second, first]
    assert deadlines.next_ms() is None
    assert deadlines.due(100) == []


def test_a_forgotten_one_is_never_due() -> None:
    deadlines: LockDeadlines[Locked] = LockDeadlines()
    locked = Locked()
    deadlines.add(30, locked)
    deadlines.forget(locked)
    deadlines.forget(locked)
    assert deadlines.next_ms() is None
    deadlines.add(30, locked)
    assert deadlines.due(30) == [locked]


def test_entries_of_no_use_do_not_pile_up() -> None:
    """A batch that is held for long is first in order, and those after it come and go."""
    deadlines: LockDeadlines[Locked] = LockDeadlines()
    deadlines.add(0, Locked())
    for number in range(100 * USELESS_TOLERATED):
        locked = Locked()
        deadlines.add(1_000 + number, locked)
        deadlines.forget(locked)
        assert len(deadlines) <= 2 * USELESS_TOLERATED
    assert deadlines.next_ms() == 0


def test_renewals_do_not_pile_up() -> None:
    deadlines: LockDeadlines[Locked] = LockDeadlines()
    locked = Locked()
    for number in range(10):
        deadlines.add(1_000 + number, locked)
    assert len(deadlines) == 1
