"""Serves the control API over HTTP on loopback: who may ask, how much, and how many at a time.

It is the standard library's server, a thread for each connection: a request that waits holds up no other, and the command needs
nothing besides the package. A request must name this server as its Host, must not come from a web page (Origin), and must bear
the token. Only the OpenAPI document needs none.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any, NoReturn, cast

from kafkacompat.faults import report
from kafkacompat.testing.control import carry_out
from kafkacompat.testing.control_arguments import Problem
from kafkacompat.testing.control_openapi import openapi
from kafkacompat.testing.controlled import Control

HOST = "127.0.0.1"
BODY_BYTES_MAX = 1 << 20
CONNECTIONS_MAX = 64
"""At a time. One more is answered with 503."""
IDLE_S = 60.0
"""How long a client may take for the next bytes."""
DRAINED_BYTES_MAX = 16 << 20
"""Of a request that is too long. Who closes while bytes come in loses the answer."""
DRAIN_S = 2.0
OPENAPI = "/openapi.json"
FRAMING = (400, 411, 413)


class ControlServer:
    """`start` and then `stop`."""

    def __init__(self, control: Control, token: str, port: int = 0) -> None:
        """OSError if the port is not free."""
        self._server = _Server(control, token, port)
        self._thread = threading.Thread(target=self._server.serve_forever, name="control", daemon=True)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._server.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Requests that are under way are answered no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, control: Control, token: str, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.port = int(self.server_address[1])
        self.control = control
        self.token = token.encode()
        self.hosts = {f"{name}:{self.port}" for name in (HOST, "localhost")}
        self._free = threading.Semaphore(CONNECTIONS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except BaseException:  # it got no thread, which would free the place
                self._free.release()
                raise
            return
        with suppress(OSError):
            request.sendall(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            body = self._body()
            answer = self._answer(body)
        except Problem as problem:
            self._send(problem.status, problem.as_json())
        except OSError:  # the client has gone, or says nothing more
            self.close_connection = True
        except Exception as error:
            report("answering a request of the control API", error)
            self._send(500, Problem(500, type(error).__name__).as_json())
        else:
            self._send(200, answer)

    def _answer(self, body: bytes) -> Any:
        server = cast("_Server", self.server)
        hosts = self.headers.get_all("host", [])
        if len(hosts) != 1 or hosts[0].strip().lower() not in server.hosts:
            raise Problem(421, f"this is {HOST}:{server.port}, and the request's Host is another one")
        if self.headers.get("origin") is not None:
            raise Problem(403, "a web page may not ask")
        if self.command == "GET" and self.path.partition("?")[0] == OPENAPI:
            return openapi()
        tokens = self.headers.get_all("authorization", [])
        kind, _, token = (tokens[0] if len(tokens) == 1 else "").strip().partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), server.token):
            raise Problem(401, "the request lacks the token: Authorization: Bearer TOKEN")
        return carry_out(server.control, self.command, self.path, _parsed(body))

    def _body(self) -> bytes:
        """Raises Problem, after which the connection ends: where the next request begins is not known."""
        lengths = self.headers.get_all("content-length", [])
        if self.headers.get("transfer-encoding") is not None:
            self._end(411, "a body has a Content-Length")
        if not lengths:
            return b""
        text = lengths[0].strip()
        if len(lengths) != 1 or not text.isascii() or not text.isdecimal():
            self._end(400, "the Content-Length is not a number")
        if len(text) > 18 or int(text) > BODY_BYTES_MAX:
            self._end(413, f"a body has at most {BODY_BYTES_MAX} bytes")
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            self._end(400, "the request ends before its body does")
        return body

    def _end(self, status: int, text: str) -> NoReturn:
        self.close_connection = True
        raise Problem(status, text)

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        if status in FRAMING and self.close_connection:
            self._drain()

    def _drain(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(DRAIN_S)
            left = DRAINED_BYTES_MAX
            while left > 0 and (taken := self.rfile.read1(1 << 16)):
                left -= len(taken)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the server itself finds wrong, such as a method that nobody serves."""
        self.close_connection = True
        self._send(int(code), Problem(int(code), message or "the request is not HTTP").as_json())

    def version_string(self) -> str:
        return "kafkacompat"

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


def _parsed(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
