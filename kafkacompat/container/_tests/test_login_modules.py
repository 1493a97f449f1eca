"""Login modules of a JAAS file as settings of the listeners."""

from __future__ import annotations

import pytest

from kafkacompat.container.login_modules import jaas_settings
from kafkacompat.security.jaas import JaasError, parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
FILE = f"""
// Of all listeners
KafkaServer {{
  {PLAIN} required
    username="admin" password="a\\"b\\\\c" user_admin="a\\"b\\\\c";
  {SCRAM} required username="s" password="t";
  {KERBEROS} required useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";
}};
inside.KafkaServer {{ {PLAIN} required username="inner"; }};
KafkaClient {{ {PLAIN} required username="client"; }};
"""
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://:1,INSIDE://:2,PLAINTEXT://:3",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,INSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}


def test_a_listener_has_the_modules_of_its_section() -> None:
    found = jaas_settings(PROPERTIES, FILE)
    assert sorted(found) == [
        "listener.name.inside.plain.sasl.jaas.config",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config",
    ]
    modules = {name: parse_jaas(text)[0] for name, text in found.items()}
    assert modules["listener.name.inside.plain.sasl.jaas.config"].options == {"username": "inner"}
    secret = 'a"b\\c'
    outer = modules["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert outer.name == PLAIN
    assert outer.options == {"username": "admin", "password": secret, "user_admin": secret}


def test_each_mechanism_has_its_module() -> None:
    asked = PROPERTIES | {
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN,GSSAPI"
    }
    found = jaas_settings(asked, FILE)
    assert SCRAM in found["listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"]
    assert PLAIN in found["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert KERBEROS in found["listener.name.sasl_plaintext.gssapi.sasl.jaas.config"]


def test_a_setting_wins_over_the_file() -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert name not in jaas_settings(PROPERTIES | {name: "x"}, FILE)


@pytest.mark.parametrize(
    "text", ["KafkaServer", "KafkaServer {", "KafkaServer { };x", "{ };", "KafkaServer { a required; }"]
)
def test_a_file_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(JaasError):
        parse_jaas_file(text)
