"""Aborted transactions of a read: none is missing, none is far beyond the slice, and few files are read for them."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from kafkacompat.log._tests.logs import NOW_MS, batch_of, config, marker, open_log
from kafkacompat.log._tests.memory_disk import CountingDisk, MemoryDisk
from kafkacompat.log.index import MAX_OFFSET, OffsetIndex
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import BatchHeader, iterate_batches, stamp_offset_and_epoch
from kafkacompat.records.read import records_of

SMALL_SEGMENTS = config(segment_bytes=700, index_interval_bytes=150)


class Event(NamedTuple):
    """A batch of records, or a marker."""

    first_offset: int
    last_offset: int
    producer_id: int
    committed: bool | None
    """None for records."""


@dataclass
class Writer:
    """A log, and the batches written to it."""

    log: UnifiedLog
    events: list[Event] = field(default_factory=list)

    def write(self, producer_id: int, records: int = 1) -> None:
        first = self.log.log_end_offset
        options: dict[str, object] = {}
        if producer_id >= 0:
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sum(
                    one.last_offset - one.first_offset + 1
                    for one in self.events
                    if one.producer_id == producer_id and one.committed is None
                ),
                "is_transactional": True,
            }
        self.log.append_as_leader(
            batch_of([b"%d" % (first + at) for at in range(records)], **options), 0, NOW_MS
        )
        self.events.append(Event(first, first + records - 1, producer_id, None))

    def end(self, producer_id: int, *, committed: bool) -> None:
        if producer_id in self._transactions()[1]:
            offset = self.log.log_end_offset
            self.log.append_as_leader(marker(producer_id, committed=committed), 0, NOW_MS)
            self.events.append(Event(offset, offset, producer_id, committed))

    def abort(self, producer_id: int) -> None:
        self.write(producer_id)
        self.end(producer_id, committed=False)

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        self.events = [one for one in self.events if one.last_offset < self.log.log_end_offset]

    def _transactions(self) -> tuple[list[tuple[int, int, int]], dict[int, int]]:
        """(producer id, first offset, marker's offset) of the aborted, producer id -> first offset of the open ones."""
        aborted, opened = [], {}
        for one in self.events:
            if one.committed is not None:
                first = opened.pop(one.producer_id)
                if not one.committed:
                    aborted.append((one.producer_id, first, one.first_offset))
            elif one.producer_id >= 0:
                opened.setdefault(one.producer_id, one.first_offset)
        return aborted, opened

    def overlapping(self, first: int, last: int) -> list[tuple[int, int]]:
        """Aborted transactions with an offset within [first, last]."""
        return [
            (pid, begun) for pid, begun, ended in self._transactions()[0] if ended >= first and begun <= last
        ]

    def committed(self, start: int, end: int) -> list[tuple[int, bytes]]:
        aborted = self._transactions()[0]
        return [
            (offset, b"%d" % offset)
            for one in self.events
            if one.committed is None
            and not any(
                pid == one.producer_id and begun <= one.first_offset < ended for pid, begun, ended in aborted
            )
            for offset in range(max(one.first_offset, start), min(one.last_offset + 1, end))
        ]


def read_slice(
    log: UnifiedLog, offset: int, max_bytes: int, most: int = MAX_OFFSET
) -> tuple[list[tuple[BatchHeader, bytes]], list[tuple[int, int]], int]:
    """The complete batches of a read up to the stable offset, (producer id, first offset) of the aborted transactions
    returned, and the bound."""
    read = log.read(offset, max_bytes, log.last_stable_offset, True)
    aborted, end_offset = log.aborted_transactions(offset, read.end_offset, most)
    if end_offset < read.end_offset:
        read = log.read(offset, max_bytes, end_offset, True)
        assert read.end_offset == end_offset
    assert isinstance(read.records, FileSlice)
    data = read.records.read()
    batches = [
        (header, data[header.position : header.position + header.size]) for header in iterate_batches(data)
    ]
    told = [(one.producer_id, one.first_offset) for one in aborted]
    assert told == sorted(told, key=lambda one: one[1])
    return batches, told, read.end_offset


def consume(
    log: UnifiedLog, offset: int, max_bytes: int, most: int = MAX_OFFSET
) -> list[tuple[int, bytes | None]]:
    """The records that a read_committed consumer gets from an offset to the last stable one, filtered as clients do."""
    found: list[tuple[int, bytes | None]] = []
    while offset < log.last_stable_offset:
        batches, told, _ = read_slice(log, offset, max_bytes, most)
        aborted: set[int] = set()
        for header, batch in batches:
            while told and told[0][1] <= header.last_offset:
                aborted.add(told.pop(0)[0])
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [(at, record.value) for at, record in records_of(batch, header) if at >= offset]
            offset = max(offset, header.last_offset + 1)
    return found


def test_a_slice_is_told_of_its_own_aborted_transactions_only() -> None:
    """A list of all aborted transactions up to the last stable offset would have no bound, and no byte limit counts
    it."""
    writer = Writer(open_log(MemoryDisk(), config(segment_bytes=100_000)))
    for _ in range(1000):
        writer.abort(7)
    log = writer.log
    log.set_high_watermark(log.log_end_offset)
    for offset in (0, 600, 1990):
        batches, told, end_offset = read_slice(log, offset, 300)
        assert 0 < end_offset - batches[-1][0].last_offset <= 5
        assert len(told) <= len(batches) + 2
        assert set(told) >= set(writer.overlapping(offset, batches[-1][0].last_offset))
    assert len(read_slice(log, 0, 1 << 30)[1]) < 1000, "more than one segment"


def test_a_slice_with_very_many_aborted_transactions_becomes_shorter() -> None:
    """Each costs the time of naming it, whatever the bytes."""
    writer = Writer(open_log(MemoryDisk(), config(segment_bytes=1_000_000)))
    for _ in range(1000):
        writer.abort(7)
    log = writer.log
    log.set_high_watermark(log.log_end_offset)
    offset = slices = 0
    while offset < log.log_end_offset:
        batches, told, end_offset = read_slice(log, offset, 1 << 30, 100)
        assert (len(batches), len(told)) == (200, 100)
        assert end_offset == offset + 200
        offset, slices = end_offset, slices + 1
    assert slices == 10
    assert len(read_slice(log, 0, 1 << 30, 1000)[1]) == 1000


def test_aborted_transactions_that_were_open_together_are_all_reported() -> None:
    writer = Writer(open_log(MemoryDisk(), SMALL_SEGMENTS))
    for producer_id in range(50):
        writer.write(producer_id)
    for producer_id in range(50):
        writer.end(producer_id, committed=False)
    log = writer.log
    log.set_high_watermark(log.log_end_offset)
    assert len(read_slice(log, 49, 1, 5)[1]) == 50
    assert consume(log, 0, 1 << 20, 5) == []


def test_transactions_that_reach_over_a_slice_are_told_of() -> None:
    """A transaction begins before the slice and ends after it, several segments on either side."""
    writer = Writer(open_log(MemoryDisk(), SMALL_SEGMENTS))
    writer.write(1)
    for _ in range(30):
        writer.write(-1)
    middle = writer.log.log_end_offset
    for _ in range(30):
        writer.write(-1)
    writer.end(1, committed=False)
    for _ in range(30):
        writer.abort(2)
    log = writer.log
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) > 10
    assert read_slice(log, middle, 100)[1] == [(1, 0)]
    log.close()
    log = open_log(log._disk, SMALL_SEGMENTS, clean=True, high_watermark=log.high_watermark)
    assert read_slice(log, middle, 100)[1] == [(1, 0)]


