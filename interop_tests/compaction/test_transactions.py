"""Transactions in a compacted topic: wherever kills fall, read_committed shows what an uncleaned copy shows."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    WAIT_S,
    cleaned_to,
    create_compacted,
    read_all,
    wait_until_clean,
)
from interop_tests.compaction.killing import environment
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.waiting import wait_until

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
KILLS_AT_RENAMES = range(1, 13) if SOAK else (2, 5)
KEPT, COPY = "kept-transactional", "uncleaned"
KEYS = 30


class Transactions:
    """Each transaction writes the same to both topics; some are aborted. A lost one is begun anew by a new producer."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(5)
        self._number = 0
        self._producer: Producer | None = None
        self.committed = 0

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
            # The broker was killed in between; the next producer ends what this one has left.
            self._producer = None

    def _one(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(150):
            self._number += 1
            key = b"key-%d" % int(KEYS * self._chance.random() ** 3)
            value = None if self._chance.random() < 0.02 else b"%d " % self._number + b"v" * 1000
            for topic in (KEPT, COPY):
                producer.produce(topic, value, key)
        producer.flush(WAIT_S)
        if self._chance.random() < 0.35:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            self.committed += 1


def assert_agree(bootstrap: str) -> None:
    """The same last committed value of each key; only tombstones may be gone."""
    offsets, kept = read_all(bootstrap, KEPT, "read_committed")
    _, copy = read_all(bootstrap, COPY, "read_committed")
    assert all(one < two for one, two in itertools.pairwise(offsets))
    assert kept.keys() <= copy.keys()
    gone = copy.keys() - kept.keys()
    assert all(copy[key][1] is None for key in gone)
    assert {key: kept[key][1] for key in kept} == {key: copy[key][1] for key in kept}


def test_read_committed_of_a_cleaned_topic_across_kills(
    tools: KafkaTools, make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(EAGER_CLEANER)
    create_compacted(broker.bootstrap, KEPT, delete_retention_ms="2000")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(COPY, 1, 1)])[COPY].result(WAIT_S)
    transactions = Transactions(broker.bootstrap)
    for _ in range(20):
        transactions.carry_out()
    wait_until(lambda: cleaned_to(broker.data_dir, KEPT) > 0, "a first cleaning", WAIT_S)
    assert_agree(broker.bootstrap)
    for rename in () if broker.kind == APACHE else KILLS_AT_RENAMES:
        broker.stop()
        with monkeypatch.context() as patched:
            for name, value in environment(rename).items():
                patched.setenv(name, value)
            broker.start()
        process = broker.process
        assert process is not None
        ended = threading.Event()

        def write(ended: threading.Event = ended) -> None:
            while not ended.is_set():
                transactions.carry_out()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_until(lambda: process.poll() is not None, f"killed at rename {rename}", WAIT_S)  # noqa: B023
            broker.kill()
            broker.start()
        finally:
            ended.set()
            writer.join(2 * WAIT_S)
        before = transactions.committed
        wait_until(
            lambda: transactions.carry_out() or transactions.committed > before,  # noqa: B023
            "transactions go on",
            WAIT_S,
        )
        assert_agree(broker.bootstrap)
    for _ in range(10):
        transactions.carry_out()
    wait_until_clean(broker.data_dir, KEPT)
    assert_agree(broker.bootstrap)
    assert broker.stop() in (0, 143)
    check_files(tools, broker.data_dir)
