"""kafkacompat serves a folder that Apache Kafka wrote, 4.4 or an older release, and Apache Kafka serves it again; and the
other way round.

These tests start both brokers, whatever INTEROP_BROKER is. After each turn Kafka's DumpLogSegments reads every file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.java_tools import KafkaTools, dump_faults
from interop_tests.harness.kafka_jars import BEFORE, KAFKA_VERSION, OLDEST
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.harness.wire import Connection
from interop_tests.storage.contents import (
    BIG_RECORDS,
    MODERN_READERS,
    READERS,
    TRANSACTIONAL,
    WAIT_S,
    append_big,
    contents,
    create,
    done,
    read_some,
    transactional_producer,
    write_topics,
    write_transactions,
)

pytestmark = pytest.mark.needs_control

SHARERS = "sharers"
GROUPS = "consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "consumer.group.ShareGroupCommand"
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
BY_QUORUM = {False: "static-voter", True: "standalone-voter"}
QUORUMS = pytest.mark.parametrize("dynamic", BY_QUORUM, ids=BY_QUORUM.get)
# `make test` runs the longer way only with the quorum of Kafka's quick start. The tests of compaction run the other
# one.
IN_A_SOAK = tuple(BY_QUORUM) if os.environ.get("KAFKACOMPAT_SOAK") else (True,)

MakeNode = Callable[[str, bool], SwitchingBroker]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MakeNode]:
    """node(first kind, dynamic quorum) returns a started node. It is killed at the end."""
    made: list[SwitchingBroker] = []

    def start(first: str, dynamic: bool) -> SwitchingBroker:
        made.append(SwitchingBroker(first, tmp_path / "node", dynamic))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.kill()


def check_files(tools: KafkaTools, data_dir: Path) -> int:
    """Check that DumpLogSegments finds no fault in any segment, index or snapshot of the folder. Returns the number of
    files."""
    count = 0
    for folder in sorted(
        path for path in data_dir.iterdir() if path.is_dir() and re.search(r"-\d+$", path.name)
    ):
        paths = [
            path
            for path in sorted(folder.iterdir())
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
        ]
        decoder = DECODERS.get(folder.name.rpartition("-")[0])
        options = ["--deep-iteration", *([decoder] if decoder else [])]
        output = tools.run("DumpLogSegments", "--files", ",".join(map(str, paths)), *options)
        faults = dump_faults(output)
        assert faults == [], f"{folder.name}: {faults[:10]}"
        count += len(paths)
    return count


def share(tools: KafkaTools, bootstrap: str, topic: str, count: int) -> list[str]:
    """A share consumer reads and acknowledges this number of records."""
    output = tools.run(
        "consumer.ConsoleShareConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", SHARERS),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    )
    return output.lines


def newer_kinds(tools: KafkaTools, bootstrap: str) -> dict[str, Any]:
    """Apache Kafka's description of the groups and transactions that kafkacompat keeps but does not serve."""
    server = ("--bootstrap-server", bootstrap)
    modern = tools.run(GROUPS, *server, "--describe", "--group", MODERN_READERS)
    columns = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    shared = tools.run(SHARE_GROUPS, *server, "--describe", "--group", SHARERS)
    transactions = tools.run("TransactionsCommand", *server, "list")
    producers = tools.run(
        "TransactionsCommand", *server, "describe-producers", "--topic", TRANSACTIONAL, "--partition", "0"
    )
    return {
        "modern": [
            tuple(row[column] for column in columns) for row in modern.rows("GROUP", "TOPIC", "PARTITION")
        ],
        "kinds": sorted(
            tuple(line.split()[:2]) for line in tools.run(GROUPS, *server, "--list", "--type").lines[1:]
        ),
        "shared": [line.split()[:4] for line in shared.lines[1:]],
        "transactions": sorted(line.split() for line in transactions.lines[1:]),
        "producers": sorted(line.split() for line in producers.lines[1:]),
    }


def write_newer_kinds(tools: KafkaTools, bootstrap: str) -> None:
    """A consumer group and a share group with progress, and transactions, one of which stays open."""
    read_some(bootstrap, MODERN_READERS, "gzip", 20, **{"group.protocol": "consumer"})
    tools.run(
        "ConfigCommand",
        *("--bootstrap-server", bootstrap, "--alter", "--entity-type", "groups", "--entity-name", SHARERS),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )
    assert len(share(tools, bootstrap, "lz4", 12)) == 12


