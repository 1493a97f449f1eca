"""Index files searched page by page: the same answers as from a list, whether entries are in memory, in the cache or
in the file."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkacompat.log._tests.logs import NOW_MS, SMALL, batch_of, config, look_up, open_log
from kafkacompat.log._tests.memory_disk import CountingDisk, MemoryDisk
from kafkacompat.log.index import PAGE_BYTES, IndexCorrupt, OffsetIndex, TimeIndex
from kafkacompat.log.index_cache import BYTES_BESIDE_A_PAGE, IndexCache

BASE = 5_000_000_000
PATH = "/d/00000000005000000000.index"
PER_PAGE = PAGE_BYTES // 8
SMALL_CACHE = 3 * (PAGE_BYTES + BYTES_BESIDE_A_PAGE)


def index_on(disk: MemoryDisk, cache: IndexCache) -> OffsetIndex:
    disk.make_directory("/d")
    return OffsetIndex(BASE, disk=disk, path=PATH, cache=cache)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 2 * PER_PAGE)),
            st.tuples(st.just("cut"), st.integers(0, 3 * PER_PAGE)),
            st.tuples(st.sampled_from(["write", "let go", "reopen", "view"]), st.just(0)),
        ),
        max_size=12,
    ),
    st.integers(0, 40_000),
)
def test_an_index_answers_as_a_list_does(steps: list[tuple[str, int]], target: int) -> None:
    disk, cache = MemoryDisk(), IndexCache(SMALL_CACHE)
    index = index_on(disk, cache)
    index.write()
    expected: list[tuple[int, int]] = []
    seen = index
    for step, count in steps:
        if step == "add":
            for _ in range(count):
                at = expected[-1][0] + 5 if expected else 3
                index.make_ready()
                index.append(BASE + at, at * 2)
                expected.append((at, at * 2))
        elif step == "cut":
            kept = max(len(expected) - count, 0)
            index.truncate_to(BASE + (expected[kept][0] if kept < len(expected) else 1 << 30))
            del expected[kept:]
        elif step in ("write", "let go", "reopen"):
            index.write()
            if step == "let go":
                index.let_go()
                assert index.kept_bytes == 0
            elif step == "reopen":
                index = index_on(disk, cache)
                index.attach()
        seen = index.view() if step == "view" else index
        assert index.kept_bytes <= PAGE_BYTES
        assert len(cache) <= 3
    at = bisect_right(expected, (target, 1 << 40))
    found = (BASE + expected[at - 1][0], expected[at - 1][1]) if at else (-1, 0)
    assert seen.lookup(BASE + target) == found
    assert seen.position_after(BASE + target) == (expected[at][1] if at < len(expected) else -1)
    later = [offset for offset, position in expected if position >= target]
    assert seen.offset_at(target) == (BASE + later[0] if later else -1)
    assert [(fields[0], fields[1]) for fields in seen.all_fields()] == expected
    index.write()
    data = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in expected)
    assert disk.read_bytes(PATH) == data
    over = OffsetIndex.over(BASE, data)
    assert (len(over), over.lookup(BASE + target)) == (len(expected), found)
    over.check(1 << 40)
    with pytest.raises(IndexCorrupt):
        OffsetIndex.over(BASE, data + b"\0")


def test_a_search_reads_few_pages_and_the_next_one_none() -> None:
    disk, cache = CountingDisk(), IndexCache()
    index = index_on(disk, cache)
    for at in range(200 * PER_PAGE):
        index.append(BASE + at, at)
    index.write()
    index = index_on(disk, cache)
    index.attach()
    disk.bytes_read = 0
    assert index.lookup(BASE + 777) == (BASE + 777, 777)
    assert disk.bytes_read <= 9 * PAGE_BYTES
    assert disk.opened[PATH] == 2, "one to write, one to search"
    disk.bytes_read = 0
    assert index.lookup(BASE + 778) == (BASE + 778, 778)
    assert disk.bytes_read == 0


def test_the_cache_holds_what_was_asked_for_last() -> None:
    cache = IndexCache(SMALL_CACHE)
    for number in range(3):
        cache.put((0, number), b"%d" % number)
    assert cache.get((0, 0)) == b"0"
    cache.put((0, 3), b"3")
    assert [cache.get((0, number)) for number in range(4)] == [b"0", None, b"2", b"3"]
    assert cache.size_bytes() == 3


def test_what_grows_is_in_memory_for_less_than_two_pages() -> None:
    disk = MemoryDisk()
    index = index_on(disk, IndexCache())
    most = 0
    for at in range(10 * PER_PAGE):
        index.make_ready()
        index.append(BASE + at, at)
        most = max(most, index.kept_bytes)
    assert most <= PAGE_BYTES


def test_a_page_that_was_read_before_it_was_whole_is_read_again() -> None:
    disk, cache = MemoryDisk(), IndexCache()
    index = index_on(disk, cache)
    for at in range(10):
        index.append(BASE + at, at)
    index.write()
    index.let_go()
    assert index.lookup(BASE + 20) == (BASE + 9, 9)
    early = index.view()
    for at in range(10, 3 * PER_PAGE):
        index.make_ready()
        index.append(BASE + at, at)
    assert early.lookup(BASE + 100) == (BASE + 9, 9)
    assert index.lookup(BASE + 100) == (BASE + 100, 100)


def test_what_a_search_of_before_has_left_in_the_cache_is_read_again_when_it_is_not_all() -> None:
    disk, cache = MemoryDisk(), IndexCache(SMALL_CACHE)
    index = index_on(disk, cache)
    for at in range(10):
        index.append(BASE + at, at)
    index.write()
    index.let_go()
    early = index.view()
    for at in range(10, 3 * PER_PAGE):
        index.make_ready()
        index.append(BASE + at, at)
    for other in range(len(cache) + 4):
        cache.put((-1, other), b"another index's")
    assert early.lookup(BASE + 100) == (BASE + 9, 9)
    assert index.lookup(BASE + 100) == (BASE + 100, 100)


def test_a_file_that_is_cut_under_it_is_damage() -> None:
    disk = MemoryDisk()
    index = index_on(disk, IndexCache())
    for at in range(2 * PER_PAGE):
        index.append(BASE + at, at)
    index.write()
    index = index_on(disk, IndexCache())
    index.attach()
    disk.open(PATH).truncate(PAGE_BYTES + 8)
    with pytest.raises(IndexCorrupt):
        index.lookup(BASE + 2 * PER_PAGE)
    disk.open(PATH).truncate(PAGE_BYTES + 3)
    with pytest.raises(IndexCorrupt):
        index.attach()


def test_around_a_timestamp() -> None:
    times = TimeIndex(BASE)
    for at in (10, 20, 30):
        times.maybe_append(at, BASE + at)
    assert times.around(9) == ((-1, BASE), (10, BASE + 10))
    assert times.around(20) == ((20, BASE + 20), (30, BASE + 30))
    assert times.around(25) == ((20, BASE + 20), (30, BASE + 30))
    assert times.around(31) == ((30, BASE + 30), None)


def test_what_is_cached_of_segments_goes_with_them() -> None:
    """Their pages took 64 MiB in the end, however little log a node kept."""
    log = open_log(MemoryDisk(), config(retention_bytes=3 * SMALL.segment_bytes))
    cache = log._segments._cache
    for _ in range(20):
        for _ in range(40):
            log.append_as_leader(batch_of([b"x" * 100]), 0, NOW_MS)
        log.set_high_watermark(log.log_end_offset)
        while log.enforce_retention(NOW_MS):
            pass
        look_up(log, NOW_MS)
        assert len(cache) <= 2 * len(log.segments) < 12
    log.truncate_fully_and_start_at(10_000, NOW_MS)
    assert len(cache) == 0


def test_what_is_cached_of_a_log_goes_with_it() -> None:
    log = open_log(MemoryDisk())
    for _ in range(100):
        log.append_as_leader(batch_of([b"x" * 100]), 0, NOW_MS)
    cache = log._segments._cache
    assert len(cache) > 0
    log.release()
    assert len(cache) == 0
