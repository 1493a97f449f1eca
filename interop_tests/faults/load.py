"""Writers that remember acknowledged records, and the check that reads them back.

Each writer has one partition and one connection, and starts again when the connection breaks. It remembers the offset
in the broker's response and the value at it. So the check notices if a broker loses, moves or changes an acknowledged
record.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from interop_tests.harness.raw_kafka import ErrorCode, fetch, list_offset, produce
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence

BROKEN = (OSError, ConnectionClosed, Silence)
OF_A_LEADER_TO_COME = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    6,  # NOT_LEADER_OR_FOLLOWER
    78,  # OFFSET_NOT_AVAILABLE: the high watermark has not reached the start of the leader's epoch
)
T = TypeVar("T")
Acknowledged = dict[tuple[int, int], bytes]
"""(partition, offset) -> value."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plan(*values: bytes) -> BatchPlan:
    """A batch with the current time, so that retention by time does not delete it."""
    return BatchPlan(list(values), base_timestamp_ms=now_ms())


class Writer:
    """One thread that produces numbered values to one partition until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partition: int, acks: int, padding: int = 500) -> None:
        self.partition = partition
        self.acknowledged: Acknowledged = {}
        self.refusals: set[int] = set()
        self._where = (bootstrap, topic, partition, acks)
        self._padding = b"." * padding
        self._number = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the writer hangs"

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(*BROKEN), Connection(self._where[0], timeout_s=10.0) as connection:
                while not self._ended.is_set():
                    self._write(connection)
            self._ended.wait(0.02)

    def _write(self, connection: Connection) -> None:
        _, topic, partition, acks = self._where
        values = []
        for _ in range(5):
            self._number += 1
            values.append(b"%d-%d-" % (partition, self._number) + self._padding)
        result = produce(connection, topic, plan(*values), partition, acks)
        if result["ErrorCode"] == ErrorCode.NONE:
            first = result["BaseOffset"]
            self.acknowledged.update({(partition, first + index): each for index, each in enumerate(values)})
        else:
            self.refusals.add(result["ErrorCode"])
            self._ended.wait(0.02)


def led(ask: Callable[[], T], code_of: Callable[[T], int], *not_yet: int) -> T:
    """The response of a broker that has loaded its partitions. A broker that has just started asks clients to retry."""
    found = wait_until(
        lambda: [answer] if code_of(answer := ask()) not in (*OF_A_LEADER_TO_COME, *not_yet) else [],
        "the partition is led",
    )
    return found[0]


def read_all(bootstrap: str, topic: str, partition: int = 0, start: int = 0) -> dict[int, bytes | None]:
    """offset -> value of all records from an offset to the end."""
    found: dict[int, bytes | None] = {}
    end = log_end(bootstrap, topic, partition)
    with Connection(bootstrap) as connection:
        offset = start
        while offset < end:
            result = fetch(connection, topic, offset, partition, partition_max_bytes=4 << 20)
            assert result["ErrorCode"] == ErrorCode.NONE, result["ErrorCode"]
            batches = decode_batches(result["Records"])
            assert batches, f"nothing at {topic}-{partition} offset {offset} though it ends at {end}"
            found.update({each.offset: each.value for batch in batches for each in batch.records})
            offset = max(found) + 1
    return found


def assert_kept(bootstrap: str, topic: str, acknowledged: Acknowledged) -> None:
    """Check that every acknowledged value is at its offset, and that no offset is missing."""
    for partition in sorted({partition for partition, _ in acknowledged}):
        found = read_all(bootstrap, topic, partition)
        assert sorted(found) == list(range(len(found))), f"{topic}-{partition} has gaps"
        lost = [
            offset
            for (of_partition, offset), value in acknowledged.items()
            if of_partition == partition and found.get(offset) != value
        ]
        assert not lost, f"{topic}-{partition} lost {len(lost)} acknowledged records, first at {min(lost)}"


def log_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    with Connection(bootstrap) as connection:
        code, end, _ = led(lambda: list_offset(connection, topic, partition, -1), lambda answer: answer[0])
    assert code == ErrorCode.NONE, code
    return end
