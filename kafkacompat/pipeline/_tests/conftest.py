"""One Spark for the unit tests of the jobs, without a connector: batch frames replace the source."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Records = Callable[..., "DataFrame"]
SOURCE_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
RECEIVED_MS = 1_790_000_000_000
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""The process lives too briefly for more compilation to pay off."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with one thread."""
    if shutil.which("java") is None:
        pytest.skip("java is not on PATH")
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """records(topic, value, ...) is a frame as from Spark's Kafka source: values in order of their offsets."""
    from pyspark.sql import functions as F

    def make(
        topic: str,
        *values: bytes | None,
        key: bytes = b"key",
        received_ms: int = RECEIVED_MS,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> DataFrame:
        rows: list[Any] = [
            (key, value, topic, 0, offset, received_ms, headers) for offset, value in enumerate(values)
        ]
        frame = spark.createDataFrame(rows, SOURCE_SCHEMA.replace("timestamp timestamp", "timestamp bigint"))
        return frame.withColumn("timestamp", F.timestamp_millis("timestamp"))

    return make
