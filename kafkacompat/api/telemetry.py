"""What the telemetry APIs share: the client's attributes, and the subscriptions of the newest metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.wire.config_resources import ConfigResourceType

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.telemetry.client_metrics_manager import ClientMetricsManager


def manager_of(node: Node) -> ClientMetricsManager:
    """Only a node with a manager serves these APIs."""
    manager = node.client_metrics
    assert manager is not None
    configs = node.image.configs
    if node.client_metrics_configs is not configs:
        node.client_metrics_configs = configs
        kind = int(ConfigResourceType.CLIENT_METRICS)
        manager.subscribe(
            {name: dict(settings) for (resource, name), settings in configs.items() if resource == kind}
        )
    return manager


UNKNOWN = "unknown"
"""The software of a client that has not told it, and its version."""


def attributes_of(context: RequestContext) -> dict[str, str]:
    software, _, version = (context.connection_software or "").partition(" ")
    return {
        "client_id": context.client_id or "",
        "client_software_name": software or UNKNOWN,
        "client_software_version": version or UNKNOWN,
        "client_source_address": context.client_host,
        "client_source_port": str(context.client_port),
    }
