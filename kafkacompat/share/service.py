"""What handlers and the group coordinator ask of share-partitions, with parameters and results (KIP-932).

Three parts of a node meet here and nowhere else. The share coordinator keeps the state of share-partitions in
`__share_group_state`. The persister reaches the coordinator of a share-partition, on this node or another. The leader of
a partition delivers its records to the members of share groups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import NO_OFFSET, Uuid, uuid_to_text
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
    from kafkacompat.wire.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
    from kafkacompat.wire.messages.initialize_share_group_state_request import (
        InitializeShareGroupStateRequest,
    )
    from kafkacompat.wire.messages.initialize_share_group_state_response import (
        InitializeShareGroupStateResponse,
    )
    from kafkacompat.wire.messages.read_share_group_state_request import ReadShareGroupStateRequest
    from kafkacompat.wire.messages.read_share_group_state_response import ReadShareGroupStateResponse
    from kafkacompat.wire.messages.read_share_group_state_summary_request import (
        ReadShareGroupStateSummaryRequest,
    )
    from kafkacompat.wire.messages.read_share_group_state_summary_response import (
        ReadShareGroupStateSummaryResponse,
    )
    from kafkacompat.wire.messages.write_share_group_state_request import WriteShareGroupStateRequest
    from kafkacompat.wire.messages.write_share_group_state_response import WriteShareGroupStateResponse

UNKNOWN_DELIVERY_COMPLETE_COUNT = -1


class TopicIdPartition(NamedTuple):
    topic_id: Uuid
    partition: int


class SharePartitionKey(NamedTuple):
    """A share-partition: one partition as one share group consumes it."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator, which also places the share-partition in `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)


class StateBatch(NamedTuple):
    """Records with the same state, as they are persisted. Both offsets belong to the batch."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 4 archived. Acquired records are persisted as what they were before."""
    delivery_count: int


@dataclass(frozen=True, slots=True)
class ShareError:
    """What became of one share-partition."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ReadState:
    error: ShareError = ShareError()
    state_epoch: int = 0
    start_offset: int = NO_OFFSET
    """-1 if `share.auto.offset.reset` decides."""
    batches: Sequence[StateBatch] = ()


@dataclass(frozen=True, slots=True)
class WriteState:
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch]
    """Only those that changed."""


@dataclass(frozen=True, slots=True)
class StateSummary:
    error: ShareError = ShareError()
    state_epoch: int = 0
    leader_epoch: int = -1
    start_offset: int = NO_OFFSET
    """-1 if the share-partition is not initialized."""
    delivery_complete_count: int = UNKNOWN_DELIVERY_COMPLETE_COUNT


class SharePersister(Protocol):
    """The state of share-partitions, wherever their coordinator is. It finds the coordinator, batches and retries.

    Results do not fail: an error is part of them. Follows Kafka's DefaultStatePersister.
    """

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]: ...

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[ReadState]:
        """The leader epoch of the caller fences older leaders."""
        ...

    def write(self, key: SharePartitionKey, state: WriteState) -> Deferred[ShareError]: ...

    def delete(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, ShareError]]: ...

    def read_summary(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, StateSummary]]: ...


class ShareCoordinatorService(Protocol):
    """The share coordinator of this node (share/share_coordinator.py). Takes and returns messages."""

    def is_active(self) -> bool: ...

    def partition_for(self, coordinator_key: str) -> int:
        """The partition of `__share_group_state`. Raises OperationRefused COORDINATOR_NOT_AVAILABLE while the topic does not
        exist."""
        ...

    def initialize_state(
        self, request: InitializeShareGroupStateRequest
    ) -> Deferred[InitializeShareGroupStateResponse]: ...

    def read_state(self, request: ReadShareGroupStateRequest) -> Deferred[ReadShareGroupStateResponse]: ...

    def write_state(self, request: WriteShareGroupStateRequest) -> Deferred[WriteShareGroupStateResponse]: ...

    def delete_state(
        self, request: DeleteShareGroupStateRequest
    ) -> Deferred[DeleteShareGroupStateResponse]: ...

    def read_state_summary(
        self, request: ReadShareGroupStateSummaryRequest
    ) -> Deferred[ReadShareGroupStateSummaryResponse]: ...


class SharePartitionService(Protocol):
    """What members of share groups fetch and acknowledge on this node (share/). Takes and returns messages."""

    def share_fetch(
        self, request: Any, context: RequestContext, may_read: Callable[[str], bool] | None
    ) -> Awaitable[Any]:
        """`may_read` tells which topics the sender may read. None means all."""
        ...

    def share_acknowledge(
        self, request: Any, context: RequestContext, may_read: Callable[[str], bool] | None
    ) -> Awaitable[Any]: ...

    def on_connection_closed(self, connection_id: int) -> None:
        """Release what the members that spoke through the connection had acquired, and drop their sessions."""
        ...
