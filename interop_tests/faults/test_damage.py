"""Changed bytes on disk: records after the last sync are recovered up to the damage. Durable records stay unchanged.

The same assertions hold for Apache Kafka (INTEROP_BROKER=apache), whose behaviour this is.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop_tests.faults.load import Acknowledged, assert_kept, led, log_end, now_ms, read_all
from interop_tests.harness.broker import APACHE, BrokerProcess
from interop_tests.harness.damage import change_byte
from interop_tests.harness.raw_kafka import (
    ErrorCode,
    create_topic,
    fetch,
    list_offset,
    list_offset_result,
    produce,
)
from interop_tests.harness.records import BATCH_HEADER_SIZE, BatchPlan, decode_batches
from interop_tests.harness.wire import Connection

pytestmark = pytest.mark.needs_control

MakeBroker = Callable[..., BrokerProcess]
TOPIC = "damaged"
BATCHES = 60
PADDING = b"." * 50_000
SETTINGS = {"log.index.interval.bytes": "60000"}


class Place(NamedTuple):
    """A batch on disk."""

    base_offset: int
    position: int
    size: int


class Filled(NamedTuple):
    """A broker with one partition of some closed segments and an active one, with one record per batch, each a second
    later."""

    broker: BrokerProcess
    values: Acknowledged
    first_ms: int

    @property
    def directory(self) -> Path:
        return self.broker.data_dir / f"{TOPIC}-0"

    @property
    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))


@pytest.fixture
def filled(make_broker: MakeBroker) -> Filled:
    broker = make_broker(SETTINGS)
    create_topic(broker.bootstrap, TOPIC, 1, {"segment.bytes": str(1 << 20)})
    values: Acknowledged = {}
    first_ms = now_ms() - BATCHES * 1000
    with Connection(broker.bootstrap) as connection:
        for number in range(BATCHES):
            value = b"%d-" % number + PADDING
            batch = BatchPlan([value], base_timestamp_ms=first_ms + number * 1000)
            result = produce(connection, TOPIC, batch)
            assert (result["ErrorCode"], result["BaseOffset"]) == (ErrorCode.NONE, number)
            values[0, number] = value
    found = Filled(broker, values, first_ms)
    assert len(found.segments) >= 3
    return found


def batches_in(segment: Path) -> list[Place]:
    data, places, position = segment.read_bytes(), [], 0
    while position + BATCH_HEADER_SIZE <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        places.append(Place(base_offset, position, length + 12))
        position += length + 12
    return places


def forget_recovery_points(filled: Filled) -> None:
    """As if the crash happened before the first checkpoint: nothing is known to be durable."""
    (filled.broker.data_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)


@pytest.mark.parametrize("which", [1, -1], ids=["closed", "active"])
def test_recovery_cuts_the_log_at_damage(filled: Filled, which: int) -> None:
    """Damage after kill -9, in data that no checkpoint covers: the log ends before the damaged batch, and later
    segments are deleted."""
    broker = filled.broker
    broker.kill()
    forget_recovery_points(filled)
    segment = filled.segments[which]
    damaged = batches_in(segment)[1]
    change_byte(segment, damaged.position + damaged.size - 1000)
    broker.start()
    assert log_end(broker.bootstrap, TOPIC) == damaged.base_offset
    kept = {place: value for place, value in filled.values.items() if place[1] < damaged.base_offset}
    assert_kept(broker.bootstrap, TOPIC, kept)
    assert filled.segments[-1] == segment
    assert segment.stat().st_size == damaged.position
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, TOPIC, BatchPlan([b"new"]))["BaseOffset"] == damaged.base_offset
    assert broker.stop() in (0, 143)
    broker.start()
    assert_kept(broker.bootstrap, TOPIC, kept | {(0, damaged.base_offset): b"new"})


@pytest.mark.parametrize("how", ["cut", "zeros", "length", "magic"])
def test_a_damaged_end_after_a_clean_stop_is_recovered(filled: Filled, how: str) -> None:
    """The log ends before the damage, the other partitions are served, and new records are there after another start."""
    broker = filled.broker
    if broker.kind == APACHE:
        pytest.skip("Apache Kafka does not look at a log's end after a clean stop")
    create_topic(broker.bootstrap, "sound")
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, "sound", BatchPlan([b"v"]))["BaseOffset"] == 0
    assert broker.stop() in (0, 143)
    segment = filled.segments[-1]
    last = batches_in(segment)[-1]
    with open(segment, "r+b") as file:
        if how == "cut":
            file.truncate(last.position + last.size - 1000)
        elif how == "zeros":
            file.seek(last.position)
            file.write(bytes(last.size))
        elif how == "length":
            file.seek(last.position + 8)
            file.write(struct.pack(">i", -7))
    if how == "magic":
        change_byte(segment, last.position + 16)
    broker.start()
    assert "Traceback" not in broker.log_text()
    assert str(segment) in broker.log_text()
    assert log_end(broker.bootstrap, TOPIC) == last.base_offset
    kept = {place: value for place, value in filled.values.items() if place[1] < last.base_offset}
    assert_kept(broker.bootstrap, TOPIC, kept)
    assert_kept(broker.bootstrap, "sound", {(0, 0): b"v"})
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, TOPIC, BatchPlan([b"new"]))["BaseOffset"] == last.base_offset
    assert broker.stop() in (0, 143)
    broker.start()
    assert_kept(broker.bootstrap, TOPIC, kept | {(0, last.base_offset): b"new"})


def test_a_clean_segments_damage_is_served_as_it_is(filled: Filled) -> None:
    """After a clean stop the broker does not look for damage in old segments. The reader's checksum finds it, and
    everything else is there."""
    broker = filled.broker
    assert broker.stop() in (0, 143)
    segment = filled.segments[1]
    damaged = batches_in(segment)[1]
    change_byte(segment, damaged.position + damaged.size - 1000)
    broker.start()
    assert log_end(broker.bootstrap, TOPIC) == BATCHES
    with Connection(broker.bootstrap) as connection:
        result = fetch(connection, TOPIC, damaged.base_offset, partition_max_bytes=1)
        assert result["ErrorCode"] == ErrorCode.NONE
        with pytest.raises(AssertionError, match="wrong CRC"):
            decode_batches(result["Records"])
        before = fetch(connection, TOPIC, damaged.base_offset - 1, partition_max_bytes=1)
        assert [batch.base_offset for batch in decode_batches(before["Records"])] == [damaged.base_offset - 1]
    after = read_all(broker.bootstrap, TOPIC, start=damaged.base_offset + 1)
    assert sorted(after) == list(range(damaged.base_offset + 1, BATCHES))


def test_a_broken_length_in_a_clean_segment_ends_no_broker(filled: Filled) -> None:
    """Batches after an impossible length cannot be found. The broker returns an error and serves the rest."""
    broker = filled.broker
    assert broker.stop() in (0, 143)
    segment = filled.segments[1]
    damaged = batches_in(segment)[3]
    with open(segment, "r+b") as file:
        file.seek(damaged.position + 8)
        file.write(struct.pack(">i", -7))
    broker.start()
    assert log_end(broker.bootstrap, TOPIC) == BATCHES
    with Connection(broker.bootstrap) as connection:
        for offset in (damaged.base_offset, damaged.base_offset + 1):
            # Bytes or an error, but always a response.
            fetch(connection, TOPIC, offset, partition_max_bytes=1)
        later = batches_in(filled.segments[2])[0].base_offset
        assert decode_batches(fetch(connection, TOPIC, later)["Records"])[0].base_offset == later
        assert decode_batches(fetch(connection, TOPIC, 0)["Records"])[0].base_offset == 0
        assert produce(connection, TOPIC, BatchPlan([b"new"]))["BaseOffset"] == BATCHES


def answered(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The response after a damaged index is rebuilt and the log that a kill left is durable. Until then clients must
    retry."""
    found = led(ask, lambda answer: answer["ErrorCode"], ErrorCode.KAFKA_STORAGE_ERROR)
    assert found["ErrorCode"] == 0, found
    return found


