"""Checks the token before every page, file and API of a console. An ASGI application that wraps another one. It knows
no routes.

A browser gets a form at `/`. The form is posted to /login, which sets a cookie. Any other request without the token
gets 401.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kafkacompat.console.core.tokens import FORM_BYTES_MAX, Access

LOGIN = "/login"
FORM_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
}
CHALLENGE = {"www-authenticate": "Bearer", "cache-control": "no-store"}
FORM = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>kafkacompat console</title></head>
<body>
<main>
<h1>kafkacompat console</h1>
<form method="post" action="/login">
<label>Token <input type="password" name="token" autocomplete="current-password" required autofocus></label>
<button>Open</button>
</form>
<p>{0}</p>
</main>
</body>
</html>
"""
WHERE = "The console printed its token when it started, or reads it from the file of --token-file."
WRONG = "This is not the token."


class TokenGate:
    """Passes requests that have the token on to the application."""

    __slots__ = ("_access", "_app")

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close"})
        elif scope["path"] == LOGIN and scope["method"] == "POST":
            await (await self._login(Request(scope, receive)))(scope, receive, send)
        else:
            headers = Headers(scope=scope)
            admitted = self._access.admits(headers.getlist("authorization"), headers.getlist("cookie"))
            app = self._app if admitted else _refusal(scope["path"])
            await app(scope, receive, send)

    async def _login(self, request: Request) -> Response:
        form = bytearray()
        async for piece in request.stream():
            form += piece
            if len(form) > FORM_BYTES_MAX:
                return JSONResponse({"error": "the form is too long"}, 413)
        cookie = self._access.cookie_for(bytes(form))
        if cookie is None:
            return _form(WRONG)
        return RedirectResponse("/", 303, {"set-cookie": cookie, "cache-control": "no-store"})


def _refusal(path: str) -> Response:
    if path in ("/", LOGIN):
        return _form(WHERE)
    return JSONResponse({"error": "this console asks for a token"}, 401, CHALLENGE)


def _form(text: str) -> Response:
    return HTMLResponse(FORM.format(text), 401, CHALLENGE | FORM_HEADERS)
