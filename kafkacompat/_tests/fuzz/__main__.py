"""Sends hostile requests to nodes in this process.

    python -m kafkacompat._tests.fuzz --requests 1000000 --seed 1

One episode is a fresh node and some hundred requests; its seed, which a finding names, gives the same episode again.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from .choices import SeededChoices
from .episode import Episode, Tally
from .node import Finding
from .watch import Watch

REQUESTS_AN_EPISODE = 250


def run_seed(
    seed: int,
    tally: Tally,
    requests: int = REQUESTS_AN_EPISODE,
    watch: Watch | None = None,
    *,
    shares: bool = False,
) -> None:
    Episode(seed, SeededChoices(f"{seed}/hostile"), requests, tally, watch, shares=shares).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000, help="how many, all episodes together")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode")
    parser.add_argument("--keep-going", action="store_true", help="tell findings and go on")
    parser.add_argument("--codes", action="store_true", help="tell at the end what was answered how often")
    parser.add_argument("--watch", action="store_true", help="tell where steps take long")
    parser.add_argument("--shares", action="store_true", help="by an author who knows share groups")
    options = parser.parse_args()
    tally, seed, findings = Tally(), options.seed, 0
    began = time.monotonic()
    told = began
    watch = Watch() if options.watch else None
    while tally.requests < options.requests:
        try:
            run_seed(seed, tally, watch=watch, shares=options.shares)
        except Finding as finding:
            findings += 1
            print(f"seed {seed}: {finding}\n", flush=True)
            if not options.keep_going:
                return 1
        seed += 1
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(state(tally, seed, findings, began), flush=True)
    print(state(tally, seed, findings, began))
    for seconds, what in tally.slowest:
        print(f"  {1000 * seconds:.0f} ms: {what}")
    for held in watch.told.values() if watch is not None else ():
        print(f"held up: {held}")
    if options.codes:
        for (name, code), count in sorted(tally.by_code.items()):
            print(f"  {name} {code}: {count}")
    return 1 if findings else 0


def state(tally: Tally, seed: int, findings: int, began: float) -> str:
    took = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return (
        f"{tally.requests} requests, {tally.answers} answers, {tally.closed} connections closed, {tally.steps} steps, "
        f"next seed {seed}, {findings} findings; {tally.requests / took:.0f} requests/s, {peak} MB at most"
    )


if __name__ == "__main__":
    sys.exit(main())
