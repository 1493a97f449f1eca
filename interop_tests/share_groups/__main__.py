"""Asks Apache Kafka and kafkacompat the same about share groups, and reports what differs.

python -m interop_tests.share_groups --kinds apache kafkacompat --talks --seeds 3 --requests 500

With apache twice it shows what is accidental in Kafka's answers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from interop_tests.share_groups.asking import SharePair
from interop_tests.share_groups.compare import create_topics, seed_compared, talks_compared
from interop_tests.share_groups.random_settings import settings_of
from interop_tests.share_groups.sides import started


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", default=["apache", "kafkacompat"])
    parser.add_argument("--talks", action="store_true", help="the scripted talks")
    parser.add_argument("--only", help="only talks whose names contain this")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--seeds", type=int, help="so many random talks, by default one, or none with --talks"
    )
    parser.add_argument("--requests", type=int, default=300, help="of each random talk")
    parser.add_argument("--shown", type=Path, help="a file for each request with Kafka's answer and records")
    options = parser.parse_args()
    pairs: list[SharePair] = []
    count = int(not options.talks) if options.seeds is None else options.seeds
    seeds = [*range(options.seed, options.seed + count)]
    while options.talks or seeds:
        with (
            tempfile.TemporaryDirectory(prefix="share-groups-") as folder,
            started(Path(folder), options.kinds, **({} if options.talks else settings_of(seeds[0]))) as sides,
        ):
            create_topics(sides)
            if options.talks:
                pairs.append(talks_compared(sides, options.only or ""))
                options.talks = False
            else:
                pairs.append(seed_compared(sides, seeds.pop(0), options.requests))
    if options.shown:
        options.shown.write_text("\n".join(each for pair in pairs for each in pair.answers) + "\n")
    for each in (each for pair in pairs for each in pair.accidental):
        print(f"once: {each}", flush=True)
    for each in (each for pair in pairs for each in pair.known):
        print(f"known of Kafka: {each}", flush=True)
    told = [each for pair in pairs for each in pair.told]
    for each in told:
        print(each, flush=True)
    accidents = sum(len(pair.accidental) for pair in pairs)
    print(
        f"{sum(pair.asked for pair in pairs)} requests, {len(told)} differences, {accidents} that did not come again"
    )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
