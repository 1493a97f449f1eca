"""One Spark session for all tests: two local threads, no web UI, loopback only.

The connector is installed as Spark users install it, by spark.jars.packages. Its jars stay in the checkout's cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from interop_tests.harness.kafka_jars import MissingTool, require_program
from interop_tests.harness.spark_cluster import ivy_dir
from interop_tests.harness.spark_jvm import quick_jvm
from kafkacompat.pipeline.checkpoint_files import by_file_system
from kafkacompat.pipeline.packages import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Read = Callable[..., "DataFrame"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with the Kafka connector."""
    require_program("java")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingTool("pyspark is not installed") from error
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Python workers read Avro and Protobuf by this package.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.jars.packages": connector(),
        "spark.jars.ivy": str(ivy_dir()),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "600m",
        # The queries here are small and short. To compile them, in the JVM or as generated code, takes longer than to
        # run them.
        "spark.driver.extraJavaOptions": quick_jvm(),
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # Starts two programs for each file of a checkpoint instead of ten.
        "spark.sql.streaming.checkpointFileManagerClass": by_file_system(),
    }
    builder = SparkSession.builder.master("local[2]").appName("kafkacompat-interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Read:
    """read(subscribe="topic", ...) is a batch read with these options of the connector."""

    def frame(options: dict[str, Any] | None = None, **more: Any) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**{**(options or {}), **more}).load()

    return frame


@pytest.fixture
def write(spark: SparkSession, bootstrap: str) -> Callable[..., None]:
    """write(rows, "key string, value string, ...", topic=...) is a batch write."""

    def run(rows: list[Any], schema: str, **options: Any) -> None:
        frame = spark.createDataFrame(rows, schema)
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writer.options(**options).save()

    return run


def texts(rows: list[Row]) -> list[str]:
    """The values as text, in order of partition and offset."""
    ordered = sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return [bytes(row["value"]).decode() for row in ordered]
