"""Spark with transactions: markers, aborted ranges and compacted offsets are gaps, never lost data.

failOnDataLoss is always true (Spark's default), so a false alarm fails the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from interop_tests.compaction.keyed import EAGER_CLEANER, create_compacted, read_all, wait_until_clean
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.raw_kafka import list_offset
from interop_tests.harness.stable import wait_until_stable
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.spark.conftest import Read
from interop_tests.spark.test_streaming import WAIT_S, rows, running, stream, wait_for_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMEOUT_S = 30.0
STRICT = {"failOnDataLoss": "true", "kafka.isolation.level": "read_committed"}
Rows = list[tuple[int, int, str]]


class Transactions:
    """One transaction after another. `committed` and `everything` are the (partition, offset, value) in the log."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self.committed: Rows = []
        self.everything: Rows = []
        self._open: Rows = []
        self._count = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0, "linger.ms": 0}
        )
        self._producer.init_transactions(TIMEOUT_S)

    def begin(self, count: int, *partitions: int) -> None:
        """Write this number of records to each partition, and leave the transaction open."""
        self._producer.begin_transaction()
        for partition in partitions:
            for _ in range(count):
                self._count += 1
                value = f"value {self._count}"
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self._open.append((message.partition(), message.offset(), message.value().decode()))

    def end(self, commits: bool) -> None:
        (self._producer.commit_transaction if commits else self._producer.abort_transaction)(TIMEOUT_S)
        wait_until_stable(self._bootstrap, self.topic, 1 + max(partition for partition, _, _ in self._open))
        self.everything += self._open
        if commits:
            self.committed += self._open
        self._open = []

    def commit(self, count: int, *partitions: int) -> None:
        self.begin(count, *partitions)
        self.end(True)

    def abort(self, count: int, *partitions: int) -> None:
        self.begin(count, *partitions)
        self.end(False)