def assert_lookups(filled: Filled) -> None:
    """Lookups by offset and by time find the right records in every segment."""
    with Connection(filled.broker.bootstrap) as connection:
        for number in range(0, BATCHES, 7):
            result = answered(lambda at=number: fetch(connection, TOPIC, at, partition_max_bytes=1))
            assert decode_batches(result["Records"])[0].base_offset == number
            stamp = filled.first_ms + number * 1000
            found = answered(lambda at=stamp - 500: list_offset_result(connection, TOPIC, 0, at))
            assert (found["Offset"], found["Timestamp"]) == (number, stamp)
    assert_kept(filled.broker.bootstrap, TOPIC, filled.values)


def spoil_indexes(filled: Filled, how: str) -> None:
    for path in [*filled.directory.glob("*.index"), *filled.directory.glob("*.timeindex")]:
        if how == "missing":
            path.unlink()
        elif how == "empty":
            path.write_bytes(b"")
        elif how == "garbage":
            path.write_bytes(os.urandom(1201))
        elif how == "lying":
            # Index entries of a valid size with wrong contents: positions and offsets of no batch.
            path.write_bytes(b"\x00\x00\x00\x05\x7f\x00\x00\x01" * 3)


@pytest.mark.parametrize(
    ("how", "stop"),
    [
        ("missing", "clean"),
        ("garbage", "clean"),
        ("missing", "killed"),
        ("garbage", "killed"),
        ("empty", "killed"),
        ("lying", "killed"),
    ],
)
def test_indexes_are_built_anew(filled: Filled, how: str, stop: str) -> None:
    broker = filled.broker
    if broker.kind == APACHE and (how, stop) == ("garbage", "clean"):
        pytest.skip("Apache Kafka trusts what a clean stop left and looks times up in the garbage")
    if stop == "clean":
        assert broker.stop() in (0, 143)
    else:
        broker.kill()
    spoil_indexes(filled, how)
    broker.start()
    assert_lookups(filled)
    assert broker.stop() in (0, 143)
    broker.start()
    assert_lookups(filled)


