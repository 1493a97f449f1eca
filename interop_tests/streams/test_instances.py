"""Instances of an application with the streams protocol (KIP-1071): they are killed, paused beyond their session, added,
and started again with and without their stores. Standby tasks of others take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.chance import seeded_chance
from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.streams.application import (
    PARTITIONS,
    Lines,
    Outputs,
    Sides,
    WordCount,
    assert_exact,
    assert_joined,
    wait_for_words,
)
from interop_tests.streams.instances import BROKER_SETTINGS

pytestmark = pytest.mark.needs_control

SUBTOPOLOGIES = 4
WITH_STORES = 3
"""The first subtopology of the word count only splits lines."""
RECORDS = 40


def described(bootstrap: str, group: str) -> dict[str, Any]:
    with Connection(bootstrap) as connection:
        asked = {"GroupIds": [group], "IncludeAuthorizedOperations": False}
        (found,) = connection.call("StreamsGroupDescribe", 1, asked)["Groups"]
    assert found["ErrorCode"] == 0, found
    return dict(found)


def tasks(group: dict[str, Any], kind: str) -> Counter[tuple[str, int]]:
    """How many members have each task of this kind."""
    return Counter(
        (told["SubtopologyId"], partition)
        for member in group["Members"]
        for told in member["Assignment"][kind]
        for partition in told["Partitions"]
    )


def settled(bootstrap: str, group: str, members: int) -> None:
    """Wait until this number of members has every task once, and every task with a store once more as a
    standby, if there is another member."""

    def is_settled() -> bool:
        found = described(bootstrap, group)
        active, standby, warmup = (tasks(found, f"{kind}Tasks") for kind in ("Active", "Standby", "Warmup"))
        assert max(active.values(), default=1) == 1, found
        return (
            len(found["Members"]) == members
            and found["GroupState"] == "Stable"
            and len(active) == SUBTOPOLOGIES * PARTITIONS
            and sum(standby.values()) == (WITH_STORES * PARTITIONS if members > 1 else 0)
            and not warmup
        )

    wait_until(is_settled, f"{members} members have the tasks", 60, 0.2)


@pytest.mark.parametrize(
    ("version", "guarantee"), [(BEFORE, "exactly_once_v2"), (KAFKA_VERSION, "at_least_once")]
)
def test_instances_come_and_go(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path, version: str, guarantee: str
) -> None:
    broker = make_broker(BROKER_SETTINGS)
    application = WordCount(
        tmp_path, broker.bootstrap, "work", 1, "streams", version=version, guarantee=guarantee, joins=True
    )
    chance = seeded_chance()
    lines, sides = Lines(application, chance), Sides(application, chance)
    outputs = Outputs(broker.bootstrap, application.counts)

    def goes_on() -> None:
        lines.write(RECORDS)
        lines.flush()
        sides.write(RECORDS)
        wait_for_words(application, outputs, lines)

    try:
        sides.fill_table()
        for each in range(3):
            application.start(each)
        application.wait_until_running(0, 1, 2)
        goes_on()
        settled(broker.bootstrap, application.name, 3)
        application.kill(0)
        application.pause(1)
        goes_on()
        settled(broker.bootstrap, application.name, 1)
        application.resume(1)
        application.start(0)
        goes_on()
        application.kill(2)
        application.lose_stores(2)
        application.start(2)
        application.start(3)
        goes_on()
        settled(broker.bootstrap, application.name, 4)
        goes_on()
        if guarantee == "exactly_once_v2":
            assert_exact(application, lines)
        assert_joined(application, sides)
        assert [application.stop(each) for each in application.running] == [0] * 4
    finally:
        outputs.close()
        application.close()
