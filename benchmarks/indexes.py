"""The costs of the indexes of a large log: memory after a retention pass over all its segments, and reads at several
places.

The large log is created on disk between a clean stop and a start. It has real indexes of 100 MiB segments, which all
segments share through hard links. The log files have no content, and nothing reads them. The module uses Kafka's
files, and nothing inside the brokers.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import crc32c

from benchmarks.held_up import PINGED, pinging
from benchmarks.measure import client, cpu_seconds, create_topic, memory_mb, running
from benchmarks.raw import Stream, fetch_frame, record_batch
from interop_tests.harness.broker import APACHE, BrokerProcess

Figures = dict[str, float]

TOPIC = "bench"
SEGMENTS = 10_000
SEGMENT_BYTES = 100 << 20
INDEX_ENTRIES = SEGMENT_BYTES // 4096
OFFSETS_EACH = 4 * INDEX_ENTRIES
INITIAL_DELAY_S = {APACHE: 30.0}
"""Seconds until the first retention pass. Apache Kafka has no setting for this delay that has an effect."""
OUR_DELAY_S = 8.0
PASS_LIMIT_S = 120.0
IDLE_CPU_S = 0.1
"""CPU time per half second. A process below it is idle."""

READ_BYTES, READS, READ_RECORD, READ_BATCH = 2_000, 4_000, 1000, 16_384
READ_COUNT, READ_SEGMENT_BYTES = 300_000, 32 << 20
PARTITION_HEAD = 4 + 4 + 4 + 2 + len(TOPIC) + 4 + 4 + 2 + 8 + 8 + 4


def large_log(directory: Path) -> None:
    """Replace an empty log, closed cleanly, by one with SEGMENTS closed segments and a small active one."""
    now_ms = time.time_ns() // 1_000_000
    templates = {
        ".index": b"".join(struct.pack(">ii", 4 * at + 3, 4096 * at) for at in range(INDEX_ENTRIES)),
        ".timeindex": b"".join(
            struct.pack(">qi", now_ms - INDEX_ENTRIES + at, 4 * at + 3) for at in range(INDEX_ENTRIES)
        ),
        ".log": b"",
    }
    for old in directory.glob("0*.*"):
        old.unlink()
    for suffix, data in templates.items():
        (directory / ("template" + suffix)).write_bytes(data)
    os.truncate(directory / "template.log", SEGMENT_BYTES)
    for number in range(SEGMENTS):
        for suffix in templates:
            os.link(directory / ("template" + suffix), directory / f"{number * OFFSETS_EACH:020d}{suffix}")
    for suffix in templates:
        (directory / ("template" + suffix)).unlink()
    base = SEGMENTS * OFFSETS_EACH
    batch = (
        struct.pack(">q", base) + record_batch(b"last", 1)[8:12] + bytes(4) + record_batch(b"last", 1)[16:]
    )
    active = directory / f"{base:020d}"
    active.with_suffix(".log").write_bytes(batch)
    active.with_suffix(".index").write_bytes(b"")
    active.with_suffix(".timeindex").write_bytes(struct.pack(">qi", now_ms, 0))
    active.with_suffix(".snapshot").write_bytes(struct.pack(">hIi", 1, crc32c.crc32c(bytes(4)), 0))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        path = directory.parent / name
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        others = [line for line in lines if not line.startswith(f"{TOPIC} 0 ")]
        kept = [*others, f"{TOPIC} 0 {base + 1}"]
        path.write_text("".join(f"{line}\n" for line in ("0", len(kept), *kept)))


def wait_until_idle(broker: BrokerProcess, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    quiet = 0
    before = cpu_seconds(broker)
    while quiet < 4 and time.monotonic() < deadline:
        time.sleep(0.5)
        now = cpu_seconds(broker)
        quiet = quiet + 1 if now - before < IDLE_CPU_S else 0
        before = now


def retention_pass(kind: str) -> Figures:
    """After a clean start, the first retention pass examines a log of about 1 TB and deletes nothing."""
    delay_s = INITIAL_DELAY_S.get(kind, OUR_DELAY_S)
    settings = {"log.retention.check.interval.ms": "3600000"}
    if kind != APACHE:
        settings["log.initial.task.delay.ms"] = str(int(delay_s * 1000))
    with running(kind, settings) as broker:
        create_topic(broker, PINGED, 1)
        create_topic(broker, TOPIC, 1)
        broker.stop()
        large_log(broker.data_dir / f"{TOPIC}-0")
        broker.start()
        started = time.monotonic()
        before = memory_mb(broker)
        with pinging(broker) as other:
            time.sleep(max(started + delay_s - time.monotonic(), 0) + 2)
            waits = other.end()
        wait_until_idle(broker, PASS_LIMIT_S)
        return {
            "memory before MB": before,
            "memory after the pass MB": memory_mb(broker),
            **waits,
        }


def reads_in_turn(places: int) -> Callable[[str], Figures]:
    """Small fetches at this number of places in old segments, one after another."""

    def run(kind: str) -> Figures:
        with running(kind) as broker:
            create_topic(broker, TOPIC, 1)
            set_segment_bytes(broker)
            job = {"size": READ_RECORD, "batch_bytes": READ_BATCH, "acks": "all", "in_flight": 5}
            client(
                broker,
                work="raw_produce",
                topic=TOPIC,
                requests=READ_COUNT * READ_RECORD // READ_BATCH,
                **job,
            )
            stream = Stream(broker.bootstrap)
            end = READ_COUNT * 3 // 4
            requests = [fetch_frame(TOPIC, 7 + end * at // places, READ_BYTES) for at in range(places)]

            def ask(count: int) -> None:
                for number in range(count):
                    stream.send(requests[number % places])
                    head = stream.reply(keep=PARTITION_HEAD + 4)
                    if struct.unpack_from(">i", head, PARTITION_HEAD)[0] <= 0:
                        raise RuntimeError("a fetch came back empty")

            ask(READS)
            before = cpu_seconds(broker)
            ask(READS)
            return {"broker CPU us/read": (cpu_seconds(broker) - before) / READS * 1e6}

    return run


def set_segment_bytes(broker: BrokerProcess) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry("segment.bytes", str(READ_SEGMENT_BYTES), incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.incremental_alter_configs([asked]).values():
        done.result(30)
