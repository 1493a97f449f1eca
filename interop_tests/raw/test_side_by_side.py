"""Apache Kafka and kafkacompat give the same responses to the same hostile requests in every field that excused.py
does not name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.raw import compare, sharing_side
from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison

SEEDS = seeds((10,))
REQUESTS = 5000 if SOAK else 550
SHARING_REQUESTS = 5000 if SOAK else 250
pytestmark = pytest.mark.needs_control
Alike = Callable[[str, Comparison, str], None]


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_answers_differ_in_nothing(tmp_path: Path, alike: Alike, number: int) -> None:
    """Every API that is served to clients, in every version."""
    with kept_brokers(compare.AREA, tmp_path) as brokers:
        comparison = brokers.seed(SEEDS[number], REQUESTS)
        never_asked = comparison.sides[0].author.never_asked()
    alike("raw", comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert not never_asked, never_asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_answers_to_members_of_share_groups_differ_in_nothing(
    tmp_path: Path, alike: Alike, number: int
) -> None:
    """By an author who joins share groups and consumer groups, opens share sessions and acquires records."""
    with kept_brokers(sharing_side.AREA, tmp_path) as brokers:
        comparison = brokers.seed(SEEDS[number], SHARING_REQUESTS)
    alike("raw-shares", comparison, f"--seed {SEEDS[number]} --requests {SHARING_REQUESTS}")
