"""Every pair of known producer state and next write, by the producer or its coordinator: refused, duplicate, or
accepted."""

from __future__ import annotations

import itertools

import pytest

from kafkacompat.log.producer_state import MAX_SEQUENCE, Producer, ProducerStateManager
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode as E

NOW_MS = 1_700_000_000_000
PRODUCER, EPOCH, COORDINATOR_EPOCH, END = 1, 5, 3, 10
NONE = -1
Result = E | str | tuple[int, int, int]
"""The refusal, "repeated", or the producer's (epoch, last sequence, first offset of its open transaction)."""


def unknown() -> ProducerStateManager:
    state = ProducerStateManager()
    state.end_offset = END
    return state


def idle() -> ProducerStateManager:
    """Sequences 0 to 9 are written, the last one in a separate batch."""
    state = ProducerStateManager()
    state.apply_data(PRODUCER, EPOCH, 0, 0, 8, NOW_MS, is_transactional=False)
    state.apply_data(PRODUCER, EPOCH, 9, 9, 9, NOW_MS, is_transactional=False)
    return state


def open_() -> ProducerStateManager:
    """The same, in a transaction that began at offset 2, after a marker of a coordinator."""
    state = ProducerStateManager()
    state.apply_data(PRODUCER, EPOCH - 1, 0, 0, 0, NOW_MS, is_transactional=True)
    state.apply_marker(PRODUCER, EPOCH, COORDINATOR_EPOCH, 1, NOW_MS, committed=True)
    state.apply_data(PRODUCER, EPOCH, 0, 2, 8, NOW_MS, is_transactional=True)
    state.apply_data(PRODUCER, EPOCH, 7, 9, 9, NOW_MS, is_transactional=True)
    return state


def ended() -> ProducerStateManager:
    """Only a marker is known, as in an epoch that begins with one."""
    state = ProducerStateManager()
    state.apply_marker(PRODUCER, EPOCH, COORDINATOR_EPOCH, END - 1, NOW_MS, committed=False)
    return state


STATES = {"unknown": unknown, "idle": idle, "open": open_, "ended": ended}
LAST = {"unknown": NONE, "idle": 9, "open": 7, "ended": NONE}
EPOCHS = {"older": EPOCH - 1, "same": EPOCH, "newer": EPOCH + 1}
SEQUENCES = ("zero", "last", "next", "gap")


def seen(state: ProducerStateManager) -> tuple[int, int, int]:
    (entry,) = state.active()
    return entry.producer_epoch, entry.last_sequence, entry.current_transaction_first_offset


def sequence_of(name: str, last: int) -> int:
    return {"zero": 0, "last": max(last, 0), "next": last + 1, "gap": last + 2}[name]


def write(state: ProducerStateManager, epoch: int, sequence: int, transactional: bool) -> Result:
    before = repr(vars_of(state))
    try:
        original = state.check(PRODUCER, epoch, sequence, 0, is_transactional=transactional)
    except LogRefused as refused:
        assert repr(vars_of(state)) == before, "judging changes nothing"
        return refused.code
    assert repr(vars_of(state)) == before
    if original is not None:
        assert (original.first_offset, original.last_offset) == (END - 1, END - 1)
        return "repeated"
    state.apply_data(PRODUCER, epoch, sequence, END, END, NOW_MS, transactional)
    assert state.end_offset == END + 1
    return seen(state)


def vars_of(state: ProducerStateManager) -> list[object]:
    return [
        state.end_offset,
        state.first_unstable_offset,
        [[getattr(each, name) for name in Producer.__slots__] for each in state.producers.values()],
    ]


# (state, epoch) -> result of each of SEQUENCES, outside a transaction and within one.
OLD, GAP, OUTSIDE = E.INVALID_PRODUCER_EPOCH, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.INVALID_TXN_STATE
DATA: dict[tuple[str, str], tuple[list[Result], list[Result]]] = {
    ("idle", "older"): ([OLD] * 4, [OLD] * 4),
    ("idle", "same"): (
        [GAP, "repeated", (EPOCH, 10, NONE), GAP],
        [GAP, "repeated", (EPOCH, 10, END), GAP],
    ),
    ("idle", "newer"): (
        [(EPOCH + 1, 0, NONE), GAP, GAP, GAP],
        [(EPOCH + 1, 0, END), GAP, GAP, GAP],
    ),
    ("open", "older"): ([OLD] * 4, [OLD] * 4),
    ("open", "same"): (
        [GAP, "repeated", OUTSIDE, GAP],
        [GAP, "repeated", (EPOCH, 8, 2), GAP],
    ),
    ("open", "newer"): (
        [OUTSIDE, GAP, GAP, GAP],
        [(EPOCH + 1, 0, 2), GAP, GAP, GAP],
    ),
    ("ended", "older"): ([OLD] * 4, [OLD] * 4),
    # Nothing was written in this epoch: zero is the last, the next and the first sequence at once.
    ("ended", "same"): (
        [(EPOCH, 0, NONE), (EPOCH, 0, NONE), (EPOCH, 0, NONE), GAP],
        [(EPOCH, 0, END), (EPOCH, 0, END), (EPOCH, 0, END), GAP],
    ),
    ("ended", "newer"): (
        [(EPOCH + 1, 0, NONE), (EPOCH + 1, 0, NONE), (EPOCH + 1, 0, NONE), GAP],
        [(EPOCH + 1, 0, END), (EPOCH + 1, 0, END), (EPOCH + 1, 0, END), GAP],
    ),
}


