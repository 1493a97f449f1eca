"""Asks Apache Kafka and kafkacompat the same about consumer groups, and reports what differs.

python -m interop_tests.consumer_groups --kinds apache kafkacompat --talks --seeds 3 --steps 500

With one kind it shows what that broker answers (--shown). With apache twice it shows what is accidental in Kafka's
answers.
"""

from __future__ import annotations

import argparse
import operator
import sys
import tempfile
from pathlib import Path

from interop_tests.consumer_groups.compare import create_topics, seeds_compared, talks_compared
from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.talk import started


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["apache", "kafkacompat"])
    parser.add_argument("--talks", action="store_true", help="the scripted talks")
    parser.add_argument("--only", help="only talks whose names contain this")
    parser.add_argument("--except", nargs="+", default=[], dest="excepted", help="APIs that are not compared")
    parser.add_argument("--seeds", type=int, default=0, help="so many random talks")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=300, help="of each random talk")
    parser.add_argument("--shown", type=Path, help="a file for each request with Kafka's answer and records")
    options = parser.parse_args()
    excepted = frozenset(options.excepted)
    seeds = iter(range(options.seed, options.seed + options.seeds))
    pairs: list[Pair] = []
    while options.talks or operator.length_hint(seeds):
        with (
            tempfile.TemporaryDirectory(prefix="consumer-groups-") as folder,
            started(Path(folder), options.kinds) as sides,
        ):
            create_topics(sides)
            if options.talks:
                pairs.append(talks_compared(sides, options.only or "", excepted))
                options.talks = False
            else:
                pairs.append(seeds_compared(sides, seeds, options.steps, excepted))
    if options.shown:
        options.shown.write_text("\n".join(each for pair in pairs for each in pair.answers) + "\n")
    told = [each for pair in pairs for each in pair.told]
    for each in told:
        print(each, flush=True)
    print(f"{sum(pair.asked for pair in pairs)} requests, {len(told)} differences")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
