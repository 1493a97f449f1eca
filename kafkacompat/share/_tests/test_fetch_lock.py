from __future__ import annotations

import pytest

from kafkacompat.share._tests.leader import Leader
from kafkacompat.share.in_flight import InFlightBatch, InFlightRecords, Run, next_fetch_offset
from kafkacompat.share.values import RecordState


def test_one_fetch_at_a_time() -> None:
    partition = Leader().partition
    assert partition.maybe_acquire_fetch_lock("f", 100)
    assert not partition.maybe_acquire_fetch_lock("g", 110)
    assert not partition.maybe_acquire_fetch_lock("f", 110)
    assert partition.release_fetch_lock("f", 130) == 30
    assert partition.maybe_acquire_fetch_lock("g", 140)


def test_another_may_free_it() -> None:
    """Nobody waits for ever for a fetch that has lost its way."""
    partition = Leader().partition
    partition.maybe_acquire_fetch_lock("f", 100)
    assert partition.release_fetch_lock("g", 130) is None
    assert partition.maybe_acquire_fetch_lock("g", 140)
    assert partition.release_fetch_lock("g", 140) == 0
    assert partition.release_fetch_lock("g", 140) is None


def test_not_while_it_is_fenced() -> None:
    partition = Leader().partition
    partition.mark_fenced()
    assert not partition.maybe_acquire_fetch_lock("f", 100)


def test_what_is_acquirable_is_not_searched_again_for_each_fetch_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With thousands of records in flight and hundreds of fetches that wait, each change took the loop for long."""
    looked_at = 0
    asked = Run.is_acquirable

    def counted(run: Run) -> bool:
        nonlocal looked_at
        looked_at += 1
        return asked(run)

    monkeypatch.setattr(Run, "is_acquirable", counted)
    records = InFlightRecords()
    for offset in range(1_000):
        state = RecordState.AVAILABLE if offset in (700, 900) else RecordState.ACQUIRED
        records.add(InFlightBatch(Run(offset, offset, state, 1, "m")))
    records.end_offset = 999
    records.became_acquirable()
    assert [next_fetch_offset(records) for _ in range(100)] == [700] * 100
    assert looked_at < 1_000
    records.batches[700].whole.state = RecordState.ACQUIRED
    assert next_fetch_offset(records) == 900
    assert looked_at < 1_200
    records.batches[5].whole.state = RecordState.AVAILABLE
    records.became_acquirable()
    assert next_fetch_offset(records) == 5
