"""`kafkacompat cluster --secure`: one command creates a cluster that accepts only authenticated users."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from interop_tests.cli.command import output_of, refusal_of, run
from interop_tests.cli.running_cluster import RunningCluster, base_port
from interop_tests.harness.broker import APACHE, chosen_kind
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed
from kafkacompat.security.cluster_address import ClusterAddress

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="this command starts kafkacompat and nothing else"),
]
CLIENT_S = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    made = RunningCluster(tmp_path, base_port())
    yield made
    made.kill()


def passwords_in(folder: Path) -> list[str]:
    settings = [
        path.read_text() for path in (*folder.glob("node-*/server.properties"), folder / "admin.properties")
    ]
    return sorted(set(re.findall(r'password="([^"]+)"', "".join(settings))))


def test_a_secured_cluster_serves_its_users_and_nobody_else(
    cluster: RunningCluster, unique: Callable[[str], str], tools: KafkaTools, tmp_path: Path
) -> None:
    cluster.start("--secure", "--nodes", "3", "--port", str(cluster.port))
    client = cluster.data / "admin.properties"
    assert f"--command-config {client}" in cluster.said
    where, data = ("--bootstrap", cluster.bootstrap), ("--data", str(cluster.data))
    inside = (*where, "--command-config", str(client))
    topic = unique("kept")
    output_of("topics", "create", topic, "--partitions", "3", *inside)
    output_of("produce", topic, *inside, stdin=b"one\ntwo\n")
    assert sorted(output_of("consume", topic, *inside, "--from-beginning", "--until-end").split()) == [
        "one",
        "two",
    ]

    settings = ClusterAddress.of_file(cluster.bootstrap, str(client)).librdkafka()
    producer = Producer(settings)
    producer.produce(topic, b"three")
    assert producer.flush(CLIENT_S) == 0
    consumer = Consumer(settings | {"group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            seen.add(message.value())
        return seen == {b"one", b"two", b"three"}

    wait_until(read, "librdkafka has read everything", CLIENT_S)
    consumer.close()

    # Kafka's tools use the same file, for brokers and for controllers.
    controllers = ",".join(f"127.0.0.1:{cluster.port + each + 1000}" for each in range(3))
    for server in (("--bootstrap-server", cluster.bootstrap), ("--bootstrap-controller", controllers)):
        tools.run("AclCommand", *server, "--command-config", str(client), "--list")

    # A client without the file, with another authority, or with a wrong password is refused.
    for port in range(cluster.port, cluster.port + 3):
        for each in (port, port + 1000):
            with pytest.raises(ConnectionClosed), Connection(f"127.0.0.1:{each}") as plain:
                plain.call("Metadata", 12, {"Topics": []})
    assert "the broker" in refusal_of("topics", "list", *where)
    (wrong, blind, encrypted) = (tmp_path / name for name in ("wrong", "blind", "encrypted"))
    text = client.read_text()
    wrong.write_text(re.sub('password="[^"]+"', 'password="n0t-this-0ne"', text))
    assert "authentication with" in refusal_of("topics", "list", *where, "--command-config", str(wrong))
    blind.write_text("".join(line for line in text.splitlines(True) if "truststore" not in line))
    assert "is refused" in refusal_of("topics", "list", *where, "--command-config", str(blind))
    encrypted.write_text(
        "security.protocol=SSL\n" + "".join(x for x in text.splitlines(True) if "truststore" in x)
    )
    assert run("topics", "list", *where, "--command-config", str(encrypted)).returncode == 1

    # A user without permissions can log in, but sees nothing.
    alice = tmp_path / "alice"
    alice.write_text(
        re.sub('username="admin" password="[^"]+"', 'username="alice" password="alice-secret"', text)
    )
    tools.run(
        "ConfigCommand", "--bootstrap-server", cluster.bootstrap, "--command-config", str(client),
        "--alter", "--entity-type", "users", "--entity-name", "alice",
        "--add-config", "SCRAM-SHA-512=[iterations=4096,password=alice-secret]",
    )  # fmt: skip
    known = (*where, "--command-config", str(alice))
    assert topic not in output_of("topics", "list", *known)
    assert "TOPIC_AUTHORIZATION_FAILED" in refusal_of(
        "consume", topic, *known, "--from-beginning", "--until-end"
    )

    # The controllers take a permission for her, and every broker learns it.
    tools.run(
        "AclCommand", "--bootstrap-controller", controllers, "--command-config", str(client),
        "--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", topic,
    )  # fmt: skip
    wait_until(lambda: topic in output_of("topics", "list", *known), "alice sees the topic")

    # The cluster's own commands find the file, and another node joins later.
    assert "node 4 joined" in output_of("node", "add", *data)
    assert "every replica is in sync" in output_of("node", "restart", "4", *data)
    assert run("cluster", "status", *data).returncode == 0
    assert "4 nodes stopped" in output_of("cluster", "stop", *data)

    secrets = passwords_in(cluster.data)
    assert len(secrets) == 2
    for path in cluster.data.rglob("*"):
        if path.is_file() and any(each.encode() in path.read_bytes() for each in [*secrets, "PRIVATE KEY"]):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
            assert path.suffix not in (".log", ".checkpoint"), path
    assert not any(secret in cluster.said for secret in secrets)


def test_a_cluster_that_is_there_is_not_secured_by_an_option(cluster: RunningCluster) -> None:
    cluster.start("--nodes", "1", "--port", str(cluster.port))
    assert cluster.end() == 0
    assert "was created without --secure" in refusal_of("cluster", "--secure", "--data", str(cluster.data))
