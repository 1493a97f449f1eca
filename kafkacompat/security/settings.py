"""The authorizer of a node's settings: authorizer.class.name, super.users, allow.everyone.if.no.acl.found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.config import ConfigError
from kafkacompat.security.authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig

CLASS_NAME = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


def authorizer_of(config: ServerConfig) -> StandardAuthorizer | None:
    """None if the settings have no authorizer. Raises ConfigError for any other class than Kafka's own, and for a user
    without a type."""
    class_name = config.get_string(CLASS_NAME)
    if not class_name:
        return None
    if class_name != STANDARD_AUTHORIZER:
        raise ConfigError(CLASS_NAME, class_name, f"only {STANDARD_AUTHORIZER} is served")
    originals = config.originals
    users = frozenset(
        _checked(user) for each in originals.get(SUPER_USERS, "").split(";") if (user := each.strip())
    )
    return StandardAuthorizer(users, originals.get(ALLOW_EVERYONE, "").strip().lower() == "true")


def _checked(user: str) -> str:
    kind, colon, name = user.partition(":")
    if not (kind and colon and name):
        raise ConfigError(SUPER_USERS, user, "a principal is written as its type and name, User:alice")
    return user
