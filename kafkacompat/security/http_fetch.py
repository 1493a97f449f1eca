"""One HTTP request to the address in a setting, with bounds on its time and on the size of its answer. It blocks.

Redirects are not followed: the address in the setting is the one that is trusted. No text of a failure holds a header or a body.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.addresses import host_and_port
from kafkacompat.config import ConfigError

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from ssl import SSLContext

SCHEMES = ("http", "https")
OK_STATUSES = (200, 201)
NOT_REPEATED = frozenset((*range(400, 408), *range(409, 416), 501, 505))
"""Statuses after which another try would end alike, as for Apache Kafka."""
PORTS = {"http": 80, "https": 443}


class FetchFailed(Exception):
    """No answer, or not the one that was wanted. is_final: another try would end alike. status: that of an answer."""

    def __init__(self, text: str, *, is_final: bool = False, status: int | None = None) -> None:
        super().__init__(text)
        self.is_final = is_final
        self.status = status


class HttpAddress(NamedTuple):
    scheme: str
    host: str
    port: int
    target: str
    """Path and query."""

    @property
    def url(self) -> str:
        return self.place + self.target

    @property
    def place(self) -> str:
        """For messages; a query may hold secrets."""
        return f"{self.scheme}://{host_and_port(self.host, self.port)}"


class Bounds(NamedTuple):
    connect_s: float
    whole_s: float
    """From the start to the last byte of the answer."""
    bytes_max: int


def http_address(setting: str, url: str) -> HttpAddress | None:
    """None for a URL of another scheme. ConfigError for what is no URL, and for one with a user in it."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        scheme, port = parts.scheme.lower(), parts.port
    except ValueError:
        raise ConfigError(setting, None, f"{setting}: this is no URL", whole=True) from None
    if scheme not in SCHEMES:
        return None
    if not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError(setting, None, f"{setting}: this is no URL", whole=True)
    if "@" in parts.netloc:
        raise ConfigError(setting, None, f"{setting}: a URL with a user is not supported", whole=True)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HttpAddress(scheme, parts.hostname, port or PORTS[scheme], target)


def fetch(
    address: HttpAddress,
    bounds: Bounds,
    context: SSLContext | None,
    headers: Mapping[str, str],
    body: bytes | None = None,
) -> bytes:
    """The body of the answer to a GET, or to a POST with a body. context: for https. FetchFailed."""
    # Imported where it is wanted: a start without a server of tokens does not wait for it.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    connection = (
        HTTPSConnection(address.host, address.port, timeout=bounds.connect_s, context=context)
        if address.scheme == "https"
        else HTTPConnection(address.host, address.port, timeout=bounds.connect_s)
    )
    deadline = threading.Timer(bounds.whole_s, _cut, [connection])
    deadline.daemon = True
    deadline.start()
    try:
        connection.request("GET" if body is None else "POST", address.target, body, dict(headers))
        assert connection.sock is not None
        connection.sock.settimeout(bounds.whole_s)
        answer = connection.getresponse()
        if answer.status not in OK_STATUSES:
            text = f"{address.place} answered with status {answer.status}"
            raise FetchFailed(text, is_final=answer.status in NOT_REPEATED, status=answer.status)
        data = answer.read(bounds.bytes_max + 1)
        if len(data) > bounds.bytes_max:
            raise FetchFailed(f"the answer of {address.place} is larger than {bounds.bytes_max} bytes")
        if answer.length:
            raise FetchFailed(f"the answer of {address.place} is not whole")
        return data
    except (OSError, HTTPException, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise FetchFailed(f"no answer of {address.place}: {reason}") from None
    finally:
        deadline.cancel()
        connection.close()


def _cut(connection: HTTPConnection) -> None:
    """End every wait on the connection, however slowly its bytes arrive."""
    held = connection.sock
    if held is not None:
        with contextlib.suppress(OSError):
            held.shutdown(socket.SHUT_RDWR)
