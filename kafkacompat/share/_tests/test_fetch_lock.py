from __future__ import annotations

from kafkacompat.share._tests.leader import Leader


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
