"""Fixtures for the tests of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import NEW, OLD, Producer, Protocol

MakeProducer = Callable[..., Producer]


@pytest.fixture(params=[OLD, NEW], ids=["old protocol", "new protocol"])
def protocol(request: pytest.FixtureRequest) -> Protocol:
    """A test runs with both protocol versions."""
    found: Protocol = request.param
    return found


@pytest.fixture
def make_producer(connect: Callable[..., Connection], unique: Any, protocol: Protocol) -> MakeProducer:
    """make_producer(id) is an initialized hand-written producer with its own connection."""

    def make(transactional_id: str | None = None, timeout_ms: int = 60_000) -> Producer:
        return Producer(connect(), transactional_id or unique("tx"), protocol).init(timeout_ms)

    return make
