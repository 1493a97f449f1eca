"""Transactions in a compacted topic: whenever the broker is killed, read_committed returns what it returns for an
uncleaned copy."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    WAIT_S,
    Message,
    cleaned_to,
    create_compacted,
    read_messages,
    set_cleaners_pace,
    wait_until_clean,
)
from interop_tests.compaction.killing import FAST_PACE, SLOW_PACE, environment, kill_during_a_cleaning
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.waiting import wait_until

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
KILLS_AT_RENAMES = range(1, 13) if SOAK else (2, 5)
KILLS_AT_RANDOM = 13 if SOAK else 1
"""With both retentions. Of the 50 kills of a soak, 24 occur between the renames of swaps."""
KEPT, COPY = "kept-transactional", "uncleaned"
KEYS = 30
DAY_MS = 86_400_000


class Transactions:
    """Each transaction writes the same records to both topics. Some transactions are aborted. A new producer repeats a
    lost one.

    Some keys get a tombstone at the end of every transaction.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(5)
        self._number = 0
        self._producer: Producer | None = None
        self.committed = 0
        self.written: dict[str, dict[int, int]] = {KEPT: {}, COPY: {}}
        """Offset -> number of the acknowledged record, for each topic."""

    def carry_out(self) -> None:
        try:
            if self._producer is None:
                self._producer = Producer(
                    {
                        "bootstrap.servers": self._bootstrap,
                        "transactional.id": "both",
                        "transaction.timeout.ms": 30_000,
                        "queue.buffering.max.messages": 100_000,
                    }
                )
                self._producer.init_transactions(WAIT_S)
            self._one(self._producer)
        except KafkaException:
            # The broker was killed in between. The next producer ends the transaction that this one left open.
            self._producer = None

    def _one(self, producer: Producer) -> None:
        producer.begin_transaction()
        for at in range(150):
            key = b"key-%d" % int(KEYS * self._chance.random() ** 3)
            value = None if self._chance.random() < 0.02 else b"%d " % self._number + b"v" * 1000
            if at < 2:
                key, value = b"ended-%d" % (self._number // 150 % 5), None if at else b"to be ended"
            self._number += 1
            for topic in (KEPT, COPY):
                producer.produce(topic, value, key, on_delivery=self._noting(topic, self._number))
        producer.flush(WAIT_S)
        if self._chance.random() < 0.35:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            self.committed += 1

    def _noting(self, topic: str, number: int) -> Callable[[KafkaError | None, object], None]:
        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                self.written[topic][message.offset()] = number  # type: ignore[attr-defined]

        return delivered

    def expected(self, copy: list[Message]) -> list[Message]:
        """The expected content of the topic without cleaning, derived from its copy. A transaction is committed only
        when all its records are acknowledged, so the offset of each record is known in both topics."""
        place_of = {number: offset for offset, number in self.written[KEPT].items()}
        return [one._replace(offset=place_of[self.written[COPY][one.offset]]) for one in copy]


def assert_agree(bootstrap: str, transactions: Transactions, retention_ms: int) -> list[Message]:
    """Check that the last committed record of each key is at its original offset, and that there is no record that the
    copy does not have. Only tombstones older than delete.retention.ms may be missing. Returns the last record of each
    key."""
    for topic in (KEPT, COPY):
        wait_until_stable(bootstrap, topic, timeout_s=WAIT_S)
    kept = read_messages(bootstrap, KEPT, "read_committed")
    now_ms = time.time() * 1000
    expected = transactions.expected(read_messages(bootstrap, COPY, "read_committed"))
    assert all(one.offset < two.offset for one, two in itertools.pairwise(kept))
    committed = {one.offset: (one.key, one.value) for one in expected}
    assert [one for one in kept if committed.get(one.offset) != (one.key, one.value)] == []
    last, last_kept = ({one.key: one for one in messages} for messages in (expected, kept))
    gone = [last[key] for key in last.keys() - last_kept.keys()]
    assert [one for one in gone if one.value is not None or now_ms - one.timestamp_ms < retention_ms] == []
    assert {key: one.offset for key, one in last_kept.items()} == {key: last[key].offset for key in last_kept}
    return list(last.values())


@contextlib.contextmanager
def going_on(transactions: Transactions) -> Iterator[threading.Thread]:
    """Run in a thread."""
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            transactions.carry_out()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield writer
    finally:
        ended.set()
        writer.join(2 * WAIT_S)


@pytest.mark.parametrize("retention_ms", [2000, DAY_MS])
def test_read_committed_of_a_cleaned_topic_across_kills(
    tools: KafkaTools, make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, retention_ms: int
) -> None:
    """Killed with -9 directly after the n-th rename of a swap, and at any moment during a cleaning."""
    broker, chance = make_broker(EAGER_CLEANER), random.Random(retention_ms)
    create_compacted(broker.bootstrap, KEPT, delete_retention_ms=str(retention_ms))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(COPY, 1, 1)])[COPY].result(WAIT_S)
    transactions = Transactions(broker.bootstrap)
    for _ in range(20):
        transactions.carry_out()
    wait_until(lambda: cleaned_to(broker.data_dir, KEPT) > 0, "a first cleaning", WAIT_S)
    assert_agree(broker.bootstrap, transactions, retention_ms)

    def go_on_after_the_kill() -> None:
        before = transactions.committed
        wait_until(
            lambda: transactions.carry_out() or transactions.committed > before, "transactions go on", WAIT_S
        )
        assert_agree(broker.bootstrap, transactions, retention_ms)

    for rename in () if broker.kind == APACHE else KILLS_AT_RENAMES:
        broker.stop()
        with monkeypatch.context() as patched:
            for name, value in environment(rename).items():
                patched.setenv(name, value)
            broker.start()
        process = broker.process
        assert process is not None
        with going_on(transactions):
            wait_until(lambda: process.poll() is not None, f"killed at rename {rename}", WAIT_S)  # noqa: B023
            broker.kill()
            broker.start()
        go_on_after_the_kill()
    kills = tries = 0
    while kills < KILLS_AT_RANDOM:
        tries += 1
        assert tries <= 2 * KILLS_AT_RANDOM + 2, f"only {kills} of {tries - 1} kills fell into a cleaning"
        set_cleaners_pace(broker.bootstrap, SLOW_PACE)
        with going_on(transactions):
            kills += kill_during_a_cleaning(broker, KEPT, 0.4 * chance.random())
            broker.start()
        go_on_after_the_kill()
        # A fast machine has written so much meanwhile that the slow limit would take minutes.
        set_cleaners_pace(broker.bootstrap, FAST_PACE)
        wait_until_clean(broker.data_dir, KEPT)
        assert_agree(broker.bootstrap, transactions, retention_ms)
    for _ in range(10):
        transactions.carry_out()
    wait_until_clean(broker.data_dir, KEPT)
    last = assert_agree(broker.bootstrap, transactions, retention_ms)
    assert len([one for one in last if one.value is None]) >= 5
    assert broker.stop() in (0, 143)
    check_files(tools, broker.data_dir)