@pytest.mark.parametrize(
    ("known", "epoch", "sequence", "transactional"),
    list(itertools.product(STATES, EPOCHS, SEQUENCES, [False, True])),
)
def test_data(known: str, epoch: str, sequence: str, transactional: bool) -> None:
    number = sequence_of(sequence, LAST[known])
    result = write(STATES[known](), EPOCHS[epoch], number, transactional)
    if known == "unknown":
        # The records of the producer may be gone, so any sequence is accepted as its first.
        assert result == (EPOCHS[epoch], number, END if transactional else NONE)
    else:
        assert result == DATA[known, epoch][transactional][SEQUENCES.index(sequence)]


COORDINATORS = {"older": COORDINATOR_EPOCH - 1, "same": COORDINATOR_EPOCH, "newer": COORDINATOR_EPOCH + 1}


def marker_outcome(known: str, epoch: str, coordinator: str, version: int) -> E | None:
    if known == "unknown":
        return None
    if epoch == "older":
        return E.INVALID_PRODUCER_EPOCH
    if known == "open" and epoch == "same" and version == 2:
        return E.INVALID_PRODUCER_EPOCH  # the marker's epoch must be above the one it ends
    if known != "idle" and coordinator == "older":
        return E.TRANSACTION_COORDINATOR_FENCED
    return None


def test_an_epoch_that_none_has_is_refused_of_an_unknown_producer_as_well() -> None:
    with pytest.raises(LogRefused) as refused:
        unknown().check(PRODUCER, -2, NONE, 0, is_transactional=True, is_control=True)
    assert refused.value.code == E.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("known", "epoch", "coordinator", "version", "committed"),
    list(itertools.product(STATES, EPOCHS, COORDINATORS, [0, 1, 2], [False, True])),
)
def test_markers(known: str, epoch: str, coordinator: str, version: int, committed: bool) -> None:
    state = STATES[known]()
    before = repr(vars_of(state))
    code = None
    try:
        state.check(
            PRODUCER,
            EPOCHS[epoch],
            NONE,
            0,
            is_transactional=True,
            is_control=True,
            coordinator_epoch=COORDINATORS[coordinator],
            transaction_version=version,
        )
    except LogRefused as refused:
        code = refused.code
    assert repr(vars_of(state)) == before
    assert code == marker_outcome(known, epoch, coordinator, version)
    if code is not None:
        return
    completed = state.apply_marker(
        PRODUCER, EPOCHS[epoch], COORDINATORS[coordinator], END, NOW_MS, committed=committed
    )
    if known == "open":
        assert completed == (PRODUCER, 2, END, committed)
        assert state.stable_offset_after(completed) == END + 1
    else:
        assert completed is None
    # A new epoch has no sequence yet. The old epoch continues its sequence.
    last = LAST[known] if epoch == "same" else NONE
    assert seen(state) == (EPOCHS[epoch], last, NONE)
    assert state.producers[PRODUCER].coordinator_epoch == COORDINATORS[coordinator]
    assert state.end_offset == END + 1


@pytest.mark.parametrize(
    ("first", "count"), list(itertools.product([MAX_SEQUENCE - 1, MAX_SEQUENCE, 0], [1, 2, 3]))
)
def test_the_next_sequence_at_the_end_of_all(first: int, count: int) -> None:
    """Whatever the last sequence of the first batch is, exactly one number is next: one more, or zero after the
    maximum."""
    state = ProducerStateManager()
    state.apply_data(PRODUCER, EPOCH, first, 0, count - 1, NOW_MS, is_transactional=False)
    last = (first + count - 1) % (MAX_SEQUENCE + 1)
    for offered in {first, last, (last + 1) % (MAX_SEQUENCE + 1), (last + 2) % (MAX_SEQUENCE + 1), 0}:
        is_next, is_repeated = offered == (last + 1) % (MAX_SEQUENCE + 1), offered == first and count == 1
        if is_next or is_repeated:
            original = state.check(PRODUCER, EPOCH, offered, 0, is_transactional=False)
            assert (original is not None) == is_repeated
        else:
            with pytest.raises(LogRefused) as caught:
                state.check(PRODUCER, EPOCH, offered, 0, is_transactional=False)
            assert caught.value.code is E.OUT_OF_ORDER_SEQUENCE_NUMBER
