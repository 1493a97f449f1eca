"""The token of a console, sent as `Authorization: Bearer TOKEN` or by the cookie of a login. No sockets.

The cookie is derived from the token, so the browser does not store the token itself.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import parse_qsl

COOKIE = "kafkacompat-console"
TOKEN_CHARACTERS_MIN = 16
TOKEN_CHARACTERS_MAX = 512
FORM_BYTES_MAX = 4096
_TOKEN = re.compile(r"[\x21-\x7e]*")
_COOKIE_PURPOSE = b"kafkacompat console cookie 1"


def is_beyond_loopback(address: str) -> bool:
    """Return whether other machines may reach a socket that is bound to this IP address."""
    return not ipaddress.ip_address(address).is_loopback


def checked_token(text: str) -> str:
    """Return the token without surrounding blanks. The ValueError for a bad token does not quote it."""
    token = text.strip()
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX or _TOKEN.fullmatch(token) is None:
        raise ValueError(
            f"a token has {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX} printable ASCII characters without blanks"
        )
    return token


class Access:
    """Checks one token. A comparison takes the same time wherever the first difference is."""

    __slots__ = ("_cookie", "_token")

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._cookie = hmac.new(self._token, _COOKIE_PURPOSE, "sha256").hexdigest()

    def __repr__(self) -> str:
        return "Access([hidden])"

    def admits(self, authorizations: Sequence[str], cookies: Sequence[str]) -> bool:
        """Whether the request is allowed, by the values of its Authorization and Cookie headers."""
        return self._is_bearer(authorizations) or any(
            hmac.compare_digest(value.encode("latin-1"), self._cookie.encode())
            for each in cookies
            for name, _, value in (part.strip().partition("=") for part in each.split(";"))
            if name == COOKIE
        )

    def cookie_for(self, form: bytes) -> str | None:
        """Return the Set-Cookie header for a login form with the right token, None for any other form."""
        try:
            fields = dict(parse_qsl(form.decode("ascii"), max_num_fields=4))
        except ValueError:
            return None
        given = fields.get("token", "").strip()
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token):
            return None
        return f"{COOKIE}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"

    def _is_bearer(self, authorizations: Sequence[str]) -> bool:
        if len(authorizations) != 1:
            return False
        scheme, _, given = authorizations[0].strip().partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("latin-1", "replace"), self._token
        )
