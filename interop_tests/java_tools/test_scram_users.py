"""SCRAM users with ConfigCommand and with librdkafka's admin client, from creation to deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until

CONFIG = "ConfigCommand"
TIMEOUT_S = 30


def test_a_user_from_made_to_deleted(tools: KafkaTools, bootstrap: str, unique: Callable[[str], str]) -> None:
    user = unique("user")
    server = [CONFIG, "--bootstrap-server", bootstrap, "--entity-type", "users", "--entity-name", user]
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def described() -> list[tuple[str, int]] | None:
        answer = admin.describe_user_scram_credentials([user])[user]
        refusal = answer.exception(TIMEOUT_S)
        if refusal is not None:
            assert refusal.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
            return None
        found = answer.result()
        return [
            (each.mechanism.name, each.iterations)
            for each in sorted(found.scram_credential_infos, key=lambda each: each.mechanism.name)
        ]

    assert described() is None
    made = tools.run(*server, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    assert "Completed updating" in made.out
    wait_until(lambda: described() == [("SCRAM_SHA_256", 8192)], "the user is described")

    second = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"secret"
    )
    admin.alter_user_scram_credentials([second])[user].result(TIMEOUT_S)
    both = [("SCRAM_SHA_256", 8192), ("SCRAM_SHA_512", 4096)]
    wait_until(lambda: described() == both, "the second mechanism is described")

    few = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4095), b"secret"
    )
    with pytest.raises(KafkaException, match="Too few iterations"):
        admin.alter_user_scram_credentials([few])[user].result(TIMEOUT_S)

    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert "Completed updating" in tools.run(*server, "--alter", "--delete-config", name).out
    wait_until(lambda: described() is None, "the user is gone")
    gone = tools.run(*server, "--alter", "--delete-config", "SCRAM-SHA-256", status=1)
    assert "Attempt to delete a user credential that does not exist" in gone.err
