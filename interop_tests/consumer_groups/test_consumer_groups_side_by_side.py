"""Apache Kafka and kafkacompat give the same answers to the same members of consumer groups (KIP-848), and write the
same records for them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.consumer_groups.compare import TALKS, create_topics, seeds_compared, talks_compared
from interop_tests.consumer_groups.shares import shares_of
from interop_tests.consumer_groups.talk import Side, started
from interop_tests.harness.broker import APACHE, KAFKACOMPAT

pytestmark = pytest.mark.needs_control

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(40)] if SOAK else [1, 2, 3]
STEPS = 1000 if SOAK else 300
SHARED_STEPS = 300 if SOAK else 60
HOW = "python -m interop_tests.consumer_groups"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    with started(tmp_path_factory.mktemp("consumer-groups"), (APACHE, KAFKACOMPAT)) as made:
        create_topics(made)
        yield made


@pytest.mark.parametrize("name", [talk.__name__ for talk in TALKS])
def test_scripted_talk(sides: list[Side], name: str) -> None:
    pair = talks_compared(sides, name, is_whole_name=True)
    told = "\n".join(pair.told)
    assert not told, f"{HOW} --talks --only {name}\n{told}"
    assert pair.asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(tmp_path: Path, number: int) -> None:
    """New brokers for each seed: after a difference they hold different groups."""
    with started(tmp_path, (APACHE, KAFKACOMPAT)) as sides:
        create_topics(sides)
        pair = seeds_compared(sides, iter([SEEDS[number]]), STEPS)
    told = "\n".join(pair.told)
    assert not told, f"{HOW} --seed {SEEDS[number]} --seeds 1 --steps {STEPS}\n{told}"
    assert pair.asked >= STEPS // 2


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_uniform_shares(sides: list[Side], number: int) -> None:
    """The uniform assignor gives out as many partitions as Kafka's does."""
    done = []
    for what, (theirs, ours) in shares_of(sides, SEEDS[number], SHARED_STEPS):
        done.append(what)
        assert ours == theirs, f"seed {SEEDS[number]}: " + ", ".join(done)
