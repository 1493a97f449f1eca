"""Many updates of few keys: last values and offsets stay, Kafka's tools accept the files, and either broker can take
over."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from interop_tests.compaction.files import check_files
from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    EAGER_OFFSETS,
    WAIT_S,
    Updates,
    assert_last_values,
    cleaned_to,
    committed,
    create_compacted,
    read_all,
    wait_until_clean,
)
from interop_tests.compaction.killing import SLOW_PACE, environment, kill_during_a_cleaning
from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.harness.java_tools import KafkaTools
from interop_tests.harness.switching import SwitchingBroker
from interop_tests.harness.waiting import wait_until
from interop_tests.storage.contents import consumer

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
KILLS_AT_RENAMES = range(1, 26) if SOAK else (1, 3, 5, 8)
KILLS_AT_RANDOM = 25 if SOAK else 2
UPDATES = 2_000_000 if SOAK else 30_000
JAVA_UPDATES = 2_000_000 if SOAK else 120_000
KEYS = 40
TOMBSTONES_EVERY = 11
"""None of these is older than delete.retention.ms, so each that is the last of its key must be there."""


def test_many_updates_over_few_keys(tools: KafkaTools, make_broker: MakeBroker) -> None:
    broker = make_broker(EAGER_CLEANER)
    written: dict[str, Updates] = {}
    for codec in ("none", "lz4", "zstd"):
        topic = f"kept-{codec}"
        create_compacted(broker.bootstrap, topic)
        updates = Updates(broker.bootstrap, topic, **{"compression.type": codec, "batch.size": 100_000})
        updates.write(UPDATES, KEYS, 200 if codec == "none" else 400)
        written[topic] = updates
    for topic, updates in written.items():
        wait_until_clean(broker.data_dir, topic)
        offsets = assert_last_values(broker.bootstrap, updates)
        assert offsets[-1] == max(offset for offset, _ in updates.last.values())
        assert any(two - one > 1 for one, two in itertools.pairwise(offsets)), f"no gap in {topic}"
        below = [offset for offset in offsets if offset < cleaned_to(broker.data_dir, topic)]
        assert len(below) <= KEYS
    assert broker.stop() in (0, 143)
    check_files(tools, broker.data_dir)


def test_updates_of_a_java_producer(tools: KafkaTools, make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(EAGER_CLEANER)
    create_compacted(broker.bootstrap, "kept")
    count, keys, produced = JAVA_UPDATES, 10, tmp_path / "produced"
    arguments = ["--bootstrap-server", broker.bootstrap, "--topic", "kept", "--acks", "-1"]
    arguments += ["--max-messages", str(count), "--repeating-keys", str(keys)]
    with tools.spawn("VerifiableProducer", *arguments, log=produced) as producer:
        assert producer.wait(4 * WAIT_S) == 0
    events = [json.loads(line) for line in produced.read_text().splitlines() if line.startswith("{")]
    acknowledged = [event for event in events if event["name"] == "producer_send_success"]
    assert len(acknowledged) == count
    last: dict[bytes | None, tuple[int, bytes | None]] = {}
    for event in acknowledged:
        place = event["offset"], event["value"].encode()
        last[event["key"].encode()] = max(last.get(event["key"].encode(), place), place)
    wait_until_clean(broker.data_dir, "kept")
    offsets, found = read_all(broker.bootstrap, "kept")
    assert offsets == sorted(set(offsets))
    assert found == last
    assert len(last) == keys
    assert len([offset for offset in offsets if offset < cleaned_to(broker.data_dir, "kept")]) <= keys


def test_a_reader_during_cleanings_sees_a_consistent_log(make_broker: MakeBroker) -> None:
    """Read repeatedly from 0 while segments are swapped: offsets rise, and no record that was there is missing."""
    broker = make_broker(EAGER_CLEANER)
    create_compacted(broker.bootstrap, "kept", file_delete_delay_ms="0")
    updates = Updates(broker.bootstrap, "kept")
    updates.write(1000, KEYS)
    done = threading.Event()

    def write() -> None:
        try:
            while not done.is_set():
                updates.write(3000, KEYS, 500)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:

        def read_and_hold() -> None:
            before = dict(updates.last)
            offsets, found = read_all(broker.bootstrap, "kept")
            assert all(one < two for one, two in itertools.pairwise(offsets))
            assert all(found[key][0] >= offset for key, (offset, _) in before.items())

        for _ in range(30 if SOAK else 8):
            read_and_hold()
        # On a slow machine the first cleaning may not have happened yet.
        wait_until(
            lambda: read_and_hold() or cleaned_to(broker.data_dir, "kept") > 0, "a cleaning", WAIT_S, 0
        )
    finally:
        done.set()
        writer.join(WAIT_S)
    assert_last_values(broker.bootstrap, updates)


def test_tombstones_go_after_their_time(make_broker: MakeBroker) -> None:
    """Tombstones stay at first, so that readers see them. They are removed delete.retention.ms after a cleaning has
    processed them."""
    broker = make_broker(EAGER_CLEANER)
    create_compacted(broker.bootstrap, "kept", delete_retention_ms="3000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key in (b"gone", b"stays"):
        producer.produce("kept", b"a value", key)
    producer.produce("kept", None, b"gone")
    producer.flush(WAIT_S)
    # One segment is closed and cleaned once. However long that takes, only a later cleaning may remove the tombstone.
    updates = Updates(broker.bootstrap, "kept", **{"batch.size": 100_000})
    updates.write(2500, KEYS, 500)
    wait_until_clean(broker.data_dir, "kept")
    _, found = read_all(broker.bootstrap, "kept")
    assert found[b"gone"] == (2, None)
    assert found[b"stays"] == (1, b"a value")

    def is_gone() -> bool:
        updates.write(4000, KEYS, 500)
        return b"gone" not in read_all(broker.bootstrap, "kept")[1]

    wait_until(is_gone, "the tombstone is gone", WAIT_S, 0.3)
    assert_last_values(broker.bootstrap, updates)
    assert read_all(broker.bootstrap, "kept")[1][b"stays"] == (1, b"a value")


def test_kills_between_the_renames_of_a_swap(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, tools: KafkaTools
) -> None:
    """Kill the broker directly after the n-th rename, start it again, and clean further: the last values are the same
    each time."""
    broker = make_broker(EAGER_CLEANER)
    if broker.kind == APACHE:
        pytest.skip("the library that kills counts renames as kafkacompat makes them")
    create_compacted(broker.bootstrap, "kept-swapped")
    updates = Updates(broker.bootstrap, "kept-swapped", **{"message.timeout.ms": 60_000})
    ends: set[bytes | None] = set()
    for rename in KILLS_AT_RENAMES:
        broker.stop()
        with monkeypatch.context() as patched:
            for name, value in environment(rename).items():
                patched.setenv(name, value)
            broker.start()
        process = broker.process
        assert process is not None

        def write(process: subprocess.Popen[bytes] = process) -> None:
            # The number of renames depends on the size of the cleaning.
            while process.poll() is None:
                updates.write(3000, KEYS, 400, TOMBSTONES_EVERY)

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: process.poll() is not None, f"killed at rename {rename}", WAIT_S)  # noqa: B023
        broker.kill()
        broker.start()
        writer.join(2 * WAIT_S)
        assert not writer.is_alive()
        assert_last_values(broker.bootstrap, updates)
        ends |= {value for _, value in updates.last.values()}
    wait_until_clean(broker.data_dir, "kept-swapped")
    assert_last_values(broker.bootstrap, updates)
    assert None in ends, "no key ended with a tombstone"
    broker.stop()
    check_files(tools, broker.data_dir)


def test_kills_at_random_moments_of_cleaning(make_broker: MakeBroker) -> None:
    broker = make_broker(EAGER_CLEANER | {"log.cleaner.io.max.bytes.per.second": SLOW_PACE})
    create_compacted(broker.bootstrap, "kept")
    updates = Updates(broker.bootstrap, "kept", **{"message.timeout.ms": 60_000})
    chance, kills, tries = random.Random(3), 0, 0
    ends: set[bytes | None] = set()
    while kills < KILLS_AT_RANDOM:
        tries += 1
        assert tries <= 2 * KILLS_AT_RANDOM + 2, f"only {kills} of {tries - 1} kills fell into a cleaning"
        writer = threading.Thread(target=updates.write, args=(6000, KEYS, 400, TOMBSTONES_EVERY))
        writer.start()
        kills += kill_during_a_cleaning(broker, "kept", 0.4 * chance.random())
        broker.start()
        writer.join(2 * WAIT_S)
        assert not writer.is_alive()
        assert_last_values(broker.bootstrap, updates)
        wait_until_clean(broker.data_dir, "kept")
        assert_last_values(broker.bootstrap, updates)
        ends |= {value for _, value in updates.last.values()}
    assert None in ends, "no key ended with a tombstone"


@pytest.mark.parametrize("first", [KAFKACOMPAT, APACHE])
def test_the_other_broker_goes_on_with_a_cleaned_folder(
    tools: KafkaTools, tmp_path: Path, first: str
) -> None:
    """Also after an unclean stop: each broker reads what the other has cleaned, cleans further, and both return the
    same records."""
    broker = SwitchingBroker(first, tmp_path / "node", False, EAGER_CLEANER)
    try:
        broker.start()
        create_compacted(broker.bootstrap, "kept")
        updates = Updates(broker.bootstrap, "kept", **{"compression.type": "lz4"})
        updates.write(15_000, KEYS, 400, tombstones_every=1009)
        other = APACHE if first == KAFKACOMPAT else KAFKACOMPAT
        for kind in (other, first, other):
            wait_until_clean(broker.data_dir, "kept")
            before = assert_last_values(broker.bootstrap, updates)
            if kind == first:
                broker.kill()
            broker.become(kind)
            assert set(assert_last_values(broker.bootstrap, updates)) <= set(before)
            updates.write(8_000, KEYS, 400, tombstones_every=1009)
        wait_until_clean(broker.data_dir, "kept")
        assert_last_values(broker.bootstrap, updates)
        broker.stop()
        check_files(tools, broker.data_dir)
    finally:
        broker.kill()


def test_offsets_of_groups_outlive_the_cleaning_of_their_topic(make_broker: MakeBroker) -> None:
    """__consumer_offsets is compacted like any other topic, and a coordinator loads the remaining records."""
    broker = make_broker(EAGER_CLEANER | EAGER_OFFSETS)
    partitions = 100
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("read", partitions, 1)]).values():
        future.result(WAIT_S)

    with consumer(broker.bootstrap, **{"group.id": "often"}) as member:
        for number in range(500):
            places = [
                TopicPartition("read", partition, number + partition) for partition in range(partitions)
            ]
            member.commit(offsets=places, asynchronous=False)
            if number == 0:
                with consumer(broker.bootstrap, **{"group.id": "once"}) as other:
                    other.commit(offsets=places, asynchronous=False)
    wait_until_clean(broker.data_dir, "__consumer_offsets")
    size = sum(path.stat().st_size for path in (broker.data_dir / "__consumer_offsets-0").glob("*.log"))
    assert size < 2 << 20
    for stop in (broker.kill, broker.stop):
        stop()
        broker.start()
        often = committed(broker.bootstrap, "often", "read", partitions)
        assert often == [499 + partition for partition in range(partitions)]
        assert committed(broker.bootstrap, "once", "read", partitions) == list(range(partitions))
