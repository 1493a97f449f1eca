"""The quota of controller mutations for one request (KIP-599): a strict one refuses, a permissive one only throttles."""

from __future__ import annotations

from collections.abc import Callable

from kafkacompat.quota.client_quotas import Sensor
from kafkacompat.quota.rate import TokenBucket

MayMutate = Callable[[int], bool]
"""Records that so many partitions are created or deleted. Returns False if the quota refuses it."""


def unlimited(partitions: int) -> bool:
    return True


class MutationQuota:
    """`sensor` is None if no quota applies."""

    def __init__(
        self, sensor: Sensor[TokenBucket] | None, is_strict: bool, now_ms: Callable[[], int]
    ) -> None:
        self._sensor = sensor
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._throttle_ms = 0
        self._recorded_ms = 0

    def record(self, partitions: int) -> bool:
        """Take tokens. A strict quota refuses, and takes none, while tokens are negative. So one request may use more than
        there are."""
        sensor = self._sensor
        if sensor is None:
            return True
        now_ms = self._now_ms()
        if not self._is_strict:
            sensor.stat.record(partitions, sensor.bound, now_ms)
        throttle_ms = sensor.stat.throttle_ms(sensor.bound, now_ms)
        if throttle_ms:
            self._throttle_ms, self._recorded_ms = throttle_ms, now_ms
            sensor.throttled(throttle_ms, now_ms)
            return not self._is_strict
        if self._is_strict:
            sensor.stat.record(partitions, sensor.bound, now_ms)
        return True

    def throttle_ms(self) -> int:
        """Return what is left of the last throttle time."""
        if not self._throttle_ms:
            return 0
        return max(0, self._throttle_ms - (self._now_ms() - self._recorded_ms))
