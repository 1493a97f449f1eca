"""Brokers that take clients by GSSAPI, and a realm with these clients.

`alice` may do everything, `bob` has no rights, and no rule names `carol`. Nodes are `kafka/localhost`, which a rule names `node`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.kdc import HOST, REALM, Kdc, require_library
from interop_tests.harness.ports import free_port

SERVICE = "kafka"
NODE = f"{SERVICE}/{HOST}"
OTHER_SERVICE = f"other/{HOST}"
ALICE, BOB, CAROL = "alice", "bob", "carol"
NAMED = "Dora-Of-Test"
"""A rule makes her `dora`."""
RULES = (
    f"RULE:[1:$1@$0]({ALICE}@{REALM})s/@.*//"
    f",RULE:[1:$1]({BOB})"
    ",RULE:[1:$1](Dora.*)s/-Of-Test//L"
    f",RULE:[2:$1/$2]({NODE})s/.*/node/"
)
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
SESSION_MS = 3_600_000


@contextmanager
def realm(folder: Path) -> Iterator[Kdc]:
    """Skips the test where the key distribution center or the library cannot be had; the reason says what is missing."""
    kdc = Kdc(folder)
    try:
        require_library()
        started = kdc.start((NODE, OTHER_SERVICE, ALICE, BOB, CAROL, NAMED))
    except MissingTool as missing:
        pytest.skip(str(missing))
    try:
        yield started
    finally:
        kdc.kill()


def module(kdc: Kdc, principal: str) -> str:
    return f'{MODULE} useKeyTab=true storeKey=true keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}";'


def kerberized(kind: str, folder: Path, kdc: Kdc) -> tuple[BrokerProcess, str]:
    """A broker, not started, and the address of its listener with GSSAPI."""
    broker = BrokerProcess(kind, folder)
    port = free_port()
    of = "listener.name.safe."
    broker.settings |= {
        "listeners": f"{broker.settings['listeners']},SAFE://127.0.0.1:{port}",
        "advertised.listeners": f"{broker.settings['advertised.listeners']},SAFE://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        f"{of}sasl.enabled.mechanisms": "GSSAPI",
        f"{of}gssapi.sasl.jaas.config": module(kdc, NODE),
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.principal.to.local.rules": RULES,
        f"{of}gssapi.connections.max.reauth.ms": str(SESSION_MS),
        "connection.failed.authentication.delay.ms": "5",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ALICE};User:node",
    }
    broker.environment = kdc.environment | {"KAFKACOMPAT_LOG": "INFO"}
    broker.jvm_options = (*BrokerProcess.jvm_options, kdc.java_option)
    return broker, f"{HOST}:{port}"


def make_kerberized(node: ClusterNode, kdc: Kdc) -> None:
    """Give a node of a cluster a listener for brokers that takes tickets, as does its controllers' listener."""
    node.settings |= {
        "listeners": f"{node.settings['listeners']},SAFE://{HOST}:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,SAFE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.principal.to.local.rules": RULES,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:node",
    }
    for listener in ("safe", "controller"):
        of = f"listener.name.{listener}."
        node.settings |= {
            f"{of}sasl.enabled.mechanisms": "GSSAPI",
            f"{of}gssapi.sasl.jaas.config": module(kdc, NODE),
        }
    node.environment |= kdc.environment
    node.jvm_options = (*node.jvm_options, kdc.java_option)


def client_file(folder: Path, kdc: Kdc, principal: str) -> Path:
    """Properties of a Kafka client, for Java's and for ours."""
    path = folder / f"{principal}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=GSSAPI\n"
        f"sasl.kerberos.service.name={SERVICE}\n"
        f"sasl.jaas.config={module(kdc, principal)}\n"
    )
    return path
