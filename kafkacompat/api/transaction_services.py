"""What handlers may call for transactions: the coordinator, the writer of markers, and the verifier, as Protocols.

They are the services of transactions in api.context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Timers
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.errors import ErrorCode


class TransactionService(Protocol):
    """Transaction coordinator (coordinator/ + txn/). Takes request messages, gives response messages.

    Authorisation, topic existence and version shapes are done before, in api/.
    """

    def init_producer_id(self, request: Any) -> Deferred[Any]:
        """For a transactional id that is not null."""
        ...

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> Deferred[ErrorCode]: ...

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]: ...

    def end_transaction(self, request: Any, client_version: int) -> Deferred[Any]: ...

    def describe_transactions(self, request: Any) -> Steps[Any]: ...

    def list_transactions(self, request: Any) -> Steps[Any]: ...


class MarkerWriter(Protocol):
    """WriteTxnMarkers, for the partitions that this node leads."""

    def write(self, request: Any) -> Deferred[Any]: ...


class TransactionVerifier(Protocol):
    """Asks the coordinator whether partitions belong to a transaction, or to add them (KIP-890)."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """An error a partition. `adds`: those that are missing are added (transaction.version 2)."""
        ...


@dataclass(frozen=True, slots=True)
class Transactions:
    """What a node has to do with transactions, as their coordinator and as leader of partitions."""

    coordinator: TransactionService
    markers: MarkerWriter
    verifier: TransactionVerifier
    timers: Timers
