"""Messages of the formats before Kafka 0.11, in a log that an older broker began: what stays of them is written as
batches of magic 2."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import pytest

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import EAGER_CLEANER, create_compacted, wait_until_clean
from interop_tests.harness.broker import BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.raw_kafka import fetch_batches, list_offset, produce
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

TOPIC = "old"
OLD_MS = 1_400_000_000_000
FILLING, PADDING = 60, b"." * 50_000
GZIP = 1


def message(magic: int, offset: int, key: bytes | None, value: bytes | None, attributes: int = 0) -> bytes:
    body = bytes((magic, attributes)) + (struct.pack(">q", OLD_MS) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(magic: int, last_offset: int, *pairs: tuple[bytes, bytes | None]) -> bytes:
    """A compressed message, with the others inside."""
    first = last_offset + 1 - len(pairs) if magic == 0 else 0
    inner = b"".join(message(magic, first + at, *pair) for at, pair in enumerate(pairs))
    return message(magic, last_offset, None, gzip.compress(inner), GZIP)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_batches(
    tools: KafkaTools, make_broker: Callable[..., BrokerProcess], magic: int
) -> None:
    broker = make_broker(EAGER_CLEANER)
    create_compacted(broker.bootstrap, TOPIC)
    assert broker.stop() in (0, 143)
    directory = broker.data_dir / f"{TOPIC}-0"
    for path in directory.glob("0*"):
        path.unlink()
    (directory / f"{0:020d}.log").write_bytes(
        message(magic, 0, b"replaced", b"old")
        + wrapper(magic, 3, (b"deleted", b"value"), (b"kept", b"value"), (b"replaced", b"new"))
        + message(magic, 4, b"deleted", None)
    )
    # What a start checks after a crash.
    (broker.data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert list_offset(connection, TOPIC, 0, -1)[:2] == (0, 5)
        for number in range(FILLING):
            plan = BatchPlan([PADDING], keys=[b"filling-%d" % number])
            assert produce(connection, TOPIC, plan)["ErrorCode"] == 0
        wait_until_clean(broker.data_dir, TOPIC)
        batches = fetch_batches(connection, TOPIC, 0)
    old = [batch for batch in batches if batch.base_offset < 5]
    assert [
        (batch.base_offset, batch.last_offset, batch.attributes & 7, [each[:] for each in batch.records])
        for batch in old
    ] == [
        (2, 3, GZIP, [(2, stamp(magic), b"kept", b"value", []), (3, stamp(magic), b"replaced", b"new", [])]),
        (4, 4, 0, [(4, stamp(magic), b"deleted", None, [])]),
    ]
    assert broker.stop() in (0, 143)
    check_files(tools, broker.data_dir)


def stamp(magic: int) -> int:
    return OLD_MS if magic else -1
