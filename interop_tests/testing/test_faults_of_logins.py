"""Faults before a client is known, and what is kept of a login."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kafkacompat.testing.kafka import Kafka

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="wonderland";'
)
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
}
pytestmark = [pytest.mark.needs_control, pytest.mark.kafka(settings=SETTINGS)]


def test_a_login_that_fails_is_tried_again_and_its_secrets_are_not_kept(kafka: Kafka) -> None:
    kafka.create_topic("orders")
    kafka.faults.delay(50, api="ApiVersions")
    kafka.faults.close(api="SaslHandshake")
    kafka.faults.error("SASL_AUTHENTICATION_FAILED", api="SaslAuthenticate")
    kafka.faults.error("NOT_LEADER_OR_FOLLOWER", api="Produce", principal="User:alice")
    kafka.faults.close(api="Produce", principal="User:ANONYMOUS", optional=True)
    told: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonderland",
            "log_level": 0,
        }
    )
    producer.produce("orders", b"tea", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    assert told == [None]
    (refused, *_) = kafka.requests(api="SaslAuthenticate")
    assert refused.reasons == ("SASL_AUTHENTICATION_FAILED: a fault of the test says so",)
    assert refused.request.auth_bytes == b"(masked)"
    assert {each.principal for each in kafka.requests(api="Produce")} == {"User:alice"}
    assert b"wonderland" not in b"".join(each._body or b"" for each in kafka.requests())
