"""Applied to every response: the Host check, the security headers, and a policy without content from other sites.

An ASGI application that wraps another one. It knows no routes.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafkacompat.console.core.addresses import may_ask

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
WRONG_HOST = (
    "this console accepts localhost, IP addresses and the names given with --allow-host; "
    "the request has another name in its Host header\n"
)


class Guard:
    """Answers 421 to an unknown Host, and adds the security headers to every response."""

    __slots__ = ("_allowed", "_app")

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        hosts = Headers(scope=scope).getlist("host")
        if len(hosts) == 1 and may_ask(hosts[0], self._allowed):
            await self._app(scope, receive, send_guarded)
        else:
            await PlainTextResponse(WRONG_HOST, 421)(scope, receive, send_guarded)
