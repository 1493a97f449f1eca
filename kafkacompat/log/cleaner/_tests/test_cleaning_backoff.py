"""When a log whose cleaning used up the memory is cleaned again, and with which limits."""

from __future__ import annotations

import pytest

from kafkacompat.log.cleaner.job import CleanerLimits
from kafkacompat.log.cleaner.log_cleaner import (
    LEAST_IO_BYTES,
    LEAST_MAP_BYTES,
    PROCESS_REST_MOST_MS,
    PROCESS_REST_MS,
    REST_MOST_MS,
    REST_MS,
    CleaningBackoff,
)

LIMITS = CleanerLimits(map_bytes=8 << 20, load_factor=0.9, io_bytes=1 << 20)


@pytest.mark.parametrize(
    ("losses", "map_bytes", "io_bytes"),
    [
        (0, 8 << 20, 1 << 20),
        (1, 4 << 20, 512 << 10),
        (2, 2 << 20, 256 << 10),
        (20, LEAST_MAP_BYTES, LEAST_IO_BYTES),
    ],
)
def test_each_loss_halves_the_buffers_of_that_log_down_to_the_least(
    losses: int, map_bytes: int, io_bytes: int
) -> None:
    backoff: CleaningBackoff[str] = CleaningBackoff()
    for _ in range(losses):
        backoff.lost("t-0", 0)
    assert backoff.limits("t-0", LIMITS) == CleanerLimits(
        map_bytes=map_bytes, load_factor=0.9, io_bytes=io_bytes
    )
    assert backoff.limits("t-1", LIMITS) == LIMITS
    small = CleanerLimits(map_bytes=LEAST_MAP_BYTES // 2, load_factor=0.9, io_bytes=LEAST_IO_BYTES // 2)
    assert backoff.limits("t-0", small) == small, "never more than is set"


def test_a_log_rests_twice_as_long_after_each_loss() -> None:
    backoff: CleaningBackoff[str] = CleaningBackoff()
    now_ms = 0
    for losses in range(10):
        rest_ms = backoff.lost("t-0", now_ms)
        assert rest_ms == min(REST_MS * 2**losses, REST_MOST_MS)
        assert not backoff.may_clean("t-0", now_ms + rest_ms - 1)
        assert backoff.may_clean("t-0", now_ms + rest_ms)
        assert backoff.may_clean("t-1", now_ms)
        now_ms += rest_ms
    backoff.went_well("t-0", in_process=True)
    assert backoff.lost("t-0", now_ms) == REST_MS


def test_no_process_is_begun_for_longer_while_one_after_another_is_lost() -> None:
    backoff: CleaningBackoff[str] = CleaningBackoff()
    for losses in range(10):
        backoff.lost(f"t-{losses}", 0)
        wait_ms = min(PROCESS_REST_MS * 2**losses, PROCESS_REST_MOST_MS)
        assert not backoff.may_begin_process(wait_ms - 1)
        assert backoff.may_begin_process(wait_ms)
    backoff.went_well("t-0", in_process=False)
    assert backoff.losses_in_turn == 10, "cleaned without a process it says nothing of processes"
    backoff.went_well("t-0", in_process=True)
    backoff.lost("t-1", 0)
    assert backoff.may_begin_process(PROCESS_REST_MS)
