"""Where the suite gets its Kafka from: SUITE_KAFKA is one of benchmarks.suites.WAYS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.suites import EACH, WAYS, running


@pytest.fixture(scope="session")
def shared() -> Iterator[Any]:
    with running(os.environ["SUITE_KAFKA"]) as kafka:
        yield kafka


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address for a client's bootstrap.servers."""
    way = os.environ["SUITE_KAFKA"]
    assert way in WAYS
    if way.endswith(EACH):
        with running(way) as kafka:
            yield kafka.bootstrap
        return
    kafka = request.getfixturevalue("shared")
    yield kafka.bootstrap
    kafka.clean()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = items[:: int(os.environ.get("SUITE_ONE_IN", "1"))]
