"""List-append over transactions: each transaction polls some records, and writes some to several partitions of the
same topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from interop_tests.histories.clients import (
    OF_A_GROUP,
    OF_A_TRANSACTION,
    OPERATION_TIMEOUT_S,
    Client,
    StartAgain,
    Surroundings,
    closing,
    name_of,
)
from interop_tests.histories.history import COMMITTED, FAIL, OK, Completion
from interop_tests.histories.queues import AssignedReader, KafkaPythonReader, deliver, poll_into

TOPIC = "appends"
PARTITIONS = 4
GROUP = "appenders"
TRANSACTION_TIMEOUT_MS = 15_000
POLLED_AT_MOST = 20
WRITTEN_AT_MOST = 4
ABORTED = 0.2
LEFT = 0.15
"""The probability that a member leaves its group for LEFT_S between sending its offsets and the end of the
transaction. The next owner of its partitions has to wait for that end."""
LEFT_S = 1.5
"""Longer than a rebalance."""
HEARTBEAT_MS = 300
POLL_S = 0.1
IDS = tuple(f"appender-{number}" for number in range(1, 4))
COORDINATED = ((OF_A_GROUP, GROUP), *((OF_A_TRANSACTION, name) for name in IDS))


class Appender(Client):
    """Its name is its transactional id. After a failure that is not abortable a new one is created, as in a restarted
    application."""

    sends_offsets = False
    """Whether it is inside `send_offsets_to_transaction`."""

    @contextmanager
    def life(self, process: str) -> Iterator[Callable[[], None]]:
        self.consumer = Consumer(
            self.librdkafka(
                group_id=GROUP,
                isolation_level=COMMITTED,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
        )
        self.entries: list[list[Any]] = []
        self.has_left = False
        with closing(self.consumer, self.consumer.close):
            self.producer = Producer(self._producer_settings())
            self.producer.init_transactions(2 * OPERATION_TIMEOUT_S)
            self._subscribe()
            yield lambda: self._transaction(process)

    def _transaction(self, process: str) -> None:
        detail: dict[str, Any] = {
            "group": GROUP,
            "polled": [],
            "polled_at": None,
            "sent": [],
            "committing": None,
        }
        with self.recorder.operation(process, "txn") as done:
            done.value = detail
            try:
                self._attempt(detail, done)
            except KafkaException as error:
                if detail["committing"] is None:
                    # The end of the transaction was never requested, so it is aborted: below, by the next owner of the
                    # id, or by its timeout.
                    done.outcome = FAIL
                if not error.args[0].txn_requires_abort():
                    raise StartAgain from error
                self.producer.abort_transaction(OPERATION_TIMEOUT_S)
        if self.has_left:
            self.has_left = False
            self._subscribe()
        elif done.outcome != OK:
            self._rewind()

    def _attempt(self, detail: dict[str, Any], done: Completion) -> None:
        self.producer.begin_transaction()
        was_rebalanced = self._poll(detail)
        for _ in range(self.chance.randint(1, WRITTEN_AT_MOST)):
            item = [name_of(TOPIC, self.chance.randrange(PARTITIONS)), next(self._all.numbers), None]
            detail["sent"].append(item)
            deliver(self.producer, TOPIC, item)
        ends = {entry[0]: entry[1] + 1 for entry in detail["polled"] if len(entry) == 3}
        if ends and not was_rebalanced:
            offsets = [TopicPartition(TOPIC, int(name.rpartition("-")[2]), end) for name, end in ends.items()]
            self.sends_offsets = True
            try:
                self.producer.send_offsets_to_transaction(
                    offsets, self.consumer.consumer_group_metadata(), OPERATION_TIMEOUT_S
                )
            finally:
                self.sends_offsets = False
            if self.chance.random() < LEFT:
                self._leave()
        if was_rebalanced or self.chance.random() < ABORTED:
            # Some records of an aborted transaction have reached the log.
            self.producer.flush(self.chance.choice((0, OPERATION_TIMEOUT_S)))
            done.outcome = FAIL
            self.producer.abort_transaction(OPERATION_TIMEOUT_S)
            return
        detail["committing"] = self.recorder.now()
        self._commit()
        done.ok(detail)

    def _producer_settings(self) -> dict[str, Any]:
        """librdkafka refuses a socket.timeout.ms that is longer than the transaction's timeout."""
        return self.librdkafka(
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            socket_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )

    def hangs_by_itself(self) -> bool:
        """librdkafka may wait forever for a group coordinator that it has forgotten (its issues 5511 and 5456),
        because a node was away for longer than its session. The next owner of the transactional id continues."""
        if not self.sends_offsets:
            return False
        heir = Producer(self._producer_settings())
        try:
            heir.init_transactions(2 * OPERATION_TIMEOUT_S)
        except KafkaException as error:
            self._all.log(f"{self.name} hangs, and its heir cannot go on: {error!r}")
            return False
        self._all.log(f"{self.name} hangs in send_offsets_to_transaction; its heir can go on")
        return True

    def _poll(self, detail: dict[str, Any]) -> bool:
        """Whether the group was rebalanced after a record was polled. Another member may own that record's partition
        now."""
        entries = self.entries
        poll_into(self.consumer, entries, self.chance.randint(1, POLLED_AT_MOST), POLL_S)
        detail["polled"] = list(entries)
        detail["polled_at"] = self.recorder.now()
        entries.clear()
        lengths = [len(entry) if entry[1] is not None else 0 for entry in detail["polled"]]
        return 3 in lengths and 0 in lengths[lengths.index(3) :]

    def _leave(self) -> None:
        """Records that arrive before the assignment is revoked belong to another member."""
        self.consumer.unsubscribe()
        self.has_left = True
        poll_into(self.consumer, [], POLLED_AT_MOST, LEFT_S)
        self.entries.clear()

    def _commit(self) -> None:
        """Retry until the outcome is known, or until the transaction must have ended by its timeout."""
        deadline = time.monotonic() + 2 * OPERATION_TIMEOUT_S
        while True:
            try:
                self.producer.commit_transaction(OPERATION_TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return

    def _subscribe(self) -> None:
        """Each assignment begins at the group's committed offsets, which this program asks for itself. If librdkafka 2.16 asks,
        and is assigned other partitions before an answer arrives that says UNSTABLE_OFFSET_COMMIT, it takes that for no
        offset and begins at the start of the log. Each assigned partition is an entry without a position."""

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                places = self._committed(partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._DESTROY:
                    raise
                return  # it is being closed
            consumer.assign(places)
            self.entries.extend([name_of(each.topic, each.partition), None] for each in partitions)

        self.consumer.subscribe([TOPIC], on_assign=assigned)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The group's committed offsets, when they are stable. 0 for a partition without one."""
        found = []
        for place in self.consumer.committed(partitions, OPERATION_TIMEOUT_S) if partitions else ():
            if place.error is not None:
                raise KafkaException(place.error)
            found.append(TopicPartition(TOPIC, place.partition, max(place.offset, 0)))
        return found

    def _rewind(self) -> None:
        """Seek to the group's committed offsets, so that the records are polled again."""
        for place in self._committed(self.consumer.assignment()):
            try:
                self.consumer.seek(place)
            except KafkaException as error:
                # The partition is not fetched yet. Its fetch will start from the committed offset.
                if error.args[0].code() != KafkaError._STATE:
                    raise
            self.entries.append([name_of(TOPIC, place.partition), place.offset])


def start(surroundings: Surroundings) -> list[Client]:
    return [
        *(Appender(surroundings, name) for name in IDS),
        AssignedReader(surroundings, "append-reader", TOPIC, PARTITIONS, COMMITTED),
        KafkaPythonReader(surroundings, "append-reader-kafka-python", TOPIC, PARTITIONS, COMMITTED),
    ]
