"""Dead letters of share groups (KIP-1191) as Apache Kafka writes them: both brokers get the same records, and the same
ones are rejected or delivered too often."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop_tests.harness.raw_kafka import create_topic, fetch_records, metadata, produce, topic_id
from interop_tests.harness.records import BatchPlan, encode_record
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import (
    GROUP_RESOURCE,
    REJECT,
    RELEASE,
    Hand,
    Leader,
    initialize,
    lag,
    read_from_start,
)
from interop_tests.side_by_side.brokers import started_brokers

pytestmark = pytest.mark.needs_control

JOBS, PARTITIONS, RECORDS = "jobs", 3, 17
SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.assignment.interval.ms": "0",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
TAKES_LETTERS = {"errors.deadletterqueue.group.enable": "true"}
TOPIC_RESOURCE = 2


class Letter(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Side:
    """One of the brokers, with a topic of jobs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.connection = Connection(bootstrap, timeout_s=20)
        create_topic(bootstrap, JOBS, PARTITIONS)
        self._id = topic_id(self.connection, JOBS)
        for partition in range(PARTITIONS):
            values: list[bytes | None] = [b"%d-%d" % (partition, number) for number in range(4)]
            keys: list[bytes | None] = [b"k", None, b"", b"x" * 10]
            plan = BatchPlan(values, keys, codec=("none", "gzip", "zstd")[partition])
            assert produce(self.connection, JOBS, plan, partition)["ErrorCode"] == 0
        own = encode_record(0, b"key", b"value", [("own", b"header")], 0)
        with_headers = BatchPlan([b""], records=own)
        # Of these, a topic with small messages takes no copy.
        large = BatchPlan([b"y" * 3000, b"small"])
        for plan in (with_headers, large, BatchPlan([b"z" * 3000, b"small"], codec="gzip")):
            assert produce(self.connection, JOBS, plan, 0)["ErrorCode"] == 0

    def close(self) -> None:
        self.connection.close()

    def settle(self, group: str, kind: int = REJECT, told_by_lag: bool = True, **settings: str) -> None:
        """Reject each record, or give it back until it is not delivered any more. The lag tells that records are archived, but
        for Apache Kafka only after their letters were written."""
        asked = {"KeyType": 0, "CoordinatorKeys": [group]}

        def is_coordinated() -> bool:
            (found,) = self.connection.call("FindCoordinator", 4, asked)["Coordinators"]
            return bool(found["ErrorCode"] == 0)

        wait_until(is_coordinated, f"{group} has its coordinator")
        read_from_start(self.connection, group, share_delivery_count_limit="2", **settings)
        initialize(lambda: self.bootstrap, [group], JOBS, PARTITIONS)
        hands = [
            Hand(lambda: Leader(self.bootstrap), group, f"hand-{partition}", self._id, partition)
            for partition in range(PARTITIONS)
        ]

        settled: set[tuple[int, int]] = set()

        def is_done() -> bool:
            has_news = False
            for partition, hand in enumerate(hands):
                for first, last, _ in hand.fetch(100):
                    has_news = True
                    for offset in range(first, last + 1):
                        assert hand.acknowledge(offset, offset, kind) == 0
                        settled.add((partition, offset))
            if not told_by_lag:
                return not has_news and len(settled) == RECORDS
            return all(left == 0 for _, left in lag(self.connection, group))

        try:
            wait_until(is_done, f"the records of {group} are archived", 60.0)
        finally:
            for hand in hands:
                hand.hang_up()

    def letters(self, topic: str) -> list[Letter]:
        """All dead letters, in the order of the records that they are of."""
        found = []
        for partition in range(len(metadata(self.connection, topic)["Partitions"])):
            position = 0
            while records := fetch_records(self.connection, topic, position, partition):
                position = records[-1].offset + 1
                found += [Letter(partition, each.key, each.value, each.headers) for each in records]

        def place(letter: Letter) -> tuple[int, int]:
            told = dict(letter.headers)
            return int(told["__dlq.errors.partition"] or b""), int(told["__dlq.errors.offset"] or b"")

        return sorted(found, key=place)

    def settings(self, resource: int, name: str, *keys: str) -> dict[str, Any]:
        asked = [{"ResourceType": resource, "ResourceName": name, "ConfigurationKeys": [*keys] or None}]
        body = {"Resources": asked, "IncludeSynonyms": False, "IncludeDocumentation": False}
        (answer,) = self.connection.call("DescribeConfigs", 4, body)["Results"]
        told = ("Value", "ReadOnly", "ConfigSource", "IsSensitive", "ConfigType")
        return {each["Name"]: tuple(each[part] for part in told) for each in answer["Configs"]}

    def set(self, resource: int, name: str, **wanted: str) -> tuple[int, str | None]:
        configs = [
            {"Name": key.replace("_", "."), "ConfigOperation": 0, "Value": value}
            for key, value in wanted.items()
        ]
        body = {"Resources": [{"ResourceType": resource, "ResourceName": name, "Configs": configs}]}
        (answer,) = self.connection.call("IncrementalAlterConfigs", 1, body)["Responses"]
        return answer["ErrorCode"], answer["ErrorMessage"]


Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with started_sides(tmp_path_factory.mktemp("dead-letters")) as started:
        yield started


