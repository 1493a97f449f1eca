"""Keys and tokens for tests of OAUTHBEARER, signed by PyJWT: it is imported where one is made."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import Any

KEY_ID = "of-tests"


def private_key(which: str = "") -> Any:
    """The same at each call; each `which` is another."""
    return _private_key(which)


@cache
def _private_key(which: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(65537, 2048)


def public_entry(key: Any, key_id: str | None = KEY_ID) -> dict[str, Any]:
    """Of a JSON Web Key Set."""
    from jwt.algorithms import RSAAlgorithm

    entry: dict[str, Any] = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return entry if key_id is None else {**entry, "kid": key_id}


def write_jwks(path: Path, *entries: dict[str, Any]) -> str:
    """Its URL."""
    path.write_text(json.dumps({"keys": list(entries or (public_entry(private_key()),))}))
    return path.as_uri()


def claims(now_s: float | None = None, **others: Any) -> dict[str, Any]:
    """Of alice, for an hour. What is None is left out."""
    now = int(time.time() if now_s is None else now_s)
    every = {"sub": "alice", "iat": now, "exp": now + 3600, **others}
    return {name: value for name, value in every.items() if value is not None}


def signed(payload: dict[str, Any], which: str = "", algorithm: str = "RS256", **headers: Any) -> str:
    from jwt import encode

    return encode(payload, private_key(which), algorithm, headers={"kid": KEY_ID, **headers})
