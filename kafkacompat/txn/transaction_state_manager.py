"""One shard of the transaction coordinator: all transactional ids of one partition of `__transaction_state`, and what their
operations have of the node (Environment).

It has the ids, replays records, carries a step through its write, and has markers sent for prepared transactions. A
step changes an id only when its record is committed. Until then it is pending and other requests get
CONCURRENT_TRANSACTIONS, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from sys import getsizeof
from typing import NamedTuple, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult, HasMachine, OperationRefused, Reply
from kafkacompat.dataclass import dataclass
from kafkacompat.faults import report
from kafkacompat.ids import NO_PRODUCER_ID, TopicPartition
from kafkacompat.memory import NO_CONNECTION, Memory
from kafkacompat.txn.transaction_log import (
    TransactionRecord,
    decode_in_steps,
    decode_record,
    encode_record,
    value_version_for,
)
from kafkacompat.txn.transaction_metadata import (
    COMPLETION_OF,
    EPOCH_BUMP_VERSION,
    NO_PARTITIONS,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    TxnTransitMetadata,
)
from kafkacompat.wire.errors import ErrorCode

IDS_BYTES = 256 << 20
"""The default of transactional.ids.max.bytes: a quarter of the memory that Apache Kafka's scripts give a broker."""
CONNECTION_BYTES_MAX = 4 << 20
"""What the new ids of one connection may leave in memory. A producer has one id."""
ID_BYTES = 1_000
"""The memory that an id takes besides its text."""

T = TypeVar("T")
TransactionResult = CoordinatorResult[TransactionRecord, T]


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Kafka's settings of the transaction coordinator. Times are in ms."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    has_two_phase_commit: bool = False
    """Whether clients may have transactions without a timeout (KIP-939)."""


