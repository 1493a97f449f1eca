"""A failure that pytest cannot show must not end the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CONFTEST = """
def pytest_itemcollected(item):
    if item.name == "test_odd":
        item.repr_failure = lambda excinfo: excinfo.value.no_such_attribute
"""
TESTS = """
def test_odd():
    raise OSError("full")
def test_next():
    pass
"""


def test_the_next_test_runs_after_a_failure_that_cannot_be_shown(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "reports_of_the_checkout.py").write_text((CHECKOUT / "conftest.py").read_text())
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "reports_of_the_checkout",
            "test_it.py",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "OSError: full" in done.stdout
    assert "no_such_attribute" in done.stdout
