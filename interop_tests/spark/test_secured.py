"""Spark's source and sink over TLS with SASL. The connector passes its `kafka.` options to the Java clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from interop_tests.conftest import chosen_kind
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.security.secured import Secured, secured

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
