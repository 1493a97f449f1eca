"""The transaction services that handlers call, and what the transaction coordinator has of its node, as Protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.dataclass import dataclass

if TYPE_CHECKING:
    from kafkacompat.coordinator.services import TransactionVerifier
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.tasks import Tasks, Work
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.end_txn_request import EndTxnRequest
    from kafkacompat.wire.messages.end_txn_response import EndTxnResponse
    from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
    from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse
    from kafkacompat.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
    from kafkacompat.wire.messages.write_txn_markers_response import WriteTxnMarkersResponse


class TransactionService(Protocol):
    """The transaction coordinator (coordinator/ and txn/). Takes request messages, returns response messages.

    The handlers in api/ check authorization, topic existence and version shapes first.
    """

    def init_producer_id(
        self, request: InitProducerIdRequest, connection_id: int
    ) -> Deferred[InitProducerIdResponse]:
        """Only for a request whose transactional id is not null."""
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

    def end_transaction(self, request: EndTxnRequest, client_version: int) -> Deferred[EndTxnResponse]: ...

    def describe_transactions(self, request: Any) -> Work[Any]: ...

    async def list_transactions(self, request: Any) -> Any: ...


class MarkerWriter(Protocol):
    """Writes transaction markers to the partitions that this node leads (WriteTxnMarkers)."""

    def write(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]: ...


class ProducerIds(Protocol):
    def next_producer_id(self) -> int | None:
        """Return a new producer id, or None while a block is being requested (answer COORDINATOR_LOAD_IN_PROGRESS)."""
        ...

    def when_available(self) -> Deferred[None]:
        """Resolve when an id is available, or when further waiting is pointless. Resolved at once if an id is available now."""
        ...


class OffsetsMarkers(Protocol):
    """The part of the group coordinator that is used here: it must know of a marker in its topic."""

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        """Write a marker to a partition of the offsets topic."""
        ...


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transaction services of a node, as transaction coordinator and as partition leader."""

    coordinator: TransactionService
    markers: MarkerWriter
    verifier: TransactionVerifier
    tasks: Tasks
