"""Clusters whose nodes authenticate to each other."""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.ports import free_port
from interop_tests.security.sasl_talks import MODULES
from interop_tests.security.stores import Stores
from interop_tests.security.token_talks import asked, by_token, logged_in
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.security.scram import SCRAM_SHA_512
from kafkacompat.security.scram_exchange import ScramSaslClient
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest

pytestmark = pytest.mark.needs_control
NODE, PASSWORD = "node", "w0rd of the nodes"
SECRETS = (PASSWORD,)
CLIENT_S = 30

MakeSecured = Callable[..., Cluster]


def secure(cluster: Cluster, stores: Stores | None) -> str:
    """Give every node a listener SAFE, on which brokers authenticate to each other with SCRAM, and require PLAIN on
    the controllers' listeners. With stores both are also encrypted. Returns the addresses of the SAFE listeners."""
    plain = f'{MODULES}plain.PlainLoginModule required username="{NODE}" password="{PASSWORD}" user_{NODE}="{PASSWORD}";'
    scram = f'{MODULES}scram.ScramLoginModule required username="{NODE}" password="{PASSWORD}";'
    addresses = []
    protocol = "SASL_PLAINTEXT" if stores is None else "SASL_SSL"
    of_tls = {} if stores is None else stores.settings(stores.authority.issue())
    for node in cluster.nodes.values():
        port = free_port()
        addresses.append(f"127.0.0.1:{port}")
        node.settings |= {
            "listeners": f"{node.settings['listeners']},SAFE://127.0.0.1:{port}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol},SAFE:{protocol}",
            "inter.broker.listener.name": "SAFE",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.controller.plain.sasl.jaas.config": plain,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The tests observe the cluster through the listener without SASL.
            "super.users": f"User:{NODE};User:ANONYMOUS",
        } | of_tls
    return ",".join(addresses)


@pytest.fixture
def make_secured(tmp_path: Path) -> Iterator[MakeSecured]:
    made: list[Cluster] = []

    def make(
        kinds: str | Sequence[str], settings: dict[str, str] | None = None, stores: Stores | None = None
    ) -> tuple[Cluster, dict[str, str]]:
        """A cluster that has been started, and the settings of its clients."""
        user = f"SCRAM-SHA-512=[name={NODE},password={PASSWORD}]"
        cluster = Cluster(kinds, tmp_path, settings=settings, format_options=("--add-scram", user))
        made.append(cluster)
        address = secure(cluster, stores)
        cluster.start()
        return cluster, client(address, stores)

    yield make
    for cluster in made:
        cluster.close()


def client(address: str, stores: Stores | None) -> dict[str, str]:
    encrypted = {"security.protocol": "SASL_PLAINTEXT"}
    if stores is not None:
        encrypted = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(stores.ca_pem)}
    return encrypted | {
        "bootstrap.servers": address,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": NODE,
        "sasl.password": PASSWORD,
    }


def produced(how: dict[str, str], topic: str, values: Sequence[bytes]) -> None:
    producer = Producer(how | {"acks": "all", "enable.idempotence": "true"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(CLIENT_S) == 0


def consumed(how: dict[str, str], topic: str, count: int) -> list[bytes]:
    own = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**how, **CONNECTED_TO_ALL, **own})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for _ in range(CLIENT_S):
        found += [each.value() for each in consumer.consume(count, 1.0) if each.error() is None]
        if len(found) >= count:
            break
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("kinds", "has_tls"),
    [([KAFKACOMPAT] * 3, False), ([KAFKACOMPAT] * 3, True), ([KAFKACOMPAT, APACHE, KAFKACOMPAT], True)],
    ids=["ours", "ours-with-tls", "mixed-with-tls"],
)
def test_nodes_that_ask_each_other_who_they_are_lose_nothing_in_a_failover(
    make_secured: MakeSecured, tmp_path: Path, kinds: list[str], has_tls: bool
) -> None:
    stores = Stores(tmp_path / "stores") if has_tls else None
    cluster, how = make_secured(kinds, stores=stores)
    cluster.create_topic("topic", partitions=1)
    cluster.wait_until_replicated()
    first = [b"%d" % number for number in range(500)]
    produced(how, "topic", first)
    leader = cluster.leader("topic")
    cluster.nodes[leader].kill()
    second = [b"%d" % number for number in range(500, 1000)]
    produced(how, "topic", second)
    assert sorted(consumed(how, "topic", 1000), key=int) == first + second
    cluster.mend()
    for node in cluster.nodes.values():
        assert not any(secret in node.log_text() for secret in SECRETS)


