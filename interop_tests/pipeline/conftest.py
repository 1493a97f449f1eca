"""The Spark session with which tests read tables, and the undisturbed run, which two modules compare with. The
topics of the tutorial's job, which three modules make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

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


@pytest.fixture
def no_orders(bootstrap: str) -> None:
    """The shared broker has no topic of the tutorial's job, whichever test has followed a page before."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if names := [name for name in admin.list_topics(timeout=30).topics if name.startswith("orders.")]:
        for deleted in admin.delete_topics(names).values():
            deleted.result()
