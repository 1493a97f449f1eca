"""The environment of transaction operations: settings, producer ids, the cluster's version, and a function that sends
markers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.ids import TopicPartition
from kafkacompat.txn.records import TransactionRecord

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
    """The end markers of one transaction. Once every partition has its marker, `TransactionMachine.complete` must be
    called."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class Environment:
    """The environment of one shard."""

    __slots__ = ("next_producer_id", "send_markers", "settings", "transaction_version")

    def __init__(
        self,
        settings: TransactionSettings,
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        send_markers: Callable[[Markers], None],
    ) -> None:
        """`next_producer_id` returns None while a block of ids is being requested. `transaction_version` returns the
        finalized level."""
        self.settings = settings
        self.next_producer_id = next_producer_id
        self.transaction_version = transaction_version
        self.send_markers = send_markers
