"""A node in a thread of the tests' process, on a disk in memory."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest
import trio

from kafkacompat.addresses import split_host_and_port
from kafkacompat.config import ConfigError
from kafkacompat.testing import Kafka, UnknownSetting
from kafkacompat.testing._tests.test_memory_disk import open_descriptors
from kafkacompat.testing.node import NodeEnded, NodeThread


def asked_again(client: socket.socket, correlation_id: int) -> int:
    """Ask for the versions. Return the correlation id of the answer."""
    body = struct.pack(">hhih", 18, 0, correlation_id, -1)
    client.sendall(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", received(client, 4))
    return int(struct.unpack(">i", received(client, length)[:4])[0])


def received(client: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = client.recv(length - len(data))
        assert more, "the connection was closed"
        data += more
    return data


def api_versions_of(bootstrap_servers: str) -> int:
    address = split_host_and_port(bootstrap_servers)
    assert address is not None
    with socket.create_connection(address, timeout=10) as client:
        return asked_again(client, 7)


def test_a_node_serves_real_clients() -> None:
    with Kafka() as kafka:
        assert api_versions_of(kafka.bootstrap_servers) == 7


def test_it_does_what_a_test_calls_in_its_own_thread() -> None:
    with Kafka() as kafka:
        broker = kafka.node.call(lambda: kafka.node.server.broker)
        assert broker is not None
        with pytest.raises(ZeroDivisionError):
            kafka.node.call(lambda: 1 / 0)
    with pytest.raises(NodeEnded):
        kafka.node.call(lambda: 1)


def test_a_node_whose_thread_has_only_begun_can_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    serve, in_loop = NodeThread._serve, NodeThread._in_loop

    async def serve_when_asked(node: NodeThread) -> None:
        await trio.to_thread.run_sync(asked.wait)
        await serve(node)

    def ask(node: NodeThread, function: Callable[[], object]) -> None:
        asked.set()
        in_loop(node, function)

    with Kafka() as kafka:
        kafka.kill_node(1)
        monkeypatch.setattr(NodeThread, "_serve", serve_when_asked)
        monkeypatch.setattr(NodeThread, "_in_loop", ask)
        node = kafka._make(1)
        node.begin()
        node.kill()
        with pytest.raises(NodeEnded):
            node.wait_ready()


def test_a_setting_that_kafka_does_not_have_is_named() -> None:
    with pytest.raises(UnknownSetting, match=r"num\.partition$"):
        Kafka({"num.partition": 3})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Kafka({"num.partitions": "many"})


def test_a_kafka_that_cannot_be_made_keeps_no_port() -> None:
    before = open_descriptors("socket:")
    with pytest.raises(ConfigError) as kept:  # with the frames that know it
        Kafka({"num.partitions": "many"}, nodes=3)
    assert set(open_descriptors("socket:")) <= set(before), kept


def test_a_node_takes_the_place_of_another_behind_the_same_connection() -> None:
    with Kafka() as kafka:
        empty = kafka.snapshot().copies(kafka.clock)[1]
        address = split_host_and_port(kafka.bootstrap_servers)
        assert address is not None
        with socket.create_connection(address, timeout=10) as client:
            assert asked_again(client, 1) == 1
            before = kafka.node.server
            kafka.node.exchange(empty)
            assert kafka.node.server is not before
            assert asked_again(client, 2) == 2
