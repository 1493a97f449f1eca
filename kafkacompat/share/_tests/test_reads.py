"""Headers of batches in a slice of a file, and the part of it that is sent."""

from __future__ import annotations

import pytest

from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.partition._tests.kit import batch_of
from kafkacompat.ports import FileSlice
from kafkacompat.records.batch import BatchCorrupt, stamp_offset_and_epoch
from kafkacompat.records.control import build_end_transaction_marker
from kafkacompat.share.delayed_share_fetch import read_batches
from kafkacompat.share.values import AcquiredRecords, FetchedBatch


def slice_with(*batches: bytes, cut: int = 0) -> FileSlice:
    disk = MemoryDisk()
    disk.make_directory("/data")
    file = disk.open("/data/log", create=True)
    file.write_now(b"before", *batches)
    return FileSlice(file, 6, sum(map(len, batches)) - cut)


def counted(*sizes: int, value: bytes = b"v") -> list[bytes]:
    batches, offset = [], 0
    for size in sizes:
        batch = batch_of(*([value] * size))
        stamp_offset_and_epoch(batch, offset, 0)
        batches.append(bytes(batch))
        offset += size
    return batches


def headers(records: FileSlice, until: int = 1 << 60, markers: bool = False) -> list[FetchedBatch]:
    found = read_batches(records, until, finds_markers=markers, waits=False)
    assert found is not None
    return found.batches


@pytest.mark.parametrize("value", [b"v", b"v" * 1000, b"v" * 100_000])
def test_batches_of_any_size_are_found(value: bytes) -> None:
    found = headers(slice_with(*counted(*([1] * 200), value=value)))
    assert [(each.base_offset, each.last_offset) for each in found] == [(each, each) for each in range(200)]


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    batches = counted(3, 2)
    assert len(headers(slice_with(*batches, cut=1))) == 1
    assert len(headers(slice_with(*batches, cut=len(batches[1]) - 20))) == 1
    assert len(headers(slice_with(*batches, cut=len(batches[1]) - 5))) == 1
    assert len(headers(slice_with(*batches, cut=len(batches[1])))) == 1


def test_reading_ends_with_the_batch_of_an_offset() -> None:
    assert len(headers(slice_with(*counted(3, 3, 3, 3)), until=4)) == 2


def test_markers_are_told_apart() -> None:
    markers = [
        bytes(
            build_end_transaction_marker(
                committed=committed,
                coordinator_epoch=1,
                producer_id=7,
                producer_epoch=0,
                timestamp_ms=0,
                base_offset=at,
            )
        )
        for at, committed in enumerate((True, False))
    ]
    found = headers(slice_with(*markers), markers=True)
    assert [each.is_abort_marker for each in found] == [False, True]
    assert all(each.is_transactional and each.producer_id == 7 for each in found)


def test_what_is_not_in_the_page_cache_is_not_waited_for() -> None:
    records = slice_with(*counted(1))
    records.file._disk.cold = True  # type: ignore[attr-defined]
    assert read_batches(records, 0, finds_markers=False, waits=False) is None
    found = read_batches(records, 0, finds_markers=False, waits=True)
    assert found is not None
    assert len(found.batches) == 1


def test_damage_is_no_batch() -> None:
    with pytest.raises(BatchCorrupt):
        headers(slice_with(bytes(200)))
    with pytest.raises(BatchCorrupt):
        headers(slice_with(b"\x00" * 8 + b"\x00\x00\x00\x20" + b"\x02" * 100))


@pytest.mark.parametrize(
    ("ranges", "first", "last"),
    [
        ([(0, 11)], 0, 3),
        ([(3, 5)], 1, 1),
        ([(4, 7)], 1, 2),
        ([(0, 0), (11, 11)], 0, 3),
        ([(11, 11)], 3, 3),
        ([(2, 3)], 0, 1),
    ],
)
def test_only_what_is_acquired_is_sent(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    batches = counted(3, 3, 3, 3)
    records = slice_with(*batches)
    found = read_batches(records, 1 << 60, finds_markers=False, waits=False)
    assert found is not None
    sent = found.slice_of([AcquiredRecords(*each, 1) for each in ranges])
    assert isinstance(sent, FileSlice)
    assert sent.read() == b"".join(batches[first : last + 1])


def test_nothing_acquired_sends_nothing() -> None:
    found = read_batches(slice_with(*counted(1)), 0, finds_markers=False, waits=False)
    assert found is not None
    assert found.slice_of([]) == b""
    empty = read_batches(b"", 0, finds_markers=False, waits=False)
    assert empty is not None
    assert empty.batches == []
