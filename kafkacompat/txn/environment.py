"""What the operations of transactions work with: settings, producer ids, the cluster's version, and where markers go."""

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
    """Kafka's settings of the transaction coordinator, in ms."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000


class Markers(NamedTuple):
    """The end markers of one transaction: to be written to every partition, then `TransactionMachine.complete` is due."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class Environment:
    """One shard's."""

    __slots__ = ("next_producer_id", "send_markers", "settings", "transaction_version")

    def __init__(
        self,
        settings: TransactionSettings,
        next_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
        send_markers: Callable[[Markers], None],
    ) -> None:
        """`next_producer_id` gives None while a block of ids is on its way; `transaction_version` the finalized level."""
        self.settings = settings
        self.next_producer_id = next_producer_id
        self.transaction_version = transaction_version
        self.send_markers = send_markers
