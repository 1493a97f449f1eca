"""Authentications that succeed, fail and are left off are counted as Apache Kafka counts them, by SASL and by TLS."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from math import isnan
from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.metrics.test_names import Node
from interop_tests.security.handshakes import ANSWER_S, API_VERSIONS
from interop_tests.security.sasl_talks import PASSWORD, USER, settings_of
from interop_tests.security.stores import Stores, with_listener

REAUTHENTICATION_PAUSE_S = 1.2
"""Apache Kafka refuses a client that authenticates again within a second (KIP-368)."""
SERIES = re.compile(
    "kafka_server_socket_server_metrics_listener_(safe|secret)_networkprocessor_[0-9]+_"
    "((?:successful|failed)_(?:re)?authentication_total|successful_authentication_no_reauth_total|connection_creation_total)"
)
LATENCY = re.compile(
    "kafka_server_socket_server_metrics_listener_safe_networkprocessor_[0-9]+_reauthentication_latency_(avg|max)"
)
EXPECTED = {
    ("safe", "successful_authentication_total"): 2,
    ("safe", "failed_authentication_total"): 1,
    ("safe", "successful_reauthentication_total"): 1,
    ("safe", "failed_reauthentication_total"): 1,
    ("safe", "successful_authentication_no_reauth_total"): 0,
    ("safe", "connection_creation_total"): 4,
    ("secret", "successful_authentication_total"): 2,
    ("secret", "failed_authentication_total"): 3,
    ("secret", "successful_reauthentication_total"): 0,
    ("secret", "failed_reauthentication_total"): 0,
    ("secret", "successful_authentication_no_reauth_total"): 2,
    ("secret", "connection_creation_total"): 6,
}

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]


class Guarded:
    """A broker with a SASL listener SAFE and a TLS listener SECRET."""

    def __init__(self, kind: str, root: Path) -> None:
        (root / "broker").mkdir()
        self.node = Node(kind, root / "broker")
        self.stores = Stores(root / "stores")
        self.safe, self.secret = free_port(), free_port()
        broker = self.node.broker
        broker.settings |= settings_of(broker, self.safe)
        broker.settings["listener.name.safe.plain.connections.max.reauth.ms"] = "3600000"
        broker.settings |= with_listener(broker.settings, self.secret, name="SECRET")
        own = self.stores.authority.issue()
        broker.settings |= self.stores.settings(own, prefix="listener.name.secret.")

    def counts(self) -> dict[tuple[str, str], float]:
        """By listener and name, over all network threads."""
        found: Counter[tuple[str, str]] = Counter()
        for series, value in self.node.scrape().items():
            match = SERIES.fullmatch(series.name)
            if match is not None:
                found[match[1], match[2]] += int(value)
        return dict(found)

    def latencies(self) -> dict[str, float]:
        """Of authentications anew, over the network threads that have had one."""
        found = [(LATENCY.fullmatch(series.name), value) for series, value in self.node.scrape().items()]
        return {match[1]: value for match, value in found if match is not None and not isnan(value)}

    def authenticate(self, connection: Connection, password: str) -> int:
        """The error code. A connection is closed after a failure."""
        connection.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})
        token = f"\0{USER}\0{password}".encode()
        return int(connection.call("SaslAuthenticate", 2, {"AuthBytes": token})["ErrorCode"])

    def by_sasl(self) -> None:
        address = f"127.0.0.1:{self.safe}"
        with Connection(address) as right:
            assert not self.authenticate(right, PASSWORD)
            time.sleep(REAUTHENTICATION_PAUSE_S)
            assert not self.authenticate(right, PASSWORD)
        with Connection(address) as wrong:
            assert self.authenticate(wrong, "wrong")
        with Connection(address) as later_wrong:
            assert not self.authenticate(later_wrong, PASSWORD)
            time.sleep(REAUTHENTICATION_PAUSE_S)
            assert self.authenticate(later_wrong, "wrong")
        with Connection(address) as gone:
            gone.call("SaslHandshake", 1, {"Mechanism": "PLAIN"})

    def dial(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.secret), ANSWER_S)

    def secured(self) -> float:
        return self.counts().get(("secret", "successful_authentication_total"), 0)

    def by_tls(self) -> None:
        trusting = ssl.create_default_context(cafile=str(self.stores.ca_pem))
        trusting.check_hostname = False
        for asks, counted in ((True, 1), (False, 2)):
            with self.dial() as sock, trusting.wrap_socket(sock) as secured:
                if asks:
                    secured.sendall(len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS)
                    assert secured.recv(4)
                # The client ends its handshake first. A broker that meets the closed connection counts nothing.
                wait_until(
                    lambda wanted=counted: self.secured() == wanted, "the handshake is counted", ANSWER_S
                )
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            distrusting = ssl.create_default_context()
            distrusting.check_hostname = False
            distrusting.minimum_version = distrusting.maximum_version = version
            with self.dial() as sock, pytest.raises(ssl.SSLError):
                distrusting.wrap_socket(sock)
        with self.dial() as in_the_clear, suppress(OSError):
            in_the_clear.sendall(len(API_VERSIONS).to_bytes(4, "big") + API_VERSIONS)
            while in_the_clear.recv(4096):
                pass
        self.dial().close()


@pytest.fixture(params=[KAFKACOMPAT, APACHE])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    try:
        made = Guarded(request.param, tmp_path)
    except MissingTool as missing:
        pytest.skip(str(missing))
    made.node.broker.start()
    try:
        yield made
    finally:
        made.node.broker.kill()


def test_authentications_are_counted(guarded: Guarded) -> None:
    assert guarded.latencies() == {}
    guarded.by_sasl()
    latencies = guarded.latencies()
    assert latencies.keys() == {"avg", "max"}
    assert 0 <= latencies["avg"] <= latencies["max"] < 1000 * ANSWER_S
    guarded.by_tls()
    with suppress(AssertionError):
        wait_until(lambda: guarded.counts() == EXPECTED, "all are counted", ANSWER_S)
    assert guarded.counts() == EXPECTED
