"""The table of legal role changes, exhaustively: every pair of roles with every change of epoch."""

from __future__ import annotations

import itertools

import pytest

from kafkacompat.raft.roles import BOOT_ROLES, LEGAL_MOVES, EpochMove, QuorumViolation, Role, check_move

PAIRS = list(itertools.product(Role, Role))
ALLOWED_STEPS = {
    EpochMove.SAME: {0},
    EpochMove.NEXT: {1},
    EpochMove.HIGHER: {1, 5},
    EpochMove.NOT_LOWER: {0, 1, 5},
}


@pytest.mark.parametrize("step", [-1, 0, 1, 5])
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda role: role.value)
def test_exactly_the_moves_of_the_table_are_allowed(before: Role, after: Role, step: int) -> None:
    rule = LEGAL_MOVES.get((before, after))
    if rule is not None and step in ALLOWED_STEPS[rule]:
        check_move(before, 7, after, 7 + step)
    else:
        with pytest.raises(QuorumViolation):
            check_move(before, 7, after, 7 + step)


def test_no_move_lowers_the_epoch_and_leadership_begins_only_from_candidacy() -> None:
    assert {before for before, after in LEGAL_MOVES if after is Role.LEADER} == {Role.CANDIDATE}
    assert {before for before, after in LEGAL_MOVES if after is Role.CANDIDATE} == {Role.PROSPECTIVE}
    assert {before for before, after in LEGAL_MOVES if after is Role.RESIGNED} == {Role.LEADER}


def test_a_resigned_leader_never_leads_its_epoch_again() -> None:
    """KIP-595: from RESIGNED every change goes to a higher epoch, or to a nominee that can only win a higher one."""
    moves = {after: rule for (before, after), rule in LEGAL_MOVES.items() if before is Role.RESIGNED}
    assert moves.pop(Role.PROSPECTIVE) is EpochMove.SAME
    assert set(moves.values()) == {EpochMove.HIGHER}
    assert LEGAL_MOVES[Role.PROSPECTIVE, Role.CANDIDATE] is EpochMove.NEXT


def test_nobody_starts_as_leader_or_prospective() -> None:
    assert Role.LEADER not in BOOT_ROLES
    assert Role.PROSPECTIVE not in BOOT_ROLES