@pytest.fixture
def transactions(
    bootstrap: str, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> Transactions:
    """Two partitions: the first ends with an aborted range, and the second contains only aborted records."""
    made = Transactions(bootstrap, make_topic(partitions=2), unique("tx"))
    made.commit(10, 0)  # 0-9, its marker 10
    made.abort(5, 0, 1)  # 11-15, 16
    made.commit(10, 0)  # 17-26, 27
    made.abort(30, 0, 1)  # 28-57, 58
    return made


def seen(frame: DataFrame) -> Rows:
    return sorted((row["partition"], row["offset"], bytes(row["value"]).decode()) for row in frame.collect())


def test_all_that_is_committed_and_nothing_else(read: Read, transactions: Transactions) -> None:
    assert seen(read(STRICT, subscribe=transactions.topic)) == sorted(transactions.committed)
    uncommitted = read(STRICT, subscribe=transactions.topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert seen(uncommitted) == sorted(transactions.everything)


@pytest.mark.parametrize(
    ("first", "end"),
    [
        pytest.param(0, 59, id="to the last marker"),
        pytest.param(10, 13, id="from a marker into an aborted range"),
        pytest.param(12, 15, id="within an aborted range"),
        pytest.param(13, 20, id="out of an aborted range"),
        pytest.param(16, 17, id="a marker alone"),
        pytest.param(20, 40, id="into the aborted tail"),
        pytest.param(30, 59, id="within the aborted tail"),
        pytest.param(58, 59, id="the last marker"),
    ],
)
def test_ranges_that_begin_and_end_anywhere(
    read: Read, transactions: Transactions, first: int, end: int
) -> None:
    frame = read(
        STRICT,
        subscribe=transactions.topic,
        startingOffsets=json.dumps({transactions.topic: {"0": first, "1": 0}}),
        endingOffsets=json.dumps({transactions.topic: {"0": end, "1": -1}}),
    )
    assert seen(frame) == [row for row in transactions.committed if first <= row[1] < end]


def test_more_tasks_than_partitions(read: Read, transactions: Transactions) -> None:
    """Tasks divide a partition's range, and some get no committed record."""
    frame = read(STRICT, subscribe=transactions.topic, minPartitions="12")
    assert frame.rdd.getNumPartitions() >= 12
    assert seen(frame) == sorted(transactions.committed)


def test_latest_is_where_the_open_transaction_begins(
    read: Read, transactions: Transactions, connection: Connection
) -> None:
    """A read ends at the last stable offset, and does not wait for the open transaction."""
    before = sorted(transactions.committed)
    transactions.begin(3, 0)
    assert seen(read(STRICT, subscribe=transactions.topic)) == before
    assert list_offset(connection, transactions.topic, 0, -1, isolation=1)[1] == 59
    transactions.end(True)
    assert seen(read(STRICT, subscribe=transactions.topic)) == sorted(transactions.committed)


def test_a_query_goes_on_from_every_kind_of_gap(
    spark: SparkSession, bootstrap: str, transactions: Transactions, tmp_path: Path
) -> None:
    """Stop and start with a checkpoint at the end of an aborted tail, at the end of a marker, and before an open
    transaction."""
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def run() -> None:
        frame = stream(
            spark,
            bootstrap,
            subscribe=transactions.topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger="40",
            **STRICT,
        )
        writer = frame.writeStream.format("json").option("path", str(sink))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None
        assert rows(spark, sink) == sorted(transactions.committed)

    run()
    transactions.abort(4, 0, 1)
    run()
    transactions.commit(2, 1)
    transactions.begin(3, 0, 1)
    run()
    transactions.end(False)
    run()
    transactions.commit(1, 0, 1)
    run()


def test_a_running_query_shows_a_transaction_when_it_is_committed(
    spark: SparkSession, bootstrap: str, transactions: Transactions, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    frame = stream(spark, bootstrap, subscribe=transactions.topic, startingOffsets="earliest", **STRICT)
    with running(frame, sink, tmp_path / "checkpoint") as query:
        wait_for_rows(spark, sink, len(transactions.committed))
        for commits in (False, True, False, True):
            transactions.begin(5, 0, 1)
            query.processAllAvailable()
            assert rows(spark, sink) == sorted(transactions.committed)
            transactions.end(commits)
            wait_for_rows(spark, sink, len(transactions.committed))
        transactions.abort(5, 0, 1)
        query.processAllAvailable()
        assert rows(spark, sink) == sorted(transactions.committed)
        assert query.exception() is None


@pytest.mark.needs_control
def test_offsets_that_compaction_took(
    spark: SparkSession, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Aborted records and overwritten keys are gone, in the middle and at the start. A query that started before
    continues over the gaps."""
    broker = make_broker(EAGER_CLEANER)
    topic, sink, checkpoint = "compacted", tmp_path / "sink", tmp_path / "checkpoint"
    create_compacted(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "tx", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)

    def write(first: int, end: int) -> None:
        for number in range(first, end):
            producer.begin_transaction()
            for key in range(40):
                producer.produce(topic, f"{number} {key} " + "x" * 1000, f"{key % (5 + number)}")
            producer.flush(TIMEOUT_S)
            (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(TIMEOUT_S)

    def options(bootstrap: str) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **STRICT}

    def run_query() -> Rows:
        frame = stream(spark, broker.bootstrap, subscribe=topic, startingOffsets="earliest", **STRICT)
        writer = frame.writeStream.format("json").option("path", str(sink))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert query.exception() is None
        return rows(spark, sink)

    write(0, 3)
    first = run_query()
    assert len(first) == 80
    write(3, 60)
    wait_until_clean(broker.data_dir, topic)
    frame = spark.read.format("kafka").options(**options(broker.bootstrap)).load()
    offsets, found = read_all(broker.bootstrap, topic, "read_committed")
    with Connection(broker.bootstrap) as connection:
        end = list_offset(connection, topic, 0, -1)[1]
    assert len(offsets) < end / 2
    batch = seen(frame)
    assert [offset for _, offset, _ in batch] == offsets
    kept = {offset: (value or b"").decode() for offset, value in found.values()}
    assert {offset: value for _, offset, value in batch if offset in kept} == kept
    # The query continues where it stopped, whatever has happened to the offsets there.
    after = first[-1][1]
    assert [offset for _, offset, _ in run_query() if offset > after] == [
        each for each in offsets if each > after
    ]
    wait_until(lambda: run_query() == rows(spark, sink), "the query is at the end", TIMEOUT_S)
