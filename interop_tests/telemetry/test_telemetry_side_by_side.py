"""Apache Kafka and kafkacompat answer clients that offer their metrics alike (KIP-714)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.harness.broker import chosen_bootstrap
from interop_tests.side_by_side.area import SOAK, KeptBrokers, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison
from interop_tests.telemetry.compare import AREA

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]

SEEDS = seeds((1, 2))
REQUESTS = 500 if SOAK else 60
Alike = Callable[[str, Comparison, str], None]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptBrokers]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    with kept_brokers(AREA, tmp_path_factory.mktemp(AREA.name)) as kept:
        yield kept


@pytest.mark.parametrize("name", AREA.talks)
def test_scripted_talk(brokers: KeptBrokers, alike: Alike, name: str) -> None:
    comparison = brokers.talk(name)
    alike(AREA.name, comparison, f"--talks --only {name}")
    assert comparison.asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(brokers: KeptBrokers, alike: Alike, number: int) -> None:
    comparison = brokers.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked >= REQUESTS
