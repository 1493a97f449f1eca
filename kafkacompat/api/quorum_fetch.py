"""Fetch (key 1) on controller listeners: the metadata log, for its followers. KIP-595, KIP-853."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.fetch import error_response
from kafkacompat.api.handler import Handler

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.deferred import Deferred
    from kafkacompat.wire.messages.fetch_request import FetchRequest
    from kafkacompat.wire.messages.fetch_response import FetchResponse


def handle(node: ControllerNode, context: RequestContext, request: FetchRequest) -> Deferred[FetchResponse]:
    return node.quorum.handle(request, context.api_version, context.listener_name)


HANDLER = Handler(handle, error_response, waits_at_will=True)
