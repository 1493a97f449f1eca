"""Brokers of ours that the tests of both shells ask, and servers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkacompat._tests.certificates import Authority
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.testing.ports import ReservedPorts
from kafkacompat.testing.process import Broker, running_broker
from kafkacompat.wire.codec import encode
from kafkacompat.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

USER, PASSWORD, WRONG = "reader", "a-secret", "another-secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
METADATA = 3


def host_and_port_of(broker: Broker) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return host, int(port)


@contextmanager
def secured_broker(authority: Authority, folder: Path) -> Iterator[tuple[Broker, int]]:
    """A broker with a listener in the clear, and the port of one with TLS and PLAIN."""
    ports = ReservedPorts()
    port = ports.reserve()
    identity = folder / "node.pem"
    identity.write_text(authority.issue().pem())
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,SAFE://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "listener.name.safe.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
    }
    try:
        with running_broker(settings) as broker:
            yield broker, port
    finally:
        ports.release()


def secured_address(
    authority: Authority, folder: Path, port: int, password: str = PASSWORD
) -> ClusterAddress:
    trusted = folder / "trusted.pem"
    trusted.write_text(authority.pem())
    return ClusterAddress(
        f"127.0.0.1:{port}",
        {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="{USER}" password="{password}";',
        },
    )


Serve = Callable[[socket.socket], None]


@contextmanager
def misbehaving(*serve: Serve) -> Iterator[int]:
    """A server that serves its connections one after another by these functions, and then takes no more. The port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        for each in serve:
            connection, _ = listener.accept()
            with connection:
                each(connection)
        listener.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()


def received(connection: socket.socket) -> int:
    """Receive a request of less than a packet. Returns its correlation id, or -1 at the end of the connection."""
    data = connection.recv(4096)
    return int(struct.unpack_from(">i", data, 8)[0]) if data else -1


def tell_versions(connection: socket.socket) -> None:
    """Answer the first request: METADATA in version 9 alone is served."""
    keys = [ApiVersion(api_key=METADATA, min_version=9, max_version=9)]
    body = struct.pack(">i", received(connection)) + encode(ApiVersionsResponse(api_keys=keys), 0)
    connection.sendall(struct.pack(">i", len(body)) + body)


def close(connection: socket.socket) -> None:
    received(connection)


def hang(connection: socket.socket) -> None:
    """Answer nothing until the client closes."""
    while connection.recv(4096):
        continue


def hang_later(connection: socket.socket) -> None:
    tell_versions(connection)
    hang(connection)


def close_later(connection: socket.socket) -> None:
    tell_versions(connection)
    received(connection)


def promise_much(connection: socket.socket) -> None:
    tell_versions(connection)
    received(connection)
    connection.sendall(b"\x7f\xff\xff\xff")
    hang(connection)


def answer_another(connection: socket.socket) -> None:
    tell_versions(connection)
    answer = struct.pack(">ix", received(connection) + 1) + bytes(20)
    connection.sendall(struct.pack(">i", len(answer)) + answer)
    hang(connection)


def trickle(connection: socket.socket) -> None:
    """Send an answer so slowly that no single wait is long."""
    tell_versions(connection)
    received(connection)
    connection.sendall(b"\0\0\x10\0")
    stop = threading.Event()
    try:
        while not stop.wait(0.02):
            connection.sendall(b"\0")
    except OSError:
        return
