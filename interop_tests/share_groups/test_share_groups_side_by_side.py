"""Apache Kafka and kafkacompat give the same answers to the same members and administrators of share groups (KIP-932),
and write the same records for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.share_groups.compare import AREA
from interop_tests.side_by_side.area import SOAK, KeptBrokers, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison

pytestmark = pytest.mark.needs_control

SEEDS = seeds((1,))
REQUESTS = 1000 if SOAK else 200
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


@pytest.fixture(scope="module")
def brokers_of_seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptBrokers]:
    """Others than those of the scripted talks, whose settings differ."""
    with kept_brokers(AREA, tmp_path_factory.mktemp(f"{AREA.name}-seeds")) as kept:
        yield kept


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(brokers_of_seeds: KeptBrokers, alike: Alike, number: int) -> None:
    comparison = brokers_of_seeds.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked >= REQUESTS
