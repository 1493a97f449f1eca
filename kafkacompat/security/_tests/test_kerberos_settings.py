"""The settings of GSSAPI: what is refused by its setting, and that the library is an extra."""

from __future__ import annotations

import sys

import pytest

import kafkacompat.security
from kafkacompat.config import ConfigError, ServerConfig, defaults_without_file
from kafkacompat.net.runtime import SystemRandom
from kafkacompat.security.client_settings import connection_of_client, security_of_client
from kafkacompat.security.kerberos_login import KerberosLogin
from kafkacompat.security.librdkafka import librdkafka_settings
from kafkacompat.security.mechanisms import mechanisms_of

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = 'useKeyTab=true keyTab="/etc/kafka.keytab"'
JAAS = "listener.name.safe.gssapi.sasl.jaas.config"
OF_SERVICE = {"sasl.kerberos.service.name": "kafka"}


@pytest.fixture(autouse=True)
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without the extra, whether it is here or not."""
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "kafkacompat.security.kerberos_library", raising=False)
    monkeypatch.delattr(kafkacompat.security, "kerberos_library", raising=False)


def listener(options: str, more: dict[str, str]) -> None:
    given = {"sasl.enabled.mechanisms": "GSSAPI", JAAS: f"{MODULE} {options};"} | more
    config = ServerConfig.from_properties(defaults_without_file(), given)
    mechanisms_of(config, "SAFE", lambda user, mechanism: None, SystemRandom(), lambda: 0)


def client(options: str, more: dict[str, str] = OF_SERVICE) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": f"{MODULE} {options};",
    } | more


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        (f'{KEYTAB} principal="kafka/h@R"', {}, r"sasl\.kerberos\.service\.name must be set"),
        (
            f'{KEYTAB} principal="kafka/h@R" serviceName=other',
            OF_SERVICE,
            "serviceName other is not the kafka",
        ),
        ('principal="kafka/h@R"', OF_SERVICE, 'needs the option useKeyTab="true"'),
        (KEYTAB, OF_SERVICE, "needs the option principal"),
        (f'{KEYTAB} principal="kafka@R"', OF_SERVICE, "needs the option principal, as service/host@REALM"),
        (f'{KEYTAB} principal="a/b/c@R"', OF_SERVICE, "Malformed Kerberos name"),
        (f'{KEYTAB} principal="kafka/h@R"', OF_SERVICE, r"install kafkacompat\[gssapi\]"),
        (f'{KEYTAB} principal="kafka/h@R" serviceName=kafka', {}, r"install kafkacompat\[gssapi\]"),
    ],
)
def test_a_setting_that_a_kerberos_listener_lacks_is_named(
    options: str, more: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        listener(options, more)


@pytest.mark.parametrize(
    ("options", "login"),
    [
        (f'{KEYTAB} principal="a@R"', KerberosLogin("kafka", "a@R", "/etc/kafka.keytab", False, None)),
        ('useKeyTab=true principal="a@R"', KerberosLogin("kafka", "a@R", None, False, None)),
        ("useTicketCache=true", KerberosLogin("kafka", None, None, True, None)),
        ('useTicketCache=TRUE ticketCache="/tmp/c"', KerberosLogin("kafka", None, None, True, "/tmp/c")),
    ],
)
def test_a_client_logs_in_by_a_keytab_or_a_ticket_cache(options: str, login: KerberosLogin) -> None:
    assert connection_of_client(client(options)).credentials == login
    with pytest.raises(ConfigError, match=r"install kafkacompat\[gssapi\]"):
        security_of_client(client(options))


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        (KEYTAB, OF_SERVICE, "needs the option principal"),
        ('principal="a@R"', OF_SERVICE, "needs the option useKeyTab"),
        (f'{KEYTAB} principal="a@R"', {}, r"sasl\.kerberos\.service\.name must be set"),
    ],
)
def test_a_setting_that_a_kerberos_client_lacks_is_named(
    options: str, more: dict[str, str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        connection_of_client(client(options, more))


def test_librdkafka_gets_the_same_login() -> None:
    common = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    assert librdkafka_settings(client(f'{KEYTAB} principal="a@R"')) == common | {
        "sasl.kerberos.principal": "a@R",
        "sasl.kerberos.keytab": "/etc/kafka.keytab",
    }
    assert librdkafka_settings(client("useTicketCache=true")) == common | {"sasl.kerberos.kinit.cmd": ""}
    with pytest.raises(ConfigError, match="default ticket cache"):
        librdkafka_settings(client('useTicketCache=true ticketCache="/tmp/c"'))
