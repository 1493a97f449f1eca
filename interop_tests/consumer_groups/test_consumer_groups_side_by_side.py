"""Apache Kafka and kafkacompat give the same answers to the same members of consumer groups (KIP-848), and write the
same records for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from interop_tests.consumer_groups.compare import AREA
from interop_tests.consumer_groups.shares import shares_of
from interop_tests.side_by_side.area import SOAK, KeptBrokers, kept_brokers, seeds
from interop_tests.side_by_side.comparison import Comparison

pytestmark = pytest.mark.needs_control

SEEDS = seeds((1, 2, 3), 40)
REQUESTS = 1000 if SOAK else 300
SHARED_STEPS = 300 if SOAK else 60
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
    """Others than those of the scripted talks, which leave groups behind."""
    with kept_brokers(AREA, tmp_path_factory.mktemp(f"{AREA.name}-seeds")) as kept:
        yield kept


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(brokers_of_seeds: KeptBrokers, alike: Alike, number: int) -> None:
    comparison = brokers_of_seeds.seed(SEEDS[number], REQUESTS)
    alike(AREA.name, comparison, f"--seed {SEEDS[number]} --requests {REQUESTS}")
    assert comparison.asked >= REQUESTS // 2


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_uniform_shares(brokers: KeptBrokers, number: int) -> None:
    """The uniform assignor gives out as many partitions as Kafka's does."""
    done = []
    for what, (theirs, ours) in shares_of(brokers.sides(), SEEDS[number], SHARED_STEPS):
        done.append(what)
        assert ours == theirs, f"seed {SEEDS[number]}: " + ", ".join(done)
