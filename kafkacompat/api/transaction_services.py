"""The transaction services that handlers call, as Protocols: the coordinator, the writer of markers, and the verifier.

They are part of the services in api.context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kafkacompat.deferred import Deferred
    from kafkacompat.ids import TopicPartition
    from kafkacompat.ports import Timers
    from kafkacompat.tasks import Work
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


class TransactionVerifier(Protocol):
    """Asks the coordinator to verify that partitions belong to a transaction, or to add them (KIP-890)."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        adds: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Return an error code for each partition. With `adds`, missing partitions are added (transaction.version 2)."""
        ...


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transaction services of a node, as transaction coordinator and as partition leader."""

    coordinator: TransactionService
    markers: MarkerWriter
    verifier: TransactionVerifier
    timers: Timers
