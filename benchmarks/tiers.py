"""Tiered storage (KIP-405) of brokers that are warm: copying closed segments, reading what is in the tier only, and how soon a
producer is answered meanwhile.

Both brokers copy to a folder of the same disk, Apache Kafka by the LocalTieredStorage of its own tests. The loads take turns
as those of `benchmarks.warm`. Records that are to be copied are written while copying is off.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.measure import TOPIC_TIMEOUT_S, create_topic, run_client, running
from benchmarks.report import TIERED
from benchmarks.warm import PACED, PLAIN, Figures, Side, WarmLoad, consumed_by_java, delete, produced_by_java
from interop_tests.harness.raw_kafka import list_offset
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.storage.local_tier import tier_plugins, tier_settings

COPIED, COLD = "copied", "cold"
"""A topic of which each round copies everything, and one that is in the tier but for its ends."""
PARTITIONS = 3
SIZE, BATCH_BYTES, BATCH_RECORDS = 1000, 16_000, 16
COPIED_BATCHES, COLD_BATCHES = 22_000, 11_000
"""Of each partition."""
SEGMENT_BYTES = 32 << 20
SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "file.delete.delay.ms": "1000",
}
ONLY_LATEST = {"local.retention.bytes": "1"}
FETCH_BYTES = 1 << 20
MEANWHILE_PER_S = 50
"""Fetches of 1 MiB, or MB copied, in each second while records are produced at a fixed rate."""
READER_S = 60
"""A reader at a fixed rate reads for longer than any producer produces."""
COPY_DISABLED = "remote.log.copy.disable"
COPY_RATE = "remote.log.manager.copy.max.bytes.per.second"
UNBOUNDED = (1 << 63) - 1
BROKER = "1"
QUOTA_WINDOW = {"remote.log.manager.copy.quota.window.num": "2"}
"""So that the rate of copying is that of every second."""
EARLIEST_LOCAL, LATEST_TIERED, LIST_OFFSETS_VERSION = -4, -5, 9
POLL_S = 0.02
LIMIT_S = 120.0


@contextmanager
def up_tiered(kind: str) -> Iterator[Side]:
    """A node, and a folder as its remote store."""
    with (
        tempfile.TemporaryDirectory(prefix=f"bench-{kind}-store-") as store,
        running(kind, tier_settings(Path(store)) | QUOTA_WINDOW, tier_plugins()) as broker,
    ):
        yield Side(kind, broker.bootstrap, broker.root, (broker.pid,), Path(store))


def write(side: Side, topic: str, batches: int) -> None:
    """Equal batches to each partition."""
    job = {"topic": topic, "size": SIZE, "acks": "all", "in_flight": 5, "partitions": PARTITIONS}
    run_client(side, work="raw_produce", batch_bytes=BATCH_BYTES, requests=batches, **job)


def alter(side: Side, kind: ResourceType, name: str, setting: str, value: str) -> None:
    entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TOPIC_TIMEOUT_S)


def copy(side: Side, bytes_per_second: int = UNBOUNDED) -> None:
    """Let what lies in the topic be copied."""
    alter(side, ResourceType.BROKER, BROKER, COPY_RATE, str(bytes_per_second))
    alter(side, ResourceType.TOPIC, COPIED, COPY_DISABLED, "false")


def offsets(side: Side, topic: str, place: int) -> list[int]:
    """Of each partition, -1 if it has no such place."""
    with Connection(side.bootstrap) as connection:
        found = [
            list_offset(connection, topic, each, place, LIST_OFFSETS_VERSION) for each in range(PARTITIONS)
        ]
    return [-1 if error else offset for error, offset, _ in found]


def copied_records(side: Side) -> int:
    return sum(each + 1 for each in offsets(side, COPIED, LATEST_TIERED))


def ends_of_closed(side: Side, topic: str) -> list[int]:
    """Where the active segment of each partition begins."""
    folders = [side.root / "data" / f"{topic}-{each}" for each in range(PARTITIONS)]
    return [max(int(path.stem) for path in folder.glob("*.log")) for folder in folders]


# What each load needs


def without_copied(side: Side) -> None:
    """Nothing of an earlier round is copied or deleted any more. A copy that ended after its topic would stay."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    if COPIED not in admin.list_topics(timeout=TOPIC_TIMEOUT_S).topics:
        return
    copy(side)
    due = sum(ends_of_closed(side, COPIED))
    wait_until(lambda: copied_records(side) >= due, "all is copied", LIMIT_S)
    delete(side, COPIED)
    assert side.store is not None
    store = side.store
    wait_until(lambda: not any(store.rglob(f"{COPIED}-*/*")), "the tier is empty", LIMIT_S)


