"""pytest plugin: the fixture `kafka_broker`, one broker for the session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkacompat.testing.process import Broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A running broker. `kafka_broker.bootstrap_servers` is its address."""
    from kafkacompat.testing.process import running_broker

    with running_broker() as running:
        yield running
