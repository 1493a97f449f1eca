"""pytest plugin: the fixtures `kafka` (one node) and `kafka_cluster` (three), in the process of the tests, and `kafka_broker`, a
process for the session.

pytest loads it in every run, so it imports nothing before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafkacompat.testing.kafka import Kafka
    from kafkacompat.testing.process import Broker
    from kafkacompat.testing.shared import SharedKafka, SharedKafkas
    from kafkacompat.testing.shared_host import SharedHost

SCOPES = ("function", "module", "session")
RUN = "run"
"""The scope of the option that means all workers of pytest-xdist."""
REQUESTS_TOLD = 30
"""How many of its last requests the report of a failed test has."""
OPTION, MARKER = "kafka_scope", "kafka"
WORKER_INPUT = "kafkacompat"


@dataclass(slots=True)
class Running:
    """The Kafkas that run, and what they had logged when the present test began."""

    kafkas: list[Kafka] = field(default_factory=list)
    brokers: list[Broker] = field(default_factory=list)
    marks: dict[int, int] = field(default_factory=dict)
    requests: dict[int, int] = field(default_factory=dict)
    """As `marks`, of their requests."""
    shared: dict[tuple[Any, ...], Kafka] = field(default_factory=dict)
    """Those that outlive a test whose marker says so."""
    host: SharedHost | None = None
    """Of what all workers share, in the process that starts them."""
    workers: SharedKafkas | None = None
    """The same as a worker has it."""
    of_workers: list[SharedKafka] = field(default_factory=list)


RUNNING = pytest.StashKey[Running]()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a marker asks for: the arguments of `Kafka`, and how long it lives."""

    settings: Mapping[str, object] = field(default_factory=dict)
    nodes: int | None = None
    scope: str | None = None
    version: str | None = None
    flavor: str | None = None
    racks: Sequence[str] = ()
    secure: bool | str = False
    users: Mapping[str, str] | None = None
    process: bool = False

    def of_kafka(self, nodes: int) -> dict[str, Any]:
        """The arguments of `Kafka`."""
        asked = {name: getattr(self, name) for name in ARGUMENTS if name != "scope"}
        return asked | {"nodes": self.nodes or nodes}


ARGUMENTS = tuple(each.name for each in fields(Asked))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kafkacompat")
    text = "how long a `kafka` lives: function (the default), module, session, or run (one for all workers of pytest-xdist)"
    group.addoption("--kafka-scope", dest=OPTION, choices=(*SCOPES, RUN), help=text)
    parser.addini(OPTION, text, default="function")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}({', '.join(f'{name}=...' for name in ARGUMENTS)}): "
        "what the fixtures `kafka` and `kafka_cluster` give a test",
    )
    config.stash[RUNNING] = running = Running()
    if _option(config) == RUN and not hasattr(config, "workerinput"):
        from kafkacompat.testing.shared_host import SharedHost

        running.host = SharedHost()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist is about to start a worker."""
    host = node.config.stash[RUNNING].host
    if host is not None:
        node.workerinput[WORKER_INPUT] = (host.port, host.key)


def pytest_unconfigure(config: pytest.Config) -> None:
    running = config.stash.get(RUNNING, None)
    if running is not None and running.workers is not None:
        running.workers.close()
    if running is not None and running.host is not None:
        running.host.stop()


def _option(config: pytest.Config) -> Any:
    return config.getoption(OPTION) or config.getini(OPTION)


def _scope(fixture_name: str, config: pytest.Config) -> Any:
    scope = _option(config)
    if scope not in (*SCOPES, RUN):
        raise pytest.UsageError(f"{OPTION} is one of {', '.join((*SCOPES, RUN))}, not {scope!r}")
    return "session" if scope == RUN else scope


@pytest.fixture(scope=_scope)
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A Kafka of one node. `kafka.bootstrap_servers` is its address."""
    yield from _kafka(request, 1)


@pytest.fixture(scope=_scope)
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A Kafka of three nodes."""
    yield from _kafka(request, 3)


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker in a process of its own. `kafka_broker.bootstrap_servers` is its address."""
    from kafkacompat.testing.process import running_broker

    brokers = request.config.stash[RUNNING].brokers
    with running_broker() as running:
        brokers.append(running)
        yield running
        brokers.remove(running)


