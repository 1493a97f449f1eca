"""Members of librdkafka that read and commit while a topic is written, and what no change of their coordinator may do.

A record is read again only while no commit beyond it was acknowledged, every record is read, and commits never go back.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from interop_tests.cluster.workload import REQUEST_TIMEOUT_S, ConfluentWork, parse
from interop_tests.harness.librdkafka import CONNECTED_TO_ALL
from interop_tests.harness.waiting import wait_until

GROUP = "load"
STATISTICS_MS = 500
TOLD_OF_A_PARTITION = (
    *("broker", "leader", "fetch_state", "app_offset", "next_offset", "stored_offset", "committed_offset"),
    *("ls_offset", "hi_offset", "leader_epoch"),
)


def group_of(protocol: str) -> str:
    """The group of the members with this group.protocol."""
    return GROUP if protocol == "consumer" else f"{GROUP}-{protocol}"


class PartitionHistory:
    """What all members together have read and committed."""

    def __init__(self) -> None:
        self.read: set[tuple[int, int]] = set()
        """(partition, number) of each record."""
        self.ends: dict[int, int] = {}
        """By partition, the offset after the last record that was read."""
        self.committed: dict[int, int] = {}
        """The highest offset by partition whose commit was acknowledged."""
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def note_read(self, who: str, messages: Sequence[Message]) -> None:
        with self._lock:
            for message in messages:
                _, partition, number = parse(message.value())
                if message.offset() < self.committed.get(partition, 0):
                    self.faults.append(
                        f"{who} reads {partition}: {message.offset()} after {self.committed[partition]} was committed"
                    )
                self.read.add((partition, number))
                self.ends[partition] = max(self.ends.get(partition, 0), message.offset() + 1)

    def note_committed(self, who: str, done: Sequence[TopicPartition]) -> None:
        with self._lock:
            for each in done:
                if each.error is None and each.offset >= 0:
                    if each.offset < self.committed.get(each.partition, 0):
                        self.faults.append(f"{who} goes back to {each} from {self.committed[each.partition]}")
                    self.committed[each.partition] = each.offset

    def note_told(self, before: dict[int, int], told: dict[int, int]) -> None:
        """The coordinator tells the commits, of which these were acknowledged before it was asked."""
        for partition, offset in before.items():
            if told.get(partition, -1) < offset:
                self.faults.append(f"the coordinator tells {told} after {before} was committed")

    def copy(self) -> dict[int, int]:
        with self._lock:
            return dict(self.committed)


class LoadMember:
    """One member in a thread of its own. It commits what it has read, batch by batch."""

    def __init__(
        self, bootstrap: str, topic: str, ledger: PartitionHistory, name: str, protocol: str = "consumer"
    ) -> None:
        self.name = name
        self.commits = 0
        self._ledger = ledger
        self._topic = topic
        self._doing = ("starts", time.monotonic())
        self._errors: deque[str] = deque(maxlen=8)
        self._statistics = "{}"
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group_of(protocol),
            "client.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **CONNECTED_TO_ALL,
            "socket.timeout.ms": int(REQUEST_TIMEOUT_S * 1000),
            "log_level": 0,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": self._take,
            "error_cb": lambda error: self._note(repr(error)),
        }
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the group, without waiting for it."""
        self._ended.set()

    def stop(self) -> None:
        self.end()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def describe(self) -> str:
        """What it does, and its client's state, for the message of a failure."""
        doing, since = self._doing
        told = json.loads(self._statistics)
        partitions = told.get("topics", {}).get(self._topic, {}).get("partitions", {})
        return "\n".join(
            [
                f"{self.name}: {self.commits} commits, {doing} for {time.monotonic() - since:.1f} s",
                f"  errors: {list(self._errors)}",
                f"  group: {told.get('cgrp')}",
                f"  brokers: {[(each['name'], each['state'], each['stateage']) for each in told.get('brokers', {}).values()]}",
                *(
                    f"  partition {number}: { {name: each[name] for name in TOLD_OF_A_PARTITION} }"
                    for number, each in partitions.items()
                    if number != "-1"
                ),
            ]
        )

    def _take(self, statistics: str) -> None:
        self._statistics = statistics

    def _note(self, error: str) -> None:
        self._errors.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {self._doing[0]}: {error}")

    def _does(self, what: str) -> None:
        self._doing = (what, time.monotonic())

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        is_behind = False
        try:
            while not self._ended.is_set():
                self._does("reads")
                found = consumer.consume(200, 0.1)
                for each in found:
                    if each.error() is not None:
                        self._note(repr(each.error()))
                messages = [each for each in found if each.error() is None]
                self._ledger.note_read(self.name, messages)
                if messages or is_behind:
                    is_behind = not self._commits(consumer)
        except Exception as error:
            self._ledger.faults.append(f"{self.name}: {error!r}")
        finally:
            consumer.close()

    def _commits(self, consumer: Consumer) -> bool:
        """Whether nothing is left to commit. While the coordinator moves a commit may fail, and is tried again."""
        self._does("commits")
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException as error:
            self._note(repr(error))
            return bool(error.args[0].code() == KafkaError._NO_OFFSET)
        self._ledger.note_committed(self.name, done)
        self.commits += 1
        return True


