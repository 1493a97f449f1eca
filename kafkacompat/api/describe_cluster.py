"""DescribeCluster (key 60): the cluster id and the brokers on the client's listener. KIP-700, KIP-919, KIP-1073."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.api.access import cluster_operations
from kafkacompat.api.endpoints import BROKERS, controller_for, named_brokers, wrong_endpoints
from kafkacompat.api.handler import Handler, top_level_error
from kafkacompat.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest


def handle(node: Node, context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return wrong_endpoints(request.endpoint_type, context.api_version)
    image, listener = node.image, context.listener_name
    named = named_brokers(node, listener)
    unfenced = {broker.id for broker in named}
    shown = named
    if request.include_fenced_brokers:
        shown = [broker for _, broker in sorted(image.brokers.items()) if listener in broker.endpoints]
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=node.cluster_id,
        controller_id=controller_for(node, named),
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id,
                host=broker.endpoints[listener].host,
                port=broker.endpoints[listener].port,
                rack=broker.rack,
                is_fenced=broker.id not in unfenced,
            )
            for broker in shown
        ],
        cluster_authorized_operations=cluster_operations(
            node, context, request.include_cluster_authorized_operations
        ),
    )


HANDLER = Handler(handle, top_level_error(DescribeClusterResponse), waits_for_opening=True)
