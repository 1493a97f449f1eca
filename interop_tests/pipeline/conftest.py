"""The Spark with which tests read tables."""

from interop_tests.spark.conftest import spark

__all__ = ["spark"]
