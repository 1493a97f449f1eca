"""What handlers ask of groups. Requests and responses are messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafkacompat.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkacompat.wire.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct

    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.group.offset_metadata_manager import CommitRecords
    from kafkacompat.group.streams import heartbeat as streams_heartbeat
    from kafkacompat.wire.errors import ErrorCode
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from kafkacompat.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
    from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
    from kafkacompat.wire.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
    from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
    from kafkacompat.wire.messages.delete_groups_response import DeleteGroupsResponse
    from kafkacompat.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from kafkacompat.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
    from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
    from kafkacompat.wire.messages.describe_groups_response import DescribeGroupsResponse
    from kafkacompat.wire.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
    )
    from kafkacompat.wire.messages.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponse,
    )
    from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
    from kafkacompat.wire.messages.heartbeat_response import HeartbeatResponse
    from kafkacompat.wire.messages.join_group_request import JoinGroupRequest
    from kafkacompat.wire.messages.join_group_response import JoinGroupResponse
    from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest
    from kafkacompat.wire.messages.leave_group_response import LeaveGroupResponse
    from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
    from kafkacompat.wire.messages.list_groups_response import ListGroupsResponse
    from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
    from kafkacompat.wire.messages.offset_delete_request import OffsetDeleteRequest
    from kafkacompat.wire.messages.offset_delete_response import OffsetDeleteResponse
    from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest
    from kafkacompat.wire.messages.offset_fetch_response import OffsetFetchResponse
    from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
    from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
    from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest
    from kafkacompat.wire.messages.streams_group_describe_response import StreamsGroupDescribeResponse
    from kafkacompat.wire.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
    from kafkacompat.wire.messages.streams_group_topology_description_update_response import (
        StreamsGroupTopologyDescriptionUpdateResponse,
    )
    from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest
    from kafkacompat.wire.messages.sync_group_response import SyncGroupResponse
    from kafkacompat.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest


class ShareGroupService(Protocol):
    """The share groups of the group coordinator of this node. Takes and returns messages.

    The handlers in api/ check authorization and the share.version first.
    """

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[ShareGroupHeartbeatResponse]: ...

    def describe(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> Deferred[ShareGroupDescribeResponse]: ...


class ShareGroupOffsetService(Protocol):
    """The start offsets of share groups, for administrators. Takes and returns messages.

    The handlers in api/ check authorization, topic existence and the share.version first.
    """

    def describe(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[DescribeShareGroupOffsetsResponse]: ...

    def alter(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[AlterShareGroupOffsetsResponse]: ...

    def delete(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> Deferred[DeleteShareGroupOffsetsResponse]: ...


StreamsBeat: TypeAlias = "streams_heartbeat.StreamsBeat"
"""The answer to a member of a streams group, with the internal topics to create."""


class StreamsGroupService(Protocol):
    """The streams groups of the group coordinator of this node. Takes and returns messages.

    The handlers in api/ check authorization and the streams.version first.
    """

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: RequestContext
    ) -> Deferred[StreamsBeat]: ...

    def describe(
        self, request: StreamsGroupDescribeRequest, context: RequestContext
    ) -> Deferred[StreamsGroupDescribeResponse]: ...

    def update_topology_description(self) -> StreamsGroupTopologyDescriptionUpdateResponse: ...


class GroupService(Protocol):
    """The group coordinator (coordinator/ and group/). Takes request messages, returns response messages.

    Calls that must wait return a Deferred. The handlers in api/ check authorization, topic existence and version
    shapes first.
    """

    def is_active(self) -> bool: ...

    @property
    def share(self) -> ShareGroupService: ...

    @property
    def streams(self) -> StreamsGroupService: ...

    @property
    def share_offsets(self) -> ShareGroupOffsetService: ...

    def join_group(
        self,
        request: JoinGroupRequest,
        context: RequestContext,
        may_describe: Callable[[list[str]], set[str]] | None,
    ) -> Deferred[JoinGroupResponse]:
        """`may_describe`: see consumer_group_heartbeat. The group may have members of both protocols."""
        ...

    def sync_group(
        self, request: SyncGroupRequest, context: RequestContext
    ) -> Deferred[SyncGroupResponse]: ...

    def heartbeat(
        self, request: HeartbeatRequest, context: RequestContext
    ) -> Deferred[HeartbeatResponse]: ...

    def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext
    ) -> Deferred[LeaveGroupResponse]: ...

    commit_metadata_max: int
    """The most UTF-16 units of metadata that a commit may have for a partition (offset.metadata.max.bytes)."""
    commit_shapes: dict[bytes, CommitShape | int]
    """Of api/plain_commits: by the beginning of the request. A number says how many commits are decoded before the next one is
    learned."""

    def offset_commit(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> Deferred[OffsetCommitResponse]: ...

    def plain_commit(self, commit: PlainCommit) -> Deferred[ErrorCode]:
        """`offset_commit` of a shape whose topics exist. The error, or NONE, is that of all its partitions."""
        ...

    def offset_fetch(
        self, request: OffsetFetchRequest, context: RequestContext
    ) -> Deferred[OffsetFetchResponse]:
        """The request and the response use the batched shape (Groups), whatever the client's version is."""
        ...

    def offset_delete(
        self, request: OffsetDeleteRequest, context: RequestContext
    ) -> Deferred[OffsetDeleteResponse]: ...

    def describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> Deferred[DescribeGroupsResponse]: ...

    def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        may_describe: Callable[[list[str]], set[str]] | None,
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """`may_describe` tells which topics of a regular expression the member may see. None means all."""
        ...

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> Deferred[ConsumerGroupDescribeResponse]: ...

    def list_groups(
        self, request: ListGroupsRequest, context: RequestContext
    ) -> Deferred[ListGroupsResponse]: ...

    def delete_groups(
        self, request: DeleteGroupsRequest, context: RequestContext
    ) -> Deferred[DeleteGroupsResponse]: ...

    def partition_for(self, group_id: str) -> int: ...

    def transactional_offset_commit(
        self, request: TxnOffsetCommitRequest, context: RequestContext
    ) -> Deferred[TxnOffsetCommitResponse]:
        """TxnOffsetCommit: the offsets become visible when the transaction is committed."""
        ...

    def end_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Deferred[ErrorCode]:
        """Write a marker to a partition of the offsets topic. It makes the transaction's offsets visible or drops them."""
        ...


