"""The operations of the transaction coordinator on the transactional ids of one shard. Each returns what is to be
written.

- InitProducerId says which producer may continue with an id, and with which producer id and epoch (KIP-360). It
  fences a producer with an open transaction.
- The partitions of a transaction are added by clients and by partition leaders, and verified by partition leaders
  (KIP-98, KIP-890).
- EndTxn, and aborts by the coordinator itself, when a producer is fenced or a transaction times out. One table has
  the allowed ends of each state in both protocol versions, and the next step. With transaction.version 2 every end
  increments the epoch (KIP-890), so a repeated request is recognised by its epoch; before that only by the state.
- Transactions that were open too long are aborted, and ids that were unused too long are removed. The coordinator
  asks periodically.
- DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from kafkacompat.memory import NO_CONNECTION
from kafkacompat.tasks import pause
from kafkacompat.txn.transaction_log import TransactionRecord, partitions_by_topic
from kafkacompat.txn.transaction_metadata import (
    AT_REST,
    COMPLETED,
    EPOCH_BUMP_VERSION,
    MAX_EPOCH,
    MAX_PRODUCER_EPOCH_FOR_CLIENTS,
    NO_TIMEOUT_MS,
    PREPARED,
    STATE_NAMES,
    TransactionMetadata,
    TransactionState,
    TxnTransitMetadata,
    is_exhausted,
)
from kafkacompat.txn.transaction_state_manager import (
    TransactionResult,
    TransactionSettings,
    TransactionStateManager,
    size_of_id,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_transactions_response import TopicData
from kafkacompat.wire.messages.describe_transactions_response import TransactionState as Described
from kafkacompat.wire.messages.list_transactions_response import TransactionState as Listed

if TYPE_CHECKING:
    from kafkacompat.ports import Workers


# --- InitProducerId


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


NO_EXPECTATION = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


class Initialised(NamedTuple):
    """The answer. It has an error if the client must retry although records are written."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


def checked_timeout_ms(
    timeout_ms: int,
    settings: TransactionSettings,
    has_two_phase_commit: bool = False,
    keeps_prepared: bool = False,
) -> int:
    """The timeout of the producer's transactions: NO_TIMEOUT_MS with two-phase commit, whose end is decided elsewhere.

    Raises OperationRefused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without `transaction.two.phase.commit.enable`;
    UNSUPPORTED_VERSION for a prepared transaction that is to be kept, which Kafka 4.4 does not do yet (KIP-939);
    INVALID_TRANSACTION_TIMEOUT (`transaction.max.timeout.ms`).
    """
    if has_two_phase_commit and not settings.has_two_phase_commit:
        raise OperationRefused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if keeps_prepared:
        raise OperationRefused(ErrorCode.UNSUPPORTED_VERSION)
    if has_two_phase_commit:
        return NO_TIMEOUT_MS
    if not 0 < timeout_ms <= settings.max_timeout_ms:
        raise OperationRefused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return timeout_ms


def init_producer_id(
    machine: TransactionStateManager,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch,
    now_ms: int,
    connection_id: int = NO_CONNECTION,
) -> TransactionResult[Initialised]:
    """`timeout_ms` is from `checked_timeout_ms`. `expected` is the producer id and epoch that the producer believes it
    has, or NO_EXPECTATION. Raises OperationRefused."""
    transaction = machine.transactions.get(transactional_id)
    is_known = transaction is not None
    if transaction is None:
        if not machine.env.memory.has_room(size_of_id(transactional_id), connection_id):
            # Producers come back later. The memory is given back when ids expire (transactional.id.expiration.ms).
            raise OperationRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        transaction = machine.new_metadata(
            transactional_id,
            TxnTransitMetadata(
                machine.fresh_producer_id(), NO_EPOCH, timeout_ms, TransactionState.EMPTY, now_ms
            ),
            connection_id,
        )
        machine.transactions[transactional_id] = transaction
    if transaction.pending_state is not None:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    values = transaction.values
    if expected != NO_EXPECTATION and not _is_of(values, expected):
        raise OperationRefused(ErrorCode.PRODUCER_FENCED)
    if values.state in PREPARED:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if values.state is TransactionState.ONGOING:
        return fence(machine, transaction, now_ms).answering(Initialised(ErrorCode.CONCURRENT_TRANSACTIONS))
    producer, last_producer_epoch = _next_epoch(machine, values, expected)
    following = TxnTransitMetadata(
        producer.producer_id,
        producer.epoch,
        timeout_ms,
        TransactionState.EMPTY,
        now_ms,
        client_transaction_version=values.client_transaction_version,
        last_producer_epoch=last_producer_epoch,
    )
    answer = Initialised(ErrorCode.NONE, following.producer_id, following.epoch)
    step = machine.step(transaction, following, answer)
    return step if is_known else replace(step, refused=lambda: _forget(machine, transactional_id))


