"""Listeners with GSSAPI and a real key distribution center: who gets in by which name, compared with Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop_tests.cluster.clusters import Cluster, Place
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.java_tools import LOGGING
from interop_tests.harness.kafka_jars import MissingTool, require_program
from interop_tests.harness.kafka_jvm import kafka_java
from interop_tests.harness.kdc import HOST, REALM, Kdc, require_cyrus_module
from interop_tests.security.kerberos import (
    ALICE,
    BOB,
    CAROL,
    client_file,
    kerberized,
    make_kerberized,
    realm,
)
from interop_tests.security.kerberos_talks import TALKS, environment, repeated, transcript
from interop_tests.security.test_cluster import consumed, produced
from kafkacompat.security.cluster_address import ClusterAddress

pytestmark = pytest.mark.needs_control
CLIENT_S = 90


@dataclass(frozen=True)
class Sides:
    kdc: Kdc
    brokers: dict[str, BrokerProcess]
    addresses: dict[str, str]
    """Of the listeners with GSSAPI, by the kind of broker."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("kerberos")
    with ExitStack() as stack:
        kdc = stack.enter_context(realm(folder / "kdc"))
        brokers, addresses = {}, {}
        for kind in (APACHE, KAFKACOMPAT):
            brokers[kind], addresses[kind] = kerberized(kind, folder / kind, kdc)
            stack.callback(brokers[kind].kill)
        brokers[APACHE].launch()
        brokers[KAFKACOMPAT].start()
        brokers[APACHE].wait_until_ready()
        yield Sides(kdc, brokers, addresses)


def command(sides: Sides, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkacompat", *map(str, arguments)],
        input=given,
        env=os.environ | sides.kdc.environment,
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
    )


