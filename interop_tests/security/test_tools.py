"""Kafka's tools over SASL_SSL: kafka-acls, kafka-configs for users, kafka-delegation-tokens, the console tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.harness.broker import chosen_kind
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until
from interop_tests.security.sasl_talks import MODULES
from interop_tests.security.secured import USER, Secured, secured
from interop_tests.security.test_delegation_tokens import described_by_tool

pytestmark = pytest.mark.needs_control
BOB = "b0bs-w0rd"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{USER};User:ANONYMOUS",
    "delegation.token.secret.key": "k3y of all tokens",
}
CONFIGS, ACLS, TOKENS = "ConfigCommand", "AclCommand", "DelegationTokenCommand"


@pytest.fixture
def safe(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path / "secured", chosen_kind(), SETTINGS) as found:
        yield found


def test_a_user_is_made_and_gets_rights_and_a_token(safe: Secured, tools: KafkaTools, tmp_path: Path) -> None:
    def client(name: str, **changes: str) -> tuple[str, ...]:
        """The options of a tool that connects as a client with these properties."""
        file = tmp_path / f"{name}.properties"
        properties = safe.java_options("SCRAM-SHA-512") | {
            key.replace("_", "."): value for key, value in changes.items()
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return "--bootstrap-server", safe.address, "--command-config", str(file)

    def scram(user: str, password: str, *options: str) -> str:
        login = f'{MODULES}scram.ScramLoginModule required username="{user}" password="{password}"'
        return " ".join([login, *options]) + ";"

    root, bob = client("root"), client("bob", sasl_jaas_config=scram("bob", BOB))
    tools.run("TopicCommand", *root, "--create", "--topic", "orders", "--partitions", "1")
    tools.run(
        CONFIGS, *root, "--alter", "--entity-type", "users", "--entity-name", "bob",
        "--add-config", f"SCRAM-SHA-512=[iterations=4096,password={BOB}]",
    )  # fmt: skip
    described = tools.run(CONFIGS, *root, "--describe", "--entity-type", "users", "--entity-name", "bob")
    assert "SCRAM-SHA-512=iterations=4096" in described.out, described

    def sees() -> bool:
        listed = tools.run("TopicCommand", *bob, "--list", status=None)
        return listed.status == 0 and "orders" in listed.lines

    def sends(who: tuple[str, ...], text: str) -> bool:
        sent = tools.run(
            "ConsoleProducer", *who, "--topic", "orders", "--sync", stdin=f"{text}\n", status=None
        )
        # Who may write nowhere gets no producer id either.
        refused = "AuthorizationException" in sent.out + sent.err
        assert refused == (sent.status != 0), sent
        return not refused

    wait_until(lambda: tools.run("TopicCommand", *bob, "--list", status=None).status == 0, "bob gets in")
    assert not sees()
    assert not sends(bob, "refused")
    # An entry through the broker, another one through its controller.
    tools.run(
        ACLS, *root, "--add", "--allow-principal", "User:bob", "--producer", "--topic", "ord",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    controller = f"127.0.0.1:{safe.broker.controller_port}"
    tools.run(
        ACLS, "--bootstrap-controller", controller, "--add", "--allow-principal", "User:bob", "--consumer",
        "--topic", "orders", "--group", "readers",
    )  # fmt: skip
    listed = tools.run(ACLS, *root, "--list", "--principal", "User:bob").out
    for part in ("patternType=PREFIXED", "operation=WRITE", "operation=READ", "resourceType=GROUP"):
        assert part in listed
    wait_until(sees, "bob sees the topic")
    assert sends(bob, "from bob")

    # The user's token gets in where the user does.
    made = tools.run(TOKENS, *bob, "--create", "--max-life-time-period", "-1")
    token_id, hmac, *_ = described_by_tool(made.out)[0]
    described = tools.run(TOKENS, *bob, "--describe", "--owner-principal", "User:bob")
    assert token_id in described.out
    token = client("token", sasl_jaas_config=scram(token_id, hmac, 'tokenauth="true"'))
    wait_until(
        lambda: tools.run("TopicCommand", *token, "--list", status=None).status == 0, "the token gets in"
    )
    assert sends(token, "by the token")
    read = tools.run(
        "consumer.ConsoleConsumer", *token, "--topic", "orders", "--group", "readers", "--from-beginning",
        "--max-messages", "2", "--timeout-ms", "30000",
    )  # fmt: skip
    assert read.lines == ["from bob", "by the token"], read

    tools.run(TOKENS, *bob, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    tools.run(
        ACLS, *root, "--remove", "--force", "--allow-principal", "User:bob", "--producer", "--topic", "ord",
        "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    wait_until(lambda: not sends(bob, "late"), "bob may no longer write")
    tools.run(
        CONFIGS, *root, "--alter", "--entity-type", "users", "--entity-name", "bob",
        "--delete-config", "SCRAM-SHA-512",
    )  # fmt: skip
    wait_until(
        lambda: tools.run("TopicCommand", *bob, "--list", status=None).status != 0, "bob gets in no longer"
    )
    for secret in (BOB, hmac, SETTINGS["delegation.token.secret.key"]):
        assert secret not in safe.broker.log_text()
