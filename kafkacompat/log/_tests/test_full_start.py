"""A start on a full disk: its data is readable, and the active segment's indexes stay in memory. Kafka takes the
directory offline."""

from __future__ import annotations

import errno

import pytest

from kafkacompat.log._tests.disks import Broker, append, refusing
from kafkacompat.log._tests.logs import NOW_MS, all_values, batch_of, config, index_files, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.index import PAGE_BYTES
from kafkacompat.log.unified_log import UnifiedLog

DENSE = config(segment_bytes=1 << 20, index_interval_bytes=1)
WRITES = "write write_atomic"


def killed(count: int) -> MemoryDisk:
    """A log of `count` batches in one segment, with an aborted transaction among them, whose indexes were in memory."""
    disk = MemoryDisk()
    log = open_log(disk, DENSE)
    transactional = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    log.append_as_leader(batch_of([b"x"], base_sequence=0, **transactional), 4, NOW_MS)
    log.append_as_leader(marker(7, committed=False), 4, NOW_MS)
    fill(log, count)
    return disk.copy()


def fill(log: UnifiedLog, count: int) -> None:
    for at in range(count):
        log.append_as_leader(batch_of([b"%d" % at], NOW_MS + at), 4, NOW_MS)
    log.set_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("count", [3, PAGE_BYTES // 8 + 10])
def test_an_active_segment_is_recovered_without_room(count: int) -> None:
    """Also if its indexes have pages that a start would write."""
    disk = killed(count)
    expected = all_values(open_log(disk.copy(), DENSE))
    disk.refuse = refusing(WRITES, "/", errno.ENOSPC)
    log = open_log(disk, DENSE)
    log.set_high_watermark(log.log_end_offset)
    assert all_values(log) == expected
    assert log.read(count, 1, log.log_end_offset, True).records
    assert [each.producer_id for each in log.aborted_transactions(0, 5)[0]] == [7]
    with pytest.raises(OSError, match="refused"):
        fill(log, 1)
    assert log.recovery_point == 0
    # Another kill loses nothing that is in memory only. It is written once there is space.
    assert all_values(open_log(disk.copy(), DENSE)) == expected
    disk.refuse = None
    fill(log, count)
    log.close()
    again = open_log(disk, DENSE, clean=True, recovery_point=log.recovery_point)
    assert all_values(again) == all_values(log)
    assert [each.producer_id for each in again.aborted_transactions(0, 5)[0]] == [7]
    kept = index_files(disk)
    open_log(disk, DENSE)
    assert index_files(disk) == kept


def test_closed_segments_are_recovered_without_their_snapshots() -> None:
    """Snapshots only shorten a later start."""
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, 40)
    assert len(log.segments) > 2
    disk = disk.copy()
    disk.refuse = refusing("write_atomic", "/", errno.ENOSPC)
    assert all_values(open_log(disk)) == all_values(log)


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_disk_that_is_broken_is_no_full_one(number: int) -> None:
    disk = killed(3)
    disk.refuse = refusing(WRITES, "/", number)
    with pytest.raises(OSError, match="refused"):
        open_log(disk, DENSE)


@pytest.mark.parametrize(("number", "operations"), [(errno.ENOSPC, WRITES), (errno.EMFILE, "open")])
def test_a_partition_that_cannot_be_opened_for_want_of_room_is_offline_alone(
    number: int, operations: str
) -> None:
    broker = Broker(MemoryDisk())
    for each in range(4):
        append(broker.log(each), 40)
    disk = broker.disk.copy()
    # The indexes of a closed segment must be in their files.
    disk.refuse = refusing(operations, "/a/t-2", number)
    started = Broker(disk)
    assert started.online == [True, True]
    assert sorted(name.partition for name in started.manager.logs) == [0, 1, 3]
    assert "/a/t-2 cannot be opened and is offline" in " ".join(started.notes)
    assert started.manager.previous_broker_epoch == -1
    again = started.restarted()
    assert all_values(again.log(2)) == all_values(broker.log(2))
