"""InitProducerId, and adding and verifying partitions, every cell: state, pending step, the producer's expectation."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.ids import TopicPartition
from kafkacompat.txn.operations import (
    NO_EXPECTATION,
    EndRequest,
    Initialised,
    ProducerIdAndEpoch,
    add_partitions,
    checked_timeout_ms,
    end_transaction,
    init_producer_id,
    verify_partitions,
)
from kafkacompat.txn.transaction_metadata import (
    AT_REST,
    MAX_PRODUCER_EPOCH_FOR_CLIENTS,
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionMetadata,
    TxnTransitMetadata,
)
from kafkacompat.txn.transaction_metadata import TransactionState as S
from kafkacompat.txn.transaction_state_manager import (
    Environment,
    Markers,
    TransactionSettings,
    TransactionStateManager,
)
from kafkacompat.wire.errors import ErrorCode as E

MAX_TIMEOUT_MS = 900_000
STATES = [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
NOW_MS = 1_000
FRESH_ID = 100
ADDED, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
Outcome = E | Initialised

EXPECTATIONS = {
    "nothing": NO_EXPECTATION,
    "current": ProducerIdAndEpoch(7, 5),
    "last": ProducerIdAndEpoch(7, 4),
    "older": ProducerIdAndEpoch(7, 3),
    "newer": ProducerIdAndEpoch(7, 6),
    "stranger": ProducerIdAndEpoch(8, 5),
    "before the last id": ProducerIdAndEpoch(6, 5),
    "at the end of the last id": ProducerIdAndEpoch(6, MAX_PRODUCER_EPOCH_FOR_CLIENTS),
}
STRANGERS = {"stranger", "before the last id"}
AT_REST_OUTCOMES: dict[str, Outcome] = {
    "nothing": Initialised(E.NONE, 7, 6),
    "current": Initialised(E.NONE, 7, 6),
    "last": Initialised(E.NONE, 7, 5),
} | dict.fromkeys(
    ["older", "newer", "stranger", "before the last id", "at the end of the last id"], E.PRODUCER_FENCED
)


def machine_of(values: TxnTransitMetadata, pending: S | None = None) -> TransactionStateManager:
    sent: list[Markers] = []
    fresh_ids = itertools.count(FRESH_ID)
    made = TransactionStateManager(
        Environment(TransactionSettings(MAX_TIMEOUT_MS), lambda: next(fresh_ids), lambda: 2, sent.append)
    )
    made.transactions["tx"] = TransactionMetadata("tx", values)
    made.transactions["tx"].pending_state = pending
    return made


def values_in(state: S) -> TxnTransitMetadata:
    partitions = frozenset({ADDED}) if state is S.ONGOING or state in PREPARED else frozenset()
    return TxnTransitMetadata(
        7, 5, 60_000, state, 0, partitions=partitions, prev_producer_id=6, last_producer_epoch=4, start_ms=1
    )


def initialised(
    machine: TransactionStateManager, expected: ProducerIdAndEpoch, timeout_ms: int = 30_000
) -> Outcome:
    before = machine.transactions["tx"].values if "tx" in machine.transactions else None
    try:
        result = init_producer_id(machine, "tx", timeout_ms, expected, NOW_MS)
    except OperationRefused as refusal:
        if before is not None:
            assert machine.transactions["tx"].values == before
        return refusal.code
    assert result.committed is not None
    assert len(result.records) == 1
    result.committed(E.NONE, NOW_MS)
    return result.response


@pytest.mark.parametrize(("state", "name"), list(itertools.product(STATES, EXPECTATIONS)))
def test_every_state_and_belief(state: S, name: str) -> None:
    machine = machine_of(values_in(state))
    outcome = initialised(machine, EXPECTATIONS[name])
    after = machine.transactions["tx"].values
    if state in AT_REST:
        assert outcome == AT_REST_OUTCOMES[name]
        if isinstance(outcome, Initialised):
            assert (after.state, after.timeout_ms, after.partitions) == (S.EMPTY, 30_000, frozenset())
            assert (after.producer_id, after.epoch) == outcome[1:]
    elif name in STRANGERS:
        assert outcome is E.PRODUCER_FENCED
        assert after == values_in(state)
    elif state in PREPARED:
        assert outcome is E.CONCURRENT_TRANSACTIONS
        assert after == values_in(state)
    else:
        # The open transaction is aborted with a higher epoch, and the client must retry.
        assert outcome == Initialised(E.CONCURRENT_TRANSACTIONS)
        assert (after.state, after.epoch, after.partitions) == (S.PREPARE_ABORT, 6, frozenset({ADDED}))


@pytest.mark.parametrize(("state", "pending", "name"), list(itertools.product(STATES, STATES, EXPECTATIONS)))
def test_nothing_begins_while_a_step_is_pending(state: S, pending: S, name: str) -> None:
    machine = machine_of(values_in(state), pending)
    assert initialised(machine, EXPECTATIONS[name]) is E.CONCURRENT_TRANSACTIONS
    assert machine.transactions["tx"].pending_state is pending


@pytest.mark.parametrize("state", sorted(AT_REST))
@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        (NO_EXPECTATION, Initialised(E.NONE, FRESH_ID, 0)),
        (ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS), Initialised(E.NONE, FRESH_ID, 0)),
        (
            ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS - 1),
            Initialised(E.NONE, 7, MAX_PRODUCER_EPOCH_FOR_CLIENTS),
        ),
        (ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH_FOR_CLIENTS - 2), E.PRODUCER_FENCED),
    ],
)
def test_the_last_epoch_is_followed_by_a_fresh_id(
    state: S, expected: ProducerIdAndEpoch, outcome: Outcome
) -> None:
    values = replace(
        values_in(state),
        epoch=MAX_PRODUCER_EPOCH_FOR_CLIENTS,
        last_producer_epoch=MAX_PRODUCER_EPOCH_FOR_CLIENTS - 1,
    )
    machine = machine_of(values)
    assert initialised(machine, expected) == outcome
    if outcome == Initialised(E.NONE, FRESH_ID, 0) and expected != NO_EXPECTATION:
        # The answer was lost: the same request gets the same answer, though the id is another one by now.
        assert initialised(machine, expected) == outcome


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_an_id_that_nobody_has_used_is_anybodys(name: str) -> None:
    machine = machine_of(values_in(S.EMPTY))
    machine.transactions.clear()
    assert initialised(machine, EXPECTATIONS[name]) == Initialised(E.NONE, FRESH_ID, 0)


@pytest.mark.parametrize(
    ("timeout_ms", "is_taken"),
    [(-1, False), (0, False), (1, True), (MAX_TIMEOUT_MS, True), (MAX_TIMEOUT_MS + 1, False)],
)
def test_timeouts(timeout_ms: int, is_taken: bool) -> None:
    assert timeout_or_refusal(timeout_ms) == (timeout_ms if is_taken else E.INVALID_TRANSACTION_TIMEOUT)


def timeout_or_refusal(timeout_ms: int, is_enabled: bool = False, *asked: bool) -> int | E:
    settings = TransactionSettings(MAX_TIMEOUT_MS, has_two_phase_commit=is_enabled)
    try:
        return checked_timeout_ms(timeout_ms, settings, *asked)
    except OperationRefused as refusal:
        return refusal.code


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, MAX_TIMEOUT_MS + 1])
def test_two_phase_commit_has_no_timeout_where_it_is_enabled(timeout_ms: int) -> None:
    assert timeout_or_refusal(timeout_ms, True, True) == NO_TIMEOUT_MS
    assert timeout_or_refusal(timeout_ms, False, True) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert timeout_or_refusal(timeout_ms, False, True, True) is E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Kafka 4.3 keeps no prepared transaction, whether two-phase commit is asked for or not.
    for has_two_phase_commit in (False, True):
        assert timeout_or_refusal(timeout_ms, True, has_two_phase_commit, True) is E.UNSUPPORTED_VERSION


def test_a_transaction_without_a_timeout_never_times_out() -> None:
    open_one = replace(values_in(S.ONGOING), timeout_ms=NO_TIMEOUT_MS - 1)
    after_ms = open_one.start_ms + NO_TIMEOUT_MS
    assert open_one.is_past_its_timeout(after_ms)
    assert not replace(open_one, timeout_ms=NO_TIMEOUT_MS).is_past_its_timeout(2 * after_ms)


WHO = {"its own": (7, 5), "a stranger": (8, 5), "older": (7, 4), "newer": (7, 6)}


@pytest.mark.parametrize(
    ("state", "who", "pending", "partition"),
    list(itertools.product(STATES, WHO, [None, *STATES], [ADDED, OTHER])),
)
def test_adding_a_partition(state: S, who: str, pending: S | None, partition: TopicPartition) -> None:
    machine = machine_of(values_in(state), pending)
    code, written = E.NONE, 0
    try:
        result = add_partitions(machine, "tx", *WHO[who], frozenset({partition}), 2, NOW_MS)
    except OperationRefused as refusal:
        code = refusal.code
    else:
        written = len(result.records)
    if pending is not None:
        assert code is E.CONCURRENT_TRANSACTIONS
    elif who == "a stranger":
        assert code is E.INVALID_PRODUCER_ID_MAPPING
    elif who != "its own":
        assert code is E.PRODUCER_FENCED
    elif state in PREPARED:
        assert code is E.CONCURRENT_TRANSACTIONS
    else:
        assert code is E.NONE
        # Known partitions need no record.
        assert written == (0 if state is S.ONGOING and partition == ADDED else 1)
        assert machine.transactions["tx"].pending_state is (S.ONGOING if written else None)
        return
    assert machine.transactions["tx"].values == values_in(state)
    assert machine.transactions["tx"].pending_state is pending


FOR_THE_NEXT = {"producer_id", "epoch", "timeout_ms", "last_producer_epoch"}


@pytest.mark.parametrize("state", sorted(AT_REST))
@pytest.mark.parametrize("begins", ["producer", "partitions", "empty abort"])
def test_a_new_transaction_has_nothing_of_the_last_one(state: S, begins: str) -> None:
    """Whatever the record of a transaction tells of it must not seem to be of the next one."""
    marks: dict[str, Any] = {
        each.name: 10_000 + at
        for at, each in enumerate(fields(TxnTransitMetadata))
        if each.name not in FOR_THE_NEXT | {"state"}
    }
    last = replace(values_in(state), **(marks | {"partitions": frozenset({OTHER})}))
    machine = machine_of(last)
    if begins == "producer":
        result: CoordinatorResult[Any, Any] = init_producer_id(machine, "tx", 60_000, NO_EXPECTATION, NOW_MS)
    elif begins == "partitions":
        result = add_partitions(machine, "tx", 7, 5, frozenset({ADDED}), 2, NOW_MS)
    else:
        result = end_transaction(machine, "tx", EndRequest(7, 5, False, 2), NOW_MS)
    (record,) = result.records
    kept = {
        each.name
        for each in fields(TxnTransitMetadata)
        if getattr(record.values, each.name) == getattr(last, each.name)
    }
    # The state after an abort, and the version of the client that last asked, may be the same by chance.
    assert kept - {"state"} <= FOR_THE_NEXT | (
        {"client_transaction_version"} if begins == "producer" else set()
    )


@pytest.mark.parametrize(("state", "who"), list(itertools.product(STATES, WHO)))
def test_verifying_partitions_changes_nothing(state: S, who: str) -> None:
    machine = machine_of(values_in(state))
    code = None
    found: dict[TopicPartition, E] = {}
    try:
        found = verify_partitions(machine, "tx", *WHO[who], frozenset({ADDED, OTHER}))
    except OperationRefused as refusal:
        code = refusal.code
    assert machine.transactions["tx"].values == values_in(state)
    assert machine.transactions["tx"].pending_state is None
    if who == "a stranger":
        assert code is E.INVALID_PRODUCER_ID_MAPPING
    elif who != "its own":
        assert code is E.PRODUCER_FENCED
    elif state in PREPARED:
        assert code is E.CONCURRENT_TRANSACTIONS
    else:
        is_added = E.NONE if state is S.ONGOING else E.TRANSACTION_ABORTABLE
        assert found == {ADDED: is_added, OTHER: E.TRANSACTION_ABORTABLE}