def test_producer_snapshots_and_epochs_may_be_missing_or_garbage(filled: Filled) -> None:
    """Both can be rebuilt from the log after kill -9."""
    broker = filled.broker
    broker.kill()
    forget_recovery_points(filled)
    for path in filled.directory.glob("*.snapshot"):
        path.write_bytes(os.urandom(77))
    (filled.directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
    broker.start()
    assert_kept(broker.bootstrap, TOPIC, filled.values)
    with Connection(broker.bootstrap) as connection:
        assert produce(connection, TOPIC, BatchPlan([b"new"]))["BaseOffset"] == BATCHES


def test_checkpoint_files_may_be_missing(filled: Filled) -> None:
    broker = filled.broker
    assert broker.stop() in (0, 143)
    for path in broker.data_dir.glob("*-offset-checkpoint"):
        path.unlink()
    (broker.data_dir / ".kafka_cleanshutdown").unlink()
    broker.start()
    assert_lookups(filled)


def test_a_segment_taken_away_leaves_the_others_served(filled: Filled) -> None:
    """A segment is lost from the middle: the broker starts, and reads continue at the next existing offset."""
    broker = filled.broker
    assert broker.stop() in (0, 143)
    gone = filled.segments[1]
    first_lost = int(gone.stem)
    following = int(filled.segments[2].stem)
    for suffix in (".log", ".index", ".timeindex"):
        gone.with_suffix(suffix).unlink()
    broker.start()
    assert log_end(broker.bootstrap, TOPIC) == BATCHES
    with Connection(broker.bootstrap) as connection:
        result = fetch(connection, TOPIC, first_lost)
        assert result["ErrorCode"] == ErrorCode.NONE
        assert decode_batches(result["Records"])[0].base_offset == following


def test_a_folder_that_is_no_partition_is_left_alone(filled: Filled) -> None:
    """The directory lost+found of a file system, and a foreign file."""
    broker = filled.broker
    if broker.kind == APACHE:
        pytest.skip("Apache Kafka does not start over a directory whose name is no partition's")
    assert broker.stop() in (0, 143)
    (broker.data_dir / "lost+found").mkdir()
    (broker.data_dir / "notes.txt").write_text("of nobody's concern")
    (filled.directory / "notes.txt").write_text("of nobody's concern")
    broker.start()
    assert_kept(broker.bootstrap, TOPIC, filled.values)
    assert (broker.data_dir / "notes.txt").exists()


def test_a_partition_directory_taken_away_comes_back_empty_or_offline(filled: Filled) -> None:
    """The metadata contains the topic. The node starts, and reports that the records are not there."""
    broker = filled.broker
    assert broker.stop() in (0, 143)
    shutil.rmtree(filled.directory)
    broker.start()
    with Connection(broker.bootstrap) as connection:
        code, offset, _ = list_offset(connection, TOPIC, 0, -1)
        assert code != ErrorCode.NONE or offset == 0
