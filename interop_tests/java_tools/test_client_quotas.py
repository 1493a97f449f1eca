"""Quotas of users, client ids and addresses with ConfigCommand, from creation to deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until

CONFIG = "ConfigCommand"
ENTITIES = [
    (("--entity-type", "users", "--entity-name", "{}"), "producer_byte_rate", "1024", "1024.0"),
    (("--entity-type", "clients", "--entity-name", "{}"), "request_percentage", "12.5", "12.5"),
    (
        ("--entity-type", "users", "--entity-name", "{}", "--entity-type", "clients", "--entity-default"),
        "controller_mutation_rate",
        "3",
        "3.0",
    ),
    (("--entity-type", "ips", "--entity-name", "10.9.8.7"), "connection_creation_rate", "7", "7.0"),
]


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity[1])
def test_a_quota_from_set_to_removed(
    tools: KafkaTools,
    bootstrap: str,
    unique: Callable[[str], str],
    entity: tuple[tuple[str, ...], str, str, str],
) -> None:
    parts, key, value, told = entity
    name = unique("name")
    server = [CONFIG, "--bootstrap-server", bootstrap, *(part.format(name) for part in parts)]

    def described() -> bool:
        return f"{key}={told}" in tools.run(*server, "--describe").out

    assert not described()
    assert "Completed updating" in tools.run(*server, "--alter", "--add-config", f"{key}={value}").out
    wait_until(described, "the quota is described")
    assert "Completed updating" in tools.run(*server, "--alter", "--delete-config", key).out
    wait_until(lambda: not described(), "the quota is gone")


def test_names_are_told_as_they_are(tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]) -> None:
    user, client_id = f'{unique("user")} a=b,"ü', f"{unique('client')}/%2F <default>"
    server = [CONFIG, "--bootstrap-server", bootstrap]
    entity = [
        "--entity-type",
        "users",
        "--entity-name",
        user,
        "--entity-type",
        "clients",
        "--entity-name",
        client_id,
    ]
    told = f"Quota configs for user-principal '{user}', client-id '{client_id}' are request_percentage=12.5"

    def described(*asked: str) -> bool:
        return told in tools.run(*server, *asked, "--describe").out.splitlines()

    tools.run(*server, *entity, "--alter", "--add-config", "request_percentage=12.5")
    try:
        wait_until(lambda: described(*entity), "the quota is described")
        assert described("--entity-type", "users", "--entity-type", "clients")
        assert not described("--entity-type", "users")
    finally:
        tools.run(*server, *entity, "--alter", "--delete-config", "request_percentage")


def test_a_value_that_is_refused_is_told(
    tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]
) -> None:
    server = [
        CONFIG,
        "--bootstrap-server",
        bootstrap,
        "--entity-type",
        "users",
        "--entity-name",
        unique("user"),
    ]
    refused = tools.run(*server, "--alter", "--add-config", "producer_byte_rate=-5", status=1)
    assert "Quota producer_byte_rate must be greater than 0" in refused.err + refused.out