# --- refusals


class CommitShape:
    """What is the same in all commits of a member with the same partitions."""

    __slots__ = (
        "between",
        "is_of_use",
        "layout",
        "records",
        "reply",
        "request",
        "size",
        "topics",
        "version",
    )

    def __init__(
        self,
        request: OffsetCommitRequest,
        version: int,
        layout: Struct,
        between: tuple[bytes, ...],
        reply: bytes,
    ) -> None:
        self.request = request
        """With a name and an id of each topic. The numbers of its partitions mean nothing."""
        self.version = version
        self.layout = layout
        """Of the request: bytes, then an offset and a leader epoch for each partition, each pair followed by bytes."""
        self.size = layout.size
        self.between = between
        """These bytes."""
        self.reply = reply
        """The encoded response without errors."""
        self.is_of_use = False
        self.topics: object = None
        """`topic_changes.state` of the latest image that had all partitions. Not the image: members that have gone would keep
        thousands of them."""
        self.records: CommitRecords | None = None
        """Of such a commit. The group coordinator puts them here, and they are dropped when the topics change."""


class PlainCommit:
    """A commit of a known shape."""

    __slots__ = ("answer", "leader_epochs", "offsets", "shape")

    def __init__(self, shape: CommitShape, offsets: tuple[int, ...], leader_epochs: tuple[int, ...]) -> None:
        self.shape = shape
        self.offsets = offsets
        self.leader_epochs = leader_epochs
        self.answer: Deferred[ErrorCode] | Exception | None = None
        """What came of it, if it was tried."""


def commit_refusal(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """A response with the error for every requested partition, because it has no error field above them."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def transactional_commit_refusal(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Like `commit_refusal`."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
