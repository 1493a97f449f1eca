"""A small HTTP(S) server for tests: it answers what the test has put in, and keeps what it was asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from kafkacompat._tests.certificates import Identity


class Asked(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Asked], tuple[int, bytes]]


class Server:
    def __init__(self, scheme: str, port: int) -> None:
        self.base = f"{scheme}://127.0.0.1:{port}"
        self.asked: list[Asked] = []
        self.answer: Answer = lambda asked: (404, b"")
        self.headers: dict[str, str] = {}
        self.never = threading.Event()
        """Set when the server ends; an answer that waits for it never comes while the test runs."""


@contextmanager
def serving(folder: object = None, identity: Identity | None = None) -> Iterator[Server]:
    """On a free port of loopback. With an identity, whose PEM is written into the folder, by TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(self.command, self.path, headers, self.rfile.read(length))
            server.asked.append(asked)
            status, body = server.answer(asked)
            try:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **server.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is what tests want to see."""

    listener = Listener(("127.0.0.1", 0), Handler)
    if identity is not None:
        from pathlib import Path

        path = Path(str(folder)) / "server.pem"
        path.write_text(identity.pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server = Server("http" if identity is None else "https", listener.server_port)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.never.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
