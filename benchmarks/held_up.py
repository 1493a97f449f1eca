"""Delays caused by other clients: the longest wait of one client while a broker serves a hostile or heavy request of
another.

Each load has the same bytes for both brokers. A load that a broker refuses counts too, because the measurement is the
wait of other clients. The module uses clients, processes and the names of Kafka's files, and nothing inside the
brokers.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lz4.frame
from confluent_kafka import Producer

from benchmarks.measure import CLIENT_TIMEOUT_S, create_topic, run_client, running
from benchmarks.raw import frame, produce_frame, record_batch, text
from interop_tests.harness.broker import CHECKOUT, BrokerProcess
from interop_tests.harness.records import NOW_MS, BatchPlan, zigzag
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection, ConnectionClosed, Silence
from interop_tests.harness.wire import frame as enframed

Figures = dict[str, float]
Load = Callable[[BrokerProcess], None]

PINGED, LOADED = "pinged", "loaded"
LOAD_TIMEOUT_S = 120.0
HEADERS = 10_000_000
LZ4_BYTES = 900_000
NAMES_BYTES = 99 << 20
COLD_BYTES = 1 << 30
RECORD_BYTES, RECORD_CLIENTS = 250_000_000, 8
SEARCHED_RECORDS, SEARCHES = 1_000_000, 20
PRODUCER_IDS, IDS_AT_ONCE = 20_000, 1000
GROUPS, OFFSETS_EACH = 200, 1000
LOADED_GROUPS = 1000
PARTITIONS = 1000
SNAPSHOT_TOPICS = 10
RETENTION_MS = 100
DESCRIBE_GROUPS, DELETE_TOPICS = 15, 20
EXPIRING = {"offsets.retention.check.interval.ms": "10000"}
SNAPPING = {"metadata.log.max.record.bytes.between.snapshots": str(2 << 20)}
CONFIG_CHARACTERS = 30_000
FETCHES, FETCHED = 200, 500
TRANSACTIONS, ENDED_PARTITIONS = 60, 450
EXPRESSIONS = 20
OPTIONAL_PARTS, CLASSES = 452, 8_000
CLIENT_METRICS = 16
JOINS, CLIENT_ID_BYTES = 5_000, 32_000
MEMBER_ID_REQUIRED = 79
WAIT_MS = 60_000
PARKED_EVERY_S = 0.02
"""Reading the fetches is work that their senders ask for. Here it is not to be seen."""


class Pinging:
    """Runs `benchmarks.pinging`."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pinging", bootstrap, PINGED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )

    def wait_until_warm(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready", "the other client did not get going"

    def end(self) -> Figures:
        """Its figures since it was warm."""
        told, _ = self._process.communicate("end\n", timeout=CLIENT_TIMEOUT_S)
        waits = json.loads(told.splitlines()[-1])
        return {"longest wait ms": waits["longest"], "p99 wait ms": waits["p99"]}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def pinging(broker: BrokerProcess) -> Iterator[Pinging]:
    other = Pinging(broker.bootstrap)
    try:
        other.wait_until_warm()
        yield other
    finally:
        other.kill()


def held_up(
    load: Load, prepare: Load | None = None, settings: dict[str, str] | None = None
) -> Callable[[str], Figures]:
    """The waits of the other client while `load` runs. `prepare` runs before that."""

    def run(kind: str) -> Figures:
        with running(kind, settings) as broker:
            create_topic(broker, PINGED, 1)
            create_topic(broker, LOADED, 1)
            if prepare is not None:
                prepare(broker)
            with pinging(broker) as other:
                load(broker)
                return other.end()

    return run


def idle(broker: BrokerProcess) -> None:
    """No load: how long a client waits on this machine anyway."""
    time.sleep(3)


# Hostile requests


def _produce(broker: BrokerProcess, batch: bytes) -> None:
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        _send(connection, produce_frame(LOADED, [0], -1, batch))


def _send(connection: Connection, request: bytes) -> None:
    """Wait until the request is answered or refused."""
    with contextlib.suppress(ConnectionClosed, Silence, OSError):
        connection.send_bytes(request)
        connection.receive_frame()


def headers_bomb(broker: BrokerProcess) -> None:
    """One record with ten million empty headers: 640 bytes with zstd."""
    body = b"\0" + zigzag(0) + zigzag(0) + zigzag(-1) + zigzag(0) + zigzag(HEADERS) + bytes(2 * HEADERS)
    _produce(broker, BatchPlan(codec="zstd", records=zigzag(len(body)) + body).encode())


def lz4_frames(broker: BrokerProcess) -> None:
    """Many small frames in sequence."""
    one = lz4.frame.compress(bytes(16))
    _produce(broker, BatchPlan(attributes=3, records=one * (LZ4_BYTES // len(one))).encode())


def gzips(broker: BrokerProcess) -> None:
    _set(broker, "compression.type", "gzip")


def large_records(broker: BrokerProcess) -> None:
    """Eight clients each send a record of 250 MB, some kilobytes with zstd, to a topic whose codec is another one."""
    batch = BatchPlan(values=[bytes(RECORD_BYTES)], codec="zstd").encode()
    request = produce_frame(LOADED, [0], -1, batch)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(Connection(broker.bootstrap, LOAD_TIMEOUT_S)) for _ in range(RECORD_CLIENTS)
        ]
        for each in clients:
            each.send_bytes(request)
        for each in clients:
            with contextlib.suppress(ConnectionClosed, Silence, OSError):
                each.receive_frame()


def many_records(broker: BrokerProcess) -> None:
    """A batch of a million records, of which the last is the latest."""
    records = b"".join(
        zigzag(len(inside)) + inside
        for at in range(SEARCHED_RECORDS)
        for inside in (b"\0" + zigzag(at // (SEARCHED_RECORDS - 1)) + zigzag(at) + b"\1\2x\0",)
    )
    count = {"record_count": SEARCHED_RECORDS, "last_offset_delta": SEARCHED_RECORDS - 1}
    latest_ms = NOW_MS + 1
    _produce(broker, BatchPlan(codec="zstd", records=records, max_timestamp_ms=latest_ms, **count).encode())


def searches_by_time(broker: BrokerProcess) -> None:
    asked = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": NOW_MS + 1}
    topics = [{"Name": LOADED, "Partitions": [asked]}]
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        for _ in range(SEARCHES):
            reply = connection.call(
                "ListOffsets", 5, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics}
            )
            (found,) = reply["Topics"][0]["Partitions"]
            assert found["Offset"] == SEARCHED_RECORDS - 1, found


def small_segments(broker: BrokerProcess) -> None:
    _set(broker, "segment.bytes", str(1 << 20))


def producer_ids(broker: BrokerProcess) -> None:
    """Batches with as many producer ids, and the rolls of their segments."""
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        for start in range(0, PRODUCER_IDS, IDS_AT_ONCE):
            for number in range(start, start + IDS_AT_ONCE):
                plan = BatchPlan.of_now(b"value")
                plan.producer_id, plan.producer_epoch, plan.base_sequence = number, 0, 0
                connection.send_bytes(produce_frame(LOADED, [0], 1, plan.encode()))
            for _ in range(IDS_AT_ONCE):
                connection.receive_frame()


def _set(broker: BrokerProcess, name: str, value: str) -> None:
    """Set a config of the loaded topic."""
    resource = {"ResourceType": 2, "ResourceName": LOADED, "Configs": [{"Name": name, "Value": value}]}
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        connection.call("AlterConfigs", 0, {"Resources": [resource], "ValidateOnly": False})
    time.sleep(1)


def group_names(broker: BrokerProcess) -> None:
    """DescribeGroups with as many short names as a request may contain."""
    name = text("g")
    count = NAMES_BYTES // len(name)
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        _send(connection, frame(DESCRIBE_GROUPS, 0, struct.pack(">i", count) + name * count))


def patterns(broker: BrokerProcess) -> None:
    """ListTransactions with expressions of 904 characters, which need no right."""
    asked = {
        "StateFilters": [],
        "ProducerIdFilters": [],
        "DurationFilter": -1,
        "TransactionalIdPattern": "a?" * OPTIONAL_PARTS,
    }
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        for _ in range(EXPRESSIONS):
            connection.call("ListTransactions", 2, asked)


def metrics_matches(broker: BrokerProcess) -> None:
    """Subscriptions of client metrics whose expression has 8,000 classes of Unicode characters."""
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        for number in range(EXPRESSIONS):
            config = {"Name": "match", "ConfigOperation": 0, "Value": "client_id=" + "\\pL" * CLASSES}
            resource = {
                "ResourceType": CLIENT_METRICS,
                "ResourceName": f"subscription-{number}",
                "Configs": [config],
            }
            connection.call("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})


def joins(broker: BrokerProcess) -> None:
    """5,000 members that join without an id and never come back. The ids of their clients have 32 kB."""
    client_id = "c" * CLIENT_ID_BYTES
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S, client_id=client_id) as connection:
        _, join = connection.encode("JoinGroup", 5, JOIN)
        for _ in range(JOINS):
            connection.send_bytes(enframed(join))
            connection.receive_frame()


def a_group(broker: BrokerProcess) -> None:
    """Wait until groups are served."""
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        connection.call("FindCoordinator", 1, {"Key": GROUP, "KeyType": 0})

        def is_served() -> bool:
            return bool(connection.call("JoinGroup", 5, JOIN)["ErrorCode"] == MEMBER_ID_REQUIRED)

        wait_until(is_served, "the group is served", LOAD_TIMEOUT_S)


GROUP = "crowded"
JOIN = {
    "GroupId": GROUP,
    "SessionTimeoutMs": 1_800_000,
    "RebalanceTimeoutMs": 60_000,
    "MemberId": "",
    "GroupInstanceId": None,
    "ProtocolType": "consumer",
    "Protocols": [{"Name": "range", "Metadata": b""}],
}


# Heavy requests


def fill(broker: BrokerProcess) -> None:
    """A log of 1 GB that is not in the page cache."""
    job = {"size": 1000, "batch_bytes": 1 << 19, "acks": "1", "in_flight": 5}
    run_client(broker, work="raw_produce", topic=LOADED, requests=COLD_BYTES >> 19, **job)
    for path in broker.root.glob(f"data/{LOADED}-0/*.log"):
        descriptor = os.open(path, os.O_RDWR)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cold_read(broker: BrokerProcess) -> None:
    job = {"size": 1000, "batch_bytes": 1 << 19, "max_bytes": 8 << 20, "records": COLD_BYTES // 1000}
    run_client(broker, work="raw_fetch", topic=LOADED, requests=COLD_BYTES // (8 << 20), **job)


def commit(broker: BrokerProcess, groups: int, offsets: int, retention_ms: int = -1) -> None:
    """Offsets of groups without members. They expire after retention_ms."""
    partitions = [
        {"PartitionIndex": number, "CommittedOffset": 1, "CommittedMetadata": ""} for number in range(offsets)
    ]
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        # The offsets topic is created when a client first asks for a coordinator.
        connection.call("FindCoordinator", 1, {"Key": "group-0", "KeyType": 0})
        for number in range(groups):
            body = {
                "GroupId": f"group-{number}",
                "GenerationIdOrMemberEpoch": -1,
                "MemberId": "",
                "RetentionTimeMs": retention_ms,
                "Topics": [{"Name": LOADED, "Partitions": partitions}],
            }

            def committed(body: dict[str, object] = body) -> bool:
                reply = connection.call("OffsetCommit", 2, body)
                return all(each["ErrorCode"] == 0 for each in reply["Topics"][0]["Partitions"])

            wait_until(committed, f"offsets of group {number} are committed", LOAD_TIMEOUT_S)


def make_wide(broker: BrokerProcess) -> None:
    """Create the loaded topic again, with a partition for each offset."""
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        connection.call("CreatePartitions", 0, _more(LOADED, OFFSETS_EACH))
    time.sleep(2)


def _more(topic: str, count: int) -> dict[str, object]:
    asked = [{"Name": topic, "Count": count, "Assignments": None}]
    return {"Topics": asked, "TimeoutMs": 60_000, "ValidateOnly": False}


def expiring_offsets(broker: BrokerProcess) -> None:
    """200,000 offsets that expire at about the same moment."""
    commit(broker, GROUPS, OFFSETS_EACH, RETENTION_MS)
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        body = {"GroupId": f"group-{GROUPS - 1}", "Topics": [{"Name": LOADED, "PartitionIndexes": [0]}]}

        def gone() -> bool:
            reply = connection.call("OffsetFetch", 2, body)
            return reply["Topics"][0]["Partitions"][0]["CommittedOffset"] == -1

        wait_until(gone, "the offsets expire", LOAD_TIMEOUT_S)
    time.sleep(1)


def loading_groups(kind: str) -> Figures:
    """A broker that is restarted, and loads 1,000 groups of 100 offsets while a client works."""
    with running(kind) as broker:
        create_topic(broker, PINGED, 1)
        create_topic(broker, LOADED, 1)
        make_wide(broker)
        commit(broker, LOADED_GROUPS, 100)
        broker.restart()
        with pinging(broker) as other:
            time.sleep(3)
            return other.end()


def topic_made_and_deleted(broker: BrokerProcess) -> None:
    """A topic with 1,000 partitions."""
    create_topic(broker, "wide", PARTITIONS)
    time.sleep(1)
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        connection.call("DeleteTopics", 1, {"TopicNames": ["wide"], "TimeoutMs": 60_000})
    time.sleep(2)


def many_topics(broker: BrokerProcess) -> None:
    for number in range(SNAPSHOT_TOPICS):
        create_topic(broker, f"many-{number}", PARTITIONS)


def snapshot(broker: BrokerProcess) -> None:
    """Change configs until the next metadata snapshot exists. The snapshot contains 10,000 partitions."""
    before = _snapshots(broker.root)
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        changes = itertools.count()

        def is_made() -> bool:
            # A value that does not change writes no record.
            value = "0:1," * (CONFIG_CHARACTERS // 4) + f"{next(changes)}:1"
            config = {"Name": "follower.replication.throttled.replicas", "Value": value}
            resource = {"ResourceType": 2, "ResourceName": LOADED, "Configs": [config]}
            connection.call("AlterConfigs", 0, {"Resources": [resource], "ValidateOnly": False})
            return _snapshots(broker.root) != before

        wait_until(is_made, "a snapshot is made", LOAD_TIMEOUT_S, 0.0)
    time.sleep(1)


def _snapshots(root: Path) -> set[str]:
    return {path.name for path in root.glob("data/__cluster_metadata-0/*.checkpoint")}


# Many that wait, and many that are named


def fetches_woken(broker: BrokerProcess) -> None:
    """200 connections wait in a fetch of 500 partitions each, and one record comes."""
    with contextlib.ExitStack() as held:
        waiting = [held.enter_context(Connection(broker.bootstrap, LOAD_TIMEOUT_S)) for _ in range(FETCHES)]
        for each in waiting:
            each.send("Fetch", 11, _fetch(FETCHED, isolation=0))
            time.sleep(PARKED_EVERY_S)
        time.sleep(1)
        _produce(broker, record_batch(b"woken", 1))
        for each in waiting:
            each.receive_frame()
    time.sleep(1)


def _fetch(partitions: int, isolation: int) -> dict[str, object]:
    asked = [
        {
            "Partition": number,
            "CurrentLeaderEpoch": -1,
            "FetchOffset": 0,
            "LogStartOffset": -1,
            "PartitionMaxBytes": 1 << 20,
        }
        for number in range(partitions)
    ]
    return {
        "ReplicaId": -1,
        "MaxWaitMs": WAIT_MS,
        "MinBytes": 1,
        "MaxBytes": 50 << 20,
        "IsolationLevel": isolation,
        "SessionId": 0,
        "SessionEpoch": -1,
        "Topics": [{"Topic": LOADED, "Partitions": asked}],
        "ForgottenTopicsData": [],
        "RackId": "",
    }


def abort(broker: BrokerProcess) -> None:
    """60 transactions over 450 partitions, all of them aborted."""
    make_wide(broker)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "aborted", "linger.ms": 50}
    )
    producer.init_transactions(LOAD_TIMEOUT_S)
    for _ in range(TRANSACTIONS):
        producer.begin_transaction()
        for number in range(ENDED_PARTITIONS):
            producer.produce(LOADED, b"aborted", partition=number)
        producer.flush(LOAD_TIMEOUT_S)
        producer.abort_transaction(LOAD_TIMEOUT_S)


def aborted_fetched(broker: BrokerProcess) -> None:
    """Twenty fetches of everything that was aborted."""
    with Connection(broker.bootstrap, LOAD_TIMEOUT_S) as connection:
        for _ in range(20):
            connection.call("Fetch", 11, _fetch(ENDED_PARTITIONS, isolation=1))


LOADS: tuple[tuple[str, Callable[[str], Figures]], ...] = (
    ("nothing", held_up(idle)),
    ("a batch of 10,000,000 empty headers", held_up(headers_bomb)),
    ("a batch of 0.9 MB of small lz4 frames", held_up(lz4_frames)),
    ("8 records of 250 MB to a gzip topic", held_up(large_records, gzips)),
    ("20 searches by time in a batch of 1,000,000 records", held_up(searches_by_time, many_records)),
    ("20,000 producer ids and rolls", held_up(producer_ids, small_segments)),
    ("99 MiB of group names", held_up(group_names)),
    ("20 expressions of 904 characters", held_up(patterns)),
    ("20 expressions of 8,000 Unicode classes", held_up(metrics_matches)),
    ("5,000 joins of clients with ids of 32 kB", held_up(joins, a_group)),
    ("a cold read of 1 GB", held_up(cold_read, fill)),
    ("200,000 offsets expire", held_up(expiring_offsets, make_wide, EXPIRING)),
    ("1,000 groups are loaded", loading_groups),
    ("a topic of 1,000 partitions made and deleted", held_up(topic_made_and_deleted)),
    ("a snapshot of 10,000 partitions", held_up(snapshot, many_topics, SNAPPING)),
    ("a record for 200 fetches of 500 partitions", held_up(fetches_woken, make_wide)),
    ("60 aborted transactions over 450 partitions", held_up(aborted_fetched, abort)),
)