class Markers(NamedTuple):
    """The end markers of one transaction. Once every partition has its marker, `TransactionStateManager.complete` must be
    called."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int
    marked: set[TopicPartition]
    """Whoever sends them adds the partitions that need none any more."""


def ids_memory(most: int) -> Memory:
    """`most`: transactional.ids.max.bytes."""
    return Memory(most, CONNECTION_BYTES_MAX, most)


def size_of_id(transactional_id: str) -> int:
    """The bytes of memory that an id takes. Its partitions are those of topics that exist."""
    return ID_BYTES + getsizeof(transactional_id)


class Environment:
    """The environment of one shard."""

    __slots__ = ("memory", "next_producer_id", "send_markers", "settings", "transaction_version")

    def __init__(
        self,
        settings: TransactionSettings,
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        send_markers: Callable[[Markers], None],
        memory: Memory | None = None,
    ) -> None:
        """`next_producer_id` returns None while a block of ids is being requested. `transaction_version` returns the
        finalized level. `memory`: of the ids of all shards of this node."""
        self.memory = ids_memory(IDS_BYTES) if memory is None else memory
        self.settings = settings
        self.next_producer_id = next_producer_id
        self.transaction_version = transaction_version
        self.send_markers = send_markers


class TransactionStateManager:
    __slots__ = ("_completions", "_unloaded", "env", "transactions")

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.transactions: dict[str, TransactionMetadata] = {}
        self._completions: dict[str, TxnTransitMetadata] = {}
        """The values to write when all partitions have their marker."""
        self._unloaded = False

    # --- coordinator.core.Machine

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return decode_record(key, value)

    def replay(self, record: TransactionRecord, offset: int, producer_id: int) -> None:
        if record.values is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = self.new_metadata(
                record.transactional_id, record.values
            )

    def load_large(
        self, key: bytes, value: bytes, offset: int, producer_id: int
    ) -> Generator[int, None, bool]:
        record = yield from decode_in_steps(key, value)
        if record is None:
            return False
        self.replay(record, offset, producer_id)
        return True

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, committed: bool, offset: int
    ) -> Generator[int, None, None]:
        """No transaction writes to this topic. As in Kafka a marker in it is ignored."""
        yield from ()

    def on_loaded(self, now_ms: int) -> Iterator[CoordinatorResult[TransactionRecord, None] | None]:
        """Complete every transaction that the last coordinator has prepared. A prepared outcome is final."""
        for transaction in list(self.transactions.values()):
            is_there = self.transactions.get(transaction.transactional_id) is transaction
            if is_there and transaction.values.state in PREPARED and transaction.pending_state is None:
                try:
                    self.send_markers(transaction, now_ms)
                except MemoryError:
                    raise  # all of them are loaded anew
                except Exception as error:
                    report(f"sending the markers of {transaction.transactional_id!r}", error)
                yield CoordinatorResult((), None)
            else:
                yield None

    def unload(self, now_ms: int) -> Iterator[tuple[int, Sequence[Reply]]]:
        self._unloaded = True
        return iter(())

    def take_apart(self) -> Iterator[int]:
        while self.transactions:
            self.transactions.popitem()
            yield 1

    # --- for the operations

    def find(self, transactional_id: str) -> TransactionMetadata:
        """Raises OperationRefused INVALID_PRODUCER_ID_MAPPING for an id that was never initialised or has expired."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise OperationRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def new_metadata(
        self, transactional_id: str, values: TxnTransitMetadata, connection_id: int = NO_CONNECTION
    ) -> TransactionMetadata:
        held = self.env.memory.hold(size_of_id(transactional_id), connection_id)
        return TransactionMetadata(transactional_id, values, held)

    def fresh_producer_id(self) -> int:
        """Raises OperationRefused COORDINATOR_LOAD_IN_PROGRESS while a block of ids is being requested."""
        producer_id = self.env.next_producer_id()
        if producer_id is None:
            raise OperationRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return producer_id

    def step(
        self,
        transaction: TransactionMetadata,
        values: TxnTransitMetadata,
        response: T,
        *,
        taken: Callable[[int], None] | None = None,
        dropped: Callable[[], None] | None = None,
    ) -> TransactionResult[T]:
        """Write these values, and adopt them once the record is committed. `taken` is then called with the wall clock
        in ms. If the write fails, `dropped` is called."""
        prepared = transaction.prepare_transition_to(values)

        def committed(code: ErrorCode, now_ms: int) -> None:
            if code is ErrorCode.NONE:
                transaction.complete_transition_to(prepared)
                if taken is not None and not self._unloaded:
                    taken(now_ms)
            else:
                transaction.drop_transition()
                if dropped is not None:
                    dropped()

        return CoordinatorResult(
            (self._record(transaction, prepared),), response, replay=False, committed=committed
        )

    # --- the end of a transaction

    def send_markers(self, transaction: TransactionMetadata, now_ms: int) -> None:
        """The outcome is in the log: have the markers written. The completion is pending from now on."""
        values = transaction.values
        rotated = (
            values.client_transaction_version >= EPOCH_BUMP_VERSION
            and values.next_producer_id != NO_PRODUCER_ID
        )
        following = transaction.prepare_transition_to(
            replace(
                values,
                state=COMPLETION_OF[values.state],
                producer_id=values.next_producer_id if rotated else values.producer_id,
                epoch=0 if rotated else values.epoch,
                next_producer_id=NO_PRODUCER_ID,
                partitions=NO_PARTITIONS,
                last_update_ms=now_ms,
            )
        )
        transaction.has_failed_epoch_fence = False
        marked: set[TopicPartition] = set()
        transaction.marked = marked
        self._completions[transaction.transactional_id] = following
        self.env.send_markers(
            Markers(
                transaction.transactional_id,
                values.producer_id,
                values.epoch,
                values.state is TransactionState.PREPARE_COMMIT,
                values.partitions,
                values.client_transaction_version,
                marked,
            )
        )

    def complete(self, transactional_id: str) -> TransactionResult[None]:
        """Every partition has its marker: write the completion. If that fails, the completion stays pending and must
        be requested again."""
        transaction = self.find(transactional_id)
        following = self._completions[transactional_id]

        def committed(code: ErrorCode, now_ms: int) -> None:
            if code is ErrorCode.NONE:
                self._completions.pop(transactional_id, None)
                transaction.complete_transition_to(following)
                transaction.marked = NO_PARTITIONS

        return CoordinatorResult(
            (self._record(transaction, following),), None, replay=False, committed=committed
        )

    def _record(
        self, transaction: TransactionMetadata, values: TxnTransitMetadata | None
    ) -> TransactionRecord:
        version = value_version_for(self.env.transaction_version())
        return TransactionRecord(transaction.transactional_id, values, version)

    def tombstone(self, transaction: TransactionMetadata) -> TransactionRecord:
        return self._record(transaction, None)


def machine_of(shard: HasMachine) -> TransactionStateManager:
    """The transactional ids of a shard of the transaction coordinator."""
    machine = shard.machine
    assert isinstance(machine, TransactionStateManager)
    return machine
