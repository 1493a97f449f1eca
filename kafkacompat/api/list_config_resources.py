"""ListConfigResources (key 74): the resources that can be described. Version 0 lists client metrics
only. KIP-1142."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.tasks import TURN_COST, Pace, Work, sorted_in_steps
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.list_config_resources_request import ListConfigResourcesRequest

LISTED = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)
NAMED_A_STEP = 5_000
"""Resources per step. One takes half a microsecond."""


def handle(
    node: Node, context: RequestContext, request: ListConfigResourcesRequest
) -> Work[ListConfigResourcesResponse]:
    if context.api_version == 0:
        wanted = {int(ConfigResourceType.CLIENT_METRICS)}
    else:
        wanted = set(request.resource_types) or {int(kind) for kind in LISTED}
    if not wanted.issubset(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    resources: list[ConfigResource] = []
    pace = Pace(NAMED_A_STEP)
    for kind in LISTED:
        for name in (yield from _names(node, context, kind)) if kind in wanted else ():
            resources.append(ConfigResource(resource_name=name, resource_type=kind))
            if pace.is_over():
                yield TURN_COST
    return ListConfigResourcesResponse(config_resources=resources)


def _names(node: Node, context: RequestContext, kind: ConfigResourceType) -> Work[list[str]]:
    if kind is ConfigResourceType.TOPIC:
        return (yield from sorted_in_steps(node.image.topics))
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        # A broker that is fenced has its settings too.
        listener = context.listener_name
        return [
            str(broker.id) for _, broker in sorted(node.image.brokers.items()) if listener in broker.endpoints
        ]
    named = [name for resource_type, name in node.image.configs if resource_type == kind]
    return (yield from sorted_in_steps(named))


HANDLER = Handler(handle, top_level_error(ListConfigResourcesResponse))
