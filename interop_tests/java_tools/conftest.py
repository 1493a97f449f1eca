"""The tools fixture: one JVM for all tools of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop_tests.harness.java_tools import KafkaTools


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    """Kafka's tools."""
    made = KafkaTools()
    yield made
    made.close()
