"""Instances of applications with both protocols and both guarantees: they are killed, paused beyond their session,
added, and started again with and without their stores. Standby tasks of others take over.

Each process has an instance of four applications, so that the four share one life.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

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
    application_command,
    assert_exact,
    assert_joined,
    wait_for_words,
)
from interop_tests.streams.instances import BROKER_SETTINGS, Instances

pytestmark = pytest.mark.needs_control

SUBTOPOLOGIES = 4
WITH_STORES = 3
"""The first subtopology of the word count only splits lines."""
SOURCES = 6
"""Topics that tasks read: the lines, two repartition topics, and three topics of the joins."""
RECORDS = 40
SETTLED_WITHIN_S = 60.0
KINDS = [
    (protocol, guarantee)
    for protocol in ("streams", "classic")
    for guarantee in ("exactly_once_v2", "at_least_once")
]


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


def has_settled(bootstrap: str, group: str, members: int) -> bool:
    """Whether this number of members of a streams group has every task once, and every task with a store once more as
    a standby, if there is another member."""
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


def has_settled_as_classic(bootstrap: str, group: str, members: int) -> bool:
    """Whether this number of members of a classic group has every partition once."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (asked,) = admin.describe_consumer_groups([group]).values()
    found = asked.result(SETTLED_WITHIN_S)
    owned = Counter((each.topic, each.partition) for member in found.members
                    for each in member.assignment.topic_partitions)  # fmt: skip
    assert max(owned.values(), default=1) == 1, owned
    return (
        len(found.members) == members
        and found.state is ConsumerGroupState.STABLE
        and len(owned) == SOURCES * PARTITIONS
    )


class Fed:
    """One application, its input, and a reader of its output."""

    def __init__(self, root: Path, bootstrap: str, version: str, protocol: str, guarantee: str) -> None:
        name = f"{protocol}-{guarantee.replace('_', '-')}"
        self.application = WordCount(
            root, bootstrap, name, 1, protocol, version=version, guarantee=guarantee, joins=True
        )
        self._is_settled = has_settled if protocol == "streams" else has_settled_as_classic
        chance = seeded_chance()
        self._lines, self._sides = Lines(self.application, chance), Sides(self.application, chance)
        self._outputs = Outputs(bootstrap, self.application.counts)
        self._sides.fill_table()

    def goes_on(self, instances: Instances) -> None:
        self._lines.write(RECORDS)
        self._lines.flush()
        self._sides.write(RECORDS)
        wait_for_words(instances, self._outputs, self._lines)

    def settled(self, members: int) -> None:
        where = self.application.bootstrap, self.application.name
        wait_until(
            lambda: self._is_settled(*where, members),
            f"{members} members of {self.application.name} have the tasks",
            SETTLED_WITHIN_S,
            0.2,
        )

    def assert_whole(self) -> None:
        if self.application.guarantee == "exactly_once_v2":
            assert_exact(self.application, self._lines)
        assert_joined(self.application, self._sides)

    def close(self) -> None:
        self._outputs.close()


@contextmanager
def fed(root: Path, bootstrap: str, version: str) -> Iterator[list[Fed]]:
    made: list[Fed] = []
    try:
        made += [Fed(root, bootstrap, version, *kind) for kind in KINDS]
        yield made
    finally:
        for each in made:
            each.close()


@pytest.mark.parametrize("version", [BEFORE, KAFKA_VERSION])
def test_instances_come_and_go(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path, version: str
) -> None:
    broker = make_broker(BROKER_SETTINGS)
    with fed(tmp_path, broker.bootstrap, version) as all_four, ThreadPoolExecutor(len(KINDS)) as pool:
        runs = [each.application.run for each in all_four]
        instances = Instances(tmp_path, "instance", application_command(version), *runs)

        def of_each(act: Callable[[Fed], None]) -> None:
            list(pool.map(act, all_four))

        def go_on() -> None:
            of_each(lambda each: each.goes_on(instances))

        def settle(members: int) -> None:
            of_each(lambda each: each.settled(members))

        try:
            for number in range(3):
                instances.start(number)
            go_on()
            settle(3)
            instances.kill(0)
            instances.pause(1)
            go_on()
            settle(1)
            instances.resume(1)
            instances.start(0)
            go_on()
            instances.kill(2)
            instances.lose_stores(2)
            instances.start(2)
            instances.start(3)
            go_on()
            settle(4)
            go_on()
            of_each(Fed.assert_whole)
            assert [instances.stop(each) for each in instances.running] == [0] * 4
        finally:
            instances.close()
