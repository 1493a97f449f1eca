"""Sends the same random requests of transactional producers, valid and invalid, to both brokers: the same codes and
the same logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.transactions.random_talk import AREA

pytestmark = pytest.mark.needs_control
STEPS = 4000 if SOAK else 250


def test_the_same_requests_have_the_same_answers(
    tmp_path: Path, alike: Callable[[str, Comparison, str], None]
) -> None:
    (seed,) = seeds((1,), 1)
    with kept_brokers(AREA, tmp_path) as brokers:
        comparison = brokers.seed(seed, STEPS)
    alike(AREA.name, comparison, f"--seed {seed} --requests {STEPS}")
    assert comparison.asked == STEPS
