"""Share fetches of records that are in the remote storage only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafkacompat.config import LogConfig
from kafkacompat.deferred import Deferred
from kafkacompat.partition._tests.kit import batch_of
from kafkacompat.partition.service import FetchedRemotely
from kafkacompat.ports import AbortedTransaction
from kafkacompat.records.batch import stamp_offset_and_epoch
from kafkacompat.share import delayed_share_fetch
from kafkacompat.share._tests.kit import Remote, ShareLeader, codes, offsets_sent, rows, taken
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse

TIERED = LogConfig(
    remote_storage_enable=True,
    local_retention_bytes=1,
    retention_ms=-1,
    retention_bytes=-1,
    segment_bytes=1 << 20,
)


def tiered(partitions: int = 1, **overrides: str) -> tuple[ShareLeader, Remote]:
    """Each partition has offsets 0 to 3 in the remote storage only, in batches of two, and 4 and 5 in its log."""
    world = ShareLeader(**overrides)
    remote = Remote()
    world.manager.remote = remote  # type: ignore[assignment]
    for index in range(partitions):
        log = world.log("t", index)
        log._has_remote_storage = True
        log.config = TIERED
        for start in (0, 2, 4):
            if start == 4:
                log.roll(4, world.time.now_ms())
            world.produce("t", index, b"a", b"b")
        log.set_high_watermark(6)
        log.note_copied_to(3)
        assert log.enforce_retention(world.time.now_ms()) == 1
    return world, remote


def copy_of(*starts: int, aborted: Sequence[AbortedTransaction] = ()) -> FetchedRemotely:
    """Batches of two records as the remote storage has them."""
    batches = []
    for start in starts:
        batch = batch_of(b"a", b"b")
        stamp_offset_and_epoch(batch, start, 0)
        batches.append(bytes(batch))
    return FetchedRemotely(memoryview(b"".join(batches)), aborted)


def parked(world: ShareLeader, *arguments: Any, **fields: Any) -> Deferred[ShareFetchResponse]:
    """A share fetch that waits for the remote storage."""
    answer = world.parked(*arguments, **fields)
    world.time.advance(0)
    return answer


def test_records_of_the_remote_storage_are_acquired() -> None:
    world, remote = tiered()
    answer = parked(world, partitions=[0])
    assert remote.asked == [(0, 1 << 20, True)]
    remote.answers[0].resolve([copy_of(0, 2)])
    response = answer.result()
    assert taken(response) == {0: [(0, 3, 1)]}
    assert offsets_sent(rows(response)[0]) == [0, 1, 2, 3]
    assert remote.held == len(rows(response)[0].records)
    assert taken(world.fetched(epoch=1)) == {0: [(4, 5, 1)]}


def test_only_the_batches_with_acquired_records_are_sent() -> None:
    world, remote = tiered()
    answer = parked(world, partitions=[0], max_records=1)
    remote.answers[0].resolve([copy_of(0, 2)])
    assert offsets_sent(rows(answer.result())[0]) == [0, 1]


def test_others_do_not_wait_for_the_remote_storage() -> None:
    """Only the share-partition that is read from there stays locked."""
    world, remote = tiered()
    world.produce("t", 1)
    slow = parked(world, "a", partitions=[0, 1])
    world.produce("t", 1)
    assert taken(world.fetched("b", partitions=[1])) == {1: [(1, 1, 1)]}
    remote.answers[0].resolve([copy_of(0)])
    assert taken(slow.result()) == {0: [(0, 1, 1)], 1: [(0, 0, 1)]}


@pytest.mark.parametrize(
    ("values", "acquired"),
    [((b"a",), [(0, 1, 1)]), ((b"a",) * 6, [(0, 5, 1)])],
    ids=["small-batches", "a-batch-beyond-the-limit"],
)
def test_a_log_with_much_leaves_room_for_the_remote_storage(
    values: tuple[bytes, ...], acquired: list[tuple[int, int, int]]
) -> None:
    """Otherwise it would fill each fetch, and nothing of the remote storage would ever be taken."""
    world, remote = tiered()
    for _ in range(8):
        world.produce("t", 1, *values)
    answer = parked(world, partitions=[0, 1], max_records=4)
    remote.answers[0].resolve([copy_of(0, 2)])
    assert taken(answer.result()) == {0: [(0, 1, 1)], 1: acquired}


def test_one_record_is_left_to_the_remote_storage() -> None:
    world, remote = tiered()
    world.produce("t", 1)
    answer = parked(world, partitions=[0, 1], max_records=1)
    remote.answers[0].resolve([copy_of(0, 2)])
    assert taken(answer.result()) == {0: [(0, 1, 1)]}


def test_what_the_remote_storage_does_not_give_in_time_is_not_acquired() -> None:
    world, remote = tiered()
    answer = parked(world, partitions=[0])
    remote.answers[0].resolve([None])
    assert taken(answer.result()) == {}
    again = parked(world, partitions=[0], epoch=1)
    remote.answers[1].resolve([copy_of(0)])
    assert taken(again.result()) == {0: [(0, 1, 1)]}


def test_a_remote_read_that_fails_is_an_error_of_its_share_partition() -> None:
    world, remote = tiered(2)
    answer = parked(world, partitions=[0, 1])
    remote.answers[0].resolve([ErrorCode.OFFSET_OUT_OF_RANGE, copy_of(0)])
    response = answer.result()
    assert codes(response)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert taken(response) == {1: [(0, 1, 1)]}


@pytest.mark.parametrize("problem", [MemoryError(), KeyError("a bug")], ids=["passes", "a bug"])
def test_a_remote_read_that_breaks_off_keeps_no_lock(problem: Exception, faults: Any) -> None:
    world, remote = tiered()
    world.produce("t", 1)
    answer = parked(world, "a", partitions=[0, 1])
    remote.answers[0].fail(problem)
    assert faults.take() == ([problem] if isinstance(problem, KeyError) else [])
    response = answer.result()
    assert codes(response)[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert taken(response) == {1: [(0, 0, 1)]}
    other = parked(world, "b", partitions=[0])
    remote.answers[1].resolve([copy_of(0)])
    assert taken(other.result()) == {0: [(0, 1, 1)]}


def test_a_remote_read_does_not_wait_for_bytes_in_the_log() -> None:
    world, remote = tiered()
    answer = parked(world, partitions=[0], min_bytes=1 << 20)
    remote.answers[0].resolve([copy_of(0)])
    assert taken(answer.result()) == {0: [(0, 1, 1)]}


def test_records_that_are_deleted_during_the_remote_read_are_not_acquired() -> None:
    world, remote = tiered()
    answer = parked(world, partitions=[0])
    world.log().increment_log_start_offset(4)
    remote.answers[0].resolve([copy_of(0, 2)])
    assert taken(answer.result()) == {}
    assert taken(world.fetched(partitions=[0], epoch=1)) == {0: [(4, 5, 1)]}


def test_a_member_that_left_during_the_remote_read_acquires_nothing() -> None:
    world, remote = tiered()
    answer = parked(world, "a", partitions=[0])
    answer.abandon()
    remote.answers[0].resolve([copy_of(0)])
    other = parked(world, "b", partitions=[0])
    remote.answers[1].resolve([copy_of(0)])
    assert taken(other.result()) == {0: [(0, 1, 1)]}


def test_aborted_transactions_of_the_remote_storage_are_not_delivered() -> None:
    world, remote = tiered(share_isolation_level="read_committed")
    answer = parked(world, partitions=[0])
    batch = batch_of(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    stamp_offset_and_epoch(batch, 0, 0)
    found = copy_of(2)
    remote.answers[0].resolve(
        [FetchedRemotely(memoryview(bytes(batch) + bytes(found.records)), [AbortedTransaction(7, 0)])]
    )
    assert taken(answer.result()) == {0: [(2, 3, 1)]}


def test_very_many_aborted_transactions_end_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_share_fetch, "ABORTED_MAX", 1)
    world, remote = tiered(share_isolation_level="read_committed")
    answer = parked(world, partitions=[0])
    remote.answers[0].resolve([copy_of(0, 2, aborted=[AbortedTransaction(8, 2), AbortedTransaction(7, 0)])])
    assert taken(answer.result()) == {0: [(0, 1, 1)]}


def test_very_many_aborted_transactions_before_the_first_batch_do_not_hide_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were open together. The member would get nothing for ever."""
    monkeypatch.setattr(delayed_share_fetch, "ABORTED_MAX", 1)
    world, remote = tiered(share_isolation_level="read_committed")
    answer = parked(world, partitions=[0])
    aborted = [AbortedTransaction(producer, 0) for producer in (8, 9)] + [AbortedTransaction(7, 2)]
    remote.answers[0].resolve([copy_of(0, 2, aborted=aborted)])
    assert taken(answer.result()) == {0: [(0, 1, 1)]}


def test_without_a_remote_storage_the_member_is_told() -> None:
    world, _ = tiered()
    world.manager.remote = None
    assert codes(world.fetched(partitions=[0])) == {0: ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE}
