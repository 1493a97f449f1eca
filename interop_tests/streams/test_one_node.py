"""Kafka Streams with exactly_once_v2 on one node: word count while the application and the broker are killed with -9."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.chance import seeded_chance
from interop_tests.streams.application import (
    Lines,
    Outputs,
    WordCount,
    assert_exact,
    assert_internal_topics,
    wait_for_counts,
)
from interop_tests.streams.instances import BROKER_SETTINGS

KILLS = 20 if os.environ.get("KAFKACOMPAT_SOAK") else 2
"""The number of kills of the application and of the broker."""
LINES = 60
"""Lines before and after each kill."""


@pytest.mark.needs_control
def test_word_count_with_the_streams_protocol(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """KIP-1071: the broker creates the internal topics and assigns the tasks. Instances come, leave and are killed."""
    broker = make_broker(BROKER_SETTINGS)
    application = WordCount(tmp_path, broker.bootstrap, "count", 1, protocol="streams")
    lines = Lines(application, seeded_chance())
    outputs = Outputs(broker.bootstrap, application.counts)
    try:
        application.start(0, threads=2)
        lines.write(200)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        application.start(1)
        lines.write(200)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        application.kill(0)
        lines.write(100)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        broker.kill()
        broker.start()
        application.start(0)
        lines.write(100)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        assert_exact(application, lines)
        assert_internal_topics(application)
        assert [application.stop(number) for number in (0, 1)] == [0, 0]
    finally:
        outputs.close()
        application.close()


def test_word_count(bootstrap: str, unique: Callable[[str], str], tmp_path: Path) -> None:
    """Without faults, but stopped and started again: on any broker."""
    application = WordCount(tmp_path, bootstrap, unique("count"), 1)
    lines = Lines(application, random.Random(1))
    outputs = Outputs(bootstrap, application.counts)
    try:
        application.start(threads=2)
        lines.write(200)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        assert_internal_topics(application)
        assert application.stop() == 0
        lines.write(50)
        lines.flush()
        application.start()
        wait_for_counts(application, outputs, lines.counts.total())
        assert_exact(application, lines)
    finally:
        outputs.close()
        application.close()


@pytest.mark.needs_control
def test_application_and_broker_are_killed(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Any process is killed during its work: each word is counted once."""
    broker = make_broker()
    chance = seeded_chance()
    application = WordCount(tmp_path, broker.bootstrap, "count", 1)
    lines = Lines(application, chance)
    outputs = Outputs(broker.bootstrap, application.counts)
    try:
        application.start(threads=2)
        victims = ["application", "broker"] * KILLS
        chance.shuffle(victims)
        for victim in victims:
            seen = outputs.poll()
            lines.write(LINES)
            wait_for_counts(application, outputs, seen + chance.randrange(1, LINES * 3))
            if victim == "broker":
                broker.kill()
            else:
                application.kill()
            lines.write(LINES)
            if victim == "broker":
                broker.start()
            else:
                application.start(threads=2)
        lines.flush()
        wait_for_counts(application, outputs, lines.counts.total())
        assert_exact(application, lines)
        assert_internal_topics(application)
        assert application.stop() == 0
    finally:
        outputs.close()
        application.close()
