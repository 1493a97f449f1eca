"""The states that a crash may leave, and their recovery when the log is opened."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator

import pytest

from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.logs import (
    DIRECTORY,
    NOW_MS,
    TOPIC_ID,
    all_values,
    batch_of,
    config,
    index_files,
    look_up,
    marker,
    open_log,
)
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_loader import open_directory
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import AbortedTransaction
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record

FIRST_LOG = f"{DIRECTORY}/{0:020d}.log"


def filled(disk: MemoryDisk, batches: int = 30, **changes: object) -> UnifiedLog:
    log = open_log(disk, config(**changes))
    for i in range(batches):
        log.append_as_leader(batch_of([b"%d" % i * 20, b"b"], NOW_MS + i), 0, NOW_MS)
    return log


def test_torn_tail_at_every_byte_of_the_last_batch() -> None:
    disk = MemoryDisk()
    log = filled(disk, 5, segment_bytes=1 << 20)
    whole = all_values(log)
    before = log.segments[0].size
    log.append_as_leader(batch_of([b"last", b"torn"]), 0, NOW_MS)
    after = log.segments[0].size
    for cut in range(before, after):
        torn = disk.copy()
        del torn.files[FIRST_LOG][cut:]
        again = open_log(torn, config(segment_bytes=1 << 20))
        assert again.log_end_offset == 10
        assert all_values(again) == whole
        assert len(torn.files[FIRST_LOG]) == before


def test_a_changed_byte_in_the_last_batch_drops_it_alone() -> None:
    disk = MemoryDisk()
    log = filled(disk, 5, segment_bytes=1 << 20)
    before = log.segments[0].size
    log.append_as_leader(batch_of([b"last"]), 0, NOW_MS)
    for at in range(before + 16, log.segments[0].size):
        torn = disk.copy()
        torn.files[FIRST_LOG][at] ^= 0xFF
        assert open_log(torn, config(segment_bytes=1 << 20)).log_end_offset == 10


def test_zeros_after_the_end_are_cut_off() -> None:
    """A power loss leaves zeros if a file was extended but not written."""
    disk = MemoryDisk()
    filled(disk, 5, segment_bytes=1 << 20)
    size = len(disk.files[FIRST_LOG])
    disk.files[FIRST_LOG] += bytes(5000)
    assert open_log(disk).log_end_offset == 10
    assert len(disk.files[FIRST_LOG]) == size


def test_damage_in_the_middle_ends_the_log_there_and_sets_the_rest_aside() -> None:
    disk = MemoryDisk()
    log = filled(disk, 60)
    assert len(log.segments) > 2
    second = log.segments[1]
    disk.files[second.stem + ".log"][70] ^= 1
    again = open_log(disk)
    assert again.log_end_offset == second.base_offset
    names = disk.list_directory(DIRECTORY)
    assert any(name.endswith(".log.deleted") for name in names)
    assert not any(name.endswith(".deleted") for name in names if name[:20] <= f"{second.base_offset:020d}")
    open_log(disk, clean=True)
    assert not any(name.endswith(".deleted") for name in disk.list_directory(DIRECTORY))


def test_a_start_that_ends_while_it_sets_segments_aside_leaves_no_hole() -> None:
    """Otherwise the next start would accept the segments after the gap, and a follower would never fetch the missing
    records."""
    disk = MemoryDisk()
    log = filled(disk, 60)
    damaged = log.segments[1]
    kept = damaged.base_offset
    disk.files[f"{DIRECTORY}/{kept:020d}.log"][damaged.size // 2] ^= 1
    last = open_log(disk.copy()).log_end_offset
    assert kept <= last < log.segments[2].base_offset
    for allowed in itertools.count():
        left = disk.copy()
        changes = itertools.count()

        def refuse(
            operation: str, path: str, changes: Iterator[int] = changes, allowed: int = allowed
        ) -> OSError | None:
            is_change = operation in ("rename", "truncate", "remove", "write", "write_atomic")
            return (
                OSError(errno.EIO, "the process ends", path)
                if is_change and next(changes) >= allowed
                else None
            )

        left.refuse = refuse
        try:
            open_log(left)
        except OSError:
            left.refuse = None
            assert open_log(left).log_end_offset == last, f"after {allowed} changes"
        else:
            break
    assert allowed > 4


@pytest.mark.parametrize("into", [0, 1])
def test_a_truncation_over_several_segments_leaves_no_hole_when_the_power_goes(into: int) -> None:
    """The cut may reach the disk at any time. Segments that came back would then be behind a gap that no start
    detects."""
    disk = MemoryDisk()
    log = filled(disk, segment_bytes=700)
    log.flush()
    end = log.segments[1].base_offset + 2 * into
    before = all_values(log)[:end]
    syncs: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation in ("sync", "sync_directory"):
            syncs.append(path)

    disk.refuse = note
    log.truncate_to(end)
    assert syncs == [DIRECTORY], "one, not one a segment"
    log.segments[-1].file.sync()
    again = open_log(disk.lose_power(), config(segment_bytes=700))
    assert (again.log_end_offset, all_values(again)) == (end, before)
    log.append_as_leader(batch_of([b"new"]), 1, NOW_MS)
    log.flush()
    again = open_log(disk.lose_power(), config(segment_bytes=700), recovery_point=log.recovery_point)
    assert (again.log_end_offset, all_values(again)) == (end + 1, [*before, (end, b"new")])


def test_segments_below_the_recovery_point_are_not_read() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.flush()
    last = log.segments[-1].base_offset
    disk.files[FIRST_LOG][70] ^= 1
    again = open_log(disk, recovery_point=last)
    assert again.log_end_offset == log.log_end_offset


def test_indexes_after_a_kill_equal_those_of_a_clean_stop() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    killed = disk.copy()
    log.close()
    open_log(killed)
    assert index_files(killed) == index_files(disk)
    assert any(index_files(disk).values())


@pytest.mark.parametrize("damage", ["missing", "odd", "wild", "zeros"])
def test_a_bad_index_of_a_clean_log_is_built_anew(damage: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    values = all_values(log)
    log.close()
    good = index_files(disk)
    for suffix in (".index", ".timeindex"):
        path = f"{DIRECTORY}/{0:020d}{suffix}"
        if damage == "missing":
            del disk.files[path]
        elif damage == "odd":
            disk.files[path] += b"\0"
        elif damage == "wild":
            disk.files[path][-8:] = b"\x7f\xff\xff\xff\x7f\xff\xff\xff"
        else:
            disk.files[path] += bytes(24)
    again = open_log(disk, clean=True)
    assert all_values(again) == values
    found = look_up(again, NOW_MS + 3)
    assert found is not None
    assert found.offset in (5, 6)
    again.close()
    if damage != "wild":
        assert index_files(disk) == good


def test_an_index_that_points_between_batches_is_built_anew() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    values = all_values(log)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.index"
    for entry in range(0, len(disk.files[path]), 8):
        disk.files[path][entry + 7] ^= 5
    assert all_values(open_log(disk, clean=True)) == values


def test_an_index_without_a_log_is_removed() -> None:
    disk = MemoryDisk()
    filled(disk).close()
    disk.files[f"{DIRECTORY}/{9999:020d}.index"] = bytearray(8)
    open_log(disk, clean=True)
    assert f"{9999:020d}.index" not in disk.list_directory(DIRECTORY)


def test_leftovers_of_compaction() -> None:
    """`.cleaned` files are removed. A complete `.swap` replaces the segments it covers."""
    disk = MemoryDisk()
    log = filled(disk)
    values = all_values(log)
    second = log.segments[1].base_offset
    log.close()
    merged = bytes(disk.files[FIRST_LOG]) + bytes(disk.files[f"{DIRECTORY}/{second:020d}.log"])
    disk.files[FIRST_LOG + ".swap"] = bytearray(merged)
    disk.files[f"{DIRECTORY}/{500:020d}.log.cleaned"] = bytearray(b"half")
    disk.files[f"{DIRECTORY}/{600:020d}.log.swap"] = bytearray(b"half")
    again = open_log(disk, clean=True)
    names = disk.list_directory(DIRECTORY)
    assert f"{second:020d}.log" not in names
    assert not [name for name in names if name.endswith((".swap", ".cleaned"))]
    assert all_values(again) == values


def test_a_swapped_segment_is_not_read_into_memory_whole() -> None:
    """It may have a gibibyte, and a start that is killed for want of memory would find it again."""
    disk = MemoryDisk()
    log = filled(disk)
    values = all_values(log)
    log.close()
    disk.files[FIRST_LOG + ".swap"] = bytearray(disk.files[FIRST_LOG])
    disk.refuse = lambda operation, path: (
        OSError(errno.ENOMEM, "no memory") if operation == "read_bytes" and ".log" in path else None
    )
    assert all_values(open_log(disk, clean=True)) == values


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_above_the_end_is_another_logs(clean: bool) -> None:
    disk = MemoryDisk()
    log = filled(disk, 3)
    values = all_values(log)
    log.close()
    again = open_log(disk, clean=clean, log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset) == (0, 6)
    assert all_values(again) == values
    assert again.append_as_leader(batch_of([b"x"]), 1, NOW_MS).first_offset == 6


def test_a_recovery_point_above_the_end_vouches_for_nothing() -> None:
    disk = MemoryDisk()
    log = filled(disk, 60)
    assert len(log.segments) > 3
    damaged = f"{log.segments[1].stem}.log"
    disk.files[damaged][-1] ^= 1
    end = log.log_end_offset
    assert open_log(disk.copy(), recovery_point=end).log_end_offset == end
    again = open_log(disk.copy(), recovery_point=end + 1)
    assert log.segments[1].base_offset < again.log_end_offset < log.segments[2].base_offset
    assert again.recovery_point == 0


@pytest.mark.parametrize("offset", [81, 10])
def test_a_high_watermark_out_of_range_is_another_logs(offset: int) -> None:
    disk = MemoryDisk()
    assert filled(disk, 40).log_end_offset == 80
    again = open_log(disk, log_start_offset=20, high_watermark=offset)
    assert again.high_watermark == 20


def test_epochs_are_found_in_the_batches_when_the_file_is_lost() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for epoch in (0, 0, 3, 3, 7):
        log.append_as_leader(batch_of([b"v"]), epoch, NOW_MS)
    entries = log.epoch_entries
    for data in (b"", b"garbage", None):
        killed = disk.copy()
        path = f"{DIRECTORY}/leader-epoch-checkpoint"
        if data is None:
            del killed.files[path]
        else:
            killed.files[path][:] = data
        assert open_log(killed, recovery_point=4).epoch_entries == entries == [(0, 0), (3, 2), (7, 4)]


def test_an_epoch_without_batches_is_written_with_its_first_batch_or_at_the_close() -> None:
    """A node that becomes leader of thousands of partitions does not write a file for each one. Opening would drop the
    entry anyway."""
    disk = MemoryDisk()
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    log = open_log(disk)
    log.assign_epoch_start(4, 0)
    assert log.latest_epoch() == 4
    assert path not in disk.files
    log.append_as_leader(batch_of([b"v"]), 4, NOW_MS)
    assert bytes(disk.files[path]) == b"0\n1\n4 0\n"
    log.assign_epoch_start(5, 1)
    assert bytes(disk.files[path]) == b"0\n1\n4 0\n"
    killed = disk.copy()
    log.close()
    assert bytes(disk.files[path]) == b"0\n2\n4 0\n5 1\n"
    assert open_log(killed).epoch_entries == [(4, 0)]


def test_open_transactions_and_sequences_come_back() -> None:
    """The last stable offset and the sequence check survive a kill, from snapshots and the batches after them."""
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=600))
    for i in range(12):
        log.append_as_leader(
            batch_of([b"a" * 50], producer_id=1, producer_epoch=0, base_sequence=i, is_transactional=True),
            0,
            NOW_MS,
        )
        log.append_as_leader(
            batch_of([b"b" * 50], producer_id=2, producer_epoch=0, base_sequence=i), 0, NOW_MS
        )
        if i == 5:
            log.append_as_leader(marker(1, committed=False), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    expected = list(log.active_producers())
    stable = log.last_stable_offset
    aborted = log.aborted_transactions(0, log.log_end_offset)[0]
    assert stable == 13
    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(1, 0)]
    for clean in (False, True):
        found = disk.copy()
        if clean:
            log.close()
            found = disk
        again = open_log(found, config(segment_bytes=600), clean=clean, high_watermark=log.log_end_offset)
        assert list(again.active_producers()) == expected
        assert again.last_stable_offset == stable
        assert again.aborted_transactions(0, 999)[0] == aborted


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("damage", [b"torn", b"\xff" * 34])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_a_damaged_transaction_index_is_made_anew(segment: int, damage: bytes, clean: bool) -> None:
    """A power loss can damage it, below the recovery point too. Found by the simulation of a whole cluster."""
    disk = MemoryDisk()
    log = open_log(disk, config(segment_bytes=500))
    for i in range(12):
        log.append_as_leader(
            batch_of([b"a" * 50], producer_id=1, producer_epoch=0, base_sequence=i, is_transactional=True),
            0,
            NOW_MS,
        )
        log.append_as_leader(marker(1, committed=i % 3 == 0), 0, NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, log.log_end_offset)[0]
    assert len(aborted) == 8
    log.close()
    names = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")]
    assert len(names) >= 3
    disk.files[f"{DIRECTORY}/{names[segment]}"] += damage
    notes: list[str] = []
    parts = open_directory(
        disk, DIRECTORY, config(), NOW_MS, clean=clean, recovery_point=log.log_end_offset, note=notes.append
    )
    assert any(names[segment] in note for note in notes)
    again = UnifiedLog(disk, DIRECTORY, TopicPartition("t", 0), TOPIC_ID, config(), parts)
    assert again.log_end_offset == log.log_end_offset
    assert again.aborted_transactions(0, log.log_end_offset)[0] == aborted
    again.close()
    for name in names:
        assert len(disk.files[f"{DIRECTORY}/{name}"]) % 34 == 0


def test_a_damaged_snapshot_is_replaced_by_replay() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for i in range(40):
        log.append_as_leader(
            batch_of([b"b" * 50], producer_id=2, producer_epoch=0, base_sequence=i), 0, NOW_MS
        )
    expected = list(log.active_producers())
    log.close()
    for path in disk.files:
        if path.endswith(".snapshot"):
            disk.files[path][-1] ^= 1
    assert list(open_log(disk, clean=True).active_producers()) == expected


def test_a_log_that_a_truncation_left_without_a_batch_below_its_end_begins_at_its_start() -> None:
    """In a compacted log the batch at the end was cleaned away, and the remaining ones are below the start."""
    disk = MemoryDisk()
    log = open_log(disk)
    for offset in (0, 5):
        record = Record(0, NOW_MS, None, b"%d" % offset)
        log.append_as_follower(build_batch([record], base_offset=offset, leader_epoch=0), 0)
    log.set_high_watermark(6)
    log.increment_log_start_offset(5)
    log.truncate_to(5)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    log.close()
    again = open_log(disk, clean=True, log_start_offset=5, recovery_point=log.recovery_point)
    assert (again.log_start_offset, again.log_end_offset) == (5, 5)
    assert all_values(again) == []
    assert again.append_as_leader(batch_of([b"x"]), 1, NOW_MS).first_offset == 5


def test_what_was_cut_off_does_not_come_back_in_the_place_of_synced_records() -> None:
    """A segment begins right where the log was cut, so it does not have what was cut off."""
    disk = MemoryDisk()
    log = open_log(disk)
    for value in (b"0", b"1", b"old", b"older"):
        log.append_as_leader(batch_of([value]), 0, NOW_MS)
    log.flush()
    log.truncate_to(2)
    log.roll(2, NOW_MS)
    log.append_as_leader(batch_of([b"new"]), 1, NOW_MS)
    log.flush()
    again = open_log(disk.lose_power(kept=("/logs",)), recovery_point=log.recovery_point)
    assert all_values(again) == [(0, b"0"), (1, b"1"), (2, b"new")]


@pytest.mark.parametrize("closed", [True, False])
def test_a_log_that_was_cut_to_nothing_stays_empty(closed: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_leader(batch_of([b"old"]), 0, NOW_MS)
    log.flush()
    log.truncate_to(0)
    if closed:
        log.close()
    else:
        log.flush()
    again = open_log(disk.lose_power(kept=("/logs",)), clean=closed)
    assert (again.log_end_offset, all_values(again)) == (0, [])


def test_what_a_start_has_cut_off_does_not_come_back() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for value in (b"0", b"1", b"torn"):
        log.append_as_leader(batch_of([value]), 0, NOW_MS)
    log.flush()
    with_tear = bytearray(disk.read_bytes(FIRST_LOG))
    with_tear[-1] ^= 1
    disk.files[FIRST_LOG] = with_tear
    first = open_log(disk, recovery_point=2)
    assert first.log_end_offset == 2
    first.roll(2, NOW_MS)
    first.append_as_leader(batch_of([b"new"]), 1, NOW_MS)
    first.flush()
    again = open_log(disk.lose_power(kept=("/logs",)), recovery_point=first.recovery_point)
    assert all_values(again) == [(0, b"0"), (1, b"1"), (2, b"new")]


def test_what_a_start_has_written_is_durable_with_the_next_sync() -> None:
    """Without its transaction index a segment has no aborted transactions: readers would get them as committed ones."""
    disk = MemoryDisk()
    log = open_log(disk)
    options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    log.append_as_leader(batch_of([b"x"], **options), 0, NOW_MS)
    log.flush()
    log.append_as_leader(marker(1, committed=False), 3, NOW_MS)
    for _ in range(2):
        log.flush()
        disk = disk.lose_power(kept=("/logs",))
        log = open_log(disk, recovery_point=log.recovery_point)
        assert log.aborted_transactions(0, 10)[0] == [AbortedTransaction(1, 0)]
        assert log.epoch_entries[:2] == [(0, 0), (3, 1)]
        log.roll(log.log_end_offset, NOW_MS)
        log.append_as_leader(batch_of([b"y"]), 4, NOW_MS)
