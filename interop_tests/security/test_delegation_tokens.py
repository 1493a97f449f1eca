"""Delegation tokens (KIP-48): by kafka-delegation-tokens, by clients that authenticate with one, and beside Apache Kafka."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.conftest import MakeBroker
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.ports import free_port
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed
from interop_tests.raw.rights import entry
from interop_tests.security.sasl_talks import MODULES
from interop_tests.security.test_commands import run
from interop_tests.security.token_talks import (
    AREA,
    PASSWORD,
    SECRET_KEY,
    asked,
    by_password,
    by_token,
    token_settings,
)
from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat.security.acl import AclOperation, ResourceType
from kafkacompat.security.sasl_client import AuthenticationFailed
from kafkacompat.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkacompat.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from kafkacompat.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from kafkacompat.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest

pytestmark = pytest.mark.needs_control
TOOL = "DelegationTokenCommand"
NOT_ALLOWED = 64


def prepared(broker: BrokerProcess, **settings: str) -> str:
    """The address of its listener SAFE. Everybody there may do everything to topics and groups."""
    port = free_port()
    broker.settings |= token_settings(broker, port)
    broker.settings |= {name.replace("_", "."): value for name, value in settings.items()}
    return f"127.0.0.1:{port}"


def start(broker: BrokerProcess) -> None:
    broker.start()
    kinds = ((ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*"), (ResourceType.CLUSTER, "kafka-cluster"))
    creations = [entry(kind, name, "*", AclOperation.ALL, principal="User:alice") for kind, name in kinds]
    with Connection(broker.bootstrap) as connection:
        reply = connection.call("CreateAcls", 3, {"Creations": creations})
    assert not any(each["ErrorCode"] for each in reply["Results"]), reply


@pytest.fixture
def safe(make_broker: MakeBroker) -> tuple[BrokerProcess, str]:
    broker = make_broker(start=False)
    address = prepared(broker)
    start(broker)
    return broker, address


def client_file(folder: Path, name: str, mechanism: str, module: str, options: str) -> Path:
    path = folder / f"{name}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={MODULES}{module} required {options};\n"
    )
    return path


def password_file(folder: Path, user: str) -> Path:
    options = f'username="{user}" password="{PASSWORD}"'
    return client_file(folder, user, "PLAIN", "plain.PlainLoginModule", options)


def token_file(folder: Path, token_id: str, hmac: str, mechanism: str = "SCRAM-SHA-256") -> Path:
    options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
    return client_file(folder, f"token-{mechanism}", mechanism, "scram.ScramLoginModule", options)


def described_by_tool(out: str) -> list[list[str]]:
    """The cells of the table that the tool prints: id, HMAC, owner, requester, renewers, three moments."""
    rows = [line.split() for line in out.splitlines() if re.search(r"^\S{22} +\S{88} ", line)]
    assert rows, out
    return rows


def test_the_tool_and_java_clients_from_made_to_expired(
    safe: tuple[BrokerProcess, str], tools: KafkaTools, tmp_path: Path
) -> None:
    broker, address = safe

    # Without an owner the tool asks about nobody's tokens, and every broker answers with none.
    describe = ("--describe", "--owner-principal", "User:alice")

    def tool(user: str, *arguments: str, status: int | None = 0) -> str:
        file = str(password_file(tmp_path, user))
        done = tools.run(
            TOOL, "--bootstrap-server", address, "--command-config", file, *arguments, status=status
        )
        return done.out + done.err

    made = tool("alice", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac, *_ = described_by_tool(made)[0]
    wait_until(lambda: token_id in tool("bob", *describe), "the broker knows the token", 20)
    assert token_id not in tool("carol", *describe)
    assert "Completed" in tool("bob", "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
    refused_renewal = tool("carol", "--renew", "--renew-time-period", "-1", "--hmac", hmac, status=None)
    assert "not valid Owner/Renewer" in refused_renewal

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        file = str(token_file(tmp_path, token_id, hmac, mechanism))
        common = ("--bootstrap-server", address, "--command-config", file)
        tools.run("TopicCommand", *common, "--create", "--topic", f"by-{mechanism}", "--partitions", "1")
        assert f"by-{mechanism}" in tools.run("TopicCommand", *common, "--list").lines
        refused = tools.run(TOOL, *common, "--create", "--max-life-time-period", "-1", status=None)
        assert "Delegation Token requests are not allowed" in refused.out + refused.err, refused
    sent = tools.run(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", address, "--topic", "by-SCRAM-SHA-256", "--command-config", file),
        stdin="one\n",
    )
    assert sent.status == 0, sent

    # Our own commands have the same option.
    heard = run("consume", "by-SCRAM-SHA-256", "--bootstrap", address, "--command-config", file,
                "--from-beginning", "--max-messages", "1")  # fmt: skip
    assert heard.stdout.split() == ["one"], heard

    broker.restart()
    wait_until(lambda: token_id in tool("alice", *describe), "the token is still there", 20)
    tools.run("TopicCommand", *common, "--list")
    tool("alice", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    wait_until(lambda: token_id not in tool("alice", *describe), "the token is gone", 20)
    with pytest.raises(AuthenticationFailed):
        by_token(address, token_id, hmac)
    for secret in (hmac, SECRET_KEY, PASSWORD):
        assert secret not in broker.log_text() or broker.kind == APACHE


def created(address: str, user: str, lifetime_ms: int = -1) -> tuple[str, str, bytes]:
    """Id, password and HMAC of a new token."""
    with by_password(address, user) as connection:
        answer = asked(connection, CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms), 3)
    assert answer.error_code == 0
    hmac = bytes(answer.hmac)
    return answer.token_id, b64encode(hmac).decode(), hmac


def lets_in(address: str, token_id: str, password: str) -> bool:
    try:
        by_token(address, token_id, password)[0].close()
    except AuthenticationFailed:
        return False
    return True


def test_a_session_ends_with_its_token_and_the_controller_removes_it(make_broker: MakeBroker) -> None:
    broker = make_broker(start=False)
    address = prepared(broker, delegation_token_expiry_check_interval_ms="1000")
    start(broker)
    token_id, password, _ = created(address, "alice", 4_000)
    wait_until(lambda: lets_in(address, token_id, password), "the token lets in", 20)
    connection, lifetime_ms = by_token(address, token_id, password)
    assert 0 < lifetime_ms <= 4_000
    assert connection.call("Metadata", 12, {"Topics": []})["Brokers"]
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(),
        ExpireDelegationTokenRequest(),
        DescribeDelegationTokenRequest(),
    ):
        assert asked(connection, request, 2).error_code == NOT_ALLOWED

    def has_ended() -> bool:
        try:
            connection.call("Metadata", 12, {"Topics": []})
        except ConnectionClosed:
            return True
        return False

    wait_until(has_ended, "the session ends", 20)
    wait_until(lambda: not lets_in(address, token_id, password), "the token lets nobody in", 20)
    with by_password(address, "alice") as again:
        described = asked(again, DescribeDelegationTokenRequest(owners=None), 3)
    assert (described.error_code, described.tokens) == (0, [])


def test_a_listener_without_authentication_and_a_node_without_a_key_have_no_tokens(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(start=False)
    address = prepared(broker, delegation_token_secret_key="")
    start(broker)
    disabled = 61
    with Connection(broker.bootstrap) as plain, by_password(address, "alice") as connection:
        for request in (
            CreateDelegationTokenRequest(),
            RenewDelegationTokenRequest(),
            ExpireDelegationTokenRequest(),
            DescribeDelegationTokenRequest(),
        ):
            assert asked(plain, request, 2).error_code == NOT_ALLOWED
            assert asked(connection, request, 2).error_code == disabled


def test_tokens_are_answered_as_apache_kafka_answers_them(
    tmp_path: Path, alike: Callable[[str, Comparison, str], None]
) -> None:
    (seed,), requests = seeds((5,), 1), 1500 if SOAK else 150
    with kept_brokers(AREA, tmp_path) as brokers:
        comparison = brokers.seed(seed, requests)
    alike(AREA.name, comparison, f"--seed {seed} --requests {requests}")
    assert comparison.asked == requests
