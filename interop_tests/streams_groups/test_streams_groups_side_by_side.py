"""Apache Kafka and kafkacompat give the same answers to the same members of streams groups (KIP-1071), and write the same
records for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.side_by_side.area import SOAK, KeptBrokers, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.streams_groups.compare import AREA

pytestmark = pytest.mark.needs_control

SEEDS = seeds((1, 2, 3), 40)
REQUESTS = 1000 if SOAK else 300
Alike = Callable[[str, Comparison, str], None]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptBrokers]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    with kept_brokers(AREA, tmp_path_factory.mktemp(AREA.name)) as kept:
        yield kept


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(brokers: KeptBrokers, alike: Alike, number: int) -> None:
    comparison = brokers.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked >= REQUESTS // 2
