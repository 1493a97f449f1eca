"""The measurements behind quotas and metrics: a rate over sampled windows, and a token bucket. The arithmetic is Kafka's.

Pure: times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from math import floor, nan

METERED_SAMPLES, METERED_SAMPLE_MS = 2, 30_000
"""The windows of rates that bound nothing (metrics.num.samples, metrics.sample.window.ms)."""
THROTTLE_MS_MAX = 2**31 - 1
"""The largest value of throttle_time_ms."""


class Sample:
    """One window. A window without events in the measured time is reset and used again."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Units per second over `windows` windows of `window_ms` (Rate and SampledStat).

    One more window is kept, because a window that began before the measured time may end in it.
    """

    __slots__ = (
        "_current",
        "_least_s",
        "_obsolete_ms",
        "_samples",
        "_total",
        "_window_ms",
        "_windows",
        "used_s",
    )

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._least_s = (windows - 1) * window_ms / 1000.0
        """The measured time is never shorter."""
        self._samples: list[Sample] = []
        self._current = 0
        self._total = 0.0
        """The sum of the samples."""
        self._obsolete_ms = 0
        """No sample is obsolete before this time."""
        self.used_s = 0.0
        """When the last value was recorded, in seconds. 0: never."""

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._next_sample(now_ms)
        sample.value += value
        sample.last_ms = now_ms
        self.used_s = now_ms / 1000
        self._total += value

    def _next_sample(self, now_ms: int) -> Sample:
        self._current = (self._current + 1) % (self._windows + 1)
        if self._current == len(self._samples):
            self._samples.append(Sample(now_ms))
            return self._samples[-1]
        sample = self._samples[self._current]
        self._total -= sample.value
        sample.reset(now_ms)
        return sample

    def measure(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return self._total / (window_ms / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """The measured time: at least all windows but one, and at most the time since the oldest sample began."""
        if now_ms >= self._obsolete_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - min([sample.start_ms for sample in self._samples])
        missing = self._windows - 1 - elapsed_ms // self._window_ms
        if missing > 0:
            elapsed_ms += missing * self._window_ms
        return max(elapsed_ms, 1)

    def _purge(self, now_ms: int) -> None:
        measured_ms = self._windows * self._window_ms
        if not self._samples:
            self._samples.append(Sample(now_ms))
        for sample in self._samples:
            if now_ms - sample.last_ms >= measured_ms:
                sample.reset(now_ms)
        self._total = sum([sample.value for sample in self._samples])
        self._obsolete_ms = min([sample.last_ms for sample in self._samples]) + measured_ms

    def left(self, bound: float) -> float:
        """Return the least that may still be recorded without exceeding the bound. Not positive if there is none."""
        return bound * self._least_s - self._total

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long the client must pause until the rate is down to the bound. 0 if the rate is not above the bound."""
        if self._total < bound * self._least_s and now_ms < self._obsolete_ms:
            return 0  # the usual case, without the exact time
        rate = self.measure(now_ms)
        if not rate > bound:
            return 0
        return rounded_ms((rate - bound) / bound * self.window_ms(now_ms))


class Average:
    """The mean of the values of the measured time (Avg), over windows like those of Rate."""

    __slots__ = ("_count", "_sum")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._sum = Rate(windows, window_ms)
        self._count = Rate(windows, window_ms)

    def record(self, value: float, now_ms: int) -> None:
        self._sum.record(value, now_ms)
        self._count.record(1, now_ms)

    def measure(self, now_ms: int) -> float:
        """NaN without values, as in Kafka."""
        count = self._count.measure(now_ms)
        return self._sum.measure(now_ms) / count if count > 0 else nan


class TokenBucket:
    """Tokens of a quota per second, at most as many as the quota allows in all windows (TokenBucket).

    A new bucket is full. The tokens may become negative.
    """

    __slots__ = ("_seconds", "_tokens", "_updated_ms", "taken", "used_s")

    def __init__(self, windows: int, window_ms: int) -> None:
        self.taken = Rate(METERED_SAMPLES, METERED_SAMPLE_MS)
        """Tokens that were taken a second."""
        self._seconds = windows * window_ms / 1000.0
        self._tokens: float | None = None
        self._updated_ms = 0
        self.used_s = 0.0
        """When tokens were last taken, in seconds. 0: never."""

    def tokens(self, bound: float, now_ms: int) -> float:
        burst = self._seconds * bound
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + bound * ((now_ms - self._updated_ms) / 1000.0))
        self._updated_ms = now_ms
        return self._tokens

    def record(self, value: float, bound: float, now_ms: int) -> None:
        self.used_s = now_ms / 1000
        self.taken.record(value, now_ms)
        self._tokens = min(self._seconds * bound, self.tokens(bound, now_ms) - value)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long it takes until the tokens are no longer negative."""
        tokens = self.tokens(bound, now_ms)
        return rounded_ms(-tokens / bound * 1000) if tokens < 0 else 0


def milliseconds(time_s: float) -> int:
    """The whole milliseconds of a time in seconds, also where a fraction like 0.001 has no exact form."""
    return int(time_s * 1000 + 0.001)


def rounded_ms(time_ms: float) -> int:
    """Round half up, as Java does. Bounded by what throttle_time_ms can carry."""
    return THROTTLE_MS_MAX if time_ms >= THROTTLE_MS_MAX else floor(time_ms + 0.5)


class Counted:
    """A number of events, and their rate."""

    __slots__ = ("_rate", "count")

    def __init__(self) -> None:
        self.count = 0
        self._rate = Rate(METERED_SAMPLES, METERED_SAMPLE_MS)

    def note(self, now_ms: int, number: int = 1) -> None:
        """`now_ms` is monotonic."""
        self.count += number
        self._rate.record(number, now_ms)

    def read(self, now_ms: int) -> tuple[int, float]:
        """(number, number per second)."""
        return self.count, self._rate.measure(now_ms)
