"""The measurements behind quotas: a rate over sampled windows, and a token bucket. The arithmetic is Kafka's.

Pure: times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from math import floor, nan

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

    `charge` is called for every request. While the current window lasts and the rate is far below its bound, it only
    adds the values up. Whatever else is done with the rate takes them in first.
    """

    __slots__ = (
        "_added",
        "_current",
        "_least_s",
        "_obsolete_ms",
        "_room",
        "_samples",
        "_total",
        "_until_s",
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
        self._until_s = 0.0
        """Until then values may be added up. 0: they may not."""
        self._room = 0.0
        """Values that add up to less than this do not make the rate exceed its bound before `_until_s`."""
        self._added = 0.0
        self.used_s = 0.0
        """When the last value was recorded or added, in seconds. 0: never."""

    def charge(self, value: float, bound: float, now_s: float) -> int:
        """As `record` and then `throttle_ms`, at a time in seconds. `value` is not negative.

        When the bound has changed, `bound_changed` must be called first.
        """
        if now_s < self._until_s:
            added = self._added + value
            if added < self._room:
                self._added = added
                self.used_s = now_s
                return 0
        now_ms = milliseconds(now_s)
        self.record(value, now_ms)
        throttle_ms = self.throttle_ms(bound, now_ms)
        room = bound * self._least_s - self._total
        if room > 0:
            end_ms = self._samples[self._current].start_ms + self._window_ms
            self._until_s = min(end_ms, self._obsolete_ms) / 1000
            self._room = room
        return throttle_ms

    def bound_changed(self) -> None:
        if self._until_s:
            self._take_in()

    def _take_in(self) -> None:
        """Record what was added up."""
        self._until_s = 0.0
        sample = self._samples[self._current]
        sample.value += self._added
        sample.last_ms = milliseconds(self.used_s)
        self._total += self._added
        self._added = 0.0

    def record(self, value: float, now_ms: int) -> None:
        if self._until_s:
            self._take_in()
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
        window_ms = self.window_ms(now_ms)  # takes in what was added up
        return self._total / (window_ms / 1000.0)

    def window_ms(self, now_ms: int) -> int:
        """The measured time: at least all windows but one, and at most the time since the oldest sample began."""
        if self._until_s:
            self._take_in()
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

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long the client must pause until the rate is down to the bound. 0 if the rate is not above the bound."""
        if self._until_s:
            self._take_in()
        if self._total < bound * self._least_s and now_ms < self._obsolete_ms:
            return 0  # the usual case, without the exact time
        rate = self.measure(now_ms)
        if not rate > bound:
            return 0
        return rounded_ms((rate - bound) / bound * self.window_ms(now_ms))


def added_up(one: Rate, value: float, other: Rate, value_of_other: float, now_s: float) -> bool:
    """Charge two rates at once, if both only have to add up: nearly every request. Returns False, and does nothing, if
    they must be charged one by one."""
    if now_s < one._until_s and now_s < other._until_s:
        added, added_to_other = one._added + value, other._added + value_of_other
        if added < one._room and added_to_other < other._room:
            one._added, other._added = added, added_to_other
            one.used_s = other.used_s = now_s
            return True
    return False


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

    __slots__ = ("_seconds", "_tokens", "_updated_ms", "used_s")

    def __init__(self, windows: int, window_ms: int) -> None:
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

    def bound_changed(self) -> None:
        """Nothing depends on the bound before."""

    def record(self, value: float, bound: float, now_ms: int) -> None:
        self.used_s = now_ms / 1000
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
