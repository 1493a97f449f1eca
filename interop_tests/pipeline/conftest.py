"""The Spark session with which tests read tables, and the undisturbed run, which two modules compare with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from interop_tests.pipeline.reference import Reference, undisturbed
from interop_tests.spark.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["reference", "spark"]


@pytest.fixture(scope="package")
def reference(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """One run of all jobs on known input."""
    with undisturbed(spark, tmp_path_factory.mktemp("reference")) as reference:
        yield reference
