"""A batch after a cleaning is a valid batch: it keeps its codec, and each record keeps its offset, time and headers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    cleaned_to,
    create_compacted,
    wait_until_clean,
)
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import fetch_batches, list_offset, produce
from interop_tests.harness.records import CODECS, Batch, BatchPlan, Record, encode_record
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

BASE_MS = 1_760_000_000_000
RECORDS, BATCHES, KEYS = 60, 60, 500


def plan(number: int, codec: str, chance: random.Random) -> tuple[BatchPlan, list[Record]]:
    """A batch, and its records with offsets relative to its first one. Times vary in both directions, and one is
    before the base timestamp."""
    records, packed = [], b""
    for at in range(RECORDS):
        delta = chance.choice([0, 5, 1000, 70_000, -40])
        headers: list[tuple[str, bytes | None]] = [
            (f"h{each}", chance.choice([None, b"", b"%d" % number])) for each in range(chance.randrange(3))
        ]
        key = b"key-%d" % int(KEYS * chance.random() ** 3)
        value = None if at == 0 else chance.randbytes(400)
        records.append(Record(at, BASE_MS + number + delta, key, value, headers))
        packed += encode_record(at, key, value, headers, delta)
    newest = max(record.timestamp_ms for record in records)
    made = BatchPlan(
        values=[b""] * RECORDS,
        records=packed,
        codec=codec,
        base_timestamp_ms=BASE_MS + number,
        max_timestamp_ms=newest,
    )
    return made, records


def read(connection: Connection, topic: str) -> list[Batch]:
    end = list_offset(connection, topic, 0, -1)[1]
    found: list[Batch] = []
    while not found or found[-1].last_offset + 1 < end:
        found += fetch_batches(connection, topic, found[-1].last_offset + 1 if found else 0)
    return found


@pytest.mark.parametrize("of_topic", ["producer", "zstd"])
def test_the_rest_of_a_cleaned_batch(
    tools: KafkaTools, make_broker: Callable[..., BrokerProcess], of_topic: str
) -> None:
    """The topic's codec was applied when the batch was produced. Cleaning keeps the codec of each batch."""
    broker = make_broker(EAGER_CLEANER)
    options = {"message_timestamp_before_max_ms": str(2**63 - 1), "compression_type": of_topic}
    create_compacted(broker.bootstrap, "kept", **options)
    chance = random.Random(3)
    written: dict[int, Record] = {}
    codecs: dict[int, int] = {}
    with Connection(broker.bootstrap) as connection:
        for number in range(BATCHES):
            codec = list(CODECS)[number % len(CODECS)]
            made, records = plan(number, codec, chance)
            result = produce(connection, "kept", made)
            assert result["ErrorCode"] == 0
            for record in records:
                offset = result["BaseOffset"] + record.offset
                written[offset] = record._replace(offset=offset)
                codecs[offset] = CODECS[codec if of_topic == "producer" else of_topic]
        wait_until_clean(broker.data_dir, "kept")
        batches = read(connection, "kept")
        clean = cleaned_to(broker.data_dir, "kept")
    last = {record.key: record.offset for record in written.values()}
    kept = [record for batch in batches for record in batch.records]
    assert kept == [written[record.offset] for record in kept]
    assert {record.offset for record in kept} >= set(last.values())
    below = [record.offset for record in kept if record.offset < clean]
    assert set(below) <= {offset for offset in last.values() if offset < clean} | {
        # A key that is overwritten only in the active segment is cleaned later.
        max((each for each, record in written.items() if record.key == key and each < clean), default=-1)
        for key in last
    }
    assert len(below) < clean / 3, "it is cleaned"
    for batch in batches:
        if batch.records:
            assert {codecs[record.offset] for record in batch.records} == {batch.attributes & 7}
            assert batch.max_timestamp_ms == max(record.timestamp_ms for record in batch.records)
            assert batch.base_offset <= batch.records[0].offset
            assert batch.records[-1].offset <= batch.last_offset
    assert broker.stop() in (0, 143)
    check_files(tools, broker.data_dir)
