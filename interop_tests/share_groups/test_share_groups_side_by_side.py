"""Apache Kafka and kafkacompat give the same answers to the same members and administrators of share groups (KIP-932),
and write the same records for them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.share_groups.compare import TALKS, create_topics, seed_compared, talks_compared
from interop_tests.share_groups.random_settings import settings_of
from interop_tests.share_groups.sides import ShareSide, started

pytestmark = pytest.mark.needs_control

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(20)] if SOAK else [1]
REQUESTS = 1000 if SOAK else 200
HOW = "python -m interop_tests.share_groups"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ShareSide]]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    with started(tmp_path_factory.mktemp("share-groups"), (APACHE, KAFKACOMPAT)) as made:
        create_topics(made)
        yield made


@pytest.mark.parametrize("name", [talk.__name__ for talk in TALKS])
def test_scripted_talk(sides: list[ShareSide], name: str) -> None:
    pair = talks_compared(sides, name, is_whole_name=True)
    told = "\n".join(pair.told)
    assert not told, f"{HOW} --talks --only {name}\n{told}"
    assert pair.asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(tmp_path: Path, number: int) -> None:
    """New brokers for each seed: after a difference they hold different groups."""
    with started(tmp_path, (APACHE, KAFKACOMPAT), **settings_of(SEEDS[number])) as sides:
        create_topics(sides)
        pair = seed_compared(sides, SEEDS[number], REQUESTS)
    told = "\n".join(pair.told)
    assert not told, f"{HOW} --seed {SEEDS[number]} --requests {REQUESTS}\n{told}"
    assert pair.asked >= REQUESTS
