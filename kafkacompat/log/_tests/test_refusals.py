"""A disk that refuses each operation of the Disk port, from the first or a later time on, during everything that a log
manager does. One directory refuses and the other one serves. No caller gets an exception; nothing acknowledged is lost
or mixed up."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

import pytest

from kafkacompat.ids import ZERO_UUID, TopicPartition
from kafkacompat.log._tests.disks import CONFIG, DIRECTORY_IDS, Broker, append, carry_out, refusing
from kafkacompat.log._tests.logs import NOW_MS, TOPIC_ID, all_values, batch_of, config, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.cleaner._tests.cleaning import LIMITS
from kafkacompat.log.cleaner.log_cleaner import LogCleaner
from kafkacompat.log.flush import make_durable
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.log.upkeep import LogUpkeep
from kafkacompat.ports import LogRefused, Plan
from kafkacompat.ports.files import OPERATIONS

ERRORS = (errno.EIO, errno.EROFS, errno.EMFILE)
NAME = TopicPartition("t", 0)
FILLED = 40


@functools.cache
def filled_disk() -> MemoryDisk:
    """Four partitions of several segments, each partly unsynced."""
    broker = Broker(MemoryDisk())
    for number in range(4):
        append(broker.log(number), FILLED)
    for log in broker.manager.logs.values():
        log.flush()
    for number in range(4):
        append(broker.log(number), 5 + 25 * (number == 1))
    return broker.disk


def filled() -> Broker:
    broker = Broker(filled_disk().copy())
    for log in broker.manager.logs.values():
        flush = log.begin_making_durable()
        assert make_durable([flush]) == [None]
        log.finish_flush(flush)
        log.set_high_watermark(log.log_end_offset)  # below it, retention and requests may delete
    return broker


def run(plan: Plan | None) -> None:
    if plan is not None:
        plan.run()
        plan.finish()


# The operations of a broker, as its shells run them: the manager is told of a log's OSError.

Deed = Callable[[Broker, UnifiedLog], None]


def append_or_tell(broker: Broker, log: UnifiedLog) -> None:
    try:
        append(log, 3)
    except OSError as error:
        broker.manager.log_failed(log, error)


def follow(broker: Broker, log: UnifiedLog) -> None:
    source = broker.manager.logs[TopicPartition("t", 1)]
    records = source.read(log.log_end_offset, 2000, source.log_end_offset, True).records
    assert not isinstance(records, bytes)
    log.append_as_follower(records.read(), 4)


def make(broker: Broker, log: UnifiedLog) -> None:
    append_or_tell(broker, broker.log(4))


def make_prepared(broker: Broker, log: UnifiedLog) -> None:
    prepared = broker.manager.prepare(TopicPartition("t", 4), TOPIC_ID, DIRECTORY_IDS[0])
    prepared.run()
    if not broker.manager.place(prepared, CONFIG):
        broker.log(4)


def claim(broker: Broker, log: UnifiedLog) -> None:
    log.topic_id = ZERO_UUID
    broker.log(0)


def retain(broker: Broker, log: UnifiedLog) -> None:
    log.config = config(retention_bytes=1500)
    whole = LogUpkeep(broker.manager).begin_retention(NOW_MS)
    while (step := whole.next()) is not None:
        step.run()
        step.finish()


def drop_deleted_records(broker: Broker, log: UnifiedLog) -> None:
    try:
        log.increment_log_start_offset(FILLED // 2)
    except OSError as error:
        broker.manager.log_failed(log, error)
    whole = LogUpkeep(broker.manager).begin_retention(NOW_MS)
    while (step := whole.next()) is not None:
        step.run()
        step.finish()


def flush(broker: Broker, log: UnifiedLog) -> None:
    log.config = config(flush_ms=1)
    upkeep = LogUpkeep(broker.manager)
    for place in upkeep.places():
        run(upkeep.flush_closed_segments(place))
        run(upkeep.flush_overdue(place, 1000))


def checkpoint(broker: Broker, log: UnifiedLog) -> None:
    upkeep = LogUpkeep(broker.manager)
    run(upkeep.checkpoint_high_watermarks())
    run(upkeep.checkpoint_recovery_points())
    run(upkeep.checkpoint_log_starts())


def delete_and_make_anew(broker: Broker, log: UnifiedLog) -> None:
    """A new topic of the same name never has the records of the old one."""
    broker.manager.delete_later(NAME)
    again = broker.manager.get_or_create(NAME, b"\x08" * 16, CONFIG, DIRECTORY_IDS[0])
    assert again.log_end_offset == 0
    append_or_tell(broker, again)


def copy_and_promote(broker: Broker, log: UnifiedLog) -> None:
    future = broker.manager.begin_future(NAME, broker.manager.directories[1])
    try:
        copy_all(log, future)
    except OSError as error:
        broker.manager.log_failed(log, error)
    else:
        try:
            promoted = broker.manager.promote_future(NAME)
            promoted.flush()
        except OSError as error:
            broker.manager.partition_failed(NAME, error)
        else:
            run(broker.manager.retire_predecessor(promoted))


def copy_all(log: UnifiedLog, future: UnifiedLog) -> None:
    while future.log_end_offset < log.log_end_offset:
        read = log.read(future.log_end_offset, 2000, log.log_end_offset, True).records
        assert not isinstance(read, bytes)
        future.append_as_follower(read.read(), 4)


def copy_back_and_give_up(broker: Broker, log: UnifiedLog) -> None:
    """Copy into the directory that refuses, and discard the copy."""
    name = TopicPartition("t", 1)
    future = broker.manager.begin_future(name, broker.manager.directories[0])
    try:
        source = broker.manager.logs[name]
        read = source.read(0, 2000, source.log_end_offset, True).records
        assert not isinstance(read, bytes)
        future.append_as_follower(read.read(), 4)
    except OSError as error:
        broker.manager.future_failed(name, error)
    broker.manager.discard_future(name)


def clean(broker: Broker, log: UnifiedLog) -> None:
    log.config = config(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    cleaner = LogCleaner(
        broker.manager, broker.disk, lambda: LIMITS, lambda: lambda size: None, broker.notes.append
    )
    cleaning = cleaner.begin(NOW_MS)
    while cleaning is not None and not cleaning.done:
        cleaning.run()
        cleaning.finish(NOW_MS)


def delete_and_remove(broker: Broker, log: UnifiedLog) -> None:
    broker.manager.delete_later(NAME)
    run(LogUpkeep(broker.manager).remove_expired_deletions(1 << 40))


def stop(broker: Broker, log: UnifiedLog) -> None:
    broker.manager.shut_down(7)


def lead(broker: Broker, log: UnifiedLog) -> None:
    append(log, 30)


def truncate(broker: Broker, log: UnifiedLog) -> None:
    log.truncate_to(FILLED // 2)


def start_anew(broker: Broker, log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(1000)


def delete_records(broker: Broker, log: UnifiedLog) -> None:
    log.increment_log_start_offset(FILLED // 2)


OF_A_LOG = (lead, follow, truncate, start_anew, delete_records)
"""Operations that a log may refuse with OSError. The caller tells the manager."""
KEEPING: tuple[Deed, ...] = (
    lead,
    follow,
    make,
    make_prepared,
    claim,
    flush,
    checkpoint,
    copy_and_promote,
    copy_back_and_give_up,
    clean,
    stop,
    lambda broker, log: broker.manager.log_dirs() and None,
)
"""Operations that keep every record."""
DROPPING: tuple[Deed, ...] = (
    truncate,
    start_anew,
    retain,
    drop_deleted_records,
    delete_records,
    delete_and_make_anew,
    delete_and_remove,
    lambda broker, log: broker.manager.mark_stray(NAME),
)


class Refusing:
    """Refuses operations in /a from the given time on. With never, it only counts."""

    def __init__(self, operation: str, error: int, after: int) -> None:
        self.operation, self.error, self.after = operation, error, after
        self.seen = 0

    def __call__(self, asked: str, path: str) -> OSError | None:
        if asked != self.operation or not path.startswith("/a"):
            return None
        self.seen += 1
        return OSError(self.error, f"{asked} is refused", path) if self.seen > self.after else None


NEVER = 1 << 30


def assert_sound(log: UnifiedLog, *, is_cleaned: bool = False) -> None:
    """Each record of `append` contains its own offset, and all have one key."""
    values = all_values(log)
    offsets, every = [offset for offset, _ in values], range(log.log_start_offset, log.log_end_offset)
    assert offsets[-1:] == list(every[-1:]) if is_cleaned else offsets == list(every)
    assert all(value == b"%d" % offset * 20 for offset, value in values)


def ends(broker: Broker) -> dict[TopicPartition, int]:
    return {name: log.log_end_offset for name, log in broker.manager.logs.items()}


def attempt(deed: Deed, broker: Broker, refuse: Refusing) -> None:
    log = broker.manager.logs[NAME]
    broker.disk.refuse = refuse
    try:
        deed(broker, log)
    except LogRefused:
        pass
    except OSError as failure:
        assert deed in OF_A_LOG, "a log manager keeps what the disk refuses to itself"
        broker.manager.log_failed(log, failure)
    broker.disk.refuse = None


@pytest.mark.parametrize("deed", [*KEEPING, *DROPPING])
def test_one_directory_refuses(deed: Deed) -> None:
    for operation in sorted(OPERATIONS):
        count = Refusing(operation, 0, NEVER)
        attempt(deed, filled(), count)
        for after in sorted({0, 1, 2, count.seen // 2, count.seen - 1}):
            for error in ERRORS if 0 <= after < count.seen else ():
                broker = filled()
                before = ends(broker)
                if operation == "sync":
                    # A failed sync may lose the data it covered. Data synced earlier is kept.
                    before[NAME] = before[TopicPartition("t", 2)] = FILLED
                attempt(deed, broker, Refusing(operation, error, after))
                assert_goes_on(deed, broker, before)


def assert_goes_on(deed: Deed, broker: Broker, before: dict[TopicPartition, int]) -> None:
    manager = broker.manager
    assert manager.directories[1].online
    acknowledged = ends(broker)
    for log in list(manager.logs.values()):
        if log.log_end_offset < 1000 and not log.config.compact:
            assert_sound(log)
            append(log, 1)
            assert_sound(log)
    if manager.get(NAME) is not None and manager.logs[NAME].config.compact:
        return
    # Then a kill, and a disk that works.
    again = broker.restarted()
    topic_id = b"\x08" * 16 if deed is delete_and_make_anew else TOPIC_ID
    again.manager.settle_rivals(lambda topic: topic_id)
    assert again.online == [True, True], again.notes
    for log in again.manager.logs.values():
        log.config = CONFIG  # what the metadata tell
    for name, end in before.items():
        found = again.manager.logs.get(name)
        if name != NAME or deed in KEEPING:
            assert found is not None, (name, again.notes)
            assert found.log_end_offset >= max(end, acknowledged.get(name, 0))
        if found is not None and found.log_end_offset < 1000:
            assert_sound(found, is_cleaned=deed is clean and name == NAME)
    if deed is delete_and_make_anew and NAME in acknowledged:
        made = again.manager.logs[NAME]
        assert (made.topic_id, made.log_end_offset) == (topic_id, acknowledged[NAME] + 1)


@pytest.mark.parametrize("left", [(), (".index",), (".timeindex",)])
def test_a_pass_of_retention_ends_where_somebody_has_removed_the_files(left: tuple[str, ...]) -> None:
    """An operator has made room by hand."""
    broker = filled()
    log, first = broker.manager.logs[NAME], broker.manager.logs[NAME].segments[0]
    for path in [
        path for path in broker.disk.files if path.startswith(first.stem) and not path.endswith(left)
    ]:
        broker.disk.remove(path)
    log.config = config(retention_bytes=1500)
    whole = LogUpkeep(broker.manager).begin_retention(NOW_MS)
    steps = 0
    while (step := whole.next()) is not None:
        step.run()
        step.finish()
        steps += 1
        assert steps < 10
    assert log.segments[0] is not first
    assert log.log_start_offset == log.segments[0].base_offset
    assert_sound(log)
    assert broker.online == [True, True]


NEED_A_DESCRIPTOR = "open create sync_directory list_directory read_bytes write_atomic"


@pytest.mark.parametrize("deed", [truncate, start_anew])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_truncation_without_descriptors_is_refused_before_it_begins(deed: Deed, is_open: bool) -> None:
    """A lack of descriptors takes no directory offline."""
    broker = filled()
    log = broker.manager.logs[NAME]
    before = all_values(log) if is_open else []  # its files are open then, and its indexes are in memory
    broker.disk.refuse = refusing(NEED_A_DESCRIPTOR, "/a", errno.EMFILE)
    with pytest.raises(OSError, match="refused") as refused:
        deed(broker, log)
    broker.manager.log_failed(log, refused.value)
    broker.disk.refuse = None
    assert broker.online == [True, True]
    assert broker.manager.logs[NAME] is log
    assert all_values(log) == before or not is_open
    deed(broker, log)
    assert log.log_end_offset in (FILLED // 2, 1000)


@pytest.mark.parametrize("stops", [1, 2])
def test_a_partition_that_could_not_be_opened_is_recovered_once_it_can(stops: int) -> None:
    """Its directory was stopped cleanly meanwhile. That proves nothing about a log that was not opened."""
    broker = Broker(MemoryDisk())
    log, other = broker.log(0), broker.log(2)
    log.flush()
    append(other, 3)
    append(log, 20)
    log.flush()
    log.increment_log_start_offset(5)
    broker.manager.checkpoint_now()
    append(log, 20)
    log.roll(40, NOW_MS)
    append(log, 1)
    disk = broker.disk.copy()
    assert log.segments[-2].base_offset >= log.recovery_point
    disk.files[f"{log.segments[-2].stem}.log"][-10] ^= 0xFF  # what a power loss may do to unsynced bytes
    for _ in range(stops):
        disk.refuse = refusing("file_size", "/a/t-0", errno.EISDIR)
        without = Broker(disk)
        assert without.online == [True, True]
        assert list(without.manager.logs) == [TopicPartition("t", 2)]
        without.manager.checkpoint_now()
        without.manager.shut_down(7)
        disk.refuse = None
        disk = disk.copy()
    again = Broker(disk)
    assert again.manager.previous_broker_epoch == -1
    found = again.manager.logs[TopicPartition("t", 0)]
    assert (found.log_start_offset, found.log_end_offset) == (5, 39)
    assert [offset for offset, _ in all_values(found)][-1] == 38


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_log_damaged_while_it_is_served_keeps_no_other_from_a_clean_stop(is_mended: bool) -> None:
    """Its indexes wait to be rebuilt, or cannot be."""
    broker = Broker(MemoryDisk())
    log, others = broker.log(0), [broker.log(number) for number in (1, 2, 3)]
    for each in (log, *others):
        each.flush()
        append(each, 20)
    broker.disk.files[f"{log.segments[-1].stem}.log"][:100] = bytes(100)
    with pytest.raises(LogRefused):
        log.segments[-1].report_damage()
    if is_mended:
        carry_out(LogUpkeep(broker.manager).rebuild_indexes())
    broker.manager.shut_down(7)
    again = broker.restarted()
    assert again.manager.previous_broker_epoch == -1
    ends = [again.manager.logs[TopicPartition("t", number)].log_end_offset for number in range(4)]
    assert ends[1:] == [20] * 3
    assert any("/b" in path and path.endswith("cleanshutdown") for path in broker.disk.files)
    assert not any("/a" in path and path.endswith("cleanshutdown") for path in broker.disk.files)
    assert any("/a was not closed cleanly" in note for note in broker.notes)


def test_what_a_roll_has_closed_is_synced_also_where_its_snapshot_has_no_room() -> None:
    """After a power loss the disk may have later data and lack earlier data, and no start would detect the gap."""
    broker = Broker(MemoryDisk())
    log, upkeep = broker.log(0), LogUpkeep(broker.manager)
    log.flush()
    append(log, 1)
    broker.disk.failing = ".snapshot"
    with pytest.raises(OSError, match="full"):
        append(log, FILLED)
    broker.disk.failing = None
    append(log, 1)
    assert len(log.segments) == 2
    carry_out(upkeep.flush_rolled("/a"))
    assert log.recovery_point == log.segments[-1].base_offset
    again = broker.restarted(power_lost=True).log(0)
    assert again.log_end_offset >= log.recovery_point


@pytest.mark.parametrize("then", ["close the file", "read", "roll", "stop"])
@pytest.mark.parametrize("leads", [True, False])
def test_what_a_failed_write_has_left_behind_is_not_written_after(leads: bool, then: str) -> None:
    """The disk takes half of a batch and does not let go of it. Then the file is closed, for other logs to be opened."""
    disk = MemoryDisk()
    log = open_log(disk)
    path = log.segments[-1].stem + ".log"

    def write(value: bytes) -> None:
        batch = batch_of([value], base_offset=log.log_end_offset)
        if leads:
            log.append_as_leader(batch, 0, NOW_MS)
        else:
            log.append_as_follower(batch.buffer, 0)

    def half(operation: str, on: str) -> OSError | None:
        if operation != "write" or on != path:
            return None
        disk.files[path] += b"half of a batch"
        return OSError(errno.ENOSPC, "refused", on)

    write(b"before")
    disk.refuse = half
    with pytest.raises(OSError, match="refused"):
        write(b"refused")
    disk.refuse = None
    if then == "roll":
        log.roll(log.log_end_offset, NOW_MS)
    elif then == "stop":
        log.close()
        log = open_log(disk, clean=True)
    else:
        log.segments[-1].release()
    if then == "read":
        assert all_values(log) == [(0, b"before")]
    write(b"after")
    expected = [(0, b"before"), (1, b"after")]
    assert all_values(log) == expected
    assert all_values(open_log(disk.copy())) == expected
    log.close()
    assert all_values(open_log(disk, clean=True)) == expected
