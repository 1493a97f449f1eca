"""The environment of transaction operations: settings, producer ids, the cluster's version, and a function that sends
markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from sys import getsizeof
from typing import NamedTuple, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.ids import TopicPartition
from kafkacompat.memory import Memory
from kafkacompat.txn.records import TransactionRecord

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