def _kafka(request: pytest.FixtureRequest, nodes: int) -> Iterator[Kafka]:
    asked = _asked(request.node.get_closest_marker(MARKER))
    running = request.config.stash[RUNNING]
    if _option(request.config) == RUN:
        yield _shared(request.config, asked, nodes)
        return
    if asked.scope in (None, "function") or request.scope != "function":
        kafka = _start(running, asked, nodes)
        try:
            yield kafka
        finally:
            _stop(running, kafka)
        return
    from kafkacompat.testing.shared_host import key_of

    place = request.session if asked.scope == "session" else request.node.getparent(pytest.Module)
    assert place is not None
    key = (place, key_of(asked.of_kafka(nodes)))
    if key not in running.shared:
        running.shared[key] = _start(running, asked, nodes)
        place.addfinalizer(lambda: _stop(running, running.shared.pop(key)))
    yield running.shared[key]


def _start(running: Running, asked: Asked, nodes: int) -> Kafka:
    from kafkacompat.testing.kafka import Kafka

    kafka = Kafka(**asked.of_kafka(nodes))
    kafka.record_requests()
    kafka.start()
    running.kafkas.append(kafka)
    return kafka


def _shared(config: pytest.Config, asked: Asked, nodes: int) -> SharedKafka:
    running = config.stash[RUNNING]
    if running.workers is None:
        from kafkacompat.testing.shared import SharedKafkas

        host = running.host
        place = config.workerinput[WORKER_INPUT] if host is None else (host.port, host.key)  # type: ignore[attr-defined]
        running.workers = SharedKafkas(*place)
    kafka = running.workers.open(asked.of_kafka(nodes))
    running.of_workers.append(kafka)
    return kafka


def _stop(running: Running, kafka: Kafka) -> None:
    running.kafkas.remove(kafka)
    kafka.stop()


def _asked(marker: pytest.Mark | None) -> Asked:
    if marker is None:
        return Asked()
    unknown = [*map(repr, marker.args), *(name for name in marker.kwargs if name not in ARGUMENTS)]
    if unknown:
        raise pytest.UsageError(f"marker {MARKER} does not know {', '.join(unknown)}")
    asked = Asked(**marker.kwargs)
    if asked.scope not in (None, *SCOPES):
        raise pytest.UsageError(f"marker {MARKER}: scope is one of {', '.join(SCOPES)}, not {asked.scope!r}")
    return asked


def pytest_runtest_setup(item: pytest.Item) -> None:
    running = item.config.stash[RUNNING]
    running.marks = {id(kafka): kafka.log.count for kafka in running.kafkas}
    running.requests = {id(kafka): kafka.exchanges.count for kafka in running.kafkas}
    for shared in running.of_workers:
        shared.begin_test()
    scope = _option(item.config)
    if scope == "function" or not {"kafka", "kafka_cluster"} & set(getattr(item, "fixturenames", ())):
        return
    place = item.session if scope in ("session", RUN) else item.getparent(pytest.Module)
    assert place is not None
    if item.get_closest_marker(MARKER) is not place.get_closest_marker(MARKER):
        raise pytest.UsageError(
            f"{item.nodeid}: its marker {MARKER} has no effect, because a Kafka lives for the {scope} ({OPTION})"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    for kafka in item.config.stash[RUNNING].kafkas:
        kafka.faults.clear()
        kafka.clock.resume()
        kafka.paused.resume_all()  # the fixtures of clients close them next
    try:
        yield
    finally:
        running = item.config.stash[RUNNING]
        with ExitStack() as ends:  # each of them, whatever others raise
            for kafka in (*running.kafkas, *running.of_workers):
                ends.callback(kafka.end_test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """A test that has passed fails nevertheless if a fault of it was never hit."""
    outcome = yield
    for kafka in item.config.stash[RUNNING].kafkas:
        kafka.faults.verify()
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        running = item.config.stash[RUNNING]
        for broker in running.brokers:
            report.sections.append((f"output of {broker.bootstrap_servers}", "".join(broker.said)))
        for kafka in running.kafkas:
            lines = kafka.log.since(running.marks.get(id(kafka), 0))
            if lines:
                report.sections.append((f"log of {kafka}", "\n".join(lines)))
            requests = kafka.exchanges.since(running.requests.get(id(kafka), 0), REQUESTS_TOLD)
            if requests:
                report.sections.append((f"last requests of {kafka}", "\n".join(map(str, requests))))
        for shared in running.of_workers:
            told = shared.told(REQUESTS_TOLD)
            if told.lines:
                report.sections.append(
                    (f"log of {shared}, for the tests of all workers", "\n".join(told.lines))
                )
            if told.requests:
                report.sections.append(
                    (f"last requests of {shared}, of the tests of all workers", "\n".join(told.requests))
                )
    return report
