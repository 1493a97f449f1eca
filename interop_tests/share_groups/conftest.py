"""A broker for stock clients of share groups, and members of one group on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.groups import coordinator
from interop_tests.harness.raw_kafka import create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.looking import configure
from interop_tests.share_groups.sides import has_share_coordinator
from interop_tests.share_groups.workers import EXPLICIT, Join, Worker

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.session.timeout.ms": "10000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
}
# Apache Kafka asks again for a state after half a minute only, which is longer than its own tools wait.
BROKERS = [APACHE, KAFKACOMPAT] if os.environ.get("KAFKACOMPAT_SOAK") else [KAFKACOMPAT]


@pytest.fixture(scope="module", params=BROKERS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a broker of each kind, whose members soon hear of changes."""
    broker = BrokerProcess(request.param, tmp_path_factory.mktemp(request.param), SETTINGS)
    broker.start()
    try:
        with Connection(broker.bootstrap) as connection:
            # A group waits for half a minute if it finds no share coordinator.
            wait_until(lambda: has_share_coordinator(connection), "there is a share coordinator")
        yield broker.bootstrap
    finally:
        broker.kill()


@pytest.fixture
def raw(served: str) -> Iterator[Connection]:
    with Connection(served) as connection:
        yield connection


@pytest.fixture
def group(raw: Connection, unique: Callable[[str], str]) -> str:
    """A group that reads from the first record, and has its coordinator."""
    name = unique("group")
    coordinator(raw, name)
    configure(raw, name, "share.auto.offset.reset", "earliest")
    return name


@pytest.fixture
def topic(served: str, unique: Callable[[str], str]) -> str:
    name = unique("topic")
    create_topic(served, name)
    return name


@pytest.fixture
def join(served: str, group: str, topic: str, tmp_path: Path) -> Iterator[Join]:
    """join(kind, client, mode=...) starts a member of the group. All are killed when the test ends."""
    made: list[Worker] = []

    def start(kind: str, client: str, **settings: str) -> Worker:
        log = tmp_path / f"{client}.log"
        own = {"bootstrap": served, "group": group, "client": client, "topic": topic, "mode": EXPLICIT}
        made.append(Worker(kind, log, **(own | settings)))
        return made[-1]

    yield start
    for worker in made:
        worker.kill()
