"""JSON Web Key Sets (RFC 7517), the public keys that verify tokens: in a file, or published by an authorization server.

Only asymmetric keys are used. As in Apache Kafka, a file is read again when it has changed. What a server publishes is kept, and
fetched again in the background. The event loop never waits for the server: a token is checked with the keys that are there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacompat.config.properties import open_regular
from kafkacompat.faults import report
from kafkacompat.ports import Clock, Workers, passes
from kafkacompat.security.http_fetch import FetchFailed
from kafkacompat.tasks import Tasks, WakeUp


class Background(NamedTuple):
    workers: Workers
    tasks: Tasks
    clock: Clock


JWKS_BYTES_MAX = 1024 * 1024
RSA_BITS_MIN = 2048
"""Apache Kafka's library accepts no shorter keys."""
_RSA = ("RSA", None)
KEY_OF_ALGORITHM: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), _RSA),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "ES256K": ("EC", "secp256k1"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Key type and curve of each accepted algorithm. None is symmetric, because the verifier could then sign tokens too."""


class JwksError(Exception):
    """The keys are not available. The message has the reason."""


class Jwk(NamedTuple):
    key_id: str | None
    type: str
    curve: str | None
    algorithm: str | None
    key: Any
    """In the form of the library that verifies signatures."""


class JsonWebKeySet(NamedTuple):
    keys: tuple[Jwk, ...]

    def select(self, algorithm: str, key_id: str | None) -> Jwk | None:
        """The first suitable key. If several are suitable, one that is for this algorithm only."""
        kind = KEY_OF_ALGORITHM[algorithm]
        fitting = [
            each
            for each in self.keys
            if (each.type, each.curve) == kind and (key_id is None or each.key_id == key_id)
        ]
        if len(fitting) > 1:
            fitting = [each for each in fitting if each.algorithm in (None, algorithm)]
        return fitting[0] if fitting else None


def parse_jwks(text: bytes | str) -> JsonWebKeySet:
    """Entries that are not public signature keys are skipped. Raises JwksError."""
    try:
        document = json.loads(text)
        entries = document["keys"]
        found = tuple(key for key in map(_key, entries) if key is not None)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise JwksError("this is no JSON Web Key Set") from None
    return JsonWebKeySet(found)


def _key(entry: Any) -> Jwk | None:
    if not isinstance(entry, dict) or entry.get("use") not in (None, "sig"):
        return None
    kind = entry.get("kty")
    curve = entry.get("crv") if kind != "RSA" else None
    if not isinstance(kind, str) or (kind, curve) not in KEY_OF_ALGORITHM.values():
        return None
    key = _public_key(kind, entry)
    return None if key is None else Jwk(entry.get("kid"), kind, curve, entry.get("alg"), key)


def _public_key(kind: str, entry: dict[str, Any]) -> Any:
    from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
    from jwt.exceptions import InvalidKeyError

    readers: dict[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
    public = {name: value for name, value in entry.items() if name in ("kty", "crv", "n", "e", "x", "y")}
    try:
        key = readers[kind].from_jwk(public)
    except (InvalidKeyError, ValueError, TypeError, KeyError):
        return None
    return None if kind == "RSA" and key.key_size < RSA_BITS_MIN else key


class JwksFile:
    """The set in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._modified_ns = -1
        self._set = JsonWebKeySet(())

    def keys(self) -> JsonWebKeySet:
        """Raises JwksError. Earlier keys of the file then no longer count."""
        try:
            modified_ns = os.stat(self._path).st_mtime_ns
            if modified_ns != self._modified_ns:
                with open(open_regular(self._path), "rb") as file:
                    text = file.read(JWKS_BYTES_MAX + 1)
                if len(text) > JWKS_BYTES_MAX:
                    raise JwksError(f"{self._path} is larger than {JWKS_BYTES_MAX} bytes")
                self._set = parse_jwks(text)
                self._modified_ns = modified_ns
        except (OSError, ValueError) as error:
            raise JwksError(f"{self._path} cannot be read: {error}") from None
        return self._set

    def is_missing(self, key_id: str | None) -> None:
        """Nothing to fetch: the file is checked for each token."""


MISSING_INTERVAL_MS = 10_000
"""Tokens with an unknown key cause one fetch in this time at most: anybody can send them."""
_log = logging.getLogger(__name__)


class RefreshTerms(NamedTuple):
    """Of the settings sasl.oauthbearer.jwks.endpoint.*."""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class RemoteKeys:
    """The last set that was fetched. A failed fetch is repeated until one succeeds, and keeps the set that is there."""

    def __init__(
        self, fetch: Callable[[], bytes], place: str, terms: RefreshTerms, background: Background
    ) -> None:
        """`place`: of the server, for the log. The first fetch begins at once."""
        self._fetch = fetch
        self._place = place
        self._terms = terms
        self._background = background
        self._set: JsonWebKeySet | None = None
        self._failures = 0
        self._not_before_ms = 0
        self._wake_up = WakeUp(background.tasks)
        background.tasks.start("fetching the keys of OAUTHBEARER", self._run())

    def keys(self) -> JsonWebKeySet:
        """JwksError until the first fetch has succeeded."""
        if self._set is None:
            raise JwksError(f"none has been fetched from {self._place} yet")
        return self._set

    def is_missing(self, key_id: str | None) -> None:
        """The issuer may have begun to sign with a new key."""
        now_ms = self._background.clock.monotonic_ms()
        if self._set is None or now_ms < self._not_before_ms:
            return
        self._not_before_ms = now_ms + MISSING_INTERVAL_MS
        self._wake_up.call()

    async def _run(self) -> None:
        while True:
            delay_ms = await self._refresh()
            await self._wake_up.wait(max(delay_ms, 1))

    def _fetched(self) -> JsonWebKeySet:
        """In a worker. A set without a usable key is as good as none."""
        found = parse_jwks(self._fetch())
        if not found.keys:
            raise JwksError("there is no public key in the set")
        return found

    async def _refresh(self) -> int:
        """Fetch the set. Returns the time until the next attempt."""
        try:
            self._set = await self._background.workers.submit(self._fetched)
        except Exception as problem:
            if isinstance(problem, (FetchFailed, JwksError)) or passes(problem):
                _log.warning("the keys of OAUTHBEARER were not fetched from %s: %s", self._place, problem)
            else:
                report("fetching the keys of OAUTHBEARER", problem)
            delay_ms = self._terms.retry_backoff_ms << min(self._failures, 30)
            self._failures += 1
            return min(delay_ms, self._terms.retry_backoff_max_ms)
        self._failures = 0
        return self._terms.refresh_ms


class UnfetchedKeys:
    """In the place of `RemoteKeys` while settings are only checked."""

    def keys(self) -> JsonWebKeySet:
        raise JwksError("none is fetched here")

    def is_missing(self, key_id: str | None) -> None:
        """Nothing is fetched."""
