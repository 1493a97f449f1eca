"""Fixtures of the interop suite.

BOOTSTRAP=host:port uses a running broker; tests that must control the process are deselected. Otherwise the suite
starts the broker that INTEROP_BROKER names, kafkacompat (the default) or apache, once per session for most tests. With
apache only tests that use such a broker run.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from interop_tests.harness.broker import (
    APACHE,
    BrokerProcess,
    ExternalBroker,
    chosen_bootstrap,
    chosen_kind,
)
from interop_tests.harness.cpu import spent_s
from interop_tests.harness.failures import Collected
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.harness.kafka_jvm import QUICK_JVM
from interop_tests.harness.notes import NOTES, is_worker, note
from interop_tests.harness.stalls import STALLS
from interop_tests.harness.wire import Connection
from interop_tests.harness.workers import Units, longest_first
from interop_tests.side_by_side.comparison import Comparison

HERE = Path(__file__).resolve().parent
MakeBroker = Callable[..., BrokerProcess]
BEGUN = pytest.StashKey[tuple[float, float]]()
"""CPU seconds, and seconds, when the present file began."""
COSTS_TOLD_S = 5.0
COSTS_HEADING = "CPU seconds, and seconds, of files"
STARTED_BY = {"broker", "make_broker", "kind", "shown_broker"}
"""The fixtures that start a broker of the chosen kind, or tell it, for modules that do not ask `chosen_kind` themselves."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bootstrap", metavar="HOST:PORT", help="run against this broker (also: BOOTSTRAP=)")


def pytest_configure(config: pytest.Config) -> None:
    BrokerProcess.jvm_options = QUICK_JVM
    config.pluginmanager.register(Collected())
    if config.getoption("--bootstrap"):
        os.environ["BOOTSTRAP"] = config.getoption("--bootstrap")
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    config.addinivalue_line("markers", "needs_control: starts, kills or configures its own broker process")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Units:
    return Units(config, log)


