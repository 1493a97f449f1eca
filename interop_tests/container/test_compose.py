"""The compose files of the image: their services run as processes with the environment of the file."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from kafka import KafkaConsumer, KafkaProducer

from interop_tests.cli.running_cluster import base_port
from interop_tests.container.services import CHECKOUT, Services
from interop_tests.harness.broker import APACHE, chosen_kind
from kafkacompat._tests.certificates import Authority

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_kind() == APACHE, reason="the image runs kafkacompat and nothing else"),
]
Open = Callable[[str], Services]
PASSWORD = "p\xe4ssw\xf6rd"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Open]:
    opened: list[Services] = []

    def open_file(name: str) -> Services:
        deployed = CHECKOUT / "deploy" / "compose" / name / "compose.yaml"
        opened.append(Services(deployed if deployed.exists() else Path(__file__).parent / name, tmp_path))
        return opened[-1]

    yield open_file
    for each in opened:
        each.kill()


def produce(address: str, values: list[bytes]) -> None:
    producer = KafkaProducer(bootstrap_servers=address, acks="all")
    for value in values:
        producer.send("clicks", value)
    producer.flush(30)
    producer.close()


def consume(address: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        "clicks",
        bootstrap_servers=address,
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    found: list[bytes] = []
    for record in consumer:
        found.append(record.value)
        if len(found) == count:
            break
    consumer.close()
    return found


def test_one_node_keeps_its_data_over_a_restart(services: Open) -> None:
    one = services("one-node")
    assert not one.is_healthy("kafka")
    one.start("kafka", KAFKA_HEAP_OPTS="-Xmx1g", KAFKA_LOG4J_ROOT_LOGLEVEL="WARN")
    one.wait_until_served("kafka")
    assert one.is_healthy("kafka")
    assert "KAFKA_HEAP_OPTS has no effect" in one.output("kafka")
    settings = one.root("kafka") / "opt/kafka/config/server.properties"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    produce(one.address("kafka"), [b"a", b"b"])
    assert one.stop("kafka") == 0
    assert not one.is_healthy("kafka")
    meta = next((one.root("kafka")).rglob("meta.properties")).read_text("utf-8")
    assert "cluster.id=5L6g3nShT-eMCtK--X86sw" in meta
    one.start("kafka", CLUSTER_ID="another-one")
    one.wait_until_served("kafka")
    assert consume(one.address("kafka"), 2) == [b"a", b"b"]
    assert one.stop("kafka") == 0


def test_a_container_has_as_many_brokers_as_it_is_told(services: Open) -> None:
    """A volume of one node becomes one of two brokers, and stays that."""
    one = services("one-node")
    one.use_ports("kafka", {9092: (first := base_port()), 19092: first + 1000, 9093: first + 2000})
    one.start("kafka")
    one.wait_until_served("kafka")
    produce(one.address("kafka"), [b"a", b"b"])
    assert one.stop("kafka") == 0
    one.start("kafka", KAFKA_NUM_BROKERS="2", KAFKA_METRICS_LISTENER_PORT=str(first + 5))
    one.wait_until_served("kafka")
    assert "nodes 1 to 2 serving" in one.output("kafka")
    assert one.is_healthy("kafka")
    assert consume(one.address("kafka"), 2) == [b"a", b"b"]
    with urlopen(f"http://127.0.0.1:{first + 5}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    for node_id in (1, 2):
        assert f'kafkacompat_broker_up{{node_id="{node_id}"}} 1.0' in text
        assert re.search(rf'\nkafka_server_\S+{{node_id="{node_id}"', text)
    with urlopen(f"http://127.0.0.1:{first + 5}/ready", timeout=30) as answer:
        assert answer.status == 200
    assert one.stop("kafka") == 0
    one.start("kafka")
    one.wait_until_served("kafka")
    assert "nodes 1 to 2 serving" in one.output("kafka")
    assert one.stop("kafka") == 0


def test_three_nodes_are_one_cluster(services: Open) -> None:
    three = services("three-nodes")
    for name in three.names:
        three.start(name)
    for name in three.names:
        three.wait_until_served(name)
        assert three.is_healthy(name)
    first, second, third = three.names
    values = [b"%d" % number for number in range(20)]
    produce(three.address(first), values)
    assert three.stop(second) == 0
    assert sorted(consume(three.address(third), len(values))) == sorted(values)


def test_a_broker_apart_from_its_controller_with_stores_in_the_secrets(services: Open) -> None:
    """No entry of the logs has the password, at any level."""
    both = services("isolated.yaml")
    authority = Authority()
    secrets = both.root("broker") / "etc/kafka/secrets"
    secrets.mkdir(parents=True)
    (secrets / "keys.p12").write_bytes(authority.issue().pkcs12(PASSWORD))
    (secrets / "trust.p12").write_bytes(authority.pkcs12(PASSWORD))
    (secrets / "password").write_text(f"{PASSWORD}\n")
    for name in both.names:
        both.start(name, KAFKA_LOG4J_ROOT_LOGLEVEL="TRACE", KAFKACOMPAT_LOG_FORMAT="json")
    both.wait_until_served("broker")
    assert both.is_healthy("broker")
    assert both.is_healthy("controller")
    both.pause("broker")
    assert not both.is_healthy("broker"), "the operating system takes its connections"
    both.go_on("broker")
    client = authority.issue("alice", ())
    files = {"ca": authority.pem(), "cert": client.chain_pem(), "key": client.key_pem()}
    for name, text in files.items():
        (secrets / name).write_text(text)
    producer = KafkaProducer(
        bootstrap_servers=both.address("broker"),
        security_protocol="SSL",
        ssl_cafile=str(secrets / "ca"),
        ssl_certfile=str(secrets / "cert"),
        ssl_keyfile=str(secrets / "key"),
        ssl_check_hostname=False,
    )
    assert producer.send("clicks", b"x").get(30).offset == 0
    producer.close()
    for name in ("broker", "controller"):
        assert both.stop(name) == 0
        told = both.output(name)
        assert PASSWORD not in told
        assert all("message" in json.loads(line) for line in told.splitlines() if line.startswith("{"))


def test_a_wrong_environment_is_one_line(services: Open) -> None:
    one = services("one-node")
    one.start("kafka", KAFKA_SSL_CLIENT_AUTH="none", KAFKA_NODE_ID="one")
    assert one.ended("kafka") == 1
    (line,) = one.output("kafka").splitlines()
    assert line.startswith("kafkacompat: ")
    assert "Invalid value one" in line
