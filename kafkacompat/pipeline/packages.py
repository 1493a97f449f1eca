"""Spark's packages: the Kafka connector of the installed PySpark, and the table formats that are tested with it. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.tables import DELTA, ICEBERG, PARQUET

FORMAT_PACKAGES: Final = {
    "4.0": {
        DELTA: "io.delta:delta-spark_2.13:4.0.0",
        ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    },
    "4.2": {
        DELTA: "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
}
"""The packages of table formats, by the minor version of Spark that they are built for."""

EXTENSIONS: Final = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    ICEBERG: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


@cache
def spark_version() -> str:
    """Return the version of the installed PySpark, which is Spark's. PipelineFailed if there is none."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise PipelineFailed(
            "pyspark is not installed; install with: pip install 'kafkacompat[spark]'"
        ) from None


def connector() -> str:
    """Return the package of the Kafka connector. Each release of Spark has its own."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version()}"


def spark_minor() -> tuple[int, int]:
    """Return the first two numbers of Spark's version."""
    major, minor, *_ = spark_version().split(".")
    return int(major), int(minor)


def formats_here() -> tuple[str, ...]:
    """Return the table formats that the installed Spark can write."""
    return (PARQUET, *_format_packages())


def _format_packages() -> dict[str, str]:
    return FORMAT_PACKAGES.get(".".join(map(str, spark_minor())), {})


def packages(formats: Iterable[str] = ()) -> str:
    """Return the value of spark.jars.packages: the connector, and the packages of these table formats.

    PipelineFailed for a format that has no package for this Spark.
    """
    here = _format_packages()
    found = [connector()]
    for name in sorted({*formats} - {PARQUET}):
        if name not in here:
            known = " or ".join(minor for minor, made in FORMAT_PACKAGES.items() if name in made)
            raise PipelineFailed(
                f"tables of format {name} need Spark {known}, and PySpark {spark_version()} is installed"
            )
        found.append(here[name])
    return ",".join(found)


def format_settings(formats: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings for these table formats."""
    named = sorted({*formats} - {PARQUET})
    if not named:
        return {}
    chosen = {"spark.sql.extensions": ",".join(EXTENSIONS[name] for name in named)}
    if DELTA in named:
        # Delta refuses to write without it, though its tables are found by their folder.
        chosen["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return chosen
