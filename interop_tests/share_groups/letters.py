"""A share group that rejects every record, and its dead letters (KIP-1191), over raw sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from interop_tests.harness.raw_kafka import fetch_records, produce, topic_id
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.share_groups.hand import (
    BROKEN,
    REJECT,
    FindAddress,
    Hand,
    Leader,
    initialize,
    lag,
    read_from_start,
)

TAKES_LETTERS = {"errors.deadletterqueue.group.enable": "true"}
"""Settings of a topic for dead letters."""
NOT_YET_LEADER = (3, 5, 6)


class Letter(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RejectedJobs:
    """A topic of one partition whose records are jobs. Each has its number as value."""

    def __init__(
        self, coordinator: FindAddress, leader: Callable[[], str], topic: str, group: str, queue: str
    ) -> None:
        """`coordinator`: of the group, or None while there is none. `leader`: of the topic."""
        self._coordinator = coordinator
        self._leader = leader
        self.topic, self.group, self.queue = topic, group, queue
        self.count = 0

    def begin(self) -> RejectedJobs:
        """The group's dead letters have a copy of their records."""
        wait_until(self._coordinator, f"{self.group} has a coordinator")
        with Connection(self._leader()) as connection:
            read_from_start(
                connection,
                self.group,
                errors_deadletterqueue_topic_name=self.queue,
                errors_deadletterqueue_copy_record_enable="true",
            )
        initialize(self._coordinator, [self.group], self.topic)
        return self

    def reject(self, count: int) -> None:
        """Write this number of jobs, and reject whatever is delivered until none is left."""
        with Connection(self._leader()) as connection:
            id_ = topic_id(connection, self.topic)
            for number in range(self.count, self.count + count):
                plan = BatchPlan.of_now(b"%d" % number)

                def is_written(connection: Connection = connection, plan: BatchPlan = plan) -> bool:
                    """Metadata may name a leader a moment before it leads."""
                    code = produce(connection, self.topic, plan)["ErrorCode"]
                    assert code in (0, *NOT_YET_LEADER), code
                    return bool(code == 0)

                wait_until(is_written, f"{number} is written")
        self.count += count
        hand = Hand(lambda: Leader(self._leader()), self.group, "hand", id_)

        rejected: set[int] = set()

        def is_done() -> bool:
            for first, last, _ in hand.fetch(10):
                for offset in range(first, last + 1):
                    rejected.add(offset)
                    hand.acknowledge(offset, offset, REJECT)
            return rejected >= {*range(self.count - count, self.count)} and self.left() == [0]

        wait_until(is_done, f"{self.count} records of {self.topic} are archived", interval_s=0.1)
        hand.hang_up()

    def left(self) -> list[int] | None:
        """How many records of the partition are not archived yet. None if nobody can say."""
        address = self._coordinator()
        with suppress(*BROKEN):
            if address is not None:
                with Connection(address, timeout_s=5) as connection:
                    return [each for _, each in lag(connection, self.group)]
        return None

    def letters(self, find: Callable[[], str]) -> list[Letter]:
        """Wait until each job has its letter, and return what the leader of the first partition of dead letters has. `find`
        returns its address. Apache Kafka may archive a record before its letter is written."""

        def are_there() -> list[Letter]:
            found = self._letters(find())
            return found if len({letter.value for letter in found}) == self.count else []

        return wait_until(are_there, f"{self.queue} has {self.count} letters", interval_s=0.2)

    def _letters(self, address: str) -> list[Letter]:
        """Headers tell the roles of topic and group instead of their names."""
        roles = {self.topic.encode(): b"the topic", self.group.encode(): b"the group"}

        def told(headers: Iterable[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
            return tuple((name, roles.get(value or b"", value)) for name, value in headers)

        found: list[Letter] = []
        position = 0
        with Connection(address) as connection:
            while records := fetch_records(connection, self.queue, position):
                position = records[-1].offset + 1
                found += [Letter(each.key, each.value, told(each.headers)) for each in records]
        return found
