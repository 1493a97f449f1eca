"""Checks stores of this node's listeners that a request would change. Only this node can read them, so it checks
before it forwards.

A sender who may not change this node's settings learns nothing about its files: the controller refuses the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafkacompat.api.access import access_of
from kafkacompat.config import DynamicConfig
from kafkacompat.config.keys import listener_base
from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.security.acl import CLUSTER_NAME, AclOperation, ResourceType

if TYPE_CHECKING:
    from kafkacompat.api.context import Node
    from kafkacompat.api.request_context import RequestContext

OF_TLS = "ssl."


def check_stores(
    node: Node, context: RequestContext, names: Iterable[str], wanted: Mapping[str, str]
) -> None:
    """Raise ConfigError if this broker's stores would not work with these settings of its own. `names` are the settings
    that it has now or that the request changes."""
    if node.check_listeners is None or not any(
        (listener_base(each) or "").startswith(OF_TLS) for each in names
    ):
        return
    access = access_of(node, context)
    if access is not None and not access.allows(
        AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME, logs_allowed=False, logs_denied=False
    ):
        return
    node.check_listeners(
        DynamicConfig(node.config, node.image.config(ConfigResourceType.BROKER, ""), wanted).effective
    )
