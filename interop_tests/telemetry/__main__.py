"""Asks Apache Kafka and kafkacompat the same about telemetry, and reports what differs.

python -m interop_tests.telemetry --kinds apache kafkacompat --talks --seeds 3 --requests 500
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from interop_tests.telemetry.random_talk import random_talk
from interop_tests.telemetry.sides import started
from interop_tests.telemetry.talk import Talk
from interop_tests.telemetry.talks import TALKS


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["apache", "kafkacompat"])
    parser.add_argument("--talks", action="store_true", help="the scripted talks")
    parser.add_argument("--only", default="", help="only talks whose names contain this")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--seeds", type=int, help="so many random talks, by default one, or none with --talks"
    )
    parser.add_argument("--requests", type=int, default=300, help="of each random talk")
    options = parser.parse_args()
    count = int(not options.talks) if options.seeds is None else options.seeds
    told: list[str] = []
    asked = 0
    with (
        tempfile.TemporaryDirectory(prefix="telemetry-") as folder,
        started(Path(folder), options.kinds) as sides,
    ):

        def hold(name: str, script: object, *more: int) -> None:
            nonlocal asked
            talk = Talk(sides, name)
            try:
                script(talk, *more)  # type: ignore[operator]
            except AssertionError:
                talk.told.append(f"{name}: {traceback.format_exc()}")
            finally:
                talk.close()
            told.extend(talk.told)
            asked += talk.asked

        for each in TALKS if options.talks else ():
            if options.only in each.__name__:
                hold(each.__name__, each)
        for seed in range(options.seed, options.seed + count):
            hold(f"seed{seed}", random_talk, seed, options.requests)
    for difference in told:
        print(difference, flush=True)
    print(f"{asked} requests, {len(told)} differences")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
