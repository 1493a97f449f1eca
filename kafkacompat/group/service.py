"""What handlers ask of groups. Requests and responses are messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
    from kafkacompat.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
    from kafkacompat.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
    from kafkacompat.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
    from kafkacompat.wire.messages.describe_share_group_offsets_request import (
        DescribeShareGroupOffsetsRequest,
    )
    from kafkacompat.wire.messages.describe_share_group_offsets_response import (
        DescribeShareGroupOffsetsResponse,
    )
    from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
    from kafkacompat.wire.messages.share_group_describe_response import ShareGroupDescribeResponse
    from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from kafkacompat.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse


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
