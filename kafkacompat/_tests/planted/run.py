"""Plants bugs one after another in copies of the product and runs the tests that must notice.

    python -m kafkacompat._tests.planted.run [--jobs N] [NAME ...]

Says for each which layer noticed it and how long it took until a test failed; the exit status is 1 when one went unnoticed. The
simulation's own planted bugs come last.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

from kafkacompat._tests.planted.bug import PlantedBug, SimulatedBug
from kafkacompat._tests.planted.bugs import BUGS
from kafkacompat._tests.planted.copies import Copies, Outcome
from kafkacompat._tests.planted.of_simulation import simulated_bugs


def outcomes(copies: Copies, bugs: Iterable[PlantedBug | SimulatedBug], jobs: int) -> Iterable[Outcome]:
    with ThreadPoolExecutor(jobs) as threads:
        yield from threads.map(lambda bug: outcome(copies, bug), bugs)


def outcome(copies: Copies, bug: PlantedBug | SimulatedBug) -> Outcome:
    """One that cannot be told keeps nobody from the others."""
    try:
        return copies.outcome(bug)
    except AssertionError as problem:
        return Outcome(bug, False, 0.0, "", str(problem))


def summary(done: list[Outcome]) -> str:
    """A line a layer: how many it noticed, and the seconds until then."""
    lines = [f"{'layer':12}{'noticed':>9}{'median s':>10}{'longest s':>11}"]
    for layer in sorted({each.layer for each in done if each.is_noticed}):
        took = [each.seconds for each in done if each.is_noticed and each.layer == layer]
        lines.append(f"{layer:12}{len(took):9}{statistics.median(took):10.1f}{max(took):11.1f}")
    noticed = sum(each.is_noticed for each in done)
    return "\n".join([*lines, f"{noticed} of {len(done)} noticed"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a planted bug's name; all without")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="copies at work at once"
    )
    given = parser.parse_args()
    everything: list[PlantedBug | SimulatedBug] = [*BUGS, *simulated_bugs()]
    chosen = [bug for bug in everything if not given.names or any(name in bug.name for name in given.names)]
    done = []
    with TemporaryDirectory(prefix="planted-") as folder, Copies(folder) as copies:
        for each in outcomes(copies, chosen, given.jobs):
            print(each, flush=True)
            done.append(each)
    print(summary(done))
    return 0 if done and all(each.is_noticed for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