def java(sides: Sides, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = kafka_java("-Xmx256m", LOGGING, sides.kdc.java_option)
    return subprocess.run([*words, *map(str, arguments)], capture_output=True, text=True, timeout=CLIENT_S)


@pytest.mark.parametrize("kind", [KAFKACOMPAT, APACHE])
def test_commands_get_in_by_a_keytab(sides: Sides, tmp_path: Path, kind: str) -> None:
    file = client_file(tmp_path, sides.kdc, ALICE)
    how = ("--bootstrap", sides.addresses[kind], "--command-config", file)
    made = command(sides, "topics", *how, "create", "ours", "--partitions", "1")
    assert made.returncode == 0, made
    said = command(sides, "produce", "ours", *how, given="one\ntwo\n")
    assert said.returncode == 0, said
    heard = command(sides, "consume", "ours", *how, "--from-beginning", "--max-messages", "2")
    assert sorted(heard.stdout.split()) == ["one", "two"], heard
    of_bob = ("--bootstrap", sides.addresses[kind], "--command-config", client_file(tmp_path, sides.kdc, BOB))
    refused = command(sides, "produce", "ours", *of_bob, given="three\n")
    assert "AUTHORIZATION_FAILED" in refused.stderr, refused


def test_java_gets_in_by_a_keytab(sides: Sides, tmp_path: Path) -> None:
    file = client_file(tmp_path, sides.kdc, ALICE)
    how = ("--bootstrap-server", sides.addresses[KAFKACOMPAT], "--command-config", file)
    topics = "org.apache.kafka.tools.TopicCommand"
    made = java(sides, topics, *how, "--create", "--topic", "of-java", "--partitions", "1")
    assert made.returncode == 0, made
    of_bob = client_file(tmp_path, sides.kdc, BOB)
    listed = java(sides, topics, *how[:2], "--command-config", of_bob, "--list")
    assert listed.returncode == 0, listed
    assert "of-java" not in listed.stdout
    log = sides.brokers[KAFKACOMPAT].log_text()
    assert "of-java" in java(sides, topics, *how, "--list").stdout, log


def test_librdkafka_gets_in_by_a_keytab(sides: Sides, tmp_path: Path) -> None:
    """With the settings that we give it. Debian's kcat has Cyrus SASL; confluent-kafka's wheels have no GSSAPI."""
    try:
        kcat = require_program("kcat")
        require_program("kinit")
        require_cyrus_module()
    except MissingTool as missing:
        pytest.skip(str(missing))
    file = client_file(tmp_path, sides.kdc, ALICE)
    settings = ClusterAddress.of_file(sides.addresses[KAFKACOMPAT], str(file)).librdkafka()
    words = [kcat, "-t", "of-kcat"]
    for name, value in settings.items():
        words += ["-X", f"{name}={value}"]
    how = {
        "env": os.environ | sides.kdc.environment,
        "capture_output": True,
        "text": True,
        "timeout": CLIENT_S,
    }
    said = subprocess.run([*words, "-P"], input="one\ntwo\n", **how)  # type: ignore[call-overload]
    assert said.returncode == 0, said
    heard = subprocess.run([*words, "-C", "-e", "-o", "beginning"], **how)  # type: ignore[call-overload]
    assert sorted(heard.stdout.split()) == ["one", "two"], heard


@pytest.mark.parametrize("name", TALKS)
def test_exchanges_are_answered_as_apache_kafka_answers_them(sides: Sides, name: str) -> None:
    with environment(sides.kdc):
        ours, theirs = (
            transcript(sides.addresses[kind], sides.kdc, TALKS[name]) for kind in (KAFKACOMPAT, APACHE)
        )
    assert ours == theirs


def test_a_repeated_ticket_is_refused(sides: Sides) -> None:
    with environment(sides.kdc):
        ours, theirs = (repeated(sides.addresses[kind], sides.kdc) for kind in (KAFKACOMPAT, APACHE))
    assert ours == theirs
    assert ours[-1][0] == 58


def test_a_refused_client_is_logged_with_the_reason(sides: Sides) -> None:
    with environment(sides.kdc):
        for name in ("with a changed ticket", "of nobody's name"):
            transcript(sides.addresses[KAFKACOMPAT], sides.kdc, TALKS[name])
    log = sides.brokers[KAFKACOMPAT].log_text()
    assert "Decrypt integrity check failed" in log
    assert f"its principal has no name: No rules apply to {CAROL}@{REALM}" in log


def test_a_client_without_a_key_distribution_center_is_told(sides: Sides, tmp_path: Path) -> None:
    file = client_file(tmp_path, sides.kdc, ALICE)
    lost = sides.kdc.config.read_text().replace(f":{sides.kdc.port}", ":1")
    (tmp_path / "krb5.conf").write_text(lost)
    arguments = ("topics", "list", "--bootstrap", sides.addresses[KAFKACOMPAT], "--command-config", str(file))
    refused = subprocess.run(
        [sys.executable, "-m", "kafkacompat", *arguments],
        env=os.environ | sides.kdc.environment | {"KRB5_CONFIG": str(tmp_path / "krb5.conf")},
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
    )
    assert refused.returncode == 1, refused
    assert "Cannot contact any KDC" in refused.stderr, refused


OURS_TOO = [pytest.param([KAFKACOMPAT] * 3, id="ours")] if os.environ.get("KAFKACOMPAT_SOAK") else []


@pytest.mark.parametrize("kinds", [pytest.param([KAFKACOMPAT, APACHE, KAFKACOMPAT], id="mixed"), *OURS_TOO])
def test_nodes_know_each_other_by_tickets(tmp_path: Path, kinds: list[str]) -> None:
    """Brokers and controllers, and their sessions are begun anew."""
    with realm(tmp_path / "kdc") as kdc:
        places = [Place(HOST)] * 3
        cluster = Cluster(kinds, tmp_path, places=places, settings={"connections.max.reauth.ms": "2000"})
        try:
            for node in cluster.nodes.values():
                make_kerberized(node, kdc)
            cluster.start()
            cluster.create_topic("topic", partitions=3)
            cluster.wait_until_replicated()
            how = {"bootstrap.servers": cluster.bootstrap}
            for number in range(5):
                produced(how, "topic", [b"%d" % number] * 20)
            assert len(consumed(how, "topic", 100)) == 100
            cluster.wait_until_whole()
            for node in cluster.nodes.values():
                assert "session has ended" not in node.log_text(), node.log_text()
        finally:
            cluster.close()
