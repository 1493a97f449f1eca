"""`append_next` does to a log what `append_as_leader` does, or nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkacompat.log import producer_snapshots
from kafkacompat.log._tests.logs import DIRECTORY, NOW_MS, batch_of, config, marker, open_log
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.checkpoint import LEADER_EPOCH_FILE
from kafkacompat.log.producer_snapshots import decode_snapshot, encode_snapshot
from kafkacompat.log.unified_log import UnifiedLog
from kafkacompat.ports import LogRefused, TransactionTerms


class Step(NamedTuple):
    values: list[bytes]
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    ends_transaction: bool
    """A marker is written before."""


steps = st.builds(
    Step,
    st.lists(st.sampled_from([b"", b"v" * 60, b"v" * 300]), min_size=1, max_size=3),
    st.sampled_from([NOW_MS, NOW_MS, NOW_MS + 1, NOW_MS + 5000, NOW_MS - 5000, -1]),
    st.sampled_from([-1, 1, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 1]),
    st.integers(-1, 9),
    st.sampled_from([3, 3, 3, 4]),
    st.sampled_from([False, False, False, False, True]),
)
ALWAYS_PLAIN = [Step([b"v"], NOW_MS, 1, 0, at, 3, False) for at in range(9)]


def state(log: UnifiedLog) -> Any:
    segments = []
    for each in log.segments:
        data = each._disk.open(each.stem + ".log").read_cold(0, each.size)
        offsets, times = each.indexes.pair(each.size)
        tail = (list(each._tail_offsets), list(each._tail_positions), each._tail_starts_after)
        largest = (each.max_timestamp_ms, each.max_timestamp_offset, each.rolling_timestamp_ms)
        segments.append(
            (
                data,
                [offsets.entry(at) for at in range(len(offsets))],
                [times.entry(at) for at in range(len(times))],
                tail,
                largest,
                each.bytes_since_index_entry,
            )
        )
    producers = encode_snapshot(log.producer_state.producers.values())
    retained = [each.batches for each in log.producer_state.producers.values()]
    offsets_of = (log.log_end_offset, log.producer_state.end_offset, log.last_stable_offset)
    return segments, bytes(producers), retained, offsets_of, list(log.epoch_entries), log.latest_epoch()


def appended(log: UnifiedLog, step: Step, is_short: bool) -> Any:
    producer = {
        "producer_id": step.producer_id,
        "producer_epoch": step.producer_epoch,
        "base_sequence": max(step.sequence, 0) if step.producer_id >= 0 else step.sequence,
    }
    if step.ends_transaction:
        try:
            log.append_as_leader(marker(2, committed=True), 3, NOW_MS, TransactionTerms())
        except LogRefused as refused:
            return refused.code
    batch = batch_of(step.values, step.timestamp_ms, **producer)
    if is_short:
        before = state(log)
        first_offset = log.append_next(
            batch.buffer,
            batch.size,
            batch.record_count,
            batch.max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            step.leader_epoch,
        )
        if first_offset >= 0:
            return first_offset
        assert state(log) == before
    try:
        return log.append_as_leader(batch, step.leader_epoch, NOW_MS).first_offset
    except LogRefused as refused:
        return refused.code


@settings(max_examples=200, deadline=None)
@given(
    st.lists(steps, max_size=12),
    st.sampled_from([400, 2000]),
    st.sampled_from([100, 4096]),
    st.sampled_from([24, 10 * 1024 * 1024]),
)
@example(ALWAYS_PLAIN, 2000, 100, 10 * 1024 * 1024)
def test_both_appends_leave_the_same_log(
    done: list[Step], segment_bytes: int, interval: int, index_bytes: int
) -> None:
    options = config(
        segment_bytes=segment_bytes,
        index_interval_bytes=interval,
        segment_index_bytes=index_bytes,
        segment_ms=3000,
    )
    short, usual = open_log(MemoryDisk(), options), open_log(MemoryDisk(), options)
    for step in done:
        assert appended(short, step, True) == appended(usual, step, False)
        assert state(short) == state(usual)


def test_the_batches_of_a_known_producer_need_no_closer_look() -> None:
    log = open_log(MemoryDisk())
    for step in ALWAYS_PLAIN:
        batch = batch_of(step.values, producer_id=1, producer_epoch=0, base_sequence=step.sequence)
        found = log.append_next(batch.buffer, batch.size, 1, NOW_MS, 1, 0, step.sequence, 3)
        assert found == (
            step.sequence if step.sequence else -1
        )  # the first one makes the epoch and the producer
        if found < 0:
            log.append_as_leader(batch, 3, NOW_MS)
    assert log.log_end_offset == len(ALWAYS_PLAIN)


def test_a_snapshot_that_is_being_encoded_has_the_producer_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_snapshots, "ENCODED_A_STEP", 1)
    disk = MemoryDisk()
    log = open_log(disk)

    def batch(producer_id: int, sequence: int) -> Any:
        return batch_of([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    for producer_id in (1, 2):
        log.append_as_leader(batch(producer_id, 0), 3, NOW_MS)
    log.roll(2, NOW_MS)
    log.append_as_leader(batch(1, 1), 3, NOW_MS)
    following = batch(2, 1)
    assert log.append_next(following.buffer, following.size, 1, NOW_MS, 2, 0, 1, 3) == 3
    while not log.go_on_with_snapshot():
        pass
    taken = decode_snapshot(disk.read_bytes(f"{DIRECTORY}/{2:020d}.snapshot"))
    assert {each.producer_id: each.batches[-1].last_sequence for each in taken} == {1: 0, 2: 0}


@pytest.mark.parametrize("reason", ["none", "transaction", "verification"])
def test_what_transactions_have_to_say_is_for_the_closer_look(reason: str) -> None:
    """A producer may not write outside its open transaction, and must begin where its verification says."""
    log = open_log(MemoryDisk())
    log.append_as_leader(batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS)
    sequence = 1
    if reason == "transaction":
        opening = batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True)
        log.append_as_leader(opening, 3, NOW_MS)
        sequence = 2
    elif reason == "verification":
        log.start_verification(1, 0, 0, bumps_epochs=False, now_ms=NOW_MS)
    before = state(log)
    batch = batch_of([b"v"], producer_id=1, producer_epoch=0, base_sequence=sequence)
    found = log.append_next(batch.buffer, batch.size, 1, NOW_MS, 1, 0, sequence, 3)
    assert (found, state(log) == before) == ((1, False) if reason == "none" else (-1, True))


def test_the_first_batch_of_an_epoch_comes_after_the_file_with_the_epoch() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append_as_leader(batch_of([b"v"]), 3, NOW_MS)
    log.assign_epoch_start(4, log.log_end_offset)
    batch = batch_of([b"v"])
    of_the_batch = batch.buffer, batch.size, 1, NOW_MS, -1, -1, -1, 4
    assert log.append_next(*of_the_batch) == -1
    log.append_as_leader(batch, 4, NOW_MS)
    assert b"4 1" in disk.read_bytes(f"{DIRECTORY}/{LEADER_EPOCH_FILE}")
    assert log.append_next(*of_the_batch) == 2
