"""GetTelemetrySubscriptions (key 71): which of its own metrics a client is to send, and how often (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.api.telemetry import attributes_of, manager_of
from kafkacompat.telemetry.client_metrics_manager import ACCEPTED_CODECS
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.get_telemetry_subscriptions_response import GetTelemetrySubscriptionsResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest


def handle(
    node: Node, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    manager = manager_of(node)
    error, client = manager.get(
        bytes(request.client_instance_id),
        attributes_of(context),
        context.connection_id,
        node.clock.monotonic_ms(),
    )
    if error is not ErrorCode.NONE:
        return GetTelemetrySubscriptionsResponse(error_code=error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.id,
        subscription_id=client.subscription_id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=client.interval_ms,
        telemetry_max_bytes=manager.max_bytes,
        delta_temporality=True,
        requested_metrics=list(client.metrics),
    )


HANDLER = Handler(handle, top_level_error(GetTelemetrySubscriptionsResponse))
