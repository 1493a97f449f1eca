"""Partitions with very many producer ids: what a roll does in one step, what a crash leaves, and how many there may be."""

from __future__ import annotations

import pytest

from kafkacompat._tests.doubles import HandTime
from kafkacompat.ids import TopicPartition
from kafkacompat.log import producer_snapshots
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, batch_of, config, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.log.producer_snapshots import decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import Producer
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import Disk, LogRefused
from kafkacompat.wire.errors import ErrorCode

MANY = 100
ROOMY = config(segment_bytes=1 << 20)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the encoded producers. A step encodes ten."""
    made: list[int] = []
    real = producer_snapshots._entry

    def counting(producer: Producer) -> bytes:
        made.append(producer.producer_id)
        return real(producer)

    monkeypatch.setattr(producer_snapshots, "_entry", counting)
    monkeypatch.setattr(producer_snapshots, "ENCODED_A_STEP", 10)
    monkeypatch.setattr("kafkacompat.log.producer_snapshots.ENCODED_A_STEP", 10)
    return made


def write(log: UnifiedLog, producer_id: int, sequence: int = 0, **options: object) -> None:
    batch = batch_of([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)
    log.append_as_leader(batch, 0, NOW_MS)


def filled(log: UnifiedLog) -> UnifiedLog:
    for each in range(MANY):
        write(log, each)
    return log


def told(producers: list[Producer]) -> dict[int, tuple[int, int, int, int]]:
    return {
        each.producer_id: (
            each.epoch,
            each.batches[-1].last_offset if each.batches else -1,
            each.coordinator_epoch,
            each.transaction_first_offset,
        )
        for each in producers
    }


def snapshot_at(disk: Disk, offset: int) -> list[Producer]:
    return decode_snapshot(disk.read_bytes(f"{DIRECTORY}/{offset:020d}.snapshot"))


def test_a_roll_encodes_no_producer_and_the_steps_after_it_few(encoded: list[int]) -> None:
    disk = MemoryDisk()
    log = filled(open_log(disk, ROOMY))
    expected = told(decode_snapshot(encode_snapshot(log.producer_state.producers.values())))
    encoded.clear()
    log.roll(log.log_end_offset, NOW_MS)
    assert encoded == []
    steps = 0
    while not log.go_on_with_snapshot():
        # What is written meanwhile does not belong to the snapshot.
        write(log, 2 * steps, 1)
        write(log, MANY + steps)
        write(log, MANY - 1 - 2 * steps, 1, is_transactional=True)
        if steps:
            log.append_as_leader(marker(MANY - 1 - 2 * (steps - 1), committed=True), 0, NOW_MS)
        steps += 1
        assert len(encoded) <= steps * (10 + 3)
    assert steps >= MANY // 13
    assert sorted(encoded) == list(range(MANY)), "each once"
    assert told(snapshot_at(disk, MANY)) == expected
    assert log.go_on_with_snapshot()


def test_few_producers_are_written_with_the_roll(encoded: list[int]) -> None:
    disk = MemoryDisk()
    log = open_log(disk, ROOMY)
    for each in range(10):
        write(log, each)
    log.roll(log.log_end_offset, NOW_MS)
    assert len(snapshot_at(disk, 10)) == 10
    assert log.go_on_with_snapshot()


@pytest.mark.parametrize("steps", [0, 3, 30])
def test_a_crash_before_the_snapshot_is_written_loses_no_producer(encoded: list[int], steps: int) -> None:
    disk = MemoryDisk()
    log = filled(open_log(disk, ROOMY))
    log.roll(log.log_end_offset, NOW_MS)
    for _ in range(steps):
        log.go_on_with_snapshot()
    write(log, 0, 1)
    write(log, MANY)
    expected = told(list(log.producer_state.producers.values()))
    assert told(list(open_log(disk.copy(), ROOMY).producer_state.producers.values())) == expected
    log.close()
    again = open_log(disk, ROOMY, clean=True)
    assert told(list(again.producer_state.producers.values())) == expected


def test_what_was_truncated_is_in_no_snapshot(encoded: list[int]) -> None:
    disk = MemoryDisk()
    log = filled(open_log(disk, ROOMY))
    log.roll(log.log_end_offset, NOW_MS)
    log.go_on_with_snapshot()
    log.truncate_to(50, NOW_MS)
    assert log.go_on_with_snapshot()
    assert not any(name.endswith(".snapshot") for name in disk.list_directory(DIRECTORY))
    assert set(log.producer_state.producers) == set(range(50))


def test_no_segment_is_deleted_before_the_snapshot_that_replaces_it(encoded: list[int]) -> None:
    log = filled(open_log(MemoryDisk(), config(segment_bytes=1 << 20, retention_ms=1)))
    log.set_high_watermark(MANY)
    # All segments are due. The active one is rolled first.
    assert log.enforce_retention(NOW_MS * 2) == 0
    while not log.go_on_with_snapshot():
        assert log.enforce_retention(NOW_MS * 2) == 0
        assert log.log_start_offset == 0
    assert log.enforce_retention(NOW_MS * 2) >= 1
    assert log.log_start_offset == MANY


def test_the_sync_after_a_roll_comes_after_the_snapshots_steps(encoded: list[int]) -> None:
    disk = MemoryDisk()
    disk.make_directory("/a")
    manager = LogManager(disk, [("/a", b"\1" * 16)], ROOMY, HandTime(), producer_ids_max=MANY)
    upkeep = LogUpkeep(manager)
    names = [TopicPartition("t", each) for each in range(3)]
    logs = [manager.get_or_create(name, b"\2" * 16, manager.default_config) for name in names]
    for log in logs:
        if log is logs[2]:
            write(log, 0)
        else:
            filled(log)
        log.roll(log.log_end_offset, NOW_MS)
    encoded.clear()
    asked: list[str] = []
    upkeep.watch_rolls(asked.append)
    assert asked == ["/a"]
    steps = 0
    while logs[0].recovery_point == 0 or logs[1].recovery_point == 0:
        assert asked.pop() == "/a"
        before = len(encoded)
        plan = upkeep.flush_rolled("/a")
        assert len(encoded) <= before + 10
        steps += 1
        if plan is not None:
            plan.run()
            plan.finish()
    assert not asked
    assert steps >= 2 * MANY // 10
    assert all(log.recovery_point == log.log_end_offset for log in logs)
    left = disk.lose_power()
    for log in logs[:2]:
        path = f"{log.directory}/{log.log_end_offset:020d}.snapshot"
        assert len(decode_snapshot(bytes(left.files[path]))) == MANY
    with pytest.raises(LogRefused):
        write(logs[0], MANY)


def test_a_snapshot_that_a_flush_has_passed_is_synced_with_the_next(encoded: list[int]) -> None:
    disk = MemoryDisk()
    log = filled(open_log(disk, ROOMY))
    log.roll(log.log_end_offset, NOW_MS)
    log.flush()
    assert log.recovery_point == MANY
    while not log.go_on_with_snapshot():
        pass
    log.flush()
    path = f"{DIRECTORY}/{MANY:020d}.snapshot"
    assert len(decode_snapshot(bytes(disk.lose_power().files[path]))) == MANY


def test_a_producer_id_too_many_is_refused_until_one_has_expired() -> None:
    log = open_log(MemoryDisk())
    log.producer_state.ids_max = 3
    for each in range(3):
        write(log, each)
    for options in ({}, {"is_transactional": True}):
        with pytest.raises(LogRefused, match=r"partition\.max\.producer\.ids") as refused:
            write(log, 3, **options)
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    # Those that are known go on, and who has no id.
    write(log, 0, 1)
    log.append_as_leader(batch_of([b"v"]), 0, NOW_MS)
    # What the coordinator or the leader decided is taken.
    log.append_as_leader(marker(9, committed=False), 0, NOW_MS)
    batch = batch_of(
        [b"v"], base_offset=log.log_end_offset, producer_id=10, producer_epoch=0, base_sequence=0
    )
    log.append_as_follower(batch.buffer, 0)
    assert set(log.producer_state.producers) == {0, 1, 2, 9, 10}
    for _ in log.expire_producers(NOW_MS + 1000, 1000):
        pass
    write(log, 3)
