"""The health check of a listener with TLS. What needs a node is in the interop tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kafkacompat.container.health import check_tls
from kafkacompat.failure import CommandFailed

REFUSAL = b"\x15\x03\x03\x00\x02\x02\x28"
"""The alert `handshake_failure`."""
Serve = Callable[[Callable[[socket.socket], None]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve one connection, and return the port."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def start(do: Callable[[socket.socket], None]) -> int:
        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                do(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        port: int = listener.getsockname()[1]
        return port

    yield start
    for each in threads:
        each.join()
    listener.close()


def refuse(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(REFUSAL)
    connection.recv(4096)


def say_nothing(connection: socket.socket) -> None:
    """As a process that hangs: the client waits, and closes."""
    while connection.recv(4096):
        continue


def close(connection: socket.socket) -> None:
    connection.recv(4096)


def test_a_node_that_refuses_a_handshake_is_healthy(serve: Serve) -> None:
    check_tls("127.0.0.1", serve(refuse), 10)


@pytest.mark.parametrize("do", [say_nothing, close])
def test_a_node_that_takes_a_connection_and_does_not_answer_is_not_healthy(
    do: Callable[[socket.socket], None], serve: Serve
) -> None:
    with pytest.raises(CommandFailed, match="no broker answers"):
        check_tls("127.0.0.1", serve(do), 0.2)
