"""Epoch cache, indexes, checkpoints, retention and the dump, each tested separately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.ids import OffsetAndEpoch, TopicPartition
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, batch_of, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import (
    CheckpointCorrupt,
    format_clean_shutdown,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from kafkacompat.log.dump import dump_file
from kafkacompat.log.index import AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex
from kafkacompat.log.leader_epoch_file_cache import LeaderEpochFileCache
from kafkacompat.log.opening import agreed_epoch
from kafkacompat.log.retention import SegmentFacts, count_deletable


def test_epoch_lookups() -> None:
    """An undefined result is (-1, -1) and causes no truncation."""
    cache = LeaderEpochFileCache([(2, 10), (5, 20), (9, 40)])
    assert cache.end_offset_for(-1, 50) == OffsetAndEpoch(-1, -1)
    assert cache.end_offset_for(9, 50) == OffsetAndEpoch(50, 9)
    assert cache.end_offset_for(10, 50) == OffsetAndEpoch(-1, -1)
    assert cache.end_offset_for(1, 50) == OffsetAndEpoch(10, 1)
    assert cache.end_offset_for(-2, 50) == OffsetAndEpoch(10, -2)
    assert cache.end_offset_for(2, 50) == OffsetAndEpoch(20, 2)
    assert cache.end_offset_for(7, 50) == OffsetAndEpoch(40, 5)
    assert [cache.epoch_for_offset(o) for o in (9, 10, 19, 20, 39, 40, 99)] == [-1, 2, 2, 5, 5, 9, 9]
    assert LeaderEpochFileCache().end_offset_for(0, 5) == OffsetAndEpoch(-1, -1)


@pytest.mark.parametrize(
    ("epochs", "agreed"),
    [([15, 15], 15), ([15], 15), ([15, -1], -1), ([15, 16], -1), ([-1], -1), ([], -1)],
)
def test_all_directories_must_agree_on_a_clean_stop(epochs: list[int], agreed: int) -> None:
    assert agreed_epoch(epochs) == agreed


def test_epoch_assignment_drops_what_it_contradicts() -> None:
    cache = LeaderEpochFileCache([(2, 10), (5, 20), (9, 40)])
    cache.assign(9, 45)
    assert not cache.changed
    cache.assign(10, 30)
    assert cache.entries == [(2, 10), (5, 20), (10, 30)]
    cache.assign(4, 35)
    assert cache.entries == [(2, 10), (4, 35)]
    assert cache.changed


def test_epoch_truncation() -> None:
    cache = LeaderEpochFileCache([(2, 10), (5, 20), (9, 40)])
    cache.truncate_from_start(25)
    assert cache.entries == [(5, 25), (9, 40)]
    cache.truncate_from_end(40)
    assert cache.entries == [(5, 25)]
    cache.truncate_from_start(25)
    assert cache.entries == [(5, 25)]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 30)), max_size=20), st.integers(0, 40))
def test_epochs_stay_ascending(assigned: list[tuple[int, int]], cut: int) -> None:
    cache = LeaderEpochFileCache(assigned)
    for turn in (cache.truncate_from_start, cache.truncate_from_end):
        entries = cache.entries
        assert entries == sorted(set(entries))
        assert len({e for e, _ in entries}) == len({s for _, s in entries}) == len(entries)
        turn(cut)
    assert parse_epochs(format_epochs(cache.entries)) == cache.entries


@given(st.lists(st.integers(0, 1000), unique=True, max_size=40).map(sorted), st.integers(0, 1100))
def test_index_lookup_is_the_last_at_or_before(offsets: list[int], target: int) -> None:
    base = 5_000_000_000
    index, times = OffsetIndex(base), TimeIndex(base)
    for offset in offsets:
        index.append(base + offset, offset * 7)
        times.maybe_append(NOW_MS + offset, base + offset)
    before = [offset for offset in offsets if offset <= target]
    assert index.lookup(base + target) == ((base + before[-1], before[-1] * 7) if before else (-1, 0))
    assert times.around(NOW_MS + target)[0][1] == base + (before[-1] if before else 0)
    index.truncate_to(base + target)
    times.truncate_to(base + target)
    kept = [offset for offset in offsets if offset < target]
    assert [index.entry(i)[0] - base for i in range(len(index))] == kept
    assert [times.entry(i)[1] - base for i in range(len(times))] == kept


def test_index_bytes_are_kafkas() -> None:
    index, times, txns = OffsetIndex(100), TimeIndex(100), TransactionIndex(100)
    index.append(105, 4097)
    times.maybe_append(NOW_MS, 105)
    times.maybe_append(NOW_MS, 106)
    txns.append(AbortedTxn(7, 100, 105, 106))
    assert index.data.hex() == "0000000500001001"
    assert times.data.hex() == "0000018bcfe5680000000005"
    assert txns.data.hex() == "0000000000000000000700000000000000640000000000000069000000000000006a"


def test_checkpoint_text_is_kafkas() -> None:
    offsets = {TopicPartition("b-x", 1): 5, TopicPartition("a", 0): 7}
    assert format_offsets(offsets) == b"0\n2\na 0 7\nb-x 1 5\n"
    assert parse_offsets(format_offsets(offsets)) == offsets
    assert format_epochs([(0, 0), (3, 9)]) == b"0\n2\n0 0\n3 9\n"
    assert format_partition_metadata(bytes(15) + b"\1") == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert parse_partition_metadata(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n") == bytes(15) + b"\1"
    assert format_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert [parse_clean_shutdown(data) for data in (b'{"version":0,"brokerEpoch":12}', b"", b"[]")] == [
        12,
        -1,
        -1,
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"1\n0\n",
        b"0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na b c\n",
        b"0\nx\n",
        b"\xff\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1_0\n",
        b"0\n1\na 4294967296 1\n",
    ],
)
def test_damaged_checkpoints_are_noticed(text: bytes) -> None:
    with pytest.raises(CheckpointCorrupt):
        parse_offsets(text)


def test_no_part_of_an_epoch_file_passes_for_the_whole() -> None:
    """The file is not synced with every change. "1 2" read in place of "1 20" would make the log diverge from the
    leader's."""
    whole = format_epochs([(0, 0), (1, 20)])
    for length in range(1, len(whole)):
        with pytest.raises(CheckpointCorrupt):
            parse_epochs(whole[:length])


