"""A failed test is run once more, alone, unless its failure may not pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interop_tests.harness.failures import why_final
from interop_tests.harness.kafka_jars import CHECKOUT

FIRST_TIME_ONLY = """
import os
import pytest

def first_time(number):
    path = os.path.join(os.path.dirname(__file__), f"seen-{number}")
    if os.path.exists(path):
        return False
    open(path, "w").close()
    return True

def test_fine():
    pass
"""


CONFTEST = """
from interop_tests.harness.failures import Collected

def pytest_configure(config):
    config.pluginmanager.register(Collected())
"""


def suite(*bodies: str) -> str:
    return FIRST_TIME_ONLY + "".join(
        f"def test_{number}():\n    {body.replace('FIRST', f'first_time({number})')}\n"
        for number, body in enumerate(bodies)
    )


def rerun(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    (folder / "test_some.py").write_text(text)
    (folder / "conftest.py").write_text(CONFTEST)
    environment = os.environ | {"INTEROP_FAILURES": str(folder / "failures"), "PYTHONPATH": str(CHECKOUT)}
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "interop_tests.rerun", "test_some.py"]
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout


def test_a_run_without_failures_is_not_repeated(tmp_path: Path) -> None:
    status, said = rerun(tmp_path, suite("pass"))
    assert status == 0
    assert "run again" not in said


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_a_failure_that_passes_alone_is_told_and_its_log_kept(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    status, said = rerun(tmp_path, suite("assert not FIRST, 'a client hangs'"), *workers)
    assert status == 0
    assert "test_some.py::test_0: passed when run again, alone" in said.splitlines()[-2]
    (log,) = (tmp_path / "failures").glob("*.run-1.txt")
    assert "a client hangs" in log.read_text()


def test_a_failure_that_stays_fails_the_run_and_both_logs_are_kept(tmp_path: Path) -> None:
    status, said = rerun(tmp_path, suite("assert False, 'a client hangs'", "assert not FIRST"))
    assert status == 1
    assert "test_some.py::test_0: failed again" in said
    assert len(list((tmp_path / "failures").glob("*test_0.run-*.txt"))) == 2


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_lost_records_fail_the_run_at_once(tmp_path: Path, workers: tuple[str, ...]) -> None:
    body = "assert not FIRST, 'orders-0 lost 3 acknowledged records'"
    status, said = rerun(tmp_path, suite(body, "assert not FIRST"), *workers)
    assert status == 1
    assert "test_some.py::test_0: not run again: 'lost'" in said
    assert "passed when run again" not in said


def test_more_than_three_failures_are_not_repeated(tmp_path: Path) -> None:
    status, said = rerun(tmp_path, suite(*["assert not FIRST"] * 4))
    assert status == 1
    assert "4 tests failed" in said.splitlines()[-1]


def test_a_file_that_cannot_be_imported_is_not_repeated(tmp_path: Path) -> None:
    status, said = rerun(tmp_path, "import no_such_module\n")
    assert status == 2
    assert "run again" not in said


@pytest.mark.parametrize(
    ("message", "logged", "found"),
    [
        ("AssertionError: timed out", "[INFO] serving", ""),
        ("AssertionError: 3 records are out of order", "", "out of order"),
        ("AssertionError: assert {1: 2} == {}\n  duplicates", "", "duplicates"),
        ("AssertionError: seed 5, /tmp/x\nconsumed twice: 6", "", "twice"),
        ("AssertionError: Findings(anomalies=[Anomaly(kind='skipped', text='x')])", "", "Anomaly(kind"),
        ("AssertionError: timed out", "the node halts: RuntimeError()", "the node halts"),
        (
            "AssertionError: timed out",
            "a timer failed, which is a bug of kafkacompat; the others go on",
            "which is a bug of kafkacompat",
        ),
        ("AssertionError: got UNKNOWN_SERVER_ERROR", "", "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_a_failure_that_may_not_pass_is_told_by_its_text_or_by_the_nodes_logs(
    message: str, logged: str, found: str
) -> None:
    assert why_final(message, logged) == found
