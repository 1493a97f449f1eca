"""Settings that name a Java class: accepted if this broker does the work of that class, otherwise refused by name.

If such a setting were ignored, the broker would admit clients that the named class rejects.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.config import ConfigError
from kafkacompat.config.keys import LISTENER_PREFIX, listener_base

OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."
DONE_HERE: Mapping[str, frozenset[str]] = {
    "principal.builder.class": frozenset(
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",)
    ),
    "sasl.server.callback.handler.class": frozenset(
        (
            f"{OAUTHBEARER}OAuthBearerValidatorCallbackHandler",
            # The same class before Kafka 4.0.
            f"{OAUTHBEARER}secured.OAuthBearerValidatorCallbackHandler",
        )
    ),
    "sasl.oauthbearer.jwt.validator.class": frozenset(
        (f"{OAUTHBEARER}DefaultJwtValidator", f"{OAUTHBEARER}BrokerJwtValidator")
    ),
    "sasl.client.callback.handler.class": frozenset(),
    "sasl.login.class": frozenset(),
    "sasl.login.callback.handler.class": frozenset(
        (
            f"{OAUTHBEARER}OAuthBearerLoginCallbackHandler",
            f"{OAUTHBEARER}secured.OAuthBearerLoginCallbackHandler",
        )
    ),
    "sasl.oauthbearer.jwt.retriever.class": frozenset(
        (f"{OAUTHBEARER}DefaultJwtRetriever", f"{OAUTHBEARER}FileJwtRetriever")
    ),
    "security.providers": frozenset(),
}
"""Setting -> classes whose work is done here."""
MECHANISM = "oauthbearer"
"""The mechanism's name in a setting's prefix."""


def refuse_classes_of_others(settings: Mapping[str, str]) -> None:
    """Raises ConfigError, also for settings with a listener's or mechanism's prefix. A class of OAUTHBEARER is refused under
    the prefix of another mechanism."""
    for name, text in settings.items():
        base = listener_base(name) or name
        done_here = DONE_HERE.get(base)
        if done_here is None or not text.strip():
            continue
        if text.strip() in done_here:
            mechanism = _mechanism_in(name, base)
            if mechanism not in ("", MECHANISM) and text.strip().startswith(OAUTHBEARER):
                raise ConfigError(name, text, f"this class is one of OAUTHBEARER, not of {mechanism.upper()}")
            continue
        others = f"; only {', '.join(sorted(done_here))} is recognised" if done_here else ""
        raise ConfigError(name, text, f"this broker cannot do the work of that class{others}")


def _mechanism_in(name: str, base: str) -> str:
    """The mechanism in `listener.name.X.mechanism.base`; empty without one."""
    if name == base:
        return ""
    _, _, after_listener = name.removeprefix(LISTENER_PREFIX).partition(".")
    return after_listener.removesuffix(base).removesuffix(".")
