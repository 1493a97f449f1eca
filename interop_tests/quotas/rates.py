"""The rate of a client that sends for a moment and is muted for seconds."""

from __future__ import annotations

from bisect import bisect_right

STEP_S = 0.1


def rate_of_bursts(samples: list[tuple[float, float]], span_s: float, window_s: float) -> float:
    """What is moved a second, from samples of (seconds, moved until then) in order of time, of which there are some for
    span_s and window_s together. AssertionError if there are not.

    A client under a quota may use the quota of a whole window at once, and is muted until that falls out of the window.
    One span holds one of these bursts more or less, as it begins just before or just after one. So this is the mean of
    all spans that begin within a window.
    """
    times = [at_s for at_s, _ in samples]
    assert times[-1] - times[0] >= span_s + window_s, times[-1] - times[0]

    def moved(at_s: float) -> float:
        return samples[bisect_right(times, at_s) - 1][1]

    begins = [times[0] + number * STEP_S for number in range(round(window_s / STEP_S))]
    return sum(moved(at_s + span_s) - moved(at_s) for at_s in begins) / len(begins) / span_s
