"""Several listeners of one node, each with its advertised address, and connections that are idle for too long."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.ports import free_port
from interop_tests.harness.raw_kafka import ErrorCode
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed

pytestmark = pytest.mark.needs_control

ADVERTISED_HOST = "kafka.example.org"
IDLE_MS = 1_000
DENY, ALLOW = 2, 3
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def two_listeners(make_broker: MakeBroker) -> tuple[BrokerProcess, int]:
    """A broker with a second listener OUTSIDE, advertised as kafka.example.org:443, and the port of that listener."""
    broker = make_broker(start=False)
    port = free_port()
    broker.settings |= {
        "listeners": broker.settings["listeners"] + f",OUTSIDE://127.0.0.1:{port}",
        "advertised.listeners": broker.settings["advertised.listeners"] + f",OUTSIDE://{ADVERTISED_HOST}:443",
        "listener.security.protocol.map": broker.settings["listener.security.protocol.map"]
        + ",OUTSIDE:PLAINTEXT",
    }
    return broker.start(), port


def endpoints(connection: Connection) -> set[tuple[str, int]]:
    """The broker's address in Metadata, DescribeCluster and FindCoordinator."""
    brokers: list[dict[str, Any]] = connection.call("Metadata", 12, {"Topics": []})["Brokers"]
    cluster: list[dict[str, Any]] = connection.call("DescribeCluster", 1, {"EndpointType": 1})["Brokers"]
    return {(each["Host"], each["Port"]) for each in (*brokers, *cluster)}


def test_each_listener_names_its_own_address(two_listeners: tuple[BrokerProcess, int]) -> None:
    broker, port = two_listeners
    with Connection(broker.bootstrap) as inside, Connection(f"127.0.0.1:{port}") as outside:
        assert endpoints(inside) == {("127.0.0.1", broker.port)}
        assert endpoints(outside) == {(ADVERTISED_HOST, 443)}


def test_the_coordinator_is_named_by_the_listener_that_was_asked(
    two_listeners: tuple[BrokerProcess, int],
) -> None:
    _, port = two_listeners
    with Connection(f"127.0.0.1:{port}") as outside:
        deadline = time.monotonic() + 30
        while True:
            found = outside.call("FindCoordinator", 3, {"Key": "group", "KeyType": 0})
            if found["ErrorCode"] == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert (found["ErrorCode"], found["Host"], found["Port"]) == (0, ADVERTISED_HOST, 443)


def test_an_idle_connection_is_closed_and_a_busy_one_kept(make_broker: MakeBroker) -> None:
    broker = make_broker({"connections.max.idle.ms": str(IDLE_MS)})
    with Connection(broker.bootstrap) as idle, Connection(broker.bootstrap) as busy:
        deadline = time.monotonic() + 15
        idle.call("ApiVersions", 0, {})
        idle.socket.settimeout(0.2)
        closed = False
        while not closed and time.monotonic() < deadline:
            busy.call("ApiVersions", 0, {})
            try:
                closed = idle.socket.recv(1) == b""
            except TimeoutError:
                continue
        assert closed
        busy.call("ApiVersions", 0, {})


def test_a_listener_without_a_client_does_not_disturb_the_other(
    two_listeners: tuple[BrokerProcess, int],
) -> None:
    broker, port = two_listeners
    with Connection(f"127.0.0.1:{port}") as outside:
        outside.send_bytes(b"\xff\xff\xff\xff")
        with pytest.raises(ConnectionClosed):
            outside.call("ApiVersions", 0, {})
    with Connection(broker.bootstrap) as inside:
        assert inside.call("ApiVersions", 0, {})["ErrorCode"] == 0


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("host", ["[::]", "0.0.0.0"])
def test_a_listener_on_all_interfaces_serves_both_kinds_and_entries_name_addresses_in_javas_form(
    host: str, make_broker: MakeBroker
) -> None:
    broker = make_broker(start=False)
    port = free_port()
    broker.settings |= {
        "listeners": broker.settings["listeners"] + f",ALL://{host}:{port}",
        "advertised.listeners": broker.settings["advertised.listeners"] + f",ALL://localhost:{port}",
        "listener.security.protocol.map": broker.settings["listener.security.protocol.map"]
        + ",ALL:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    broker.start()
    denied = {"long": "0:0:0:0:0:0:0:1", "short": "::1"}
    entries = [
        {"ResourceType": 2, "ResourceName": topic, "ResourcePatternType": 3, "Principal": "User:ANONYMOUS"}
        | {"Host": host, "Operation": 2, "PermissionType": permission}
        for topic, of in denied.items()
        for host, permission in ((of, DENY), ("*", ALLOW))
    ]
    with Connection(f"127.0.0.1:{port}") as four, Connection(f"::1:{port}") as six:
        created = four.call("CreateAcls", 3, {"Creations": entries})["Results"]
        assert {each["ErrorCode"] for each in created} == {0}

        def codes(connection: Connection) -> dict[str, int]:
            body = {"Topics": [{"Name": name} for name in denied], "AllowAutoTopicCreation": False}
            answer: list[dict[str, Any]] = connection.call("Metadata", 5, body)["Topics"]
            return {each["Name"]: each["ErrorCode"] for each in answer}

        missing, refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED
        wait_until(lambda: codes(six) == {"long": refused, "short": missing}, "the entries of ::1")
        assert codes(four) == {"long": missing, "short": missing}
