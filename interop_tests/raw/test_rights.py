"""With the same access control entries, Apache Kafka and kafkacompat give the same response to the same request in
every field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.raw.rights import AREA
from interop_tests.side_by_side.area import SOAK, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison

SEEDS = seeds((3,))
REQUESTS = 5000 if SOAK else 320
pytestmark = pytest.mark.needs_control


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_rights_differ_in_nothing(
    tmp_path: Path, alike: Callable[[str, Comparison, str], None], number: int
) -> None:
    with kept_brokers(AREA, tmp_path) as brokers:
        comparison = brokers.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked == REQUESTS