def uncopied(side: Side, load: WarmLoad, topic: str) -> None:
    """A topic of which nothing is copied yet."""
    without_copied(side)
    create_topic(side, COPIED, PARTITIONS, settings=SETTINGS | {COPY_DISABLED: "true"})
    write(side, COPIED, COPIED_BATCHES)


def cold(side: Side, load: WarmLoad, topic: str) -> None:
    """A topic of which only the last segments are local."""
    without_copied(side)
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    if COLD in admin.list_topics(timeout=TOPIC_TIMEOUT_S).topics:
        return
    create_topic(side, COLD, PARTITIONS, settings=SETTINGS | ONLY_LATEST)
    write(side, COLD, COLD_BATCHES)
    ends = ends_of_closed(side, COLD)
    wait_until(lambda: offsets(side, COLD, EARLIEST_LOCAL) == ends, "the local files are deleted", LIMIT_S)


# Loads


def copied(side: Side, load: WarmLoad, topic: str) -> Figures:
    """The rate is that from the end of the first copy to the end of the last one."""
    due = sum(ends_of_closed(side, COPIED))
    copy(side)
    first: tuple[float, int] | None = None
    deadline = time.monotonic() + LIMIT_S
    while (done := copied_records(side)) < due:
        if done and first is None:
            first = time.perf_counter(), done
        assert time.monotonic() < deadline, f"{done} of {due} records are copied"
        time.sleep(POLL_S)
    assert first is not None, "all was copied between two looks"
    return {"MB/s": (due - first[1]) * SIZE / (time.perf_counter() - first[0]) / 1e6}


def read_by_java(side: Side, load: WarmLoad, topic: str) -> Figures:
    return consumed_by_java(side, load, COLD)


def reading(side: Side, requests: int) -> dict[str, object]:
    """What `benchmarks.client` does to read the part of a partition that is in the tier only."""
    return {
        "work": "raw_fetch",
        "topic": COLD,
        "size": SIZE,
        "batch_bytes": BATCH_BYTES,
        "max_bytes": FETCH_BYTES,
        "records": offsets(side, COLD, EARLIEST_LOCAL)[0],
        "requests": requests,
    }


def read_encoded_once(side: Side, load: WarmLoad, topic: str) -> Figures:
    per_fetch = FETCH_BYTES // BATCH_BYTES * BATCH_RECORDS
    read = run_client(side, **reading(side, load.records // per_fetch))
    return {"MB/s": read["mb_per_s"], "requests/s": read["requests_per_s"]}


def produced_while_copied(side: Side, load: WarmLoad, topic: str) -> Figures:
    due = sum(ends_of_closed(side, COPIED))
    copy(side, MEANWHILE_PER_S * 1_000_000)
    figures = produced_by_java(side, load, topic)
    done = copied_records(side)
    assert 0 < done < due, f"{done} of {due} records are copied"
    return figures


def produced_while_read(side: Side, load: WarmLoad, topic: str) -> Figures:
    job = reading(side, MEANWHILE_PER_S * READER_S) | {"rate": MEANWHILE_PER_S, "bootstrap": side.bootstrap}
    command = [sys.executable, "-m", "benchmarks.client", json.dumps(job)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as reader:
        try:
            figures = produced_by_java(side, load, topic)
            assert reader.poll() is None, f"the reader has ended: {reader.communicate()[1][-1000:]!r}"
        finally:
            reader.kill()
    return figures


def _loads() -> Iterator[WarmLoad]:
    plain = replace(PLAIN, family=TIERED, up=up_tiered)
    read = replace(plain, fill=cold, records=PARTITIONS * COLD_BATCHES * BATCH_RECORDS)
    yield replace(read, title="Java consumer, 1 kB, cold", run=read_by_java)
    yield replace(read, title="encoded once, fetches of 1 MiB, cold", run=read_encoded_once)
    yield replace(
        plain,
        title=f"copying 1 GB, {PARTITIONS} partitions",
        run=copied,
        before=uncopied,
        records=PARTITIONS * COPIED_BATCHES * BATCH_RECORDS,
    )
    paced = replace(plain, **PACED)
    yield replace(paced, title="Java producer, 5,000 records/s, alone")
    yield replace(
        paced,
        title=f"Java producer, 5,000 records/s, while {MEANWHILE_PER_S} MB/s are read",
        run=produced_while_read,
        before=cold,
    )
    yield replace(
        paced,
        title=f"Java producer, 5,000 records/s, while {MEANWHILE_PER_S} MB/s are copied",
        run=produced_while_copied,
        before=uncopied,
    )


LOADS = tuple(_loads())