@pytest.mark.parametrize("reopened", [False, True])
def test_reading_on_looks_into_few_transaction_indexes(reopened: bool) -> None:
    disk = CountingDisk()
    writer = Writer(open_log(disk, SMALL_SEGMENTS))
    for number in range(300):
        # Some segments have no aborted transaction, and some transactions span segments.
        (writer.abort if number % 50 < 25 else writer.write)(number % 3 if number % 50 < 25 else -1)
        if number % 10 == 0:
            writer.write(8)
        elif number % 10 == 9:
            writer.end(8, committed=False)
    log = writer.log
    log.set_high_watermark(log.log_end_offset)
    if reopened:
        log.close()
        log = open_log(disk, SMALL_SEGMENTS, clean=True, high_watermark=log.high_watermark)
    disk.opened.clear()
    assert consume(log, 0, 90) == writer.committed(0, log.last_stable_offset)
    looked_into = {path: count for path, count in disk.opened.items() if path.endswith(".txnindex")}
    assert max(looked_into.values(), default=0) <= 1, "each page stays in the cache"
    assert all(path in disk.files for path in looked_into), "none is looked for that is not there"


def test_a_flush_syncs_indexes_that_were_let_go_of_meanwhile() -> None:
    """Otherwise a crash of the machine could lose aborted transactions of a segment that recovery does not check."""
    disk = MemoryDisk()
    writer = Writer(open_log(disk, SMALL_SEGMENTS))
    for _ in range(60):
        writer.abort(7)
    writer.log.set_high_watermark(writer.log.log_end_offset)
    consume(writer.log, 0, 90)
    flush = writer.log.begin_flush()
    flush.run()
    files = [path for path in disk.files if path.endswith((".txnindex", ".index"))]
    assert files
    assert [path for path in files if disk.synced.get(path) != bytes(disk.files[path])] == []