class Load:
    """A writer and the members. `ask` returns the committed offsets that the coordinator tells, or None. `protocol`: the
    members' group.protocol."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        ask: Callable[[], dict[int, int] | None],
        protocol: str = "consumer",
    ) -> None:
        self.ledger = PartitionHistory()
        self.members: list[LoadMember] = []
        self._gone: list[LoadMember] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._ask = ask
        self._protocol = protocol
        self._count = 0
        self._work = ConfluentWork(bootstrap, topic, partitions, "writer")

    def start(self, members: int) -> Load:
        self._work.start()
        for _ in range(members):
            self.add()
        self.goes_on()
        return self

    def add(self) -> None:
        """Another member joins."""
        self._count += 1
        name = f"member-{self._count}"
        self.members.append(LoadMember(self._bootstrap, self._topic, self.ledger, name, self._protocol))

    def drop(self) -> None:
        """The oldest member leaves."""
        self._gone.append(self.members.pop(0))
        self._gone[-1].end()

    def goes_on(self) -> None:
        """The writer and each member continue, and the coordinator tells every acknowledged commit."""
        before = {member: member.commits for member in self.members}
        try:
            wait_until(
                lambda: (
                    self.ledger.faults
                    or self._work.failures
                    or all(member.commits > count + 1 for member, count in before.items())
                ),
                "every member commits",
            )
        except AssertionError as error:
            error.add_note("\n".join([self._work.describe(), *(each.describe() for each in self.members)]))
            raise
        self._work.wait_for_progress()
        self.told()
        assert not self.ledger.faults, self.ledger.faults[:5]

    def told(self) -> None:
        def is_told() -> bool:
            before = self.ledger.copy()
            told = self._ask()
            if told is not None:
                self.ledger.note_told(before, told)
            return told is not None

        wait_until(is_told, "the coordinator tells the commits")

    def end(self) -> None:
        """The writer has ended, and everything is read and committed."""
        self._work.stop()
        wanted = {(each, number) for each, count in self._work.sent.items() for number in range(1, count + 1)}
        wait_until(lambda: wanted <= self.ledger.read or self.ledger.faults, "everything is read")
        wait_until(
            lambda: self.ledger.copy() == self.ledger.ends or self.ledger.faults, "everything is committed"
        )
        # The only writer's numbers start with 1 at offset 0. A client that took a new producer epoch may have repeated some.
        assert self._work.renumbered or self.ledger.ends == self._work.sent, (
            self.ledger.ends,
            self._work.describe(),
        )
        self.told()
        for member in self.members + self._gone:
            member.stop()
        assert not self.ledger.faults, self.ledger.faults[:5]

    def abandon(self) -> None:
        """The test ends, maybe with a failure."""
        self._work._ended.set()
        for member in self.members:
            member.end()


def described_load(answer: dict[str, Any]) -> dict[str, Any]:
    """What a move of the coordinator may not change: the epochs, and the members with theirs and with their partitions."""
    return {
        "epochs": (answer["GroupEpoch"], answer["AssignmentEpoch"], answer["GroupState"]),
        "members": {
            each["ClientId"]: (
                each["MemberId"],
                each["MemberEpoch"],
                sorted(
                    number
                    for topic in each["Assignment"]["TopicPartitions"]
                    for number in topic["Partitions"]
                ),
            )
            for each in answer["Members"]
        },
    }
