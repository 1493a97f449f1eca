"""A broker with the pipeline's results, a web console on it, and one Chromium for all tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from interop_tests.console.page import Page, start_chromium
from interop_tests.console.process import ConsoleProcess
from interop_tests.console.writing import Writer
from interop_tests.harness.broker import BrokerProcess, chosen_kind

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The result topics have fixed names, so every test here uses its own broker."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.needs_control)


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """One headless Chromium."""
    driver = start_chromium()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def shown_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an hour of results, a group with lag, and a topic to browse. Tests must not change them."""
    broker = BrokerProcess(chosen_kind(), tmp_path_factory.mktemp("console-broker"))
    broker.start()
    try:
        writer = Writer(broker.bootstrap)
        writer.results()
        writer.lagging_group()
        writer.mixed_topic()
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def console(
    shown_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    """The console on this broker, after it has read everything."""
    process = ConsoleProcess(shown_broker.bootstrap, tmp_path_factory.mktemp("console") / "console.log")
    process.start()
    try:
        process.wait_for(
            "/api/results", lambda view: view["reading"]["records"] and view["reading"]["behind"] == 0
        )
        yield process
    finally:
        process.kill()


@pytest.fixture
def page(chromium: webdriver.Chrome, console: ConsoleProcess) -> Iterator[Page]:
    """A tab with the console. The test fails if the browser reported an error."""
    # The page of the previous test may still send requests to a console that has ended.
    chromium.get("about:blank")
    shown = Page(chromium, console.address)
    shown.complaints()
    yield shown
    assert shown.complaints() == []


@pytest.fixture
def make_console(tmp_path: Path) -> Iterator[Callable[..., ConsoleProcess]]:
    """make_console(bootstrap, *options) starts a separate console for the test."""
    made: list[ConsoleProcess] = []

    def make(bootstrap: str, *options: str) -> ConsoleProcess:
        log = tmp_path / f"console-{len(made)}.log"
        process = ConsoleProcess(bootstrap, log, options=options)
        made.append(process)
        return process.start()

    yield make
    for process in made:
        process.kill()
