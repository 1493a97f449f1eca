"""The results of read_committed Fetch with many overlapping transactions, from every offset, and when it waits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from interop_tests.harness.broker import APACHE, chosen_bootstrap, chosen_kind
from interop_tests.harness.raw_kafka import fetch, fetch_body, list_offset, produce
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.transactions.by_hand import CONTROL, NEW, OLD, TRANSACTIONAL, Producer

ABORT = b"\0\0\0\0"
PRODUCERS, STEPS = 4, 70


class Written(NamedTuple):
    offset: int
    value: bytes
    writer: int
    """The index of the producer. -1 for non-transactional records, which always count."""


class History:
    """The records written to a partition, and how each transaction ended for its producer."""

    def __init__(self) -> None:
        self.records: list[Written] = []
        self.ended: dict[int, bool] = {}
        """Offset of a record -> whether its transaction was committed."""
        self.open_since: dict[int, int] = {}

    def write(self, offset: int, values: list[bytes], writer: int) -> None:
        self.records += [Written(offset + number, value, writer) for number, value in enumerate(values)]
        if writer >= 0:
            self.open_since.setdefault(writer, offset)

    def end(self, writer: int, committed: bool) -> None:
        since = self.open_since.pop(writer)
        for record in self.records:
            if record.writer == writer and record.offset >= since:
                self.ended[record.offset] = committed

    def visible(self, start: int, end: int) -> list[tuple[int, bytes]]:
        return [
            (record.offset, record.value)
            for record in self.records
            if start <= record.offset < end and (record.writer < 0 or self.ended[record.offset])
        ]


def plain(*values: bytes) -> BatchPlan:
    """Current, like the timestamps of markers. Otherwise a marker would start a new segment."""
    return BatchPlan(list(values), base_timestamp_ms=time.time_ns() // 1_000_000)


def read(
    connection: Connection, topic: str, start: int, end: int, partition_max_bytes: int
) -> list[tuple[int, bytes | None]]:
    """With as many fetches as needed, filtered as by a consumer."""
    found: list[tuple[int, bytes | None]] = []
    at = start
    while at < end:
        result = fetch(connection, topic, at, IsolationLevel=1, partition_max_bytes=partition_max_bytes)
        assert result["ErrorCode"] == 0
        assert result["LastStableOffset"] == end
        aborted = [(each["FirstOffset"], each["ProducerId"]) for each in result["AbortedTransactions"]]
        # Apache Kafka returns them in the order of their markers. That misleads a client that expects the order of
        # first offsets.
        assert aborted == sorted(aborted) or chosen_kind() == APACHE or chosen_bootstrap(), "by first offset"
        aborted.sort()
        dropped: set[int] = set()
        batches = decode_batches(result["Records"], True)
        assert batches, f"nothing from {at} on, though {end} is stable"
        for batch in batches:
            while aborted and aborted[0][0] <= batch.last_offset:
                dropped.add(aborted.pop(0)[1])
            if batch.attributes & CONTROL:
                if batch.records[0].key == ABORT:
                    dropped.discard(batch.producer_id)
            elif not (batch.attributes & TRANSACTIONAL and batch.producer_id in dropped):
                found += [(one.offset, one.value) for one in batch.records if one.offset >= at]
        at = batches[-1].last_offset + 1
    return found


@pytest.mark.parametrize("seed", range(3))
def test_transactions_that_overlap(
    seed: int, connection: Connection, connect: Callable[..., Connection], make_topic: Any, unique: Any
) -> None:
    """Each time a transaction ends: the last stable offset, and a consumer's records from every offset with portions
    of every size."""
    chance = random.Random(seed)
    topic = make_topic()
    producers = [
        Producer(connect(), unique("tx"), NEW if number % 2 else OLD).init() for number in range(PRODUCERS)
    ]
    history, number = History(), 0

    def stable() -> int:
        return list_offset(connection, topic, 0, -1, isolation=1)[1]

    def end_of_log() -> int:
        return list_offset(connection, topic, 0, -1)[1]

    for _ in range(STEPS):
        writer = chance.randrange(-1, PRODUCERS)
        if writer in history.open_since and chance.random() < 0.35:
            commit = chance.random() < 0.5
            producers[writer].finish(commit)
            producers[writer].wait_for("CompleteCommit", "CompleteAbort")
            history.end(writer, commit)
        else:
            values = [b"%d" % (number + each) for each in range(chance.randint(1, 3))]
            number += len(values)
            if writer < 0:
                offset = produce(connection, topic, plain(*values))["BaseOffset"]
            else:
                offset = producers[writer].send(topic, *values)
            history.write(offset, values, writer)
        end = min(history.open_since.values(), default=end_of_log())
        wait_until(lambda end=end: stable() == end, f"the last stable offset is {end}")
        for start in {0, chance.randrange(end + 1)}:
            assert read(connection, topic, start, end, chance.choice([1, 300, 1 << 20])) == history.visible(
                start, end
            )
    for writer in sorted(history.open_since):
        producers[writer].finish(False)
        producers[writer].wait_for("CompleteAbort")
        history.end(writer, False)
    end = end_of_log()
    wait_until(lambda: stable() == end, "everything is stable")
    for start in range(end):
        assert read(connection, topic, start, end, 200) == history.visible(start, end)
    uncommitted = fetch(connection, topic, 0)
    assert uncommitted["AbortedTransactions"] is None
    data = [each for each in decode_batches(uncommitted["Records"]) if not each.attributes & CONTROL]
    assert sum(len(each.records) for each in data) == len(history.records)


def test_only_stable_bytes_count_for_min_bytes(
    connection: Connection, connect: Callable[..., Connection], make_topic: Any, unique: Any
) -> None:
    """Unstable records, however many, do not wake a read_committed fetch. The marker does."""
    topic = make_topic()
    producer, writer = Producer(connect(), unique("tx"), NEW).init(), connect()
    assert produce(connection, topic, plain(b"s" * 200))["ErrorCode"] == 0
    producer.send(topic, b"o" * 200)
    waiting = connect()
    body = fetch_body(topic, 0, IsolationLevel=1, MinBytes=1000, MaxWaitMs=15_000)
    sent = waiting.send("Fetch", 12, body)
    for _ in range(10):
        producer.send(topic, b"o" * 500)
        assert produce(writer, topic, plain(b"behind" * 100))["ErrorCode"] == 0
    assert waiting.is_silent(1.0)
    producer.finish(True)
    (of_topic,) = waiting.receive("Fetch", 12, sent, 10)["Responses"]
    (found,) = of_topic["Partitions"]
    assert found["LastStableOffset"] == 23
    assert len(decode_batches(found["Records"])) == 23


def test_a_fetch_beyond_the_last_stable_offset_is_answered_empty_in_time(
    connection: Connection, connect: Callable[..., Connection], make_topic: Any, unique: Any
) -> None:
    """At the last stable offset, and after it, where a reader may be that used read_uncommitted before."""
    topic = make_topic()
    producer = Producer(connect(), unique("tx"), NEW).init()
    producer.send(topic, b"open")
    producer.send(topic, b"open too")
    for offset in (0, 1, 2):
        result = fetch(connection, topic, offset, IsolationLevel=1, MaxWaitMs=200)
        assert (result["ErrorCode"], result["LastStableOffset"], result["HighWatermark"]) == (0, 0, 2)
        assert result["Records"] == b""
        assert result["AbortedTransactions"] == []
    producer.finish(False)
