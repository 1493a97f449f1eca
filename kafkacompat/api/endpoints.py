"""The nodes of an image as clients of one listener see them, and the refusal of a request for the wrong kind of node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.controller.image import BrokerRegistration

BROKERS = 1
CONTROLLERS = 2
"""Endpoint types of DescribeCluster (KIP-919)."""


def named_brokers(node: Node, listener_name: str) -> list[BrokerRegistration]:
    """Return the brokers that clients are told of, by id. They have the listener, and are unfenced or about to be
    unfenced again."""
    now_ms = node.clock.monotonic_ms()
    return [
        broker
        for _, broker in sorted(node.image.brokers.items())
        if listener_name in broker.endpoints
        and (not broker.fenced or node.returning.includes(broker, now_ms))
    ]


def controller_for(node: Node, named: Sequence[BrokerRegistration]) -> int:
    """Return the id of the broker to which clients send controller requests, or -1 if there is none. Any broker
    forwards them.

    This broker is preferred, because it is certainly alive. Then come brokers that are not shutting down: a broker
    that has died may still be listed.
    """
    staying = [each.id for each in named if not each.fenced and not each.in_controlled_shutdown]
    if node.node_id in staying:
        return node.node_id
    candidates = staying or [each.id for each in named]
    return candidates[node.random.randrange(len(candidates))] if candidates else -1


def wrong_endpoints(endpoint_type: int, version: int) -> DescribeClusterResponse:
    """The refusal of a DescribeCluster request for a kind of endpoint that this node does not describe."""
    if endpoint_type == CONTROLLERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "This is a broker endpoint. Send a request for controllers to a controller."
    elif endpoint_type == BROKERS:
        error = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "This is a controller endpoint. Send a request for brokers to a broker."
    else:
        error = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"There is no endpoint type {endpoint_type}."
    if version == 0:
        error = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=error, error_message=message)