def _forget(machine: TransactionStateManager, transactional_id: str) -> None:
    """Remove the id, because the log has refused its first record."""
    del machine.transactions[transactional_id]


def _is_of(values: TxnTransitMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the expectation can belong to this id's last producer."""
    return (
        values.epoch == NO_EPOCH
        or expected.producer_id == values.producer_id
        or (expected.producer_id == values.prev_producer_id and is_exhausted(expected.epoch))
    )


def _next_epoch(
    machine: TransactionStateManager, values: TxnTransitMetadata, expected: ProducerIdAndEpoch
) -> tuple[ProducerIdAndEpoch, int]:
    """The producer from now on, and its `last_producer_epoch`."""
    expects = expected != NO_EXPECTATION
    if values.is_producer_epoch_exhausted and (not expects or expected.epoch == values.epoch):
        return ProducerIdAndEpoch(machine.fresh_producer_id(), 0), expected.epoch
    following = ProducerIdAndEpoch(values.producer_id, values.epoch + 1)
    if not expects:
        return following, NO_EPOCH
    if values.epoch == NO_EPOCH or expected.epoch == values.epoch:
        return following, values.epoch
    if expected.epoch == values.last_producer_epoch:  # the answer to the same request was lost
        return ProducerIdAndEpoch(values.producer_id, values.epoch), values.last_producer_epoch
    raise OperationRefused(ErrorCode.PRODUCER_FENCED)


# --- AddPartitionsToTxn


def add_partitions(
    machine: TransactionStateManager,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    client_transaction_version: int,
    now_ms: int,
) -> TransactionResult[None]:
    """Add partitions, and begin the transaction if necessary. Raises OperationRefused."""
    transaction = machine.find(transactional_id)
    values = transaction.values
    if transaction.pending_state is not None:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_may_ask_of_partitions(values, producer_id, epoch)
    is_open = values.state is TransactionState.ONGOING
    if is_open and partitions <= values.partitions:
        return CoordinatorResult((), None)
    open_values = values if is_open else values.next_transaction(now_ms)
    following = replace(
        open_values,
        partitions=open_values.partitions | partitions,
        last_update_ms=now_ms,
        client_transaction_version=client_transaction_version,
    )
    return machine.step(transaction, following, None)


def _check_may_ask_of_partitions(values: TxnTransitMetadata, producer_id: int, epoch: int) -> None:
    """Raises OperationRefused unless this is the transactional id's producer, and no transaction of it is being ended."""
    if values.producer_id != producer_id:
        raise OperationRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if values.epoch != epoch:
        raise OperationRefused(ErrorCode.PRODUCER_FENCED)
    if values.state in PREPARED:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)