def deletable(*segments: tuple[int, int, int], **limits: object) -> int:
    settings: dict[str, object] = {
        "high_watermark": 1000,
        "log_start_offset": 0,
        "delete_policy": True,
        "retention_ms": -1,
        "retention_bytes": -1,
        "now_ms": NOW_MS,
    }
    facts = [SegmentFacts(*one, at == len(segments) - 1) for at, one in enumerate(segments)]
    total = sum(one.size for one in facts)
    return count_deletable(facts, total_bytes=total, **{**settings, **limits})  # type: ignore[arg-type]


THREE = ((100, 10, NOW_MS - 30), (100, 20, NOW_MS - 20), (100, 30, NOW_MS - 10))


def test_retention_by_time_goes_from_the_oldest_and_stops_at_the_first_kept() -> None:
    assert deletable(*THREE) == 0
    assert deletable(*THREE, retention_ms=30) == 0
    assert deletable(*THREE, retention_ms=29) == 1
    assert deletable(*THREE, retention_ms=5) == 3
    assert deletable((100, 10, NOW_MS + 5), *THREE[1:], retention_ms=5) == 0
    assert deletable(*THREE[:2], (0, 30, 0), retention_ms=5) == 2


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    assert deletable(*THREE, retention_bytes=300) == 0
    assert deletable(*THREE, retention_bytes=201) == 0
    assert deletable(*THREE, retention_bytes=200) == 1
    assert deletable(*THREE, retention_bytes=0) == 3


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    assert deletable(*THREE, retention_ms=1, high_watermark=19) == 1
    assert deletable(*THREE, retention_ms=1, high_watermark=20) == 2


def test_a_compacted_topic_lets_go_only_below_the_log_start() -> None:
    assert deletable(*THREE, delete_policy=False, retention_ms=1, retention_bytes=0) == 0
    assert deletable(*THREE, delete_policy=False, log_start_offset=20) == 2
    assert deletable(*THREE, log_start_offset=30) == 2


def test_dump_tells_batches_records_and_damage() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for i in range(12):
        batch = batch_of(
            [b"value"] * 5,
            NOW_MS + i,
            producer_id=4,
            producer_epoch=0,
            base_sequence=5 * i,
            is_transactional=True,
        )
        log.append_as_leader(batch, 3, NOW_MS)
    log.append_as_leader(marker(4, committed=False), 3, NOW_MS)
    log.close()
    lines = {
        name: list(dump_file(disk, f"{DIRECTORY}/{name}", records=True, payloads=True))
        for name in disk.list_directory(DIRECTORY)
    }
    text = lines["00000000000000000000.log"]
    assert text[0].startswith(
        "baseOffset: 0 lastOffset: 4 count: 5 baseSequence: 0 lastSequence: 4 producerId: 4"
    )
    assert (
        text[1]
        == f"| offset: 0 timestamp: {NOW_MS} keySize: 1 valueSize: 5 headerKeys: [] key: k payload: value"
    )
    assert text[-1].endswith("controlType: ABORT")
    assert lines["leader-epoch-checkpoint"] == ["leaderEpoch: 3 startOffset: 0"]
    assert lines["00000000000000000000.txnindex"] == [
        "producerId: 4 firstOffset: 0 lastOffset: 60 lastStableOffset: 61"
    ]
    assert lines["00000000000000000000.index"]
    assert lines["00000000000000000000.timeindex"][-1] == f"timestamp: {NOW_MS + 15} offset: 59"
    assert lines["00000000000000000061.snapshot"][0].startswith(
        "producerId: 4 producerEpoch: 0 coordinatorEpoch: 0"
    )
    path = f"{DIRECTORY}/00000000000000000000.log"
    del disk.files[path][-3:]
    assert list(dump_file(disk, path))[-1].startswith("damaged after position")
    disk.write_atomic(f"{DIRECTORY}/meta.properties", b"")
    with pytest.raises(ValueError):
        list(dump_file(disk, f"{DIRECTORY}/meta.properties"))
