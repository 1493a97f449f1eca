"""What the remote log manager decides, case by case."""

from __future__ import annotations

from kafkacompat.remote.manager_core import (
    UNFINISHED_KEPT_MS,
    UNLIMITED,
    Candidate,
    Copied,
    Expired,
    LocalSegment,
    Retention,
    RLMQuotaManager,
    candidate_log_segments,
    common_end_offset,
    copy_lag,
    epoch_for_offset,
    epochs_in_range,
    expired_segments,
    find_highest_remote_offset,
    find_log_start_offset,
    is_within_leader_epochs,
    without_empty_epochs,
)
from kafkacompat.remote.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

NOW_MS = 1_700_000_000_000
PARTITION = TopicIdPartition(b"\x07" * 16, "t", 0)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def copy(
    start: int,
    end: int,
    epochs: tuple[tuple[int, int], ...] | None = None,
    *,
    state: RemoteLogSegmentState = FINISHED,
    size: int = 100,
    timestamp_ms: int = NOW_MS,
    number: int | None = None,
) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, (start if number is None else number).to_bytes(16, "big")),
        start,
        end,
        timestamp_ms,
        1,
        NOW_MS,
        size,
        epochs or ((0, start),),
        state=state,
    )


FOUR = [LocalSegment(base, 100, NOW_MS - 1000 + base) for base in (0, 10, 20, 30)]


def candidates(**changes: int) -> list[int]:
    facts = {
        "from_offset": 0,
        "last_stable_offset": 99,
        "copy_lag_ms": 0,
        "copy_lag_bytes": -1,
        "now_ms": NOW_MS,
    }
    return [found.segment.base_offset for found in candidate_log_segments(FOUR, **{**facts, **changes})]


def test_the_active_segment_is_not_copied() -> None:
    assert candidates() == [0, 10, 20]
    assert candidate_log_segments(
        FOUR[:2], from_offset=0, last_stable_offset=9999, copy_lag_ms=0, copy_lag_bytes=0, now_ms=NOW_MS
    ) == [Candidate(FOUR[0], 10)]
    assert (
        candidate_log_segments(
            [], from_offset=0, last_stable_offset=0, copy_lag_ms=0, copy_lag_bytes=0, now_ms=NOW_MS
        )
        == []
    )


def test_only_segments_below_the_last_stable_offset_are_copied() -> None:
    assert candidates(last_stable_offset=20) == [0, 10]
    assert candidates(last_stable_offset=19) == [0]
    assert candidates(last_stable_offset=0) == []


def test_copies_go_on_with_the_segment_that_has_the_next_offset() -> None:
    assert candidates(from_offset=10) == [10, 20]
    assert candidates(from_offset=15) == [10, 20]
    assert candidates(from_offset=30) == []


def test_a_lag_keeps_the_newest_segments_back() -> None:
    assert candidates(copy_lag_ms=-1, copy_lag_bytes=-1) == []
    assert candidates(copy_lag_ms=990) == [0, 10]
    assert candidates(copy_lag_ms=10_000, copy_lag_bytes=300) == [0]
    assert candidates(copy_lag_ms=-1, copy_lag_bytes=200) == [0, 10]
    assert candidates(copy_lag_ms=990, copy_lag_bytes=300) == [0, 10]
    assert candidates(copy_lag_ms=10_000, copy_lag_bytes=0) == [0, 10, 20]


def test_an_open_lag_is_the_local_retention() -> None:
    assert copy_lag(-1, local_retention=5, retention=70) == 5
    assert copy_lag(-1, local_retention=-2, retention=70) == 70
    assert copy_lag(-1, local_retention=-1, retention=-1) == -1
    assert [copy_lag(lag, local_retention=5, retention=70) for lag in (0, 3)] == [0, 3]


def test_a_segment_of_the_future_is_not_kept_back_by_time() -> None:
    assert candidates(copy_lag_ms=5000, now_ms=NOW_MS - 2000) == [0, 10, 20]


EPOCHS = [(0, 0), (2, 15), (5, 15), (7, 40)]


def test_epochs_of_a_segment_begin_with_it() -> None:
    assert epochs_in_range(EPOCHS, 10, 20) == [(0, 10), (2, 15), (5, 15)]
    assert epochs_in_range(EPOCHS, 15, 20) == [(5, 15)]
    assert epochs_in_range(EPOCHS, 20, 40) == [(5, 20)]
    assert epochs_in_range(EPOCHS, -1, 41) == EPOCHS
    assert epochs_in_range([(3, 50)], 0, 50) == []


def test_the_epoch_of_an_offset() -> None:
    assert [epoch_for_offset(EPOCHS, offset) for offset in (0, 14, 15, 39, 40)] == [0, 0, 5, 5, 7]
    assert epoch_for_offset([(3, 50)], 49) is None


