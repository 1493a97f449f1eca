"""Apache Kafka and kafkacompat change, describe and enforce the same quotas alike."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.quotas.random_talk import random_talk
from interop_tests.quotas.request_talk import request_talk
from interop_tests.quotas.sides import QuotaSide, started
from interop_tests.quotas.talk import Talk

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(20)] if SOAK else [1, 2]
REQUESTS = 500 if SOAK else 60


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[QuotaSide]]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    try:
        with started(tmp_path_factory.mktemp("quotas"), (APACHE, KAFKACOMPAT)) as made:
            yield made
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(sides: list[QuotaSide], number: int) -> None:
    talk = Talk(sides, f"seed{SEEDS[number]}")
    random_talk(talk, SEEDS[number], REQUESTS)
    told = "\n".join(talk.told)
    assert not told, f"python -m interop_tests.quotas --seed {SEEDS[number]} --requests {REQUESTS}\n{told}"
    assert talk.asked >= REQUESTS


def test_each_api_under_a_request_quota(sides: list[QuotaSide]) -> None:
    talk = Talk(sides, "each api")
    try:
        request_talk(talk, SEEDS[0], newest_only=not SOAK)
    finally:
        talk.close()
    told = "\n".join(talk.told)
    assert not told, f"python -m interop_tests.quotas --each-api --seed {SEEDS[0]}\n{told}"
