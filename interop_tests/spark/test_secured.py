"""Spark's source and sink over TLS with SASL. The connector passes its `kafka.` options to the Java clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from interop_tests.conftest import chosen_kind
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.security.secured import Secured, secured
from interop_tests.security.test_oauthbearer import PACKAGE
from kafkacompat._tests.http_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.needs_control


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("secured"), chosen_kind()) as found:
        yield found


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_batch_there_and_back(spark: SparkSession, safe: Secured, mechanism: str) -> None:
    topic = f"spark-{mechanism}"
    create_topic(safe.broker.bootstrap, topic, 2)
    options = {f"kafka.{name}": value for name, value in safe.java_options(mechanism).items()}
    options |= {"kafka.bootstrap.servers": safe.address}
    rows = [(f"k{number}", f"v{number}") for number in range(50)]
    frame = spark.createDataFrame(rows, "key string, value string")
    frame.write.format("kafka").options(**options).option("topic", topic).save()
    reader = spark.read.format("kafka").options(**options).option("subscribe", topic)
    found = reader.load().selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(tuple(row) for row in found) == sorted(rows)


ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def test_a_batch_there_and_back_with_tokens_of_a_server(spark: SparkSession, safe: Secured) -> None:
    """Spark's client of Kafka 3.9 has its handler in another package than Kafka 4."""
    topic = "spark-oauthbearer"
    create_topic(safe.broker.bootstrap, topic, 1)
    with serving() as server:
        server.answer = lambda asked: (200, json.dumps({"access_token": safe.token()}).encode())
        server.headers["Content-Type"] = "application/json"
        url = f"{server.base}/token"
        system = spark.sparkContext._jvm.java.lang.System
        system.setProperty(ALLOWED, url)
        module = (
            f'{PACKAGE}OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" scope="kafka";'
        )
        client = safe.java_options("PLAIN") | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": module,
            "sasl.login.callback.handler.class": f"{PACKAGE}secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": url,
        }
        options = {f"kafka.{name}": value for name, value in client.items()}
        options |= {"kafka.bootstrap.servers": safe.address}
        try:
            frame = spark.createDataFrame([("k", "v")], "key string, value string")
            frame.write.format("kafka").options(**options).option("topic", topic).save()
            reader = spark.read.format("kafka").options(**options).option("subscribe", topic)
            found = reader.load().selectExpr("cast(key as string)", "cast(value as string)").collect()
        finally:
            system.clearProperty(ALLOWED)
    assert [tuple(row) for row in found] == [("k", "v")]
    assert {each.body for each in server.asked} == {b"grant_type=client_credentials&scope=kafka"}
