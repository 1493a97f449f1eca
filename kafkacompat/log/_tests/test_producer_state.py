"""Sequences, epochs and transactions of producers, compared with Kafka's table and with a simple model."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafkacompat.log.producer_snapshots import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kafkacompat.log.producer_state import (
    ENDED_KEPT,
    MAX_SEQUENCE,
    RETAINED_BATCHES,
    CompletedTxn,
    ProducerStateManager,
)
from kafkacompat.ports import LogRefused
from kafkacompat.wire.errors import ErrorCode

NOW_MS = 1_700_000_000_000


class Unread(dict[int, int]):
    """A dict for lookups by key only; iteration fails."""

    def __iter__(self) -> Any:
        raise AssertionError("all open transactions are looked through")


class Partition:
    """A producer state with the end of a log, to count offsets."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.end = 0

    def write(
        self,
        sequence: int,
        count: int = 1,
        *,
        epoch: int = 0,
        producer_id: int = 1,
        transactional: bool = False,
    ) -> tuple[int, int, bool]:
        original = self.state.check(producer_id, epoch, sequence, count - 1, is_transactional=transactional)
        if original is not None:
            return original.first_offset, original.last_offset, True
        first, self.end = self.end, self.end + count
        self.state.apply_data(producer_id, epoch, sequence, first, self.end - 1, NOW_MS, transactional)
        return first, self.end - 1, False

    def end_transaction(
        self, committed: bool, *, producer_id: int = 1, epoch: int = 0, coordinator_epoch: int = 0
    ) -> object:
        self.state.check(
            producer_id,
            epoch,
            -1,
            0,
            is_transactional=True,
            is_control=True,
            coordinator_epoch=coordinator_epoch,
        )
        self.end += 1
        return self.state.apply_marker(producer_id, epoch, coordinator_epoch, self.end - 1, NOW_MS, committed)

    def refused(self, sequence: int, **kwargs: object) -> ErrorCode:
        with pytest.raises(LogRefused) as caught:
            self.write(sequence, **kwargs)  # type: ignore[arg-type]
        return caught.value.code


