"""One Spark for the unit tests of the jobs, without a connector: batch frames replace the source."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
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
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xshare:auto -Xlog:disable"
)
"""The process lives too briefly for more compilation to pay off."""
CHECKOUT = Path(__file__).resolve().parents[3]
CODE = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults: it generates code for each query."""
NO_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For a few rows, generating and compiling the code takes longest."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with one thread."""
    if shutil.which("java") is None:
        pytest.skip("java is not on PATH")
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
    # The interop tests' archive of Spark's classes. Without it, or if it does not fit, they come from the jars.
    archive = CHECKOUT / ".cache" / "spark" / version("pyspark") / "classes.jsa"
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.extraJavaOptions", f"{QUICK_JVM} -XX:SharedArchiveFile={archive}")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=NO_CODE)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def generated_code(spark: SparkSession) -> Iterator[None]:
    """Spark generates code, as it does outside of these tests."""
    for key, value in CODE.items():
        spark.conf.set(key, value)
    yield
    for key, value in NO_CODE.items():
        spark.conf.set(key, value)


@pytest.fixture
def records(spark: SparkSession) -> Records:
    """records(topic, value, ...) is a frame as from Spark's Kafka source: values in order of their offsets. `received_ms` is
    the time of all, or has that of each."""
    from pyspark.sql import functions as F

    def make(
        topic: str,
        *values: bytes | None,
        key: bytes = b"key",
        received_ms: int | Sequence[int] = RECEIVED_MS,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> DataFrame:
        times_ms = [received_ms] * len(values) if isinstance(received_ms, int) else received_ms
        rows: list[Any] = [
            (key, value, topic, 0, offset, time_ms, headers)
            for offset, (value, time_ms) in enumerate(zip(values, times_ms, strict=True))
        ]
        frame = spark.createDataFrame(rows, SOURCE_SCHEMA.replace("timestamp timestamp", "timestamp bigint"))
        return frame.withColumn("timestamp", F.timestamp_millis("timestamp"))

    return make
