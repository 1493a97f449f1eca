"""What holds for every test: no test passes while the product reports a bug of its own, one that expects it takes it. Property
tests draw the same examples in each run of `make test`, and new ones in `make soak`. What a test counted is told at the end."""

from __future__ import annotations

import gc
import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafkacompat.faults import listeners

# A busy machine is no defect of the code, so neither an example nor drawing it has a time limit.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("test", UNTIMED, derandomize=True)
settings.register_profile("soak", UNTIMED)
settings.load_profile("soak" if os.environ.get("KAFKACOMPAT_SOAK") else "test")


COUNTED = "counted"
BEGUN = pytest.StashKey[float]()
"""CPU seconds of this process and of those that it has waited for, when a test began."""


def spent_s() -> float:
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "costly: takes seconds, or is one of many that do; not part of `make check`"
    )
    config.addinivalue_line("markers", "smoke: one of the few interop tests of `make check`")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure that pytest cannot show is a failure of that test alone. librdkafka's binding leaves values that are no exceptions
    as the context of one."""
    if call.when == "call" and item.nodeid.startswith("kafkacompat/"):
        package = item.nodeid.partition("/_tests/")[0]
        used = item.user_properties
        used.append((COUNTED, [f"CPU seconds of {package}", spent_s() - item.stash[BEGUN]]))
    try:
        return (yield)
    except Exception as problem:
        if call.excinfo is None:
            raise
        told = [
            f"{call.excinfo.type.__name__}: {call.excinfo.value}\n",
            f"pytest cannot show it: {problem!r}\n",
        ]
        return pytest.TestReport(
            item.nodeid,
            item.location,
            dict.fromkeys(item.keywords, 1),
            "failed",
            "".join([*traceback.format_tb(call.excinfo.tb), *told]),
            call.when,
            duration=call.duration,
            start=call.start,
            stop=call.stop,
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGUN] = spent_s()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str, float], None]:
    """tell(what, number) shows at the end the sum of what all tests told of it, whichever worker ran them."""
    return lambda what, number: request.node.user_properties.append((COUNTED, [what, number]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call":
                for name, counted in report.user_properties:
                    if name == COUNTED:
                        sums[counted[0]] += counted[1]
    if sums:
        terminalreporter.section("counted by tests")
        for what, number in sorted(sums.items()):
            terminalreporter.line(f"{what}: {number:,.0f}")


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """A command that runs in the process of the tests sets up the process for itself."""
    thresholds, handlers, level = gc.get_threshold(), logging.root.handlers[:], logging.root.level
    yield
    gc.set_threshold(*thresholds)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    logging.captureWarnings(False)


class Faults:
    """What was reported and not taken yet, in order."""

    def __init__(self) -> None:
        self.reported: list[BaseException] = []

    def reported_one(self, error: BaseException) -> None:
        self.reported.append(error)

    def take(self) -> list[BaseException]:
        taken, self.reported = self.reported, []
        return taken


@pytest.fixture(autouse=True)
def faults() -> Iterator[Faults]:
    collected = Faults()
    listeners.append(collected.reported_one)
    yield collected
    listeners.remove(collected.reported_one)
    for error in collected.reported:
        raise AssertionError("a fault was reported that the test does not expect") from error