@contextmanager
def started_sides(folder: Path) -> Iterator[Sides]:
    with started_brokers(folder, settings=SETTINGS) as brokers:
        theirs, ours = (Side(broker.bootstrap) for broker in brokers)
        with closing(theirs), closing(ours):
            yield theirs, ours


@pytest.mark.parametrize("kind", [REJECT, RELEASE], ids=["rejected", "delivered-too-often"])
@pytest.mark.parametrize("copies", ["false", "true"], ids=["told", "copied"])
def test_letters_are_those_of_kafka(sides: Sides, kind: int, copies: str) -> None:
    group = f"workers-{kind}-{copies}"
    queue = f"dlq.{group}"
    found = []
    for side in sides:
        create_topic(side.bootstrap, queue, 2, TAKES_LETTERS)
        names = {
            "errors_deadletterqueue_topic_name": queue,
            "errors_deadletterqueue_copy_record_enable": copies,
        }
        side.settle(group, kind, **names)
        found.append(side.letters(queue))
    theirs, ours = found
    assert ours == theirs
    assert len(ours) == RECORDS


def test_what_the_topic_does_not_take_is_told_without_a_copy(sides: Sides) -> None:
    queue = "dlq.small"
    found = []
    for side in sides:
        create_topic(side.bootstrap, queue, 1, TAKES_LETTERS | {"max.message.bytes": "2000"})
        names = {
            "errors_deadletterqueue_topic_name": queue,
            "errors_deadletterqueue_copy_record_enable": "true",
        }
        side.settle("small", **names)
        found.append(side.letters(queue))
    theirs, ours = found
    assert ours == theirs
    values = [letter.value for letter in ours if (letter.value or b"").startswith((b"y", b"z", b"small"))]
    assert values == [b"small"], "a packed batch that expands to more has no copies at all"


def test_a_topic_that_does_not_exist_is_created(sides: Sides) -> None:
    queue = "dlq.made"
    found = []
    for side in sides:
        side.settle("makers", errors_deadletterqueue_topic_name=queue)
        found.append((side.letters(queue), side.settings(TOPIC_RESOURCE, queue)))
    (theirs, their_settings), (ours, our_settings) = found
    assert ours == theirs
    assert {name: our_settings.get(name) for name in their_settings} == their_settings
    assert our_settings["errors.deadletterqueue.group.enable"][0] == "true"


@pytest.mark.parametrize("queue", ["dlq.plain", "other"])
def test_a_group_goes_on_whose_topic_takes_no_letters(tmp_path: Path, queue: str) -> None:
    with started_sides(tmp_path) as sides:
        for side in sides:
            create_topic(side.bootstrap, queue, 1, TAKES_LETTERS if queue == "other" else {})
            side.settle("vain", told_by_lag=False, errors_deadletterqueue_topic_name=queue)
            assert side.letters(queue) == []


@pytest.mark.parametrize("name", ["__dlq", "__", "dlq.a b", "", "..", "x" * 250, "dlq.fine", "_dlq"])
def test_names_of_topics_are_accepted_alike(sides: Sides, name: str) -> None:
    theirs, ours = (
        side.set(GROUP_RESOURCE, "named", errors_deadletterqueue_topic_name=name) for side in sides
    )
    assert ours == theirs


def test_settings_are_described_alike(sides: Sides) -> None:
    names = ["errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"]
    theirs, ours = (side.settings(GROUP_RESOURCE, "named", *names) for side in sides)
    assert ours == theirs
    asked = ["errors.deadletterqueue.group.enable"]
    theirs, ours = (side.settings(TOPIC_RESOURCE, JOBS, *asked) for side in sides)
    assert ours == theirs
