"""The settings of a simulated cluster with an authorizer, its listener for clients that authenticate themselves, and
what those clients may show.

All other clients and the nodes are ANONYMOUS, which is a super user.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from kafkacompat.security.authorizer import CLASS_NAME, STANDARD_AUTHORIZER, SUPER_USERS
from kafkacompat.security.delegation_tokens import (
    EXPIRY_CHECK_INTERVAL_MS,
    EXPIRY_TIME_MS,
    MAX_LIFETIME_MS,
    SECRET_KEY,
)
from kafkacompat.security.scram import SCRAM_BY_NAME, SCRAM_SHA_256
from kafkacompat.sim.cluster_options import ClusterOptions
from kafkacompat.sim.links import SECURED_PORT, host_name

LISTENER = "SECURED"
PLAIN = "PLAIN"
STATIC_USER = "carol"
"""The user of PLAIN, which is in the settings."""
STATIC_PASSWORD = "carols"
SCRAM_USERS = ("alice", "bob")
"""Users that are created, changed and deleted."""
ITERATIONS = SCRAM_SHA_256.min_iterations


class Claim(NamedTuple):
    """What a client shows of itself."""

    mechanism: str
    user: str
    """For a token, its id."""
    password: str
    is_token: bool = False


class ShownToken(NamedTuple):
    token_id: str
    hmac: bytes


def listener_of(options: ClusterOptions, node_id: int) -> list[str]:
    return [f"{LISTENER}://{host_name(node_id)}:{SECURED_PORT}"] if options.secured_clients else []


def protocols(options: ClusterOptions) -> str:
    secured = f",{LISTENER}:SASL_PLAINTEXT" if options.secured_clients else ""
    return f"CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT{secured}"


def secured_properties(options: ClusterOptions) -> dict[str, str]:
    """The same on every node."""
    if not options.secured_clients:
        return {}
    prefix = f"listener.name.{LISTENER.lower()}"
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    properties = {
        CLASS_NAME: STANDARD_AUTHORIZER,
        SUPER_USERS: "User:ANONYMOUS",
        SECRET_KEY: "the secret of a simulated cluster",
        MAX_LIFETIME_MS: "6000",
        EXPIRY_TIME_MS: "3000",
        EXPIRY_CHECK_INTERVAL_MS: "700",
        f"{prefix}.sasl.enabled.mechanisms": ",".join((PLAIN, *SCRAM_BY_NAME)),
        f"{prefix}.plain.sasl.jaas.config": f'{plain} user_{STATIC_USER}="{STATIC_PASSWORD}";',
    }
    for name in SCRAM_BY_NAME:
        properties[f"{prefix}.{name.lower()}.sasl.jaas.config"] = scram
    return properties


@lru_cache(maxsize=4096)
def salted_password(mechanism: str, password: str, salt: bytes) -> bytes:
    """Computed once. The runs of a test use the same passwords and salts again."""
    return SCRAM_BY_NAME[mechanism].salted_password(password, salt, ITERATIONS)