def test_the_last_five_batches_are_recognised_and_older_ones_refused() -> None:
    """A duplicate gets the original's offsets."""
    partition = Partition()
    written = [partition.write(2 * i, 2) for i in range(7)]
    for i in range(2, 7):
        assert partition.write(2 * i, 2) == (*written[i][:2], True)
    assert partition.refused(0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(partition.state.producers[1].batches) == RETAINED_BATCHES


def test_a_gap_is_out_of_order() -> None:
    partition = Partition()
    partition.write(0)
    assert partition.refused(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.refused(1, count=2, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.write(1) == (1, 1, False)


def test_part_of_a_repetition_is_no_repetition() -> None:
    partition = Partition()
    partition.write(0, 3)
    assert partition.refused(0, count=2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """The records with the earlier sequences may be gone."""
    assert Partition().write(77) == (0, 0, False)


def test_old_epochs_are_fenced_and_new_ones_begin_at_zero() -> None:
    """The code is INVALID_PRODUCER_EPOCH, not a leader error."""
    partition = Partition()
    partition.write(0, epoch=3)
    assert partition.refused(1, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.write(0, epoch=4) == (1, 1, False)
    assert partition.refused(0, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.write(0, epoch=4) == (1, 1, True)


def test_sequences_wrap_to_zero() -> None:
    partition = Partition()
    partition.write(MAX_SEQUENCE - 1, 2)
    assert partition.write(0) == (2, 2, False)
    other = Partition()
    other.write(MAX_SEQUENCE, 3)
    assert other.write(MAX_SEQUENCE, 3) == (0, 2, True)
    assert other.write(2) == (3, 3, False)


def test_transactions_hold_the_stable_offset_until_replicated() -> None:
    partition = Partition()
    state = partition.state
    partition.write(0, producer_id=9)
    partition.write(0, 2, transactional=True)
    partition.write(0, 2, producer_id=2, transactional=True)
    assert state.first_unstable_offset == 1
    completed = partition.end_transaction(False)
    assert completed is not None
    assert state.stable_offset_after(completed) == 3  # type: ignore[arg-type]
    assert state.first_unstable_offset == 1
    state.on_high_watermark(5)
    assert state.first_unstable_offset == 1
    state.on_high_watermark(6)
    assert state.first_unstable_offset == 3
    partition.end_transaction(True, producer_id=2)
    state.on_high_watermark(7)
    assert state.first_unstable_offset == -1


def test_the_earliest_open_transaction_tells_when_its_producer_has_last_written() -> None:
    partition = Partition()
    state = partition.state
    assert state.oldest_open_timestamp_ms() == -1
    partition.write(0, producer_id=1, transactional=True)
    partition.write(0, producer_id=2, transactional=True)
    state.apply_data(1, 0, 1, partition.end, partition.end, NOW_MS + 5, True)
    state.apply_data(2, 0, 1, partition.end + 1, partition.end + 1, NOW_MS + 9, True)
    partition.end += 2
    assert state.oldest_open_timestamp_ms() == NOW_MS + 5
    partition.end_transaction(True, producer_id=1)
    assert state.oldest_open_timestamp_ms() == NOW_MS + 9
    partition.end_transaction(False, producer_id=2)
    assert state.oldest_open_timestamp_ms() == -1


def test_writes_outside_an_open_transaction_are_refused() -> None:
    partition = Partition()
    partition.write(0, transactional=True)
    assert partition.refused(1) == ErrorCode.INVALID_TXN_STATE
    assert partition.write(1, transactional=True) == (1, 1, False)


def test_markers_of_old_epochs_and_old_coordinators_are_fenced() -> None:
    partition = Partition()
    partition.write(0, transactional=True, epoch=2)
    partition.end_transaction(True, epoch=2, coordinator_epoch=5)
    with pytest.raises(LogRefused) as epoch:
        partition.end_transaction(True, epoch=1, coordinator_epoch=5)
    assert epoch.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(LogRefused) as coordinator:
        partition.end_transaction(True, epoch=2, coordinator_epoch=4)
    assert coordinator.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def refused(state: ProducerStateManager, *arguments: object, **options: object) -> ErrorCode | None:
    try:
        state.check(*arguments, **options)  # type: ignore[arg-type]
    except LogRefused as refusal:
        return refusal.code
    return None


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(("epoch", "is_open"), [(4, True), (5, True), (6, True), (4, False), (5, False)])
def test_markers_are_held_to_the_epoch_by_their_version(version: int, epoch: int, is_open: bool) -> None:
    """With a new epoch per transaction, the marker's epoch is above the data's, except for a repeated marker."""
    state = ProducerStateManager()
    state.apply_data(1, 5, 0, 0, 0, NOW_MS, is_transactional=is_open)
    code = refused(
        state, 1, epoch, -1, 0, is_transactional=True, is_control=True, transaction_version=version
    )
    fenced = epoch < 5 or (version == 2 and epoch == 5 and is_open)
    assert code == (ErrorCode.INVALID_PRODUCER_EPOCH if fenced else None)


def test_the_last_epoch_of_all_ends_its_own_transaction() -> None:
    state = ProducerStateManager()
    state.apply_data(1, 0x7FFF, 0, 0, 0, NOW_MS, is_transactional=True)
    assert (
        refused(state, 1, 0x7FFF, -1, 0, is_transactional=True, is_control=True, transaction_version=2)
        is None
    )


def verified(
    state: ProducerStateManager, sequence: int, verification: object, epoch: int = 0
) -> ErrorCode | None:
    try:
        state.check(
            1,
            epoch,
            sequence,
            0,
            is_transactional=True,
            verifies=True,
            verification_guard=verification,  # type: ignore[arg-type]
        )
    except LogRefused as refusal:
        return refusal.code
    return None


def test_a_transaction_is_opened_by_whoever_was_verified_and_goes_on_without() -> None:
    state = ProducerStateManager()
    assert verified(state, 0, None) is ErrorCode.INVALID_TXN_STATE
    verification = state.start_verification(1, 0, 0, True, NOW_MS)
    assert state.start_verification(1, 0, 3, True, NOW_MS) is verification
    assert verified(state, 0, verification) is None
    state.apply_data(1, 0, 0, 0, 0, NOW_MS, is_transactional=True)
    assert verified(state, 1, None) is None
    assert state.start_verification(1, 0, 1, True, NOW_MS) is None


def test_what_a_producer_asks_with_binds_what_it_writes_outside_a_transaction_too() -> None:
    """Same as Apache Kafka: this holds until a transactional batch of the producer is in the log."""
    state = ProducerStateManager()
    state.start_verification(1, 0, 4, False, NOW_MS)
    assert refused(state, 1, 0, 5, 0, is_transactional=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, 1, 0, 4, 0, is_transactional=False) is None
    state.apply_data(1, 0, 4, 0, 0, NOW_MS, is_transactional=True)
    # The coordinator does not know this epoch: the request has no effect, and the open transaction continues.
    state.start_verification(1, 1, 0, True, NOW_MS)
    state.start_verification(1, 1, 5, True, NOW_MS)
    assert refused(state, 1, 0, 5, 0, is_transactional=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.apply_data(1, 0, 5, 1, 1, NOW_MS, is_transactional=True)
    assert refused(state, 1, 0, 6, 0, is_transactional=True) is None


@pytest.mark.parametrize(
    ("epoch", "marker_epoch", "is_kept"),
    [(1, 0, False), (1, 1, True), (1, 2, False)],
)
def test_the_marker_of_the_transaction_before_leaves_the_next_one_verified(
    epoch: int, marker_epoch: int, is_kept: bool
) -> None:
    """A producer with transaction.version 2 continues once its end is decided. Its next request may arrive before the
    marker."""
    state = ProducerStateManager()
    state.apply_data(1, 0, 0, 0, 0, NOW_MS, is_transactional=True)
    verification = state.start_verification(1, epoch, 0, True, NOW_MS)
    state.apply_marker(1, marker_epoch, 0, 1, NOW_MS, committed=True)
    assert (verified(state, 0, verification, epoch=epoch) is None) is is_kept


def test_a_marker_in_between_ends_what_was_verified() -> None:
    state = ProducerStateManager()
    verification = state.start_verification(1, 0, 0, False, NOW_MS)
    state.apply_marker(1, 0, 0, 0, NOW_MS, committed=False)
    assert verified(state, 0, verification) is ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_belongs_to_no_transaction_is_told_so_whatever_its_sequence_is() -> None:
    """Same order as Apache Kafka's: a repetition, then the epoch, then the transaction, then the sequence."""
    state = ProducerStateManager()
    assert verified(state, 7, object()) is ErrorCode.INVALID_TXN_STATE
    state.apply_data(1, 3, 0, 0, 0, NOW_MS, is_transactional=True)
    state.apply_marker(1, 3, 0, 1, NOW_MS, committed=False)
    assert verified(state, 7, None, epoch=3) is ErrorCode.INVALID_TXN_STATE
    assert verified(state, 0, None, epoch=3) is None, "a repetition"
    assert verified(state, 7, None, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_begins_with_the_lowest_sequence_that_asked() -> None:
    state = ProducerStateManager()
    verification = state.start_verification(1, 0, 7, False, NOW_MS)
    state.start_verification(1, 0, 5, False, NOW_MS)
    assert verified(state, 7, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert verified(state, 5, verification) is None
    state.start_verification(1, 1, 9, False, NOW_MS)
    assert verified(state, 9, verification, epoch=1) is None


def test_an_unknown_producer_with_an_epoch_a_transaction_begins_at_zero() -> None:
    state = ProducerStateManager()
    verification = state.start_verification(1, 0, 3, True, NOW_MS)
    assert verified(state, 3, verification) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_fenced_producer_is_not_even_asked_about() -> None:
    state = ProducerStateManager()
    state.apply_marker(1, 4, 0, 0, NOW_MS, committed=True)
    with pytest.raises(LogRefused) as caught:
        state.start_verification(1, 3, 0, True, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_verifications_that_nobody_used_are_forgotten() -> None:
    state = ProducerStateManager()
    verification = state.start_verification(1, 0, 0, True, NOW_MS)
    assert len(list(state.expire(NOW_MS + 99, 100))) == 1
    assert verified(state, 0, verification) is None
    assert len(list(state.expire(NOW_MS + 100, 100))) == 1
    assert verified(state, 0, verification) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_without_data_ends_nothing() -> None:
    partition = Partition()
    assert partition.end_transaction(True) is None
    assert partition.state.first_unstable_offset == -1


def test_idle_producers_expire_but_not_with_an_open_transaction() -> None:
    partition = Partition()
    partition.write(0, producer_id=1)
    partition.write(0, producer_id=2, transactional=True)
    assert len(list(partition.state.expire(NOW_MS + 99, 100))) == 2
    assert [entry.producer_id for entry in partition.state.active()] == [1, 2]
    assert len(list(partition.state.expire(NOW_MS + 100, 100))) == 2
    assert [entry.producer_id for entry in partition.state.active()] == [2]


def test_what_changes_between_two_looks_of_an_expiry_holds() -> None:
    partition = Partition()
    for producer_id in range(1, 5):
        partition.write(0, producer_id=producer_id)
    looks = partition.state.expire(NOW_MS + 100, 100)
    next(looks)
    partition.state.producers[3].last_timestamp_ms = NOW_MS + 50
    del partition.state.producers[4]
    partition.write(0, producer_id=5)
    list(looks)
    assert [entry.producer_id for entry in partition.state.active()] == [3, 5]


def test_snapshot_layout_is_kafkas() -> None:
    partition = Partition()
    partition.state.apply_data(7, 0, 0, 5, 6, NOW_MS + 1, False)
    data = encode_snapshot(partition.state.producers.values())
    entry = (
        "0000000000000007" + "0000" + "00000001" + "0000000000000006" + "00000001" + "0000018bcfe56801"
        "ffffffff" + "ffffffffffffffff"
    )
    body = bytes.fromhex("00000001" + entry)
    assert data == b"\0\1" + crc32c(body).to_bytes(4, "big") + body
    assert len(data) == 56


@pytest.mark.parametrize("at", range(0, 56, 3))
def test_a_damaged_snapshot_is_noticed(at: int) -> None:
    partition = Partition()
    partition.write(0)
    data = bytearray(encode_snapshot(partition.state.producers.values()))
    data[at] ^= 1
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(bytes(data))
    with pytest.raises(SnapshotCorrupt):
        decode_snapshot(bytes(data[:at]))


steps = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 12), st.integers(1, 3)), max_size=60
)


@given(steps)
def test_what_is_accepted_is_each_producers_sequence_once(attempts: list[tuple[int, int, int, int]]) -> None:
    """For any attempts: the accepted sequences of each producer and epoch are consecutive, and duplicates write
    nothing."""
    partition = Partition()
    accepted: dict[int, list[tuple[int, int, int, int]]] = {}
    for producer_id, epoch, sequence, count in attempts:
        history = accepted.setdefault(producer_id, [])
        try:
            first, last, duplicate = partition.write(sequence, count, epoch=epoch, producer_id=producer_id)
        except LogRefused:
            continue
        if duplicate:
            assert (epoch, sequence, count, first) in history[-RETAINED_BATCHES:]
        else:
            if history and history[-1][0] == epoch:
                assert sequence == history[-1][1] + history[-1][2]
            elif history:
                assert epoch > history[-1][0]
                assert sequence == 0
            history.append((epoch, sequence, count, first))
        assert last - first == count - 1
    reloaded = ProducerStateManager()
    reloaded.load(decode_snapshot(encode_snapshot(partition.state.producers.values())), partition.end)
    assert list(reloaded.active()) == list(partition.state.active())


def test_the_first_unstable_offset_is_found_without_a_look_at_all_open_transactions() -> None:
    """A client may open a hundred thousand transactions in one partition and end them with one request."""
    partition = Partition()
    state = partition.state
    state._ongoing, state._unreplicated = Unread(), {}
    for producer_id in range(6):
        partition.write(0, producer_id=producer_id, transactional=True)
    ends = []
    for producer_id in (1, 0, 5, 2, 3, 4):
        completed = partition.end_transaction(False, producer_id=producer_id)
        assert isinstance(completed, CompletedTxn)
        ends.append((state.first_unstable_offset, state.stable_offset_after(completed)))
    # Ended transactions hold the offset back until their markers are replicated.
    assert ends == [(0, 0), (0, 2), (0, 2), (0, 3), (0, 4), (0, 12)]
    for high_watermark, unstable in ((7, 0), (8, 2), (9, 2), (10, 3), (11, 4), (12, -1)):
        state.on_high_watermark(high_watermark)
        assert state.first_unstable_offset == unstable


@pytest.mark.parametrize("one_stays_open", [False, True])
def test_what_is_remembered_of_ended_transactions_does_not_grow_with_their_number(
    one_stays_open: bool,
) -> None:
    """Most are committed, and nobody asks for the earliest open one: a follower is asked by no metric."""
    partition = Partition()
    state = partition.state
    if one_stays_open:
        partition.write(0, producer_id=7, transactional=True)
    for sequence in range(3 * ENDED_KEPT):
        partition.write(sequence, transactional=True)
        partition.end_transaction(True)
        state.on_high_watermark(partition.end)
        assert state.first_unstable_offset == (0 if one_stays_open else -1)
    assert len(state._open) <= ENDED_KEPT + 2 * one_stays_open
    assert len(state._begun) <= ENDED_KEPT + 2 * one_stays_open
    if one_stays_open:
        partition.write(0, producer_id=8, transactional=True)
        completed = partition.end_transaction(False, producer_id=7)
        assert isinstance(completed, CompletedTxn)
        assert state.stable_offset_after(completed) == partition.end - 2
        state.on_high_watermark(partition.end)
        assert state.first_unstable_offset == partition.end - 2


def test_transactions_of_a_snapshot_are_unstable_in_the_order_of_their_offsets() -> None:
    partition = Partition()
    for producer_id in (7, 3, 5):
        partition.write(0, producer_id=producer_id, transactional=True)
    loaded = decode_snapshot(encode_snapshot(reversed(partition.state.producers.values())))
    state = partition.state = ProducerStateManager()
    state.load(loaded, partition.end)
    assert state.first_unstable_offset == 0
    for producer_id, unstable in ((7, 1), (3, 2), (5, -1)):
        partition.end_transaction(True, producer_id=producer_id)
        state.on_high_watermark(partition.end)
        assert state.first_unstable_offset == unstable
    partition.write(1, producer_id=3, transactional=True)
    assert state.first_unstable_offset == partition.end - 1