def test_the_highest_offset_is_of_the_newest_epoch_that_was_copied() -> None:
    assert find_highest_remote_offset(EPOCHS, 50, {0: 14, 5: 29}.get) == Copied(29, 5)
    assert find_highest_remote_offset(EPOCHS, 50, {}.get) == Copied(-1, -1)
    assert find_highest_remote_offset([], 50, {0: 3}.get) == Copied(-1, -1)


def test_what_was_copied_of_another_history_does_not_count() -> None:
    """The former leader has copied more of epoch 5 than this log has of it."""
    assert find_highest_remote_offset(EPOCHS, 50, {0: 14, 5: 49}.get) == Copied(39, 5)
    assert find_highest_remote_offset(EPOCHS, 45, {7: 60}.get) == Copied(44, 7)


def test_a_new_leader_finds_the_log_start_in_the_remote_storage() -> None:
    copies = [
        copy(21, 24, ((5, 21),)),
        copy(16, 20, ((5, 16),)),
        copy(3, 4, ((7, 3),)),
        copy(0, 9, ((6, 0),)),
    ]
    assert find_log_start_offset(EPOCHS, 40, copies) == 16
    assert find_log_start_offset(EPOCHS, 40, []) == 40


def test_a_log_does_not_begin_with_a_copy_that_is_not_read() -> None:
    """The node was killed after it had begun a deletion, and before the new log start was written."""
    going = copy(0, 9, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert find_log_start_offset([(0, 0)], 40, [going, copy(10, 19)]) == 10
    assert find_log_start_offset([(0, 0)], 40, [going]) == 40


def test_a_log_does_not_begin_below_its_epochs() -> None:
    """Records are found by their epochs, so what lies below the first one cannot be read."""
    assert find_log_start_offset([(5, 18)], 40, [copy(10, 20, ((3, 10), (5, 15)))]) == 18


def test_epochs_without_records_are_left_out() -> None:
    assert without_empty_epochs(EPOCHS) == {0: 0, 5: 15, 7: 40}


def within(metadata: RemoteLogSegmentMetadata, epochs: list[tuple[int, int]] = EPOCHS, end: int = 50) -> bool:
    return is_within_leader_epochs(metadata, end, without_empty_epochs(epochs))


def test_a_copy_belongs_to_a_log_with_the_same_epochs() -> None:
    assert within(copy(0, 14))
    assert within(copy(0, 20, ((0, 0), (5, 15))))
    assert within(copy(0, 20, ((0, 0), (2, 15), (5, 15))))
    assert within(copy(16, 45, ((5, 16), (7, 40))))


def test_a_copy_with_other_epochs_is_of_another_history() -> None:
    assert not within(copy(0, 20, ((0, 0), (6, 15))))
    assert not within(copy(0, 20, ((0, 0), (5, 14))))
    assert not within(copy(0, 20))  # epoch 0 ends at 14
    assert not within(copy(12, 20, ((5, 12),)))
    assert not within(copy(40, 49, ((9, 40),)))
    assert not within(copy(0, 45, ((0, 0), (7, 40))))


def test_a_copy_behind_the_log_end_is_of_another_history() -> None:
    assert within(copy(40, 49, ((7, 40),)))
    assert not within(copy(40, 50, ((7, 40),)))


def test_epochs_below_the_first_one_of_the_log_are_not_looked_at() -> None:
    assert within(copy(0, 20, ((0, 0), (3, 7), (5, 12))), [(5, 15), (7, 40)])
    assert not within(copy(0, 20, ((0, 0), (3, 7))), [(5, 15), (7, 40)])


def expire(
    *copies: RemoteLogSegmentMetadata, being_copied: tuple[RemoteLogSegmentId, ...] = (), **changes: object
) -> Expired:
    facts: dict[str, object] = {
        "epochs": [(0, 0)],
        "log_start_offset": 0,
        "log_end_offset": 100,
        "retention_ms": -1,
        "retention_bytes": -1,
        "only_local_bytes": 50,
        "now_ms": NOW_MS,
    }
    return expired_segments(Retention(**{**facts, **changes}), copies, being_copied)  # type: ignore[arg-type]


def starts(expired: Expired) -> list[int]:
    return [each.start_offset for each in expired.segments]


THREE = [copy(start, start + 9, timestamp_ms=NOW_MS - 100 + start) for start in (0, 10, 20)]


def test_without_limits_all_copies_stay() -> None:
    assert expire(*THREE) == Expired([], None)


def test_retention_by_time_goes_from_the_oldest_and_moves_the_log_start() -> None:
    assert expire(*reversed(THREE), retention_ms=85) == Expired(THREE[:2], 20)
    late = copy(0, 9, timestamp_ms=NOW_MS)
    assert expire(late, *THREE[1:], retention_ms=85) == Expired([], None)


def test_retention_by_size_counts_what_is_only_local() -> None:
    assert expire(*THREE, retention_bytes=350) == Expired([], None)
    assert expire(*THREE, retention_bytes=251) == Expired([], None)
    assert expire(*THREE, retention_bytes=250) == Expired(THREE[:1], 10)
    assert expire(*THREE, retention_bytes=0) == Expired(THREE, 30)


def test_what_time_lets_go_counts_for_size() -> None:
    assert expire(*THREE, retention_ms=95, retention_bytes=250) == Expired(THREE[:1], 10)
    assert expire(*THREE, retention_ms=95, retention_bytes=150) == Expired(THREE[:2], 20)


def test_copies_below_the_log_start_go_and_move_nothing() -> None:
    assert expire(*THREE, log_start_offset=20) == Expired(THREE[:2], None)
    assert starts(expire(*THREE, log_start_offset=19)) == [0]


def test_a_deletion_that_has_begun_is_repeated() -> None:
    begun = copy(0, 9, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
    assert expire(begun, *THREE[1:]) == Expired([begun], None)


def test_an_attempt_that_failed_goes_when_nobody_can_finish_it_any_more_unless_it_is_being_copied() -> None:
    attempt = copy(30, 39, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    later_ms = NOW_MS + UNFINISHED_KEPT_MS
    assert expire(*THREE, attempt, now_ms=later_ms - 1) == Expired([], None)
    assert expire(*THREE, attempt, now_ms=later_ms) == Expired([attempt], None)
    copying = (attempt.remote_log_segment_id,)
    assert expire(*THREE, attempt, being_copied=copying, now_ms=later_ms) == Expired([], None)


def test_an_attempt_below_the_log_start_goes_at_once() -> None:
    attempt = copy(0, 9, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    assert expire(attempt, log_start_offset=9) == Expired([], None)
    assert expire(attempt, log_start_offset=10) == Expired([attempt], None)


def test_copies_of_other_histories_stay_until_no_leader_can_need_them() -> None:
    other = copy(10, 29, ((1, 10),), number=77)
    epochs = [(0, 0), (2, 30)]
    assert expire(*THREE, other, epochs=epochs) == Expired([], None)
    assert starts(expire(other, epochs=[(2, 30)], log_start_offset=30)) == [10]
    assert starts(expire(copy(0, 9), epochs=[(0, 5)], log_start_offset=10)) == [0]


def test_copies_of_other_histories_do_not_count_for_size() -> None:
    other = copy(10, 29, ((1, 10),), number=77, size=10**9)
    assert expire(*THREE, other, epochs=[(0, 0), (2, 30)], retention_bytes=350) == Expired([], None)


def test_records_that_two_leaders_have_copied_count_once_for_size() -> None:
    again = copy(0, 9, number=78)
    assert expire(again, *THREE, retention_bytes=251) == Expired([], None)
    assert expire(again, *THREE, retention_bytes=250) == Expired([THREE[0], again], 10)
    half = copy(5, 14, number=79)
    assert expire(half, *THREE, retention_bytes=251) == Expired([], None)
    assert starts(expire(half, *THREE, retention_bytes=250)) == [0]


def test_what_exceeds_a_quota_is_paid_for_by_a_wait() -> None:
    quota = RLMQuotaManager(1000, 11, 1)
    assert quota.throttle_ms(0) == 0
    quota.record(20_000, 0)
    wait_ms = quota.throttle_ms(0)
    assert wait_ms > 0
    assert quota.throttle_ms(wait_ms + 11_000) == 0


def test_no_quota_never_waits() -> None:
    quota = RLMQuotaManager(UNLIMITED, 11, 1)
    quota.record(1 << 50, 0)
    assert quota.throttle_ms(0) == 0


def common(
    metadata: RemoteLogSegmentMetadata, offset: int, epochs: list[tuple[int, int]], end: int = 100
) -> int:
    return common_end_offset(metadata, epochs, end, offset)


def test_up_to_where_a_copy_has_the_records_of_the_log() -> None:
    two = copy(0, 20, ((0, 0), (5, 15)))
    assert common(two, 3, [(0, 0), (5, 15)]) == 21
    assert common(two, 16, [(0, 0), (5, 15)]) == 21
    assert common(two, 3, [(0, 0), (5, 15), (7, 21)]) == 21
    assert common(two, 3, [(0, 0), (5, 15), (7, 40)]) == 21


def test_after_an_unclean_election_a_copy_is_read_up_to_where_the_log_parted_from_it() -> None:
    two = copy(0, 20, ((0, 0), (5, 15)))
    assert common(two, 3, [(0, 0), (6, 10)]) == 10  # the log's epoch 0 ends earlier
    assert common(two, 3, [(0, 0), (6, 15)]) == 15  # another epoch follows
    assert common(two, 3, [(0, 0), (5, 17)]) == 15
    assert common(two, 16, [(0, 0), (5, 15), (6, 18)]) == 18
    assert common(two, 3, [(0, 0)], end=12) == 12
    assert common(copy(0, 9), 3, [(0, 0)]) == 10