@pytest.mark.parametrize(
    "kinds", [[KAFKACOMPAT] * 3, [KAFKACOMPAT, APACHE, KAFKACOMPAT]], ids=["ours", "mixed"]
)
def test_a_token_of_any_node_lets_in_everywhere(make_secured: MakeSecured, kinds: list[str]) -> None:
    """Every node passes requests about tokens to the controller, which may be of the other kind."""
    cluster, how = make_secured(kinds, {"delegation.token.secret.key": PASSWORD})
    addresses = how["bootstrap.servers"].split(",")
    made: list[tuple[str, bytes]] = []
    for address in addresses:
        client = ScramSaslClient(SCRAM_SHA_512, NODE, PASSWORD, "nonce")
        with logged_in(address, SCRAM_SHA_512.name, client)[0] as connection:
            answer = asked(connection, CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
            assert answer.error_code == 0, answer.error_code
            made.append((answer.token_id, bytes(answer.hmac)))

    def lets_in(address: str, token_id: str, hmac: bytes) -> bool:
        try:
            connection, lifetime_ms = by_token(address, token_id, b64encode(hmac).decode(), "SCRAM-SHA-512")
        except AuthenticationFailed:
            return False
        with connection:
            refused = asked(connection, RenewDelegationTokenRequest(hmac=hmac), 2)
        assert lifetime_ms > 0
        return bool(refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

    for address in addresses:
        for token_id, hmac in made:
            cluster.wait(lambda: lets_in(address, token_id, hmac), f"{address} knows the token")  # noqa: B023
    client = ScramSaslClient(SCRAM_SHA_512, NODE, PASSWORD, "nonce")
    with logged_in(addresses[0], SCRAM_SHA_512.name, client)[0] as connection:
        for _, hmac in made:
            answer = asked(connection, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=3_600_000), 2)
            assert answer.error_code == 0
    for kind, node in zip(kinds, cluster.nodes.values(), strict=True):
        assert kind == APACHE or not any(b64encode(hmac).decode() in node.log_text() for _, hmac in made)


def test_sessions_between_nodes_are_begun_anew(make_secured: MakeSecured) -> None:
    """connections.max.reauth.ms also applies to nodes. No client is interrupted."""
    cluster, how = make_secured(KAFKACOMPAT, {"connections.max.reauth.ms": "2000"})
    cluster.create_topic("topic", partitions=3)
    cluster.wait_until_replicated()
    values = [b"%d" % number for number in range(5)]
    for value in values:
        produced(how, "topic", [value] * 20)
    assert len(consumed(how, "topic", 100)) == 100
    for node in cluster.nodes.values():
        assert "session has ended" not in node.log_text(), node.log_text()


def test_a_node_with_another_password_is_told_of_and_not_let_in(make_secured: MakeSecured) -> None:
    cluster, _ = make_secured(KAFKACOMPAT)
    node = cluster.nodes[3]
    node.stop()
    wrong = "an0ther"
    node.settings = {
        name: text.replace(f'password="{PASSWORD}" user', f'password="{wrong}" user')
        for name, text in node.settings.items()
    }
    node.start()
    cluster.wait(lambda: "Invalid username or password" in node.log_text(), "the node says why")
    assert "authentication with 127.0.0.1:" in node.log_text()
    assert wrong not in node.log_text()
    others = [each for each in cluster.nodes.values() if each is not node]
    assert any("failed authentication" in each.log_text() for each in others)


def test_a_node_whose_certificate_is_of_another_authority_is_not_talked_to(
    make_secured: MakeSecured, tmp_path: Path
) -> None:
    cluster, _ = make_secured(KAFKACOMPAT, stores=Stores(tmp_path / "stores"))
    node = cluster.nodes[3]
    node.stop()
    foreign = Stores(tmp_path / "foreign")
    node.settings |= foreign.settings(foreign.authority.issue())
    node.start()
    cluster.wait(lambda: "TLS with 127.0.0.1:" in node.log_text(), "the node says whom it does not believe")
    assert "TLS handshake failed: certificate" in node.log_text()
    assert not any("PRIVATE KEY" in each.log_text() for each in cluster.nodes.values())
