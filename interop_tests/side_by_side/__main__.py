"""Asks brokers the same about an area of the protocol, and reports what differs.

python -m interop_tests.side_by_side share-groups --talks
python -m interop_tests.side_by_side raw --seed 7 --seeds 3 --requests 2000

With one kind it shows what that broker answers (--shown). With apache twice it shows what is accidental in Kafka's
answers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from interop_tests.side_by_side.area import AREAS, KeptBrokers, area_of
from interop_tests.side_by_side.brokers import BOTH
from interop_tests.side_by_side.comparison import Comparison


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("area", choices=AREAS)
    parser.add_argument("--kinds", nargs="+", default=BOTH)
    parser.add_argument("--talks", action="store_true", help="the scripted talks")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="only talks whose names contain one of these; of random talks only these APIs",
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--seeds", type=int, help="so many random talks, by default one, or none with --talks"
    )
    parser.add_argument("--requests", type=int, default=300, help="of each random talk")
    parser.add_argument("--shown", type=Path, help="a file for each request with Kafka's answer")
    options = parser.parse_args()
    area = area_of(options.area)
    count = int(not options.talks) if options.seeds is None else options.seeds
    done: list[Comparison] = []

    def held(comparison: Comparison) -> None:
        done.append(comparison)
        print("".join(f"{each}\n" for each in comparison.told), end="", flush=True)

    with tempfile.TemporaryDirectory(prefix="side-by-side-") as folder:
        brokers = KeptBrokers(area, Path(folder), options.kinds, options.only)
        try:
            for name in area.talks if options.talks else ():
                if not options.only or any(each in name for each in options.only):
                    held(brokers.talk(name))
            for seed in range(options.seed, options.seed + count):
                held(brokers.seed(seed, options.requests))
        finally:
            brokers.close()
    if options.shown:
        options.shown.write_text("\n".join(each for one in done for each in one.answers) + "\n")
    for reason, what in (each for one in done for each in one.excused):
        print(f"excused ({reason}): {what}")
    differences = sum(len(one.told) for one in done)
    print(f"{sum(one.asked for one in done)} requests, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
