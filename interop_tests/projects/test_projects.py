"""Tests of projects that test against a Kafka pass on ours. `python -m interop_tests.projects` runs all of their tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop_tests.harness.broker import chosen_kind
from interop_tests.projects.__main__ import outcomes
from interop_tests.projects.projects import FAILED, PASSED, PROJECTS

pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("name", PROJECTS)
def test_the_tests_of_a_project(name: str, tmp_path: Path) -> None:
    project = PROJECTS[name]
    found = outcomes(project, chosen_kind(), project.quick, tmp_path / "node")
    assert [test for test, outcome in found.items() if outcome == FAILED] == []
    assert list(found.values()).count(PASSED) >= len(project.quick)
