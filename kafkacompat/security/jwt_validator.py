"""Whether a token was signed by its issuer for this cluster and is still valid: Apache Kafka's BrokerJwtValidator.

PyJWT verifies the signature. The claims are checked here by the rules of Apache Kafka's library, which differ from
PyJWT's: an unexpected audience is refused, and `exp` must be later than `iat` and `nbf`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kafkacompat.security.jwks import KEY_OF_ALGORITHM, JsonWebKeySet, JwksError
from kafkacompat.security.oauthbearer import TOKEN_CHARACTERS_MAX, BearerToken, TokenRefused

_SECTIONS = 3
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


class KeySource(Protocol):
    def keys(self) -> JsonWebKeySet:
        """The present keys. Raises JwksError. Does not wait."""
        ...

    def is_missing(self, key_id: str | None) -> None:
        """A token names a key that is not in the set: the keys may have changed."""
        ...


class ExpectedClaims(NamedTuple):
    """The settings sasl.oauthbearer.<name with dots>."""

    expected_audience: frozenset[str] = frozenset()
    """Empty for any audience, or none."""
    expected_issuer: str | None = None
    clock_skew_seconds: int = 30
    scope_claim_name: str = "scope"
    sub_claim_name: str = "sub"


class JwtValidator:
    def __init__(self, source: KeySource, expected: ExpectedClaims, now_ms: Callable[[], int]) -> None:
        """`now_ms` is wall time."""
        self._source = source
        self._expected = expected
        self._now_ms = now_ms

    def __call__(self, token: str) -> BearerToken:
        """Raises TokenRefused."""
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise TokenRefused("the token is too long")
        sections = token.split(".")
        if len(sections) != _SECTIONS or not all(sections):
            raise TokenRefused("the token has not three sections: header, payload and signature")
        header = _object(sections[0], "header")
        payload = self._verified(token, header)
        claims = _claims(payload)
        now_ms = self._now_ms()
        expires_s = _check_times(claims, now_ms // 1000, self._expected.clock_skew_seconds)
        self._check_texts(claims)
        return BearerToken(self._subject(claims), expires_s * 1000 - now_ms)

    def _verified(self, token: str, header: dict[str, Any]) -> bytes:
        """The payload, if one of the keys has signed it."""
        from jwt.api_jws import PyJWS
        from jwt.exceptions import PyJWTError

        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in KEY_OF_ALGORITHM:
            raise TokenRefused("its algorithm is not one of " + ", ".join(KEY_OF_ALGORITHM))
        if "crit" in header:
            raise TokenRefused("its header has extensions that must be understood")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRefused("its kid is no string")
        try:
            found = self._source.keys().select(algorithm, key_id)
        except JwksError as problem:
            raise TokenRefused(f"there are no keys: {problem}") from None
        if found is None:
            self._source.is_missing(key_id)
            raise TokenRefused("no key fits its kid and its algorithm")
        try:
            complete = PyJWS(algorithms=[algorithm]).decode_complete(token, found.key, algorithms=[algorithm])
        except (PyJWTError, ValueError):
            raise TokenRefused("its signature is not valid") from None
        return bytes(complete["payload"])

    def _check_texts(self, claims: dict[str, Any]) -> None:
        expected = self._expected
        for name in ("iss", "sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise TokenRefused(f"its {name} is no string")
        if expected.expected_issuer is not None and claims.get("iss") != expected.expected_issuer:
            raise TokenRefused("it is of another issuer")
        audiences = _texts(claims, "aud")
        if expected.expected_audience and expected.expected_audience.isdisjoint(audiences):
            raise TokenRefused("it is for another audience")
        if expected.scope_claim_name in claims:
            scopes = [
                each.strip(_JAVA_BLANKS) for each in _texts(claims, expected.scope_claim_name, strict=False)
            ]
            if not all(scopes) or len(set(scopes)) != len(scopes):
                raise TokenRefused("a scope is empty or stands there twice")

    def _subject(self, claims: dict[str, Any]) -> str:
        subject = claims.get(self._expected.sub_claim_name)
        name = subject.strip(_JAVA_BLANKS) if isinstance(subject, str) else ""
        if not name:
            raise TokenRefused(f"it names nobody: {self._expected.sub_claim_name} is missing or no text")
        return name


def _check_times(claims: dict[str, Any], now_s: int, skew_s: int) -> int:
    """The expiry time in seconds."""
    expires, issued, not_before = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None or issued is None:
        raise TokenRefused("exp or iat is missing")
    if expires < 0 or issued < 0:
        raise TokenRefused("exp or iat is below 0")
    if now_s - skew_s >= expires:
        raise TokenRefused(f"it expired {now_s - expires} s ago")
    if expires < issued or (not_before is not None and expires < not_before):
        raise TokenRefused("it expires before it is issued or valid")
    if not_before is not None and now_s + skew_s < not_before:
        raise TokenRefused(f"it is valid in {not_before - now_s} s only")
    return expires


def _seconds(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1 << 53:
        raise TokenRefused(f"its {name} is no time")
    return int(value)


def _texts(claims: dict[str, Any], name: str, *, strict: bool = True) -> list[str]:
    """`strict`: the value must be a string or a list of strings. Otherwise other values count as missing."""
    value = claims.get(name)
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list) and all(isinstance(each, str) for each in values):
        return values
    if isinstance(values, list) or (strict and values is not None):
        raise TokenRefused(f"its {name} holds no texts")
    return []


def _claims(payload: bytes) -> dict[str, Any]:
    return _parsed(payload, "payload")


def _object(section: str, what: str) -> dict[str, Any]:
    try:
        decoded = urlsafe_b64decode(section + "=" * (-len(section) % 4))
    except ValueError:
        raise TokenRefused(f"its {what} is not in base64") from None
    return _parsed(decoded, what)


def _parsed(text: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} is no JSON, or has a name twice") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"its {what} is no object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found
