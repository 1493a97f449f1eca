"""Delegation tokens (KIP-48, KIP-373): their settings, their HMACs, and the SCRAM credentials that a token stands for. Pure.

A token is an id in the metadata and its HMAC under `delegation.token.secret.key`. The HMAC is the token's password. No node
stores it: every node computes it from the id.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kafkacompat.security.scram import NONCE_BITS, ScramCredential, ScramMechanism, nonce_text

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.ports import Random

SECRET_KEY = "delegation.token.secret.key"
MAX_LIFETIME_MS = "delegation.token.max.lifetime.ms"
EXPIRY_TIME_MS = "delegation.token.expiry.time.ms"
EXPIRY_CHECK_INTERVAL_MS = "delegation.token.expiry.check.interval.ms"
USER_TYPE = "User"
"""The only principal type that a renewer may have."""
CREDENTIALS_KEPT_MAX = 10_000
"""Computed credentials in memory. Recomputing one takes a few milliseconds."""


class TokenSettings(NamedTuple):
    secret: bytes | None
    """None if delegation tokens are disabled."""
    max_lifetime_ms: int
    expiry_time_ms: int
    expiry_check_interval_ms: int

    def __repr__(self) -> str:
        return "TokenSettings([hidden])"

    def hmac(self, token_id: str) -> bytes:
        """HMAC-SHA512 of the token's id. Only if tokens are enabled."""
        assert self.secret is not None
        return hmac.digest(self.secret, token_id.encode(), "sha512")


def token_settings(config: ServerConfig) -> TokenSettings:
    """An empty or missing secret key disables tokens."""
    secret = config.get_string(SECRET_KEY)
    return TokenSettings(
        secret.encode() if secret else None,
        config.get_int(MAX_LIFETIME_MS),
        config.get_int(EXPIRY_TIME_MS),
        config.get_int(EXPIRY_CHECK_INTERVAL_MS),
    )


def principal_of(text: str) -> tuple[str, str]:
    """(type, name) of a principal in metadata records: the type ends at the first colon."""
    kind, _, name = text.partition(":")
    return kind, name


class DelegationToken(Protocol):
    """The fields of a DelegationTokenRecord that an authentication or a description reads."""

    owner: str
    requester: str
    renewers: list[str]
    expiration_timestamp: int


def is_owner_or_renewer(token: DelegationToken, principal: str) -> bool:
    """Whether a principal may describe the token without a further right. That includes its requester."""
    return principal in (token.owner, token.requester) or principal in token.renewers


class TokenCredential(NamedTuple):
    """The credential and the owner of a token, for one SCRAM exchange."""

    owner: str
    """The name of the owner's principal. As in Apache Kafka, its type is not kept."""
    credential: ScramCredential
    expires_ms: int
    """Wall time."""


class TokenCredentials:
    """SCRAM credentials of tokens, computed at a token's first authentication and then cached.

    To salt the password takes milliseconds. A listener has a worker do it (`derivation`, then `keep`), because anyone
    who knows ids of tokens may ask for it, as often as connections are accepted.
    """

    def __init__(self, settings: TokenSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._kept: dict[tuple[str, str], ScramCredential] = {}
        """By token id and mechanism, in the order of computation."""

    def of(
        self, token_id: str, token: DelegationToken | None, mechanism: ScramMechanism
    ) -> TokenCredential | None:
        """None for a missing token, or if tokens are disabled."""
        if token is None or self._settings.secret is None:
            return None
        derive = self.derivation(token_id, token, mechanism)
        if derive is not None:
            self.keep(token_id, mechanism, derive())
        credential = self._kept[token_id, mechanism.name]
        return TokenCredential(principal_of(token.owner)[1], credential, token.expiration_timestamp)

    def derivation(
        self, token_id: str, token: DelegationToken | None, mechanism: ScramMechanism
    ) -> Callable[[], ScramCredential] | None:
        """What computes the credential of a token, in any thread. None if it is kept, and for what lets nobody in."""
        if token is None or self._settings.secret is None or (token_id, mechanism.name) in self._kept:
            return None
        password = b64encode(self._settings.hmac(token_id)).decode()
        salt = nonce_text(self._random.randrange(1 << NONCE_BITS)).encode()
        iterations = mechanism.min_iterations

        def derive() -> ScramCredential:
            # Of many clients that come with a new token at once, the first has it computed.
            kept = self._kept.get((token_id, mechanism.name))
            if kept is not None:
                return kept
            return mechanism.credential(
                salt, mechanism.salted_password(password, salt, iterations), iterations
            )

        return derive

    def keep(self, token_id: str, mechanism: ScramMechanism, credential: ScramCredential) -> None:
        if (token_id, mechanism.name) not in self._kept:
            while len(self._kept) >= CREDENTIALS_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[token_id, mechanism.name] = credential
