"""Apache Kafka and kafkacompat answer clients that offer their metrics alike (KIP-714)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, chosen_bootstrap
from interop_tests.harness.kafka_jars import MissingTool
from interop_tests.telemetry.random_talk import random_talk
from interop_tests.telemetry.sides import TelemetrySide, started
from interop_tests.telemetry.talk import Talk
from interop_tests.telemetry.talks import TALKS

pytestmark = [
    pytest.mark.needs_control,
    pytest.mark.skipif(chosen_bootstrap() is not None, reason="compares two brokers of its own"),
]

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
SEEDS = [random.randrange(1 << 30) for _ in range(20)] if SOAK else [1, 2]
REQUESTS = 500 if SOAK else 60


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TelemetrySide]]:
    """Apache Kafka and kafkacompat, whatever kind the other tests use."""
    try:
        with started(tmp_path_factory.mktemp("telemetry"), (APACHE, KAFKACOMPAT)) as made:
            yield made
    except MissingTool as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", [talk.__name__ for talk in TALKS])
def test_scripted_talk(sides: list[TelemetrySide], name: str) -> None:
    (script,) = (talk for talk in TALKS if talk.__name__ == name)
    talk = Talk(sides, name)
    try:
        script(talk)
    finally:
        talk.close()
    told = "\n".join(talk.told)
    assert not told, f"python -m interop_tests.telemetry --talks --only {name}\n{told}"
    assert talk.asked


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_random_talk(sides: list[TelemetrySide], number: int) -> None:
    talk = Talk(sides, f"seed{SEEDS[number]}")
    try:
        random_talk(talk, SEEDS[number], REQUESTS)
    finally:
        talk.close()
    told = "\n".join(talk.told)
    assert not told, f"python -m interop_tests.telemetry --seed {SEEDS[number]} --requests {REQUESTS}\n{told}"
    assert talk.asked >= REQUESTS
