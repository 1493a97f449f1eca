"""A node in a thread of the tests' process, on a disk in memory."""

from __future__ import annotations

import socket
import struct

import pytest

from kafkacompat.addresses import split_host_and_port
from kafkacompat.config import ConfigError
from kafkacompat.testing.kafka import Kafka, UnknownSetting
from kafkacompat.testing.node import NodeEnded


def api_versions_of(bootstrap_servers: str) -> int:
    """The correlation id that the broker answers with."""
    address = split_host_and_port(bootstrap_servers)
    assert address is not None
    with socket.create_connection(address, timeout=10) as client:
        body = struct.pack(">hhih", 18, 0, 7, -1)
        client.sendall(struct.pack(">i", len(body)) + body)
        head = b""
        while len(head) < 8 and (more := client.recv(8 - len(head))):
            head += more
    return int(struct.unpack(">ii", head)[1])


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


def test_a_setting_that_kafka_does_not_have_is_named() -> None:
    with pytest.raises(UnknownSetting, match=r"num\.partition$"):
        Kafka({"num.partition": 3})
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Kafka({"num.partitions": "many"})
