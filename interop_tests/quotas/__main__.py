"""Sets the same quotas on Apache Kafka and kafkacompat, lets the same clients meet them, and reports what differs.

python -m interop_tests.quotas --seed 1 --seeds 2 --requests 500
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.quotas.random_talk import random_talk
from interop_tests.quotas.request_talk import request_talk
from interop_tests.quotas.sides import started
from interop_tests.quotas.talk import Talk


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=[APACHE, KAFKACOMPAT])
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--requests", type=int, default=300, help="of each seed")
    parser.add_argument("--each-api", action="store_true", help="each API under a request quota instead")
    options = parser.parse_args()
    asked = differences = 0
    with (
        tempfile.TemporaryDirectory(prefix="quotas-") as folder,
        started(Path(folder), options.kinds) as sides,
    ):
        for seed in range(options.seed, options.seed + options.seeds):
            talk = Talk(sides, f"seed {seed}")
            if options.each_api:
                request_talk(talk, seed)
                talk.close()
            else:
                random_talk(talk, seed, options.requests)
            for each in talk.told:
                print(each, flush=True)
            asked += talk.asked
            differences += len(talk.told)
    print(f"{asked} requests, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
