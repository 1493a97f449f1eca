"""Settings that delay or speed up a cleaning: compaction lags, the memory of the offset map, the throttle."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from interop_tests.compaction.keyed import (
    EAGER_CLEANER,
    WAIT_S,
    Updates,
    assert_last_values,
    cleaned_to,
    create_compacted,
    read_all,
    set_cleaners_pace,
    wait_until_clean,
)
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess
from interop_tests.harness.waiting import wait_until
from interop_tests.storage.contents import consumer

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
KEYS = 40
LEAST_MAP_BYTES = (1 << 20) + 1
"""The minimum of log.cleaner.dedupe.buffer.size that Kafka requires for each thread."""


def test_young_records_wait_for_min_compaction_lag(make_broker: MakeBroker) -> None:
    """Old records are cleaned. Younger records stay complete until the lag is removed."""
    broker = make_broker(EAGER_CLEANER)
    settings = {"min_compaction_lag_ms": str(3_600_000), "message_timestamp_before_max_ms": str(2**63 - 1)}
    create_compacted(broker.bootstrap, "kept", **settings)
    old, young = int((time.time() - 7200) * 1000), int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})

    def write(stamp_ms: int) -> None:
        for number in range(5000):
            producer.produce(
                "kept", b"%d " % number + b"v" * 500, b"key-%d" % (number % KEYS), timestamp=stamp_ms
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    write(old)
    write(young)
    wait_until(lambda: cleaned_to(broker.data_dir, "kept") > 0, "the old part is cleaned", WAIT_S)
    clean = cleaned_to(broker.data_dir, "kept")
    assert clean <= 5000
    offsets, _ = read_all(broker.bootstrap, "kept")
    assert [offset for offset in offsets if offset >= 5000] == list(range(5000, 10_000))
    assert len([offset for offset in offsets if offset < clean]) <= KEYS


def test_a_log_of_both_policies_is_cleaned_and_loses_what_is_too_old(make_broker: MakeBroker) -> None:
    """With compaction alone, keys that were written once stay forever. With both policies they are deleted when their
    segment is old."""
    broker = make_broker(EAGER_CLEANER | {"log.retention.check.interval.ms": "300"})
    hour_ms, now_ms = 3_600_000, int(time.time() * 1000)
    topics = {"both": "compact,delete", "kept": "compact"}
    for topic, policy in topics.items():
        create_compacted(
            broker.bootstrap,
            topic,
            cleanup_policy=policy,
            retention_ms=str(hour_ms),
            message_timestamp_before_max_ms=str(2**63 - 1),
        )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    once, often = 5000, 6000
    for topic in topics:
        for number in range(once + often):
            key = b"once-%d" % number if number < once else b"key-%d" % (number % KEYS)
            stamp_ms = now_ms - (2 * hour_ms if number < once else 0)
            producer.produce(topic, b"%d " % number + b"v" * 500, key, timestamp=stamp_ms)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0

    def begins_at(topic: str) -> int:
        with consumer(broker.bootstrap) as reader:
            return int(reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)[0])

    for topic in topics:
        wait_until_clean(broker.data_dir, topic)
    # The segment with old and young records is deleted too: after the cleaning all its records are old.
    wait_until(lambda: begins_at("both") >= once, "old segments are deleted", WAIT_S)
    expected = {b"key-%d" % (number % KEYS): number for number in range(once, once + often)}
    found = {}
    for topic in topics:
        offsets, found[topic] = read_all(broker.bootstrap, topic, start=begins_at(topic))
        below = [offset for offset in offsets if once <= offset < cleaned_to(broker.data_dir, topic)]
        assert len(below) <= KEYS, "it is cleaned"
        assert {key: found[topic][key][0] for key in expected} == expected
    assert found["kept"].keys() - expected.keys() == {b"once-%d" % number for number in range(once)}
    assert begins_at("kept") == 0
    assert found["both"].keys() == expected.keys()


def test_max_compaction_lag_cleans_what_is_not_dirty_enough(make_broker: MakeBroker) -> None:
    broker = make_broker(EAGER_CLEANER)
    create_compacted(
        broker.bootstrap, "waits", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms=str(86_400_000)
    )
    create_compacted(
        broker.bootstrap, "overdue", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms="2000"
    )
    both = [Updates(broker.bootstrap, topic) for topic in ("waits", "overdue")]
    for updates in both:
        updates.write(9000, KEYS, 500)
    # max.compaction.lag.ms also closes a segment, counted from its first record.
    wait_until(lambda: cleaned_to(broker.data_dir, "overdue") > 0, "the overdue log is cleaned", WAIT_S)
    assert cleaned_to(broker.data_dir, "waits") == -1
    for updates in both:
        assert_last_values(broker.bootstrap, updates)


def test_a_map_of_the_least_memory_cleans_more_keys_than_it_holds(make_broker: MakeBroker) -> None:
    """Kafka's minimum of log.cleaner.dedupe.buffer.size holds some 40,000 keys, so the log is cleaned in several
    rounds."""
    broker = make_broker(EAGER_CLEANER | {"log.cleaner.dedupe.buffer.size": str(LEAST_MAP_BYTES)})
    create_compacted(broker.bootstrap, "kept")
    keys = 70_000
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "batch.size": 100_000})
    for turn in range(2):
        for number in range(keys):
            while True:
                try:
                    producer.produce(
                        "kept", b"%d of turn %d" % (number, turn), b"a-rather-long-key-%08d" % number
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(WAIT_S) == 0
    wait_until_clean(broker.data_dir, "kept")
    offsets, found = read_all(broker.bootstrap, "kept")
    assert found == {
        b"a-rather-long-key-%08d" % number: (keys + number, b"%d of turn 1" % number)
        for number in range(keys)
    }
    assert offsets == sorted(set(offsets))
    gone = 2 * keys - len(offsets)
    assert gone > keys // 2, "values of the first turn that were below the active segment are gone"


def test_the_throttle_holds_the_cleaner_back(make_broker: MakeBroker) -> None:
    """log.cleaner.io.max.bytes.per.second, changed while the broker runs. All settings of the cleaner can be changed
    like this."""
    broker = make_broker(EAGER_CLEANER | {"log.cleaner.io.max.bytes.per.second": "100000.0"})
    create_compacted(broker.bootstrap, "kept")
    updates = Updates(broker.bootstrap, "kept")
    updates.write(20_000, KEYS, 500)
    # Reading 10 MB at this rate takes minutes, so no cleaning can end soon.
    for _ in range(50):
        assert cleaned_to(broker.data_dir, "kept") == -1
        time.sleep(0.1)
    set_cleaners_pace(broker.bootstrap, "1.0E9")
    wait_until_clean(broker.data_dir, "kept")
    assert_last_values(broker.bootstrap, updates)


def test_cleaners_that_wait_hold_up_nobody(make_broker: MakeBroker) -> None:
    """Eight cleaners wait for the throttle for minutes. Meanwhile topics are created and deleted, produces that wait
    for a sync are answered, and SIGTERM ends the process."""
    cleaners = 8
    broker = make_broker(
        EAGER_CLEANER
        | {
            "log.cleaner.threads": str(cleaners),
            "log.cleaner.io.max.bytes.per.second": "1000.0",
            # 1 MiB per thread is the minimum.
            "log.cleaner.dedupe.buffer.size": str(cleaners * LEAST_MAP_BYTES),
            "log.cleaner.io.buffer.size": str(cleaners << 16),
        }
    )
    for number in range(cleaners + 1):
        create_compacted(broker.bootstrap, f"dirty-{number}")
        Updates(broker.bootstrap, f"dirty-{number}").write(2500, KEYS, 1000)
    if broker.kind == KAFKACOMPAT:
        wait_until(lambda: threads_named(broker.pid, "cleaning") == cleaners, "all cleaners wait", WAIT_S)
    for turn in range(3):
        create_compacted(broker.bootstrap, f"new-{turn}", flush_messages="1")
        updates = Updates(broker.bootstrap, f"new-{turn}")
        updates.write(20, KEYS)
        assert len(updates.last) > 0, "a produce waits for a sync"
        assert_last_values(broker.bootstrap, updates)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_topics([f"new-{turn}"]).values():
            future.result(WAIT_S)
    if broker.kind == KAFKACOMPAT:
        assert broker.stop() == 0
    else:
        broker.kill()  # Apache Kafka's stop waits for cleaners, and these sleep until the throttle lets them go on
    assert cleaned_to(broker.data_dir, "dirty-0") == -1


def threads_named(pid: int, name: str) -> int:
    """The number of threads of a process with this name."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            names.append(path.read_text().strip())
    return names.count(name)
