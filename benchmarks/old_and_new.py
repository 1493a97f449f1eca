"""`python -m benchmarks.old_and_new OLD_CHECKOUT`: what a change cost the plain path. The version of another checkout and
this one serve the same client in turn, and each figure is told for both with their ratio.

The other checkout needs no environment of its own: this interpreter runs it, so both have the same libraries.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import client, create_topic, one_record_requests
from interop_tests.harness.broker import KAFKACOMPAT, BrokerProcess

Figures = dict[str, float]
THIS_CHECKOUT = Path(__file__).resolve().parents[1]
REQUESTS = 20_000
BATCHES, BATCH_BYTES = 4_000, 64_000
FETCHES, FETCH_BYTES = 1_500, 1 << 20


class VersionOf(BrokerProcess):
    """A node of the code in a checkout."""

    def __init__(self, checkout: Path, root: Path) -> None:
        super().__init__(KAFKACOMPAT, root)
        self.checkout = checkout

    def _kafkacompat_command(self) -> list[str]:
        # -m finds the package in the folder where the process starts, and a node starts in its own.
        begin = (
            f"import sys; sys.path.insert(0, {str(self.checkout)!r}); from kafkacompat.__main__ import main; "
        )
        arguments = super()._kafkacompat_command()[3:]
        return [sys.executable, "-c", begin + "sys.exit(main())", *arguments]


@contextmanager
def serving(checkout: Path) -> Iterator[BrokerProcess]:
    root = Path(tempfile.mkdtemp(prefix="bench-version-"))
    broker = VersionOf(checkout, root)
    try:
        yield broker.start()
    finally:
        broker.kill()
        shutil.rmtree(root, ignore_errors=True)


def small_requests(in_flight: int) -> Callable[[Path], Figures]:
    def run(checkout: Path) -> Figures:
        with serving(checkout) as broker:
            return one_record_requests(broker, in_flight, REQUESTS)

    return run


def batches(checkout: Path) -> Figures:
    """Batches of 64 kB, produced and then read again and again."""
    with serving(checkout) as broker:
        for topic in ("warm", "bench"):
            create_topic(broker, topic, 1)
        job = {"size": 100, "batch_bytes": BATCH_BYTES, "acks": "all", "in_flight": 5}
        client(broker, work="raw_produce", topic="warm", requests=BATCHES // 4, **job)
        made = client(
            broker, work="raw_produce", topic="bench", requests=BATCHES,
            expected_bytes=BATCHES * BATCH_BYTES, **job,
        )  # fmt: skip
        records = round(made["records_per_s"] / made["requests_per_s"]) * BATCHES
        fetch = {"size": 100, "batch_bytes": BATCH_BYTES, "max_bytes": FETCH_BYTES, "records": records}
        client(broker, work="raw_fetch", topic="bench", requests=FETCHES // 4, **fetch)
        read = client(broker, work="raw_fetch", topic="bench", requests=FETCHES, **fetch)
    return {
        "produce MB/s": made["mb_per_s"],
        "produce broker CPU s/GB": made["broker_cpu_s"] / made["megabytes"] * 1e3,
        "consume MB/s": read["mb_per_s"],
        "consume broker CPU s/GB": read["broker_cpu_s"] / read["megabytes"] * 1e3,
    }


LOADS = {
    "one-record requests, 1 in flight": small_requests(1),
    "one-record requests, 5 in flight": small_requests(5),
    "64 kB batches": batches,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="another checkout of kafkacompat")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    old = options.old.resolve()
    if not (old / "kafkacompat").is_dir():
        parser.error(f"{old} has no kafkacompat folder")
    for name, load in LOADS.items():
        found: dict[Path, list[Figures]] = {old: [], THIS_CHECKOUT: []}
        for number in range(options.rounds):
            # The order changes, so that a machine that gets slower or faster does so for both.
            order = [old, THIS_CHECKOUT] if number % 2 == 0 else [THIS_CHECKOUT, old]
            for checkout in order:
                found[checkout].append(load(checkout))
        for figure in found[old][0]:
            before, after = ([each[figure] for each in found[side]] for side in (old, THIS_CHECKOUT))
            print(
                f"{name}: {figure}: old {statistics.median(before):.4g} ({min(before):.4g}-{max(before):.4g}), "
                f"new {statistics.median(after):.4g} ({min(after):.4g}-{max(after):.4g}), "
                f"ratio {statistics.median(after) / statistics.median(before):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
