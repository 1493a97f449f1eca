"""PushTelemetry (key 72): a client's own metrics (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.telemetry import attributes_of, manager_of
from kafkacompat.wire.messages.push_telemetry_response import PushTelemetryResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.push_telemetry_request import PushTelemetryRequest


async def handle(node: Node, context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    error = await manager_of(node).push(
        bytes(request.client_instance_id),
        attributes_of(context),
        context.connection_id,
        node.clock.monotonic_ms(),
        subscription_id=request.subscription_id,
        is_terminating=request.terminating,
        codec=request.compression_type,
        metrics=bytes(request.metrics),
    )
    return PushTelemetryResponse(error_code=error)


HANDLER = Handler(handle, top_level_error(PushTelemetryResponse))
