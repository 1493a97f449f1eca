"""Strict and permissive quotas of controller mutations."""

from __future__ import annotations

from kafkacompat.quota.client_quotas import MutationQuota, Sensor
from kafkacompat.quota.rate import TokenBucket


class Hand:
    """A bucket of 2 tokens a second, at most 22, and the time."""

    def __init__(self) -> None:
        self.ms = 1_000
        self.sensor = Sensor(TokenBucket(11, 1000), 2.0, 0)

    def quota(self, is_strict: bool) -> MutationQuota:
        return MutationQuota(self.sensor, is_strict, lambda: self.ms)


def test_a_strict_quota_lets_one_burst_through_and_refuses_the_next() -> None:
    hand = Hand()
    first = hand.quota(True)
    assert first.record(30)
    assert first.throttle_ms() == 0, "the burst itself is not throttled"
    second = hand.quota(True)
    assert not second.record(1)
    assert second.throttle_ms() == 4_000
    hand.ms += 1_500
    assert second.throttle_ms() == 2_500
    hand.ms += 3_000
    assert second.throttle_ms() == 0
    assert hand.quota(True).record(1)


def test_a_refusal_takes_no_tokens() -> None:
    hand = Hand()
    hand.quota(True).record(30)
    for _ in range(5):
        assert not hand.quota(True).record(1_000)
    hand.ms += 4_000
    assert hand.quota(True).record(1)


def test_a_permissive_quota_refuses_nothing_and_throttles() -> None:
    hand = Hand()
    quota = hand.quota(False)
    assert quota.record(30)
    assert quota.throttle_ms() == 4_000
    assert quota.record(2)
    assert quota.throttle_ms() == 5_000


def test_without_a_quota_nothing_is_throttled() -> None:
    quota = MutationQuota(None, True, lambda: 0)
    assert quota.record(1_000_000)
    assert quota.throttle_ms() == 0
