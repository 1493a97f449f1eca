"""FetchSnapshot (key 59, versions 0-1): a piece of a snapshot of the metadata log. KIP-630, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.fetch_snapshot_response import FetchSnapshotResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode, RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.fetch_snapshot_request import FetchSnapshotRequest


def handle(
    node: ControllerNode, context: RequestContext, request: FetchSnapshotRequest
) -> Deferred[FetchSnapshotResponse]:
    return node.quorum.handle(request, context.api_version)


HANDLER = Handler(59, 0, 1, handle, top_level_error(FetchSnapshotResponse))
