"""Who may ask the control API, and how much. The operations are in test_control.py."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kafkacompat.testing.control_server import BODY_BYTES_MAX, CONNECTIONS_MAX, ControlServer
from kafkacompat.testing.controlled import Control
from kafkacompat.testing.kafka import Kafka
from kafkacompat.testing.waiting import until

TOKEN = "a-token"
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ControlServer]:
    kafka = Kafka()
    kafka.record_requests()
    with kafka:
        server = ControlServer(Control(kafka), TOKEN)
        server.start()
        yield server
        server.stop()


def port_of(server: ControlServer) -> int:
    return int(server.address.rpartition(":")[2])


def ask(
    server: ControlServer,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=TIMEOUT_S)
    try:
        own = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
        connection.request(method, path, body, {name: value for name, value in own.items() if value})
        answer = connection.getresponse()
        assert answer.getheader("content-type") == "application/json"
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def talk(server: ControlServer, said: bytes) -> bytes:
    """All that is answered until the connection ends."""
    with socket.create_connection(("127.0.0.1", port_of(server)), TIMEOUT_S) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(65536):
            answer += received
        return answer


def test_a_program_asks_with_the_token(server: ControlServer) -> None:
    assert ask(server, "POST", "/topics", b'{"name": "orders"}') == (200, {"name": "orders"})
    assert ask(server, "GET", "/topics", None, {"Host": f"LOCALHOST:{port_of(server)}"})[0] == 200
    assert ask(server, "DELETE", "/topics/orders") == (200, {})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "kafka.example:PORT"}, 421),
        ({"Origin": "http://127.0.0.1:PORT"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_others_are_refused(server: ControlServer, headers: dict[str, str], status: int) -> None:
    told = {name: value.replace("PORT", str(port_of(server))) for name, value in headers.items()}
    found, problem = ask(server, "POST", "/reset", None, told)
    assert found == status
    assert problem["message"]


def test_the_document_needs_no_token_but_the_host(server: ControlServer) -> None:
    status, document = ask(server, "GET", "/openapi.json", None, {"Authorization": ""})
    assert (status, document["openapi"]) == (200, "3.1.0")
    assert ask(server, "POST", "/openapi.json", None, {"Authorization": ""})[0] == 401
    assert ask(server, "GET", "/openapi.json", None, {"Host": "kafka.example"})[0] == 421
    assert ask(server, "GET", "/openapi.json", None, {"Origin": "http://kafka.example"})[0] == 403


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"\xff", 400), (b'{"x": NaN}', 400), (b"[" * 100_000, 400), (b"[]", 400), (b"null", 400)],
)
def test_a_body_that_is_no_object_is_refused(server: ControlServer, body: bytes, status: int) -> None:
    found, problem = ask(server, "POST", "/topics", body)
    assert found == status
    assert problem["message"]


def test_a_body_is_bounded(server: ControlServer) -> None:
    text = "x" * (BODY_BYTES_MAX - 100)
    assert ask(server, "POST", "/topics/long/records", json.dumps({"values": [text]}).encode())[0] == 200
    status, problem = ask(server, "POST", "/topics/long/records", b"x" * (BODY_BYTES_MAX + 1))
    assert (status, problem["message"]) == (413, "a body has at most 1048576 bytes")
    ask(server, "DELETE", "/topics/long")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Transfer-Encoding: chunked", 411),
        ("Content-Length: x", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: 1\r\nContent-Length: 2", 400),
        ("Content-Length: 999999999999999999999999", 413),
        ("Content-Length: 5", 400),
    ],
)
def test_where_a_request_ends_is_certain(server: ControlServer, head: str, status: int) -> None:
    """Otherwise its body could pass for a request."""
    lines = f"POST /reset HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n{head}\r\n\r\n"
    answer = talk(server, lines.encode() + b"{}\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answer


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"]
)
def test_what_is_no_request_is_answered_and_closed(server: ControlServer, said: bytes) -> None:
    answer = talk(server, said)
    assert b'"message"' in answer
    assert ask(server, "GET", "/nodes")[0] == 200


def test_a_client_that_goes_amid_its_request_is_no_bug(server: ControlServer) -> None:
    head = f"POST /reset HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\nContent-Length: 5\r\n\r\n{{"
    with socket.create_connection(("127.0.0.1", port_of(server)), TIMEOUT_S) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset it
        connection.sendall(head.encode())
    assert ask(server, "GET", "/nodes")[0] == 200


def test_a_thread_that_cannot_be_had_costs_one_connection_and_no_place(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = server._server._free
    until(lambda: free._value == CONNECTIONS_MAX, TIMEOUT_S, lambda: "connections of other tests still end")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with suppress(ConnectionError):
            assert talk(server, b"") == b""
    assert free._value == CONNECTIONS_MAX
    assert ask(server, "GET", "/nodes")[0] == 200


def test_connections_are_bounded_and_come_free(server: ControlServer) -> None:
    """Whoever is refused is answered before it says anything: the server does not read what it says."""
    free = server._server._free
    until(lambda: free._value == CONNECTIONS_MAX, TIMEOUT_S, lambda: "connections of other tests still end")
    idle = [
        socket.create_connection(("127.0.0.1", port_of(server)), TIMEOUT_S) for _ in range(CONNECTIONS_MAX)
    ]
    assert talk(server, b"").startswith(b"HTTP/1.1 503 ")
    for each in idle:
        each.shutdown(socket.SHUT_WR)
        assert each.recv(1) == b""
        each.close()
    until(
        lambda: free._value == CONNECTIONS_MAX,
        TIMEOUT_S,
        lambda: "connections that have ended do not come free",
    )
    assert ask(server, "GET", "/nodes")[0] == 200
