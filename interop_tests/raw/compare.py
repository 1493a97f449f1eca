"""Sends the same hostile requests to Apache Kafka and to ours, and tells where their answers differ.

    python -m interop_tests.raw.compare --seed 1 --requests 1000

No test yet: what differs for a reason, and what is a mistake of ours, is to be told apart first.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.raw.side_by_side import CLOSED, CONNECTIONS, WAITS, Side, Unnamed, answers_of
from kafkacompat.api.registry import ENTRIES

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
NOT_COMPARED = {
    "ApiVersions": "what is served, and which features there are, is listed in docs/compatibility.md",
    "DescribeConfigs": "compared name by name in tests of their own",
    "DescribeQuorum": "offsets and times of the metadata log",
    "DescribeLogDirs": "sizes of files",
}
SHOWN = 1500
"""Characters of an answer."""


def compare(sides: Sequence[Side], seed: int, requests: int) -> int:
    """How many answers differ. Ends where the sides have learned so different things that they are asked other things."""
    chance = random.Random(seed)
    different = 0
    for count in range(requests):
        number = chance.randrange(CONNECTIONS)
        now_ms = time.time_ns() // 1_000_000
        asked = [side.author.request(now_ms) for side in sides]
        if len({repr(Unnamed().value("", each.message)) for each in asked}) > 1:
            print(f"request {count} is another for each of them")
            break
        answers = answers_of(sides, number, asked)
        ours, theirs = (side.names.canonical(answer) for side, answer in zip(sides, answers, strict=True))
        if ours != theirs:
            different += 1
            print(
                f"{count}: {asked[0]}\n  ours   {str(ours)[:SHOWN]}\n  theirs {str(theirs)[:SHOWN]}",
                flush=True,
            )
        for side, request, answer in zip(sides, asked, answers, strict=True):
            if answer in (CLOSED, WAITS):
                side.hang_up(number)
            else:
                side.author.learn(request, answer)
            side.settle(request.entry.name)
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--api", action="append", help="only this one; again for more")
    options = parser.parse_args()
    entries = [
        each
        for each in ENTRIES
        if each.name in (options.api or {each.name}) and each.name not in NOT_COMPARED
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
        sides = []
        for kind in (KAFKACOMPAT, APACHE):
            broker = BrokerProcess(kind, folder / kind, SETTINGS)
            stack.callback(broker.kill)
            broker.start()
            sides.append(Side(kind, broker.bootstrap, options.seed, entries))
            stack.callback(sides[-1].close)
        different = compare(sides, options.seed, options.requests)
    print(f"{different} answers differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
