"""No broker returns an empty or partial list of partitions for an existing topic (SPARK-41375).

Spark believes such a list: it forgets its position in the missing partitions, and reads them from their start when
they are back. So every response must contain all partitions or, before the topic exists, none. A watcher asks all the
time, with every request that Spark's clients use, while topics are created, brokers are killed and started, and
leaders change.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.broker import BrokerProcess, ExternalBroker, chosen_kind
from interop_tests.harness.raw_kafka import ErrorCode, create_topic
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

PARTITIONS = 40
ANSWER_S = 10.0
Ask = Callable[[Connection, str], "dict[str, Any] | None"]


def by_name(connection: Connection, topic: str) -> dict[str, Any] | None:
    """The request of a consumer for its subscription."""
    reply = connection.call("Metadata", 12, {"Topics": [{"Name": topic}], "AllowAutoTopicCreation": False})
    (found,) = reply["Topics"]
    return found


def among_all(connection: Connection, topic: str) -> dict[str, Any] | None:
    """The request of a subscription by pattern."""
    reply = connection.call("Metadata", 12, {"Topics": None, "AllowAutoTopicCreation": False})
    return next((each for each in reply["Topics"] if each["Name"] == topic), None)


def described(connection: Connection, topic: str) -> dict[str, Any] | None:
    """The request of the admin client, with which Spark plans its batches."""
    body = {"Topics": [{"Name": topic}], "ResponsePartitionLimit": 2000, "Cursor": None}
    (found,) = connection.call("DescribeTopicPartitions", 0, body)["Topics"]
    return found


ASKED: tuple[Ask, ...] = (by_name, among_all, described)


class Watcher:
    """Asks one broker for one topic without pause. `faults` are wrong responses."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.faults: list[str] = []
        self.answers: Counter[str] = Counter()
        """The number of complete responses, by kind of request."""
        self._whole = list(range(partitions))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen: set[str] = set()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(2 * ANSWER_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with Connection(self.bootstrap, timeout_s=ANSWER_S) as connection:
                    while not self._is_over.is_set():
                        for ask in ASKED:
                            self._judge(ask.__name__, ask(connection, self.topic))
            except (OSError, ConnectionClosed, Silence):
                time.sleep(0.002)  # the broker is down
            except Exception as error:
                self.faults.append(repr(error))
                return

    def _judge(self, way: str, found: dict[str, Any] | None) -> None:
        if found is None or found["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if way in self._seen:
                self.faults.append(f"{way}: a topic that was there is unknown")
            return
        indexes = sorted(each["PartitionIndex"] for each in found["Partitions"])
        if found["ErrorCode"] != 0 or indexes != self._whole:
            self.faults.append(f"{way}: error {found['ErrorCode']}, partitions {indexes}")
        self._seen.add(way)
        self.answers[way] += 1


@contextmanager
def watched(bootstraps: Sequence[str], topic: str, partitions: int) -> Iterator[list[Watcher]]:
    """Ask each broker during the block. Then no response may have been wrong, and each kind of request was answered."""
    watchers = [Watcher(each, topic, partitions) for each in bootstraps]
    for watcher in watchers:
        watcher.start()
    try:
        yield watchers
    finally:
        for watcher in watchers:
            watcher.end()
    for watcher in watchers:
        assert watcher.faults[:3] == [], watcher.bootstrap
        assert set(watcher.answers) == {ask.__name__ for ask in ASKED}


def wait_for_answers(watcher: Watcher, more: int = 5) -> None:
    """Wait until each kind of request was answered this many more times."""
    before = Counter(watcher.answers)
    wait_until(
        lambda: (
            all(watcher.answers[ask.__name__] >= before[ask.__name__] + more for ask in ASKED)
            or watcher.faults
        ),
        f"{watcher.bootstrap} answers",
        60,
        0.01,
    )


def test_lists_are_whole_while_topics_are_made(
    broker: BrokerProcess | ExternalBroker, unique: Callable[[str], str]
) -> None:
    """From the first time that a broker knows a topic of many partitions, it knows all of them."""
    for _ in range(5):
        topic = unique("made")
        with watched([broker.bootstrap] * 2, topic, PARTITIONS) as watchers:
            create_topic(broker.bootstrap, topic, PARTITIONS)
            for watcher in watchers:
                wait_for_answers(watcher)


@pytest.mark.needs_control
@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_lists_are_whole_from_the_first_answer_of_a_started_broker(
    ending: str, make_broker: Callable[..., BrokerProcess]
) -> None:
    """A broker that comes back answers late, and not before it knows its topics."""
    broker = make_broker()
    create_topic(broker.bootstrap, "events", PARTITIONS)
    with watched([broker.bootstrap] * 2, "events", PARTITIONS) as watchers:
        for watcher in watchers:
            wait_for_answers(watcher)
        for _ in range(2):
            getattr(broker, ending)()
            broker.start()
            for watcher in watchers:
                wait_for_answers(watcher)


@pytest.mark.needs_control
def test_lists_are_whole_while_leaders_change(tmp_path: Path) -> None:
    """A partition without a leader is listed as such and not left out, also by a node that has just come back."""
    cluster = Cluster(chosen_kind(), tmp_path, 3)
    cluster.start()
    try:
        topic = cluster.create_topic("events", 12)
        nodes = [node.bootstrap for node in cluster.brokers]
        with watched(nodes, topic, 12) as watchers:
            for watcher in watchers:
                wait_for_answers(watcher)
            for victim in (cluster.nodes[cluster.leader(topic)], cluster.nodes[cluster.active_controller()]):
                victim.kill()
                cluster.wait_until_gone(victim.node_id)
                cluster.mend()
                for watcher in watchers:
                    wait_for_answers(watcher)
    finally:
        cluster.close()
