"""Scrapes a broker under a bounded load, and checks that neither its series nor its memory grow after the first tenth.

python -m interop_tests.metrics.long_scrape --minutes N [--interval S] [--series-percent P]
[--memory-percent P] [--folder FOLDER]

The load is as bounded as a broker's own settings can make it: retention deletes old segments, a group of any kind is
deleted after its member has left, and client ids are used again. So whatever still grows is kept by the broker without
need. Clients push metrics of their own (KIP-714) and have quotas, because both keep series for each client.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_tests.harness.exporting import Exporting, exporting_broker
from interop_tests.metrics.steady_load import SETTINGS, SteadyLoad

INTERVAL_S = 15.0
SERIES_PERCENT = 5.0
"""Clients that come and go have series for a minute after they have left, and their number varies a little."""
MEMORY_PERCENT = 10.0
RISES_S = 60.0
"""How long a short run waits for its load at the end."""
RESIDENT = "process_resident_memory_bytes"
BASELINE_PART = 0.1
MB = 1e6


@dataclass(frozen=True)
class Scrape:
    at_s: float
    series: int
    resident_bytes: float
    counts: Mapping[str, int]
    """What the load has done so far."""

    def __str__(self) -> str:
        counts = "  ".join(f"{count:9} {name}" for name, count in self.counts.items())
        return f"{self.at_s:6.0f} s  {self.series:6} series  {self.resident_bytes / MB:7.1f} MB  {counts}"


@dataclass(frozen=True)
class Growth:
    """What a number was at most in the first tenth, and afterwards."""

    what: str
    before: float
    after: float
    last: float
    bound_percent: float

    @property
    def percent(self) -> float:
        return 100.0 * (self.after / self.before - 1.0)

    @property
    def is_bounded(self) -> bool:
        return self.percent <= self.bound_percent

    def __str__(self) -> str:
        verdict = "ok" if self.is_bounded else "GROWS"
        return (
            f"{self.what}: at most {self.before:.1f} in the first tenth, {self.after:.1f} afterwards "
            f"({self.percent:+.1f} %, bound {self.bound_percent:+.1f} %), {self.last:.1f} at the end: {verdict}"
        )


def growths(scrapes: Sequence[Scrape], series_percent: float, memory_percent: float) -> list[Growth]:
    """The growth of both numbers. ValueError if there is no scrape after the first tenth of the time."""
    end_s = BASELINE_PART * scrapes[-1].at_s
    early = [each for each in scrapes if each.at_s <= end_s]
    late = [each for each in scrapes if each.at_s > end_s]
    if not early or not late:
        raise ValueError(f"{len(scrapes)} scrapes are too few")

    def growth(what: str, number: Callable[[Scrape], float], bound_percent: float) -> Growth:
        before, after = max(map(number, early)), max(map(number, late))
        return Growth(what, before, after, number(late[-1]), bound_percent)

    return [
        growth("series", lambda scrape: scrape.series, series_percent),
        growth("resident memory, MB", lambda scrape: scrape.resident_bytes / MB, memory_percent),
    ]


def scraped(node: Exporting, load: SteadyLoad, at_s: float) -> Scrape:
    samples = node.scrape()
    (resident,) = (each.value for each in samples if each.name == RESIDENT)
    return Scrape(at_s, len(samples), resident, load.counts())


def run(
    folder: Path, seconds: float, interval_s: float, say: Callable[[Scrape], None]
) -> tuple[list[Scrape], list[str]]:
    """The scrapes, and what went wrong with the load."""
    scrapes: list[Scrape] = []
    with exporting_broker(folder / "broker", SETTINGS) as node, SteadyLoad(node) as load:
        began = time.monotonic()
        while True:
            scrapes.append(scraped(node, load, time.monotonic() - began))
            say(scrapes[-1])
            next_s = len(scrapes) * interval_s
            if next_s > seconds or load.faults:
                break
            time.sleep(max(0.0, began + next_s - time.monotonic()))
        first = scrapes[0].counts
        risen_until = time.monotonic() + RISES_S

        def at_rest() -> list[str]:
            return [name for name, count in load.counts().items() if count <= first[name]]

        while at_rest() and not load.faults and time.monotonic() < risen_until:
            time.sleep(0.1)
        faults = [*load.faults, *(f"the number of {name} does not rise" for name in at_rest())]
    return scrapes, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--interval", type=float, default=INTERVAL_S, metavar="SECONDS")
    parser.add_argument("--series-percent", type=float, default=SERIES_PERCENT, metavar="PERCENT")
    parser.add_argument("--memory-percent", type=float, default=MEMORY_PERCENT, metavar="PERCENT")
    parser.add_argument("--folder", type=Path, help="for the broker; a temporary one without")
    arguments = parser.parse_args()
    seconds = 60.0 * arguments.minutes
    if BASELINE_PART * seconds < arguments.interval:
        parser.error("the first tenth of the time has to be as long as the interval")
    with tempfile.TemporaryDirectory(prefix="long-scrape-") as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        scrapes, faults = run(
            folder,
            seconds,
            arguments.interval,
            lambda scrape: print(scrape, flush=True),
        )
    for fault in faults:
        print(f"fault: {fault}")
    if faults:
        return 1
    found = growths(scrapes, arguments.series_percent, arguments.memory_percent)
    for growth in found:
        print(growth)
    return 0 if all(growth.is_bounded for growth in found) else 1


if __name__ == "__main__":
    sys.exit(main())
