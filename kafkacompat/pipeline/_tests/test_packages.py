"""Spark's packages follow from the installed PySpark, and from the formats of the tables. No Spark."""

from __future__ import annotations

from importlib.metadata import version

import pytest

pytest.importorskip("pyspark")

from kafkacompat.pipeline import packages
from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.tables import FORMATS, format_in


def test_the_connector_is_that_of_the_installed_spark() -> None:
    assert packages.connector().endswith(f":{version('pyspark')}")
    assert packages.packages() == packages.packages(["parquet"]) == packages.connector()
    assert packages.format_settings(["parquet"]) == {}


def test_each_format_has_a_package_for_the_installed_spark() -> None:
    assert len(packages.packages(FORMATS).split(",")) == len(FORMATS)
    assert len(packages.format_settings(FORMATS)["spark.sql.extensions"].split(",")) == len(FORMATS) - 1


def test_a_format_that_has_no_package_for_this_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "spark_version", lambda: "9.1.0")
    assert packages.packages() == "org.apache.spark:spark-sql-kafka-0-10_2.13:9.1.0"
    with pytest.raises(PipelineFailed, match=r"format delta need Spark 4\.0 or 4\.2, and PySpark 9\.1\.0"):
        packages.packages(["delta"])
    assert packages.formats_here() == ("parquet",)


def test_a_spark_without_a_package_of_iceberg_writes_the_other_formats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages, "spark_version", lambda: "4.2.0")
    assert packages.formats_here() == ("parquet", "delta")
    assert packages.packages(["delta"]).endswith(":4.2.0,io.delta:delta-spark_4.2_2.13:4.4.0")
    with pytest.raises(PipelineFailed, match=r"format iceberg need Spark 4\.0, and PySpark 4\.2\.0"):
        packages.packages(["iceberg"])


def test_a_table_is_known_by_its_commits() -> None:
    assert format_in(["_delta_log", "date=2026-11-20"]) == "delta"
    assert format_in(["_spark_metadata", "date=2026-11-20"]) == "parquet"
    assert format_in(["data", "metadata"]) == "iceberg"
    assert format_in(["date=2026-11-20"]) is None