def change(bootstrap: str) -> None:
    """Typical changes of a day: more records, deleted records and topics, new topics, partitions and settings,
    commits."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    append_big(bootstrap, "segments", BIG_RECORDS, BIG_RECORDS + 70)
    done(admin.delete_records([TopicPartition("segments", 0, 100)]))
    done(admin.delete_topics(["doomed"]))
    done(admin.create_partitions([NewPartitions("grown", 3)]))
    entry = ConfigEntry("retention.bytes", "123456789", incremental_operation=AlterConfigOpType.SET)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, "grown", incremental_configs=[entry])]
        )
    )
    create(bootstrap, "late", 2)
    append_big(bootstrap, "late", 0, 3)
    read_some(bootstrap, READERS, "zstd", 10)
    wait_until(
        lambda: (
            "doomed" not in (topics := admin.list_topics(timeout=WAIT_S).topics)
            and len(topics["grown"].partitions) == 3
        ),
        "the topics are deleted and grown",
    )


@pytest.mark.parametrize("dynamic", IN_A_SOAK, ids=BY_QUORUM.get)
def test_from_apache_kafka_and_back(tools: KafkaTools, node: MakeNode, dynamic: bool) -> None:
    """Nothing is lost: neither the topics that are served, nor the groups and transactions that kafkacompat only
    keeps."""
    broker = node(APACHE, dynamic)
    write_topics(broker.bootstrap)
    read_some(broker.bootstrap, READERS, "zstd", 15)
    write_newer_kinds(tools, broker.bootstrap)
    left_open = write_transactions(broker.bootstrap)
    before = contents(broker.bootstrap)
    newer_before = newer_kinds(tools, broker.bootstrap)
    assert [line for line in newer_before["transactions"] if "Ongoing" in line], newer_before
    assert [line[-1] for line in newer_before["shared"]], newer_before
    assert len(before.committed_records[TRANSACTIONAL, 0]) == 5

    broker.become(KAFKACOMPAT)
    assert contents(broker.bootstrap) == before
    change(broker.bootstrap)
    changed = contents(broker.bootstrap)
    assert changed.offsets["segments", 0] == (100, BIG_RECORDS + 70, BIG_RECORDS + 70)
    assert sum(offset for offset, _ in changed.group_offsets.values()) == 25
    broker.stop()
    assert check_files(tools, broker.data_dir) > 40

    broker.become(APACHE)
    assert contents(broker.bootstrap) == changed
    assert newer_kinds(tools, broker.bootstrap) == newer_before
    del left_open
    # Each of them continues from its position.
    read_some(broker.bootstrap, MODERN_READERS, "gzip", 10, **{"group.protocol": "consumer"})
    rest = share(tools, broker.bootstrap, "lz4", 18)
    assert len(set(rest)) == 18
    transactional_producer(broker.bootstrap, "left-open")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def stable_end(isolation: IsolationLevel) -> int:
        asked = {TopicPartition(TRANSACTIONAL, 0): OffsetSpec.latest()}
        (result,) = done(admin.list_offsets(asked, isolation_level=isolation)).values()
        return int(result.offset)

    wait_until(
        lambda: stable_end(IsolationLevel.READ_COMMITTED) == stable_end(IsolationLevel.READ_UNCOMMITTED),
        "the open transaction is aborted by its producer's return",
        WAIT_S,
    )
    after = contents(broker.bootstrap)
    assert after.committed_records[TRANSACTIONAL, 0] == [0, 1, 2, 3, 4]
    assert after.records[TRANSACTIONAL, 0] == changed.records[TRANSACTIONAL, 0]


@pytest.mark.parametrize(
    ("formatting", "opening", "version", "release"),
    [
        (KAFKACOMPAT, APACHE, BEFORE, "4.3"),
        (KAFKACOMPAT, APACHE, OLDEST, "3.9"),
        (KAFKACOMPAT, APACHE, KAFKA_VERSION, "4.3"),
        (APACHE, KAFKACOMPAT, KAFKA_VERSION, "4.3"),
        (APACHE, KAFKACOMPAT, BEFORE, "4.3"),
        (APACHE, KAFKACOMPAT, OLDEST, "3.9"),
    ],
)
@pytest.mark.parametrize("dynamic", IN_A_SOAK, ids=BY_QUORUM.get)
def test_a_directory_for_an_earlier_release_opens(
    tmp_path: Path, formatting: str, opening: str, version: str, release: str, dynamic: bool
) -> None:
    """Whoever formats it, the other program begins the cluster at the levels of the release."""
    options = ("--release-version", release)
    broker = SwitchingBroker(formatting, tmp_path / "node", dynamic, version=version, format_options=options)
    try:
        broker.become(opening)
        with Connection(broker.bootstrap) as connection:
            reply = connection.call(
                "ApiVersions", 3, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}
            )
        levels = {each["Name"]: each["MaxVersionLevel"] for each in reply["FinalizedFeatures"]}
        assert levels["metadata.version"] == {"4.3": 30, "3.9": 21}[release]
        assert levels.get("share.version", 0) == {"4.3": 1, "3.9": 0}[release]
    finally:
        broker.kill()


@QUORUMS
def test_from_kafkacompat_and_back(tools: KafkaTools, node: MakeNode, dynamic: bool) -> None:
    """Apache Kafka serves a folder that kafkacompat formatted and wrote, adds to it, and kafkacompat serves it again."""
    broker = node(KAFKACOMPAT, dynamic)
    write_topics(broker.bootstrap)
    read_some(broker.bootstrap, READERS, "zstd", 15)
    before = contents(broker.bootstrap)
    broker.stop()
    assert check_files(tools, broker.data_dir) > 30

    broker.become(APACHE)
    assert contents(broker.bootstrap) == before
    change(broker.bootstrap)
    changed = contents(broker.bootstrap)
    broker.become(KAFKACOMPAT)
    assert contents(broker.bootstrap) == changed
    read_some(broker.bootstrap, READERS, "zstd", 5)
    broker.stop()
    check_files(tools, broker.data_dir)


def test_a_killed_kafkacompat_leaves_what_apache_kafka_recovers(tools: KafkaTools, node: MakeNode) -> None:
    """After kill -9 the next program recovers from the files alone, and finds every acknowledged record."""
    broker = node(KAFKACOMPAT, False)
    create(broker.bootstrap, "segments", 1, segment_bytes=str(1 << 20))
    append_big(broker.bootstrap, "segments", 0, BIG_RECORDS)
    before = contents(broker.bootstrap)
    broker.kill()
    broker.become(APACHE)
    assert contents(broker.bootstrap) == before
    append_big(broker.bootstrap, "segments", BIG_RECORDS, BIG_RECORDS + 5)
    after = contents(broker.bootstrap)
    broker.kill()
    broker.become(KAFKACOMPAT)
    assert contents(broker.bootstrap) == after
    broker.stop()
    assert check_files(tools, broker.data_dir) > 10
