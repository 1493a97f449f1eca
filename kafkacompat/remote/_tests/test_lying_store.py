"""A remote store that sends what was never stored like that: a reader gets the right records, or an error."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from kafkacompat.log._tests.logs import NOW_MS
from kafkacompat.records.batch import HEADER_SIZE
from kafkacompat.remote import remote_reads
from kafkacompat.remote._tests.manager_kit import Tier
from kafkacompat.remote._tests.test_manager import offsets_in, read, run, tiered
from kafkacompat.remote.metadata import RemoteLogSegmentMetadata
from kafkacompat.remote.ports import IndexType, RemoteStorageException


def copies(tier: Tier) -> list[RemoteLogSegmentMetadata]:
    return list(tier.metadata.cache.list_all_remote_log_segments())


def parts_at(tier: Tier, start_offset: int) -> dict[Any, bytes]:
    """What the store has of the copy that begins there."""
    (found,) = (each for each in copies(tier) if each.start_offset == start_offset)
    return tier.storage.segments[found.remote_log_segment_id.id]


def put(data: bytes, position: int, *values: int) -> bytes:
    return data[:position] + bytes(values) + data[position + len(values) :]


BASE_OFFSET_END, LENGTH_END, EPOCH_AT = 7, 11, 12
"""In a batch: the last bytes of its base offset and of its length, and its leader epoch. The CRC covers none of them."""


@pytest.mark.parametrize("epoch", [b"\x00\x00\x00\x01", b"\x00\x02\x00\x00", b"\xff\xff\xff\xff"])
def test_a_batch_of_another_epoch_is_not_passed_on(epoch: bytes) -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    parts["log"] = put(parts["log"], EPOCH_AT, *epoch)
    with pytest.raises(RemoteStorageException, match="expected epoch 0"):
        read(tier, 0)


def test_a_batch_that_is_shorter_than_its_header_is_not_passed_on() -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    parts["log"] = put(parts["log"], 4 * size + LENGTH_END, 30)
    metadata = tier.metadata.cache.remote_log_segment_metadata(0, 0)
    object.__setattr__(metadata, "segment_size_in_bytes", 4 * size + 42)
    parts["log"] = parts["log"][: 4 * size + 42]
    with pytest.raises(RemoteStorageException, match="damaged"):
        read(tier, 8)


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_a_store_that_sends_a_few_bytes_at_a_time_is_read(at_once: int) -> None:
    tier = tiered()
    fetch = tier.storage.fetch_log_segment

    def dribble(metadata: Any, start: int, end: int | None = None) -> Any:
        stream = fetch(metadata, start, end)
        whole = stream.read
        stream.read = lambda size=-1: whole(min(size, at_once))  # type: ignore[method-assign]
        return stream

    tier.storage.fetch_log_segment = dribble  # type: ignore[method-assign]
    assert offsets_in(read(tier, 3).records) == list(range(2, 10))
    data = parts_at(tier, 0)["log"]
    parts_at(tier, 0)["log"] = data[:-1]
    with pytest.raises(RemoteStorageException, match="1 bytes too early"):
        read(tier, 3)


def test_the_store_is_asked_for_what_is_wanted_and_for_more_of_what_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_reads, "INDEXED_EVERY", 0)
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    fetch, asked = tier.storage.fetch_log_segment, list[tuple[int, int | None]]()

    def noted(metadata: Any, start: int, end: int | None = None) -> Any:
        asked.append((start, end))
        stream = fetch(metadata, start, end)
        return stream if end is None else BytesIO(stream.read(end + 1 - start))

    tier.storage.fetch_log_segment = noted  # type: ignore[method-assign]
    assert offsets_in(read(tier, 0, 2 * size).records) == [0, 1, 2, 3]
    assert asked == [(0, 2 * size + HEADER_SIZE - 1)]
    asked.clear()
    monkeypatch.setattr(remote_reads, "AHEAD", size)
    assert offsets_in(read(tier, 6, size).records) == [6, 7]
    # The index leads to the batch before, and its next entry is the second batch behind.
    assert asked == [(2 * size, 5 * size - 1)]
    asked.clear()
    parts[IndexType.OFFSET] = (5).to_bytes(4, "big") + (2 * size).to_bytes(4, "big")
    tier.manager.indexes.remove([found.remote_log_segment_id.id for found in copies(tier)])
    assert offsets_in(read(tier, 6, size).records) == [6, 7]
    middle = 3 * size + HEADER_SIZE
    assert asked == [(2 * size, middle - 1), (middle, middle + size - 1)]


def test_what_is_missing_behind_the_records_of_a_read_does_not_matter() -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    parts["log"] = parts["log"][: 2 * size + 70]
    assert offsets_in(read(tier, 0, 2 * size).records) == [0, 1, 2, 3]


def test_a_batch_before_the_one_that_it_follows_is_not_passed_on() -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    parts["log"] = put(parts["log"], size + BASE_OFFSET_END, 1)
    with pytest.raises(RemoteStorageException, match="at offset 1"):
        read(tier, 0)


def test_below_the_log_start_a_copy_has_records_of_no_known_epoch() -> None:
    tier = Tier()
    tier.fill()
    tier.log.increment_log_start_offset(3)
    tier.log._epochs.truncate_from_start(3)  # as with the segments that go
    tier.lead()
    tier.log.enforce_retention(NOW_MS)
    assert parts_at(tier, 0)["log"]
    assert offsets_in(read(tier, 3).records) == list(range(2, 10))


def test_an_index_that_points_too_far_costs_only_time() -> None:
    """Of another segment with the same first offset, for example."""
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    parts[IndexType.OFFSET] = (1).to_bytes(4, "big") + (3 * size).to_bytes(4, "big")
    assert offsets_in(read(tier, 2).records) == list(range(2, 10))
    fetched = tier.storage.calls.count("fetch offset")
    read(tier, 2)
    assert tier.storage.calls.count("fetch offset") == fetched + 1  # it is not kept


def test_a_store_that_ignores_where_to_begin_hides_no_records() -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    fetch = tier.storage.fetch_log_segment
    tier.storage.fetch_log_segment = lambda metadata, start, end=None: fetch(metadata, 0)  # type: ignore[method-assign]
    parts[IndexType.OFFSET] = (7).to_bytes(4, "big") + (4 * size).to_bytes(4, "big")
    assert offsets_in(read(tier, 8).records) == [8, 9]


def test_records_that_a_cleaning_has_removed_are_missing_in_each_reading() -> None:
    """Of a topic that was compacted once."""
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    metadata = tier.metadata.cache.remote_log_segment_metadata(0, 0)
    assert metadata is not None
    cleaned = parts["log"][:size] + parts["log"][2 * size :]
    object.__setattr__(metadata, "segment_size_in_bytes", len(cleaned))
    parts["log"] = cleaned
    assert offsets_in(read(tier, 0).records) == [0, 1, 4, 5, 6, 7, 8, 9]
    assert offsets_in(read(tier, 2).records) == [4, 5, 6, 7, 8, 9]


def test_what_a_cleaning_has_removed_costs_no_reading_of_what_lies_before() -> None:
    """In a compacted topic most reads find something missing."""
    tier = tiered()
    parts = parts_at(tier, 0)
    size = len(parts["log"]) // 5
    metadata = tier.metadata.cache.remote_log_segment_metadata(0, 0)
    assert metadata is not None
    parts["log"] = parts["log"][: 3 * size] + parts["log"][4 * size :]
    object.__setattr__(metadata, "segment_size_in_bytes", 4 * size)
    parts[IndexType.OFFSET] = (5).to_bytes(4, "big") + (2 * size).to_bytes(4, "big")
    fetch, begins = tier.storage.fetch_log_segment, list[int]()

    def noted(metadata: Any, start: int, end: int | None = None) -> Any:
        begins.append(start)
        return fetch(metadata, start, end)

    tier.storage.fetch_log_segment = noted  # type: ignore[method-assign]
    assert offsets_in(read(tier, 5).records) == [4, 5, 8, 9]
    assert offsets_in(read(tier, 6).records) == [8, 9]
    assert set(begins) == {2 * size}


def test_other_gaps_in_each_reading_are_not_believed() -> None:
    tier = tiered()
    parts = parts_at(tier, 0)
    data, size = parts["log"], len(parts["log"]) // 5
    readings = iter([data[:size] + data[2 * size :], data[: 2 * size] + data[3 * size :]])

    def lie(called: str) -> None:
        if called == "fetch":
            parts["log"] = next(readings)

    tier.storage.fail = lie
    with pytest.raises(RemoteStorageException, match="other offsets"):
        read(tier, 0, 3 * size)


def test_a_follower_does_not_begin_with_leader_epochs_of_another_segment() -> None:
    tier = Tier()
    tier.fill(2)
    tier.core.leader_epoch = 3
    tier.fill(2, epoch=3)
    tier.lead()
    tier.log.enforce_retention(NOW_MS)
    parts_at(tier, 20)[IndexType.LEADER_EPOCH] = parts_at(tier, 0)[IndexType.LEADER_EPOCH]
    with pytest.raises(RemoteStorageException, match="another segment"):
        run(tier, tier.manager.aux_state(tier.core, 3, 25, 40))
