"""The SASL mechanisms of a listener, from its settings: `sasl.enabled.mechanisms` and one `sasl.jaas.config` for each.

As in Apache Kafka, `listener.name.<listener>.<mechanism>.sasl.jaas.config` names the login module, even if a mechanism
needs nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import as_int, as_list, listener_prefix
from kafkacompat.security.delegation_tokens import TokenCredential
from kafkacompat.security.gssapi import MECHANISM as GSSAPI
from kafkacompat.security.jaas import (
    KERBEROS_LOGIN_MODULE,
    OAUTHBEARER_LOGIN_MODULE,
    PLAIN_LOGIN_MODULE,
    SCRAM_LOGIN_MODULE,
    JaasError,
    LoginModule,
    sole_login_module,
)
from kafkacompat.security.oauthbearer import MECHANISM as OAUTHBEARER
from kafkacompat.security.sasl_authenticator import EnabledMechanism, Preparation
from kafkacompat.security.sasl_server import PLAIN, PlainSaslServer
from kafkacompat.security.scram import (
    NONCE_BITS,
    SCRAM_BY_NAME,
    ScramCredential,
    ScramMechanism,
    nonce_text,
)
from kafkacompat.security.scram_exchange import ScramSaslServer, token_named

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ports import Random
    from kafkacompat.security.jwks import Background
    from kafkacompat.security.sasl_server import SaslServer

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
JAAS_CONFIG = "sasl.jaas.config"
MAX_REAUTH_MS = "connections.max.reauth.ms"
LOGIN_MODULES = (
    {PLAIN: PLAIN_LOGIN_MODULE}
    | dict.fromkeys(SCRAM_BY_NAME, SCRAM_LOGIN_MODULE)
    | {OAUTHBEARER: OAUTHBEARER_LOGIN_MODULE, GSSAPI: KERBEROS_LOGIN_MODULE}
)
"""The mechanisms that servers and clients have, each with the class of its login module."""

CredentialOf = Callable[[str, ScramMechanism], ScramCredential | None]
"""(user, mechanism) -> the user's present SCRAM credential, or None."""

TokenOf = Callable[[str, ScramMechanism], TokenCredential | None]
"""The credential of the delegation token with this id, at this moment. None if there is no such token."""

PreparationOf = Callable[[str, ScramMechanism], Preparation | None]
"""What has to be computed before the delegation token with this id lets anyone in. None if nothing."""


def no_token(token_id: str, mechanism: ScramMechanism) -> None:
    """Of a node without delegation tokens."""


def mechanisms_of(
    config: ServerConfig,
    listener: str,
    credential_of: CredentialOf,
    random: Random,
    now_ms: Callable[[], int],
    token_of: TokenOf = no_token,
    background: Background | None = None,
    preparation_of: PreparationOf = no_token,
) -> Mapping[str, EnabledMechanism]:
    """By name, in the order of the setting. `now_ms` is wall time, for the expiry of tokens. `background` is None while settings
    are only checked. Raises ConfigError for an unsupported mechanism, or one without its login module."""
    names = as_list(config.of_listener(listener, ENABLED_MECHANISMS))
    if not names:
        raise ConfigError(ENABLED_MECHANISMS, "", f"listener {listener} needs one SASL mechanism at least")
    return {
        name: _enabled(
            config, listener, name, credential_of, random, now_ms, token_of, background, preparation_of
        )
        for name in names
    }


def _enabled(
    config: ServerConfig,
    listener: str,
    name: str,
    credential_of: CredentialOf,
    random: Random,
    now_ms: Callable[[], int],
    token_of: TokenOf,
    background: Background | None,
    preparation_of: PreparationOf,
) -> EnabledMechanism:
    if name not in LOGIN_MODULES:
        raise ConfigError(
            ENABLED_MECHANISMS, name, f"listener {listener} can have {', '.join(LOGIN_MODULES)} and no other"
        )
    max_reauth_ms = as_int(config.of_listener(listener, MAX_REAUTH_MS, name))
    module = _module_of_listener(config, listener, name)
    begin: Callable[[], SaslServer]
    if name == PLAIN:
        begin = partial(PlainSaslServer, module.options)
    elif name == OAUTHBEARER:
        # Imported on demand: a start without tokens does not load it.
        from kafkacompat.security.oauthbearer_settings import exchanges_of

        begin = exchanges_of(config, listener, now_ms, module, background)
    elif name == GSSAPI:
        from kafkacompat.security import kerberos_login

        setting = _jaas_setting(listener, name)
        begin, name_of = kerberos_login.exchanges_of(config, listener, module, setting)
        return EnabledMechanism(begin, max_reauth_ms, name_of, blocks=True)
    else:
        mechanism = SCRAM_BY_NAME[name]
        begin = partial(_scram, mechanism, credential_of, random, now_ms, token_of)

        def preparation_for(message: bytes) -> Preparation | None:
            token_id = token_named(message)
            return None if token_id is None else preparation_of(token_id, mechanism)

        return EnabledMechanism(begin, max_reauth_ms, preparation_for=preparation_for)
    return EnabledMechanism(begin, max_reauth_ms)


def _scram(
    mechanism: ScramMechanism,
    credential_of: CredentialOf,
    random: Random,
    now_ms: Callable[[], int],
    token_of: TokenOf,
) -> ScramSaslServer:
    nonce = nonce_text(random.randrange(1 << NONCE_BITS))
    return ScramSaslServer(
        mechanism,
        lambda user: credential_of(user, mechanism),
        nonce,
        lambda token_id: token_of(token_id, mechanism),
        now_ms,
    )


def _module_of_listener(config: ServerConfig, listener: str, mechanism: str) -> LoginModule:
    setting = _jaas_setting(listener, mechanism)
    text = config.originals.get(setting)
    if text is None:
        raise ConfigError(
            setting, None, f"{setting} must be set: {ENABLED_MECHANISMS} has {mechanism}", whole=True
        )
    return login_module(setting, text, mechanism)


def _jaas_setting(listener: str, mechanism: str) -> str:
    return f"{listener_prefix(listener, mechanism)}{JAAS_CONFIG}"


def login_module(setting: str, text: str, mechanism: str) -> LoginModule:
    """The only entry of a JAAS text, which must be of the mechanism's class. Raises ConfigError, without the text, which may
    contain passwords."""
    try:
        module = sole_login_module(text)
    except JaasError as error:
        raise ConfigError(setting, None, f"{setting}: {error}", whole=True) from None
    name = LOGIN_MODULES[mechanism]
    if module.name != name:
        raise ConfigError(setting, None, f"{setting}: the login module must be {name}", whole=True)
    return module
