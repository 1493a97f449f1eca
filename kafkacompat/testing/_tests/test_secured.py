"""The security of a test's Kafka, without one."""

from __future__ import annotations

from typing import Any

import pytest

from kafkacompat.security.client_settings import Credentials, connection_of_client
from kafkacompat.testing import Kafka
from kafkacompat.testing.secured import PROTOCOLS, Security

USERS = {"alice": 'wonder"land\\', "bob": "builder"}


def test_without_security_clients_need_nothing() -> None:
    security = Security()
    assert security.librdkafka() == {"security.protocol": "PLAINTEXT"}
    assert security.python() == {"security_protocol": "PLAINTEXT"}
    assert security.java() == {"security.protocol": "PLAINTEXT"}
    assert security.settings(has_scram=True) == {}
    assert not security.is_on


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_java_settings_are_those_that_kafkas_clients_read(protocol: str) -> None:
    security = Security(protocol, USERS)
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        read = connection_of_client(security.java("alice", mechanism=mechanism))
        assert (read.ssl is not None) == protocol.endswith("SSL")
        if protocol != "SSL":
            assert (read.mechanism, read.credentials) == (mechanism, Credentials("alice", USERS["alice"]))
        assert read.security() is not None


def test_a_user_that_there_is_not_is_named_beside_those_that_there_are() -> None:
    security = Security("SASL_SSL", USERS)
    for settings in (security.librdkafka, security.python, security.java):
        with pytest.raises(LookupError, match="there is no user 'carol'; those that there are: alice, bob"):
            settings("carol")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"secure": "TLS"}, "secure='TLS'"),
        ({"users": USERS}, "users= needs secure="),
        ({"secure": True, "users": {}}, "names no user"),
        ({"secure": True, "users": {'a"b': "c"}}, "has other characters"),
        ({"secure": True, "settings": {"listeners": "PLAINTEXT://127.0.0.1:0"}}, "listeners of its own"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Kafka(**arguments)


def test_a_release_without_scram_has_plain() -> None:
    with Kafka(secure="SASL_PLAINTEXT", version="2.8") as kafka:
        assert kafka.node.config.originals["sasl.enabled.mechanisms"] == "PLAIN"
    with Kafka(secure="SASL_PLAINTEXT", version="3.9") as kafka:
        assert "SCRAM-SHA-512" in kafka.node.config.originals["sasl.enabled.mechanisms"]