def test_closed_segments_that_nobody_reads_keep_no_index_entries_in_memory() -> None:
    disk = MemoryDisk()
    log = open_log(disk, SMALL_SEGMENTS)
    writer = Writer(log)
    for _ in range(100):
        writer.abort(7)
    log.set_high_watermark(log.log_end_offset)

    def keeping() -> list[int]:
        """The segments that keep entries in memory, by position from the end."""
        return [
            at - len(log.segments)
            for at, segment in enumerate(log.segments)
            if segment._tail_offsets or segment.indexes.kept_bytes() or segment.aborted.index.kept_bytes
        ]

    assert len(log.segments) > 10
    assert keeping() == [-1]
    log.read(0, 100, log.log_end_offset, True)
    assert keeping() == [-1]
    writer.truncate(log.segments[-2].base_offset + 2)
    writer.write(-1)
    log.roll(log.log_end_offset, NOW_MS)
    assert keeping() == []
    log.set_high_watermark(log.log_end_offset)
    assert consume(log, 0, 500) == writer.committed(0, log.last_stable_offset)


def test_the_offset_index_gives_the_entry_at_or_after_a_position() -> None:
    index = OffsetIndex(100)
    assert index.offset_at(0) == -1
    for offset, position in ((110, 40), (120, 80), (130, 120)):
        index.append(offset, position)
    assert [index.offset_at(at) for at in (0, 40, 41, 80, 120, 121)] == [110, 110, 120, 120, 130, -1]


@pytest.mark.parametrize("seed", range(60))
def test_every_slice_is_told_of_all_that_overlaps_it(seed: int) -> None:
    """Across segments, restarts (clean and unclean), truncations, and indexes dropped from memory and read again."""
    chance = random.Random(seed)
    disk = MemoryDisk()
    settings = config(
        segment_bytes=chance.choice([200, 400, 900]), index_interval_bytes=chance.choice([1, 150, 4000])
    )
    writer = Writer(open_log(disk, settings))
    for _ in range(200):
        log = writer.log
        step = chance.random()
        if step < 0.6:
            writer.write(chance.randrange(-1, 4), chance.randrange(1, 5))
        elif step < 0.9:
            writer.end(chance.randrange(4), committed=chance.random() < 0.4)
        elif step < 0.92:
            log.close()
            writer.log = open_log(disk, settings, clean=True, high_watermark=log.high_watermark)
        elif step < 0.94:
            log.flush()
            writer.log = open_log(
                disk,
                settings,
                recovery_point=chance.randrange(log.log_end_offset + 1),
                high_watermark=log.high_watermark,
            )
        elif step < 0.97:
            writer.truncate(max(log.log_end_offset - chance.randrange(1, 20), log.high_watermark))
        else:
            log.set_high_watermark(chance.choice([0, *(one.last_offset + 1 for one in writer.events)]))
            _check_slices(writer, chance.randrange(log.last_stable_offset + 1), chance.randrange(1, 900))
    writer.log.set_high_watermark(writer.log.log_end_offset)
    for most in (1, 2, 5, MAX_OFFSET):
        _check_slices(writer, 0, chance.randrange(1, 9_000), most)


def _check_slices(writer: Writer, offset: int, max_bytes: int, most: int = MAX_OFFSET) -> None:
    log = writer.log
    stable = log.last_stable_offset
    assert consume(log, offset, max_bytes, most) == writer.committed(offset, stable)
    while offset < stable:
        batches, told, end_offset = read_slice(log, offset, max_bytes, most)
        last = batches[-1][0].last_offset
        assert last < end_offset <= stable
        assert set(told) >= set(writer.overlapping(offset, last))
        assert set(told) == set(writer.overlapping(offset, end_offset - 1))
        offset = last + 1


class ShortDisk(MemoryDisk):
    """While `short`, no file descriptor is left for files of aborted transactions."""

    short = False

    def file_size(self, path: str) -> int:
        if self.short and path.endswith(".txnindex"):
            raise OSError(errno.EMFILE, "too many open files", path)
        return super().file_size(path)


@pytest.mark.parametrize("follows", [False, True])
def test_an_abort_whose_index_cannot_be_opened_changes_nothing(follows: bool) -> None:
    """Otherwise its records would appear as committed: a repeated marker finds no open transaction any more."""
    disk, big = ShortDisk(), config(segment_bytes=1 << 20)
    log = open_log(disk, big)
    log.append_as_leader(
        batch_of([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True), 0, NOW_MS
    )
    log.close()
    log = open_log(disk, big, clean=True)

    def abort() -> None:
        batch = marker(7, committed=False)
        if follows:
            stamp_offset_and_epoch(batch.buffer, 1, 0)
            log.append_as_follower(bytes(batch.buffer), 0)
        else:
            log.append_as_leader(batch, 0, NOW_MS)

    disk.short = True
    with pytest.raises(OSError, match="too many open files"):
        abort()
    disk.short = False
    assert log.log_end_offset == 1
    abort()
    assert [one.producer_id for one in log.aborted_transactions(0, 2)[0]] == [7]
    assert [header.base_offset for header in log.segments[-1].headers()] == [0, 1]
