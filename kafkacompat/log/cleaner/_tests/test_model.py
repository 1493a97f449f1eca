"""Cleaned logs compared with a model: a cleaning changes nothing that a reader of last values can see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.log._tests.logs import all_values, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk, MemoryFile
from kafkacompat.log.cleaner._tests.cleaning import COMPACT, NOW_MS, append, batches, clean, new_log, records
from kafkacompat.log.cleaner.job import CleanerLimits
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.records.record import Record

KEYS = [b"", b"a", b"b", b"c", b"of sixteen bytes", b"a key that is longer than sixteen bytes"]
SHORT_KEYS = {key: key[2:20].ljust(1, b"e") for key in KEYS if len(key) != 1}
"""The same keys, shortened."""
Pairs = list[tuple[bytes | None, bytes | None]]


@dataclass
class Write:
    """A batch, or with `ends` the end of that producer's transaction."""

    pairs: Pairs
    codec: int = 0
    producer: int = -1
    transactional: bool = False
    ends: bool | None = None


pairs = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.binary(max_size=40), st.just(b"the same size always" * 3)),
    ),
    min_size=1,
    max_size=12,
)
write = st.one_of(
    st.builds(Write, pairs, st.integers(0, 4)),
    st.builds(Write, pairs, st.integers(0, 4), st.integers(1, 2)),
    st.builds(Write, pairs, st.just(0), st.integers(3, 4), st.just(True)),
    st.builds(Write, st.just([]), st.just(0), st.integers(3, 4), st.just(True), st.booleans()),
)


@dataclass
class History:
    """Writes into one log, with each producer's next sequence."""

    log: UnifiedLog
    sequences: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    names: dict[bytes | None, bytes] = field(default_factory=dict)

    def carry_out(self, one: Write) -> None:
        if one.ends is not None:
            if one.producer in self.open:
                self.open.discard(one.producer)
                self.log.append_as_leader(marker(one.producer, committed=one.ends), 0, NOW_MS)
                self.log.set_high_watermark(self.log.log_end_offset)
            return
        sequence = -1
        if one.producer >= 0:
            sequence = self.sequences.get(one.producer, 0)
            self.sequences[one.producer] = sequence + len(one.pairs)
        if one.transactional:
            self.open.add(one.producer)
        append(
            self.log,
            [(self.names.get(key, key), value) for key, value in one.pairs],
            compression=one.codec,
            producer_id=one.producer,
            producer_epoch=0 if one.producer >= 0 else -1,
            base_sequence=sequence,
            is_transactional=one.transactional,
        )

    def end_all(self) -> None:
        for producer in sorted(self.open):
            self.carry_out(Write([], producer=producer, transactional=True, ends=True))


def committed(log: UnifiedLog) -> list[tuple[int, Record]]:
    """The records of a read_committed consumer: aborted ones are dropped from their first offset to the producer's
    marker."""
    aborted = sorted(
        log.aborted_transactions(log.log_start_offset, log.log_end_offset)[0],
        key=lambda one: one.first_offset,
    )
    active: set[int] = set()
    shown = []
    by_offset = records(log)
    for header, _ in batches(log):
        while aborted and aborted[0].first_offset <= header.last_offset:
            active.add(aborted.pop(0).producer_id)
        if header.is_control:
            active.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in active):
            shown += [one for one in by_offset if header.base_offset <= one[0] <= header.last_offset]
    return shown


def last_of(found: Sequence[tuple[int, Record]]) -> dict[bytes | None, tuple[int, Record]]:
    return {record.key: (offset, record) for offset, record in found}


def plain(found: Sequence[tuple[int, Record]]) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """The records without their offset delta."""
    return [(offset, record.timestamp_ms, record.key, record.value) for offset, record in found]


def producers(log: UnifiedLog) -> list[tuple[int, int, int, int]]:
    return sorted(
        (one.producer_id, one.producer_epoch, one.last_sequence, one.current_transaction_first_offset)
        for one in log.active_producers()
    )


def check_agrees(log: UnifiedLog, before: list[tuple[int, Record]], *, tombstones_may_go: bool) -> None:
    now = committed(log)
    assert set(plain(now)) <= set(plain(before))
    offsets = [offset for offset, _ in now]
    assert offsets == sorted(set(offsets))
    wanted, got = last_of(before), last_of(now)
    for key, (offset, record) in wanted.items():
        if key in got:
            assert plain([got[key]]) == plain([(offset, record)])
        else:
            assert record.value is None
            assert tombstones_may_go
    assert got.keys() <= wanted.keys()
    ends = [header.last_offset for header, _ in batches(log)]
    assert ends == sorted(set(ends))
    shown = all_values(log)
    assert [offset for offset, _ in shown] == sorted({offset for offset, _ in shown})
    assert len(shown) == len(records(log))