def verify_partitions(
    machine: TransactionStateManager,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is part of the open transaction. Changes nothing. Raises OperationRefused for all of them."""
    values = machine.find(transactional_id).values
    _check_may_ask_of_partitions(values, producer_id, epoch)
    return {
        partition: ErrorCode.NONE if partition in values.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


# --- EndTxn


_S = TransactionState


class EndRequest(NamedTuple):
    producer_id: int
    epoch: int
    committed: bool
    version: int
    """The client's transaction.version. For the coordinator's own aborts, the cluster's."""
    from_client: bool = True


class Ended(NamedTuple):
    """The producer id and epoch for this producer's next transaction. -1 if the protocol version does not return them."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


class EndAction(Enum):
    PREPARE = "prepare"
    EMPTY_ABORT = "an abort of nothing, for the epoch"
    DONE_BEFORE = "done before"


def end_transaction(
    machine: TransactionStateManager, transactional_id: str, request: EndRequest, now_ms: int
) -> TransactionResult[Ended]:
    """Raises OperationRefused."""
    transaction = machine.find(transactional_id)
    action = decide(transaction, request)
    if action is EndAction.DONE_BEFORE:
        values = transaction.values
        if request.version < EPOCH_BUMP_VERSION:
            return CoordinatorResult((), Ended())
        return CoordinatorResult((), Ended(values.producer_id, values.epoch))
    return _prepared(machine, transaction, request, action, now_ms)


def fence(
    machine: TransactionStateManager, transaction: TransactionMetadata, now_ms: int
) -> TransactionResult[Ended]:
    """Abort an open transaction with a higher epoch, which fences its producer. Raises OperationRefused."""
    epoch = transaction.prepare_fence_producer_epoch()
    request = EndRequest(
        transaction.values.producer_id, epoch, False, machine.env.transaction_version(), from_client=False
    )
    try:
        return _prepared(machine, transaction, request, decide(transaction, request), now_ms)
    except OperationRefused:
        transaction.drop_transition()
        raise


def decide(transaction: TransactionMetadata, request: EndRequest) -> EndAction:
    """Raises OperationRefused with the error for the client."""
    values = transaction.values
    if request.version < EPOCH_BUMP_VERSION:
        return _decide_by_state(transaction, values, request)
    return _decide_by_epoch(transaction, values, request)


def _decide_by_state(
    transaction: TransactionMetadata, values: TxnTransitMetadata, request: EndRequest
) -> EndAction:
    if values.producer_id != request.producer_id:
        raise OperationRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if request.epoch < values.epoch or (request.from_client and request.epoch != values.epoch):
        raise OperationRefused(ErrorCode.PRODUCER_FENCED)
    if transaction.pending_state is not None and not transaction.is_fencing:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    state = values.state
    if state is _S.ONGOING:
        return EndAction.PREPARE
    if state in PREPARED and _is_same_outcome(state, request.committed):
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state in COMPLETED and _is_same_outcome(state, request.committed):
        return EndAction.DONE_BEFORE
    raise OperationRefused(ErrorCode.INVALID_TXN_STATE)


def _decide_by_epoch(
    transaction: TransactionMetadata, values: TxnTransitMetadata, request: EndRequest
) -> EndAction:
    state = values.state
    if transaction.pending_state is not None and not transaction.is_fencing:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    after_overflow = (
        not transaction.is_fencing
        and values.prev_producer_id == request.producer_id
        and request.epoch == MAX_PRODUCER_EPOCH_FOR_CLIENTS
        and values.epoch == 0
    )
    after_bump = not transaction.is_fencing and values.epoch == request.epoch + 1
    is_retry = after_bump or after_overflow
    if values.producer_id != request.producer_id and not after_overflow:
        raise OperationRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not request.from_client:
        valid = request.epoch >= values.epoch
    elif state in PREPARED:
        valid = after_bump
    elif state in COMPLETED:
        valid = is_retry or request.epoch == values.epoch
    else:
        valid = request.epoch == values.epoch
    if not valid:
        raise OperationRefused(ErrorCode.PRODUCER_FENCED)
    if state is _S.ONGOING:
        return EndAction.PREPARE
    if state in PREPARED and _is_same_outcome(state, request.committed):
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state in COMPLETED and is_retry:
        if _is_same_outcome(state, request.committed):
            return EndAction.DONE_BEFORE
    elif state in AT_REST and not request.committed:
        return EndAction.EMPTY_ABORT
    raise OperationRefused(ErrorCode.INVALID_TXN_STATE)


def _is_same_outcome(state: TransactionState, committed: bool) -> bool:
    return (state in (_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT)) is committed


def _prepared(
    machine: TransactionStateManager,
    transaction: TransactionMetadata,
    request: EndRequest,
    action: EndAction,
    now_ms: int,
) -> TransactionResult[Ended]:
    bumps = request.version >= EPOCH_BUMP_VERSION
    fencing = transaction.is_fencing
    values = transaction.values
    if action is EndAction.EMPTY_ABORT:
        values = values.next_transaction(now_ms)
    if bumps:
        next_producer_id = NO_PRODUCER_ID
        if values.is_producer_epoch_exhausted:
            next_producer_id = machine.fresh_producer_id()
        following = replace(
            values,
            epoch=min(values.epoch + 1, MAX_EPOCH),
            last_producer_epoch=values.epoch,
            next_producer_id=next_producer_id,
        )
    elif fencing:
        following = replace(values, epoch=request.epoch, last_producer_epoch=NO_EPOCH)
    else:
        following = values
    following = replace(
        following,
        state=_S.PREPARE_COMMIT if request.committed else _S.PREPARE_ABORT,
        client_transaction_version=request.version,
        last_update_ms=now_ms,
    )
    if fencing:
        transaction.drop_transition()
    if not bumps:
        answer = Ended()
    elif following.next_producer_id != NO_PRODUCER_ID:
        answer = Ended(following.next_producer_id, 0)
    else:
        answer = Ended(following.producer_id, following.epoch)
    return machine.step(
        transaction,
        following,
        answer,
        taken=lambda at_ms: machine.send_markers(transaction, at_ms),
        # With transaction.version 2 the epoch is not incremented before the write.
        dropped=_fence_failed(transaction, request) if fencing and not bumps else None,
    )


def _fence_failed(transaction: TransactionMetadata, request: EndRequest) -> Callable[[], None]:
    def dropped() -> None:
        """The higher epoch was never sent to a client, so the next attempt uses it again."""
        transaction.has_failed_epoch_fence = True
        transaction.values = replace(transaction.values, epoch=request.epoch, last_producer_epoch=NO_EPOCH)

    return dropped


# --- timeouts and expiry


TOMBSTONES_BYTES_MAX = 16_384
"""Bytes of keys in one batch, as in Kafka. A batch has at least one tombstone."""
TOMBSTONE_OVERHEAD_BYTES = 32


def has_timed_out(machine: TransactionStateManager, transaction: TransactionMetadata, now_ms: int) -> bool:
    """Whether the transaction was open longer than its timeout and is not being ended."""
    return (
        transaction.pending_state is None
        and transaction.values.is_past_its_timeout(now_ms)
        and machine.transactions.get(transaction.transactional_id) is transaction
    )


def abort_timed_out(
    machine: TransactionStateManager, transactional_id: str, now_ms: int
) -> TransactionResult[Ended]:
    """Raises OperationRefused. The next round then tries again."""
    transaction = machine.find(transactional_id)
    if transaction.pending_state is not None:
        raise OperationRefused(ErrorCode.CONCURRENT_TRANSACTIONS)
    return fence(machine, transaction, now_ms)


def expired_id_records(
    machine: TransactionStateManager, stretch: Iterable[TransactionMetadata], now_ms: int
) -> list[TransactionResult[None]]:
    """Tombstones, in batches, for ids at rest that were not used for transactional.id.expiration.ms."""
    latest_ms = now_ms - machine.env.settings.expiration_ms
    results = []
    group: list[TransactionMetadata] = []
    size = 0
    for transaction in stretch:
        values = transaction.values
        if machine.transactions.get(transaction.transactional_id) is not transaction:
            continue
        if (
            transaction.pending_state is None
            and values.state in AT_REST
            and values.last_update_ms <= latest_ms
        ):
            own = (
                len(transaction.transactional_id.encode("utf-8", "surrogatepass")) + TOMBSTONE_OVERHEAD_BYTES
            )
            if group and size + own > TOMBSTONES_BYTES_MAX:
                results.append(_tombstones_of(machine, group))
                group, size = [], 0
            group.append(transaction)
            size += own
    if group:
        results.append(_tombstones_of(machine, group))
    return results


def _tombstones_of(
    machine: TransactionStateManager, group: list[TransactionMetadata]
) -> TransactionResult[None]:
    records: list[TransactionRecord] = []
    for transaction in group:
        transaction.pending_state = TransactionState.DEAD
        records.append(machine.tombstone(transaction))

    def committed(code: ErrorCode, now_ms: int) -> None:
        for transaction in group:
            if code is ErrorCode.NONE:
                machine.transactions.pop(transaction.transactional_id, None)
            else:
                transaction.drop_transition()

    return CoordinatorResult(tuple(records), None, replay=False, committed=committed)


# --- DescribeTransactions and ListTransactions


LOOKED_AT_A_STEP = 1_000
"""Transactional ids handled in one step, at one or two microseconds each."""
LOOKED_AT_US = 2
MATCHED_AT_ONCE_CHARACTERS = 16_000
"""Characters of the ids that one job of a thread matches."""


def describe_transaction(machine: TransactionStateManager, transactional_id: str) -> Described:
    transaction = machine.transactions.get(transactional_id)
    if transaction is None or transaction.values.state is TransactionState.DEAD:
        return Described(transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    values = transaction.values
    # As in Kafka, those that still need a marker. So one sees where the end of a transaction hangs.
    topics = partitions_by_topic(values.partitions - transaction.marked)
    return Described(
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[values.state],
        transaction_timeout_ms=values.timeout_ms,
        transaction_start_time_ms=values.start_ms,
        producer_id=values.producer_id,
        producer_epoch=values.epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in topics.items()],
    )


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The filters of a request. None, or an empty set of producer ids, accepts all."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] = frozenset()
    open_longer_than_ms: int = -1
    """A negative value accepts all."""
    matches_id: Callable[[str], bool] | None = None


async def list_transactions(
    machine: TransactionStateManager, wanted: ListFilter, now_ms: int, workers: Workers
) -> list[Listed]:
    """A worker matches a few ids at a time, because a pattern may take half a second for an id of 32,000 characters."""
    listed: list[Listed] = []
    every = list(machine.transactions.values())
    for start in range(0, len(every), LOOKED_AT_A_STEP):
        some = [
            Listed(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.values.producer_id,
                transaction_state=STATE_NAMES[transaction.values.state],
            )
            for transaction in every[start : start + LOOKED_AT_A_STEP]
            if _is_wanted(transaction.values, wanted, now_ms)
        ]
        if wanted.matches_id is not None:
            some = await _matching(some, wanted.matches_id, workers)
        listed += some
        await pause(min(LOOKED_AT_A_STEP, len(every) - start) * LOOKED_AT_US)
    return listed


def _is_wanted(values: TxnTransitMetadata, wanted: ListFilter, now_ms: int) -> bool:
    return (
        values.state is not TransactionState.DEAD
        and (not wanted.producer_ids or values.producer_id in wanted.producer_ids)
        and (wanted.states is None or values.state in wanted.states)
        and (wanted.open_longer_than_ms < 0 or now_ms - values.start_ms > wanted.open_longer_than_ms)
    )


async def _matching(listed: list[Listed], matches: Callable[[str], bool], workers: Workers) -> list[Listed]:
    found: list[Listed] = []
    left = listed
    while left:
        characters = count = 0
        while count < len(left) and (not count or characters < MATCHED_AT_ONCE_CHARACTERS):
            characters += len(left[count].transactional_id)
            count += 1
        ids = [each.transactional_id for each in left[:count]]
        answers = await workers.submit(partial(_matches_of, matches, ids))
        found += [each for each, is_matching in zip(left, answers, strict=False) if is_matching]
        left = left[count:]
    return found


def _matches_of(matches: Callable[[str], bool], ids: list[str]) -> list[bool]:
    return [matches(each) for each in ids]
