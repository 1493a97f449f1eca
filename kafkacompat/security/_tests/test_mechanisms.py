"""The mechanisms of a listener's settings, and refused settings. No error contains a password."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.security.mechanisms import LOGIN_MODULES, mechanisms_of
from kafkacompat.security.sasl_server import PlainSaslServer, initial_response
from kafkacompat.security.scram import SCRAM_SHA_512, ScramCredential, ScramMechanism
from kafkacompat.security.scram_exchange import ScramSaslServer

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="s3cret";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ENABLED = "sasl.enabled.mechanisms"
OF_SAFE = "listener.name.safe."
DOCS = Path(__file__).resolve().parents[3] / "docs"


def made(settings: dict[str, str], asked: list[tuple[str, ScramMechanism]] | None = None):  # type: ignore[no-untyped-def]
    config = ServerConfig.from_properties(defaults_without_file(), settings)

    def credential_of(user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        if asked is not None:
            asked.append((user, mechanism))
        return None

    return mechanisms_of(config, "SAFE", credential_of, SystemRandom(), lambda: 0)


def test_a_listener_has_its_own_in_their_order() -> None:
    found = made(
        {
            ENABLED: "PLAIN",
            OF_SAFE + ENABLED: "SCRAM-SHA-512,PLAIN",
            OF_SAFE + "plain.sasl.jaas.config": PLAIN,
            OF_SAFE + "scram-sha-512.sasl.jaas.config": SCRAM,
            OF_SAFE + "plain.connections.max.reauth.ms": "5000",
        }
    )
    assert list(found) == ["SCRAM-SHA-512", "PLAIN"]
    assert [each.max_reauth_ms for each in found.values()] == [0, 5000]
    server = found["PLAIN"].begin()
    assert isinstance(server, PlainSaslServer)
    server.evaluate_response(initial_response("alice", "s3cret"))
    assert server.authorization_id == "alice"


def test_scram_asks_for_the_user_of_its_own_mechanism() -> None:
    asked: list[tuple[str, ScramMechanism]] = []
    found = made({ENABLED: "SCRAM-SHA-512", OF_SAFE + "scram-sha-512.sasl.jaas.config": SCRAM}, asked)
    first, second = found["SCRAM-SHA-512"].begin(), found["SCRAM-SHA-512"].begin()
    assert isinstance(first, ScramSaslServer)
    assert isinstance(second, ScramSaslServer)
    assert first._nonce != second._nonce
    with pytest.raises(Exception, match="Invalid user credentials"):
        first.evaluate_response(b"n,,n=bob,r=abc")
    assert asked == [("bob", SCRAM_SHA_512)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({ENABLED: "GSSAPI"}, "listener.name.safe.gssapi.sasl.jaas.config must be set"),
        ({ENABLED: "plain"}, "plain for configuration sasl.enabled.mechanisms"),
        ({ENABLED: ""}, "sasl.enabled.mechanisms"),
        ({ENABLED: "PLAIN"}, "listener.name.safe.plain.sasl.jaas.config must be set"),
        (
            {ENABLED: "PLAIN", "sasl.jaas.config": PLAIN},
            "listener.name.safe.plain.sasl.jaas.config must be set",
        ),
        ({ENABLED: "PLAIN", OF_SAFE + "plain.sasl.jaas.config": PLAIN[:-1]}, "not terminated"),
        ({ENABLED: "PLAIN", OF_SAFE + "plain.sasl.jaas.config": PLAIN + SCRAM}, "2 login modules"),
        ({ENABLED: "PLAIN", OF_SAFE + "plain.sasl.jaas.config": SCRAM}, "must be .*PlainLoginModule"),
        (
            {
                ENABLED: "SCRAM-SHA-256",
                OF_SAFE + "scram-sha-256.sasl.jaas.config": "com.example.Mine required a=s3cret;",
            },
            "must be .*ScramLoginModule",
        ),
    ],
)
def test_a_mechanism_that_cannot_be_had_is_refused_by_its_setting(
    settings: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        made(settings)
    assert "s3cret" not in str(refused.value)


def test_the_page_of_compatibility_names_each_mechanism() -> None:
    page = (DOCS / "reference" / "compatibility.md").read_text(encoding="utf-8")
    found = re.search(r"\*\*SASL mechanisms\*\* other than ([\w, -]+) and ([\w-]+)\.", page)
    assert found is not None
    assert [*found[1].split(", "), found[2]] == list(LOGIN_MODULES)
