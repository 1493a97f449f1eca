"""Who dispatches the requests of a node's listeners, and how the node connects to others: without security, or with it.

Where nothing is to be authenticated or encrypted, none of the modules for that is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kafkacompat.security.sasl_client import NO_SECURITY, ClientSecurity

if TYPE_CHECKING:
    from kafkacompat.api.dispatch import ApiDispatcher
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Random
    from kafkacompat.ports.dispatcher import Dispatcher
    from kafkacompat.server.services import NodeServices

PLAINTEXT = "PLAINTEXT"


def admitting(
    served: ApiDispatcher,
    services: NodeServices,
    endpoints: Iterable[EndPoint],
    image: Callable[[], MetadataImage],
) -> Dispatcher:
    """`served`, or what authenticates clients before if a listener has SASL. Raises ConfigError."""
    secured = [each for each in endpoints if each.is_sasl]
    if not secured:
        return served
    from kafkacompat.server.authentication import authenticating

    return authenticating(served, services, secured, image)


def check_mechanisms(config: ServerConfig, random: Random, now_ms: Callable[[], int]) -> None:
    """Raises ConfigError for a listener with SASL whose mechanisms cannot be served."""
    secured = [each for each in config.listeners() if each.is_sasl]
    if secured:
        from kafkacompat.server.authentication import mechanisms_by_listener

        mechanisms_by_listener(config, secured, lambda user, mechanism: None, random, now_ms)


def security_between_nodes(config: ServerConfig) -> tuple[ClientSecurity, ClientSecurity]:
    """How the node connects to brokers and to controllers. Raises ConfigError."""
    names = config.inter_broker_listener_name, config.controller_listener_names[0]
    protocols = config.security_protocols()
    if all(protocols.get(name, PLAINTEXT) == PLAINTEXT for name in names):
        return NO_SECURITY, NO_SECURITY
    from kafkacompat.security.client_settings import security_to_brokers, security_to_controllers

    return security_to_brokers(config), security_to_controllers(config)