@pytest.mark.costly
@settings(max_examples=120)
@given(
    st.lists(write, min_size=5, max_size=60),
    st.lists(write, max_size=25),
    st.sampled_from(
        [
            CleanerLimits(map_bytes=1 << 20, load_factor=0.9, io_bytes=4096),
            CleanerLimits(map_bytes=64, load_factor=0.9, io_bytes=1),
            CleanerLimits(map_bytes=16_000, load_factor=0.5, io_bytes=1),
        ]
    ),
    st.sampled_from([{}, SHORT_KEYS]),
)
def test_a_cleaned_log_shows_the_same_last_values(
    first: list[Write], second: list[Write], limits: CleanerLimits, names: dict[bytes | None, bytes]
) -> None:
    disk = MemoryDisk()
    history = History(new_log(disk), names=names)
    log = history.log
    for one in first:
        history.carry_out(one)
    before = committed(log) if not history.open else None
    known = producers(log)
    end = log.log_end_offset
    clean(disk, log, limits=limits)
    assert log.log_end_offset == end
    if before is not None:
        check_agrees(log, before, tombstones_may_go=False)
    for clean_stop in (False, True):
        copied = disk.copy()
        again = open_log(copied, COMPACT, clean=clean_stop)
        assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, end)
        assert plain(records(again)) == plain(records(log))
    # Without snapshots the producers' sequences come from the batches that cleaning has left.
    bare = disk.copy()
    for path in [path for path in bare.files if path.endswith(".snapshot")]:
        bare.remove(path)
    assert producers(open_log(bare, COMPACT)) == known
    for one in second:
        history.carry_out(one)
    history.end_all()
    uncleaned = committed(log)
    append(log, [(b"roll", b"x" * 1200)])
    append(log, [(b"roll", b"x" * 1200)])
    clean(disk, log, limits=limits)
    later = NOW_MS + 10 * COMPACT.delete_retention_ms
    append(log, [(b"roll", b"y" * 1200)])
    append(log, [(b"roll", b"y" * 1200)])
    clean(disk, log, later, limits=limits)
    rest = [one for one in committed(log) if one[1].key != b"roll"]
    wanted, got = last_of(uncleaned), last_of(rest)
    assert {key: plain([one]) for key, one in got.items()} == {
        key: plain([one]) for key, one in wanted.items() if key in got
    }
    assert all(record.value is None for key, (_, record) in wanted.items() if key not in got)
    if limits.map_bytes == 1 << 20:
        assert len(rest) == len(got), "two records of one key"


class CrashingDisk(MemoryDisk):
    """Keeps the state that a kill would leave after each changing operation."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[MemoryDisk] | None = None

    def moment(self) -> None:
        if self.moments is not None:
            self.moments.append(self.copy())

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        is_new = create and path not in self.files
        file = super().open(path, create=create)
        if is_new:
            self.moment()
        return CrashingFile(self, path, file.data) if self.moments is not None else file

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.moment()

    def remove(self, path: str) -> None:
        super().remove(path)
        self.moment()


class CrashingFile(MemoryFile):
    _disk: CrashingDisk

    def write_now(self, *buffers: bytes | bytearray | memoryview) -> int:
        added = super().write_now(*buffers)
        self._disk.moment()
        return added


@pytest.mark.costly
@settings(max_examples=15)
@given(st.lists(write, min_size=20, max_size=60))
def test_a_crash_after_any_operation_leaves_a_valid_log(writes: list[Write]) -> None:
    disk = CrashingDisk()
    history = History(new_log(disk))
    log = history.log
    for one in writes:
        history.carry_out(one)
    history.end_all()
    before = committed(log)
    clean(disk, log, NOW_MS)  # sets horizons, so that the next cleaning drops tombstones
    append(log, [(b"a", b"x" * 1300)])
    append(log, [(b"a", b"x" * 1300)])
    before = committed(log)
    known, end = producers(log), log.log_end_offset
    disk.moments = []
    clean(disk, log, NOW_MS + 10 * COMPACT.delete_retention_ms)
    assert disk.moments
    for moment in disk.moments:
        for clean_stop in (False, True):
            copied = moment.copy()
            again = open_log(copied, COMPACT, clean=clean_stop, high_watermark=end)
            assert again.log_end_offset == end
            check_agrees(again, before, tombstones_may_go=True)
            assert producers(again) == known
            assert not [path for path in copied.files if path.endswith((".cleaned", ".swap"))]
