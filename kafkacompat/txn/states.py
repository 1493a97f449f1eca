"""The states of a transactional id and the allowed transitions.

Numbers and names are those of Kafka's TransactionState. PREPARE_EPOCH_FENCE is only ever pending, DEAD is the state
between an id's expiry and its tombstone, and neither is ever written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState

STATE_NAMES: Mapping[TransactionState, str] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}
STATES_BY_NAME: Mapping[str, TransactionState] = {name: state for state, name in STATE_NAMES.items()}

AT_REST = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open or being ended."""
PREPARED = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
COMPLETED = frozenset({_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: AT_REST,
    _S.ONGOING: AT_REST | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: AT_REST | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: AT_REST,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""State -> the states it may follow. An abort without a transaction is from KIP-890 and only increments the epoch."""

COMPLETION_OF: Mapping[TransactionState, TransactionState] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}
