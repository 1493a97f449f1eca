"""The long scrape: its judgement of growth, and a run. `make soak` runs it for so long that the judgement counts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interop_tests.harness.broker import chosen_bootstrap
from interop_tests.metrics.long_scrape import (
    INTERVAL_S,
    MEMORY_PERCENT,
    SERIES_PERCENT,
    Scrape,
    growths,
    run,
)

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))


def scrapes(*numbers: tuple[int, float]) -> list[Scrape]:
    """Scrapes with these numbers of series and megabytes, ten seconds apart."""
    return [Scrape(10.0 * at, series, 1e6 * megabytes, {}) for at, (series, megabytes) in enumerate(numbers)]


@pytest.mark.parametrize(
    ("later", "bounded"),
    [
        ((100, 50.0), [True, True]),
        ((104, 52.4), [True, True]),
        ((106, 50.0), [False, True]),
        ((100, 52.6), [True, False]),
        ((10, 5.0), [True, True]),
    ],
)
def test_growth_after_the_first_tenth(later: tuple[int, float], bounded: list[bool]) -> None:
    steady = [(100, 50.0)] * 9
    found = growths(scrapes((10, 5.0), (100, 50.0), later, *steady[1:]), 5.0, 5.0)
    assert [each.is_bounded for each in found] == bounded
    assert [each.last for each in found] == [100, 50.0]


def test_growth_needs_scrapes_in_both_parts() -> None:
    with pytest.raises(ValueError, match="1 scrapes are too few"):
        growths(scrapes((100, 50.0)), 5.0, 5.0)


@pytest.mark.needs_control
@pytest.mark.skipif(chosen_bootstrap() is not None, reason="starts a broker of its own")
def test_a_run(tmp_path: Path) -> None:
    seconds, interval_s = (1200.0, INTERVAL_S) if SOAK else (6.0, 1.0)
    made, faults = run(tmp_path, seconds, interval_s, print)
    assert faults == []
    assert len(made) == seconds / interval_s + 1
    assert min(each.series for each in made) > 100
    assert min(each.resident_bytes for each in made) > 1e6
    if SOAK:
        found = growths(made, SERIES_PERCENT, MEMORY_PERCENT)
        assert all(each.is_bounded for each in found), "\n".join(map(str, found))