def starts_chosen_kind(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    named = STARTED_BY.intersection(getattr(item, "fixturenames", ()))
    return bool(named) or "chosen_kind" in vars(module or object)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_worker(config):
        items[:] = longest_first(items)
    if chosen_bootstrap() is not None:
        mine = [
            item for item in items if HERE in item.path.parents and item.get_closest_marker("needs_control")
        ]
    elif chosen_kind() == APACHE:
        # The others start the brokers that they are about, whatever is chosen.
        mine = [item for item in items if not starts_chosen_kind(item)]
    else:
        return
    if mine:
        config.hook.pytest_deselected(items=mine)
        deselected = set(mine)
        items[:] = [item for item in items if item not in deselected]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """If a tool is missing, the test is skipped. Under CI it fails."""
    report = yield
    if (
        call.excinfo is not None
        and call.excinfo.errisinstance(MissingTool)
        and os.environ.get("CI") != "true"
    ):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {call.excinfo.value}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """A file pays for what it starts, shared or not. It is looked at where another file follows."""
    begun_cpu_s, begun_s = item.config.stash.setdefault(BEGUN, (spent_s(), time.monotonic()))
    result = yield
    if nextitem is None or nextitem.path != item.path:
        now_cpu_s, now_s = item.config.stash[BEGUN] = spent_s(), time.monotonic()
        cpu_s, wall_s = now_cpu_s - begun_cpu_s, now_s - begun_s
        if cpu_s > COSTS_TOLD_S:
            file = item.nodeid.partition("::")[0]
            note(item.config, COSTS_HEADING, f"{cpu_s:6.0f} {wall_s:6.0f}  {file}")
    return result


@pytest.fixture(autouse=True)
def no_stalls() -> Iterator[None]:
    """Fail a test in which the event loop of a node computes for too long in one piece."""
    yield
    ours = [stall for stall in STALLS.new() if stall.is_ours]
    assert not ours, "a node's event loop was held up:\n" + "\n".join(map(str, ours))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass this process's notes to the process that prints them: itself, or the one that started this worker."""
    for stall in STALLS.seen:
        last = " ".join(map(str.strip, stall.stack.strip().splitlines()[-2:]))
        line = f"{stall.wall_ms} ms, computing {stall.computing_ms} ms: {last}"
        note(session.config, "stalls of the nodes' event loops", line)
    if is_worker(session.config):
        vars(session.config)["workeroutput"]["notes"] = session.config.stash.get(NOTES, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """A worker has ended. A worker that died has no notes."""
    for section, lines in getattr(node, "workeroutput", {}).get("notes", {}).items():
        for line in lines:
            note(node.config, section, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print every stall of a node's event loop, including those that the machine may have caused, and the tests'
    measurements."""
    for section, lines in terminalreporter.config.stash.get(NOTES, {}).items():
        terminalreporter.section(section)
        for line in sorted(lines, reverse=True) if section == COSTS_HEADING else lines:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess | ExternalBroker]:
    """The broker that most tests share."""
    external = chosen_bootstrap()
    if external is not None:
        yield ExternalBroker(external)
        return
    process = BrokerProcess(chosen_kind(), tmp_path_factory.mktemp("shared-broker"))
    process.start()
    try:
        yield process
    finally:
        if process.process is not None:
            process.stop()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """make_broker({"setting": "value"}) starts a separate broker for the test. It is killed when the test ends."""
    made: list[BrokerProcess] = []

    def make(settings: dict[str, str] | None = None, start: bool = True) -> BrokerProcess:
        process = BrokerProcess(chosen_kind(), tmp_path / f"broker-{len(made)}", settings)
        made.append(process)
        if start:
            process.start()
        return process

    yield make
    for process in made:
        process.kill()


@pytest.fixture(scope="session")
def tools() -> Iterator[KafkaTools]:
    """Kafka's tools, in one JVM for all tests."""
    made = KafkaTools()
    yield made
    made.close()


@pytest.fixture(scope="session")
def bootstrap(broker: BrokerProcess | ExternalBroker) -> str:
    """host:port of the shared broker."""
    return broker.bootstrap


@pytest.fixture
def alike(tell: Callable[[str, float], None]) -> Callable[[str, Comparison, str], None]:
    """alike(area, comparison, "--seed 7") fails with all differences, and the options that show them again."""

    def judge(area: str, comparison: Comparison, options: str) -> None:
        tell(f"answers compared: {area}", comparison.asked)
        told = "\n".join(comparison.told)
        assert not told, f"python -m interop_tests.side_by_side {area} {options}\n{told}"

    return judge


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """unique("topic") returns a name that no other test or run uses."""
    run = uuid.uuid4().hex[:8]
    counter = itertools.count()
    return lambda stem: f"{stem}-{run}-{next(counter)}"


@pytest.fixture
def connect(bootstrap: str) -> Iterator[Callable[..., Connection]]:
    """connect() opens a raw connection to the shared broker. All connections are closed when the test ends."""
    opened: list[Connection] = []

    def open_connection(client_id: str | None = "interop", timeout_s: float = 20.0) -> Connection:
        connection = Connection(bootstrap, timeout_s=timeout_s, client_id=client_id)
        opened.append(connection)
        return connection

    yield open_connection
    for connection in opened:
        connection.close()


@pytest.fixture
def connection(connect: Callable[..., Connection]) -> Connection:
    """One raw connection to the shared broker."""
    return connect()


@pytest.fixture
def make_topic(bootstrap: str, unique: Callable[[str], str]) -> Callable[..., str]:
    """make_topic(partitions=1, configs={...}) creates a topic with a new name, and waits until it accepts records."""
    from interop_tests.harness.raw_kafka import create_topic

    def make(partitions: int = 1, configs: dict[str, str] | None = None, stem: str = "topic") -> str:
        name = unique(stem)
        create_topic(bootstrap, name, partitions, configs)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A new topic with one partition."""
    return make_topic()
