"""Which settings a listener may have of its own, as listener.name.<listener>.<name>."""

from __future__ import annotations

OF_LISTENERS = (
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "num.network.threads",
    "principal.builder.class",
    "sasl.",
    "ssl.",
)
"""How settings begin that a listener may have of its own. Others with a listener's prefix are accepted without effect, as in
Kafka."""


def is_of_listener(name: str) -> bool:
    return name.startswith(OF_LISTENERS) and not name.startswith(("max.connections.", "sasl.mechanism."))
