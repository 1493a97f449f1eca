"""Wraps the dispatcher of a node's listeners in the one that authenticates their clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.api.dispatch import ApiDispatcher
from kafkacompat.ports.dispatcher import Dispatcher
from kafkacompat.security.delegation_tokens import TokenCredential, TokenCredentials, token_settings
from kafkacompat.security.jwks import Background
from kafkacompat.security.mechanisms import CredentialOf, PreparationOf, TokenOf, mechanisms_of, no_token
from kafkacompat.security.sasl_authenticator import Preparation
from kafkacompat.security.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from kafkacompat.config import EndPoint, ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Random
    from kafkacompat.security.sasl_authenticator import EnabledMechanism
    from kafkacompat.server.services import NodeServices


def authenticating(
    served: ApiDispatcher,
    services: NodeServices,
    endpoints: Iterable[EndPoint],
    image: Callable[[], MetadataImage],
) -> Dispatcher:
    """Return a dispatcher that authenticates clients, or `served` if no listener has SASL. Raises ConfigError."""
    config = services.config

    def credential_of(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        kept = image().scram_credentials.get((user, mechanism.type))
        if kept is None:
            return None
        return ScramCredential(kept.salt, kept.stored_key, kept.server_key, kept.iterations)

    tokens = TokenCredentials(token_settings(config), services.random)

    def token_of(token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        return tokens.of(token_id, image().delegation_tokens.get(token_id), mechanism)

    def preparation_of(token_id: str, mechanism: ScramMechanism) -> Preparation | None:
        derive = tokens.derivation(token_id, image().delegation_tokens.get(token_id), mechanism)
        return None if derive is None else Preparation(derive, partial(tokens.keep, token_id, mechanism))

    mechanisms = mechanisms_by_listener(
        config,
        endpoints,
        credential_of,
        services.random,
        services.clock.now_ms,
        token_of,
        Background(services.workers.fetches, services.tasks, services.clock),
        preparation_of,
    )
    if not mechanisms:
        return served
    from kafkacompat.api.sasl_dispatch import SaslDispatcher

    delay_ms = config.get_int("connection.failed.authentication.delay.ms")
    return SaslDispatcher(
        served, mechanisms, delay_ms, services.clock, services.tasks, services.workers.exchanges
    )


def mechanisms_by_listener(
    config: ServerConfig,
    endpoints: Iterable[EndPoint],
    credential_of: CredentialOf,
    random: Random,
    now_ms: Callable[[], int],
    token_of: TokenOf = no_token,
    background: Background | None = None,
    preparation_of: PreparationOf = no_token,
) -> dict[str, Mapping[str, EnabledMechanism]]:
    """Return the mechanisms of each listener with SASL. Raises ConfigError."""
    return {
        each.listener_name: mechanisms_of(
            config, each.listener_name, credential_of, random, now_ms, token_of, background, preparation_of
        )
        for each in endpoints
        if each.is_sasl
    }
