"""DescribeCluster (key 60) on controller listeners: the cluster id, the controllers and the active one.
KIP-919.

The response lists the registered controllers that have the client's listener. Brokers are described on broker
listeners (describe_cluster). Refused below metadata.version 15, because controllers do not register there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import cluster_operations
from kafkacompat.api.endpoints import CONTROLLERS, wrong_endpoints
from kafkacompat.api.handler import Handler
from kafkacompat.controller.features import controller_registration_supported, metadata_version
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import ControllerNode
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest


def handle(
    node: ControllerNode, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type != CONTROLLERS:
        return wrong_endpoints(request.endpoint_type, context.api_version)
    controllers = _controllers(node.image, context.listener_name)
    leader_id = node.quorum.leader_id
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=node.cluster_id,
        controller_id=leader_id if any(one.broker_id == leader_id for one in controllers) else -1,
        brokers=controllers,
        cluster_authorized_operations=cluster_operations(
            node, context, request.include_cluster_authorized_operations
        ),
    )


def _controllers(image: MetadataImage, listener_name: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=node_id, host=endpoint.host, port=endpoint.port)
        for node_id, registration in sorted(image.controllers.items())
        for endpoint in registration.end_points
        if endpoint.name == listener_name
    ]


def _is_served(node: ControllerNode) -> bool:
    return controller_registration_supported(metadata_version(node.image.features))


def _error_response(
    request: DescribeClusterRequest, code: ErrorCode, version: int
) -> DescribeClusterResponse:
    text = None
    if code == ErrorCode.UNSUPPORTED_VERSION:
        text = "Direct-to-controller communication is not supported with the current MetadataVersion."
    return DescribeClusterResponse(error_code=code, error_message=text)


HANDLER = Handler(handle, _error_response, is_served=_is_served)
