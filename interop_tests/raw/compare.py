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
from collections.abc import Callable, Container, Iterator, Sequence
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


def compare(sides: Sequence[Side], seed: int, requests: int, tell: Callable[[str], None]) -> int:
    """How many requests were sent. Ends where the sides are asked different things, by reason of what was told before."""
    chance = random.Random(seed)
    for count in range(requests):
        number = chance.randrange(CONNECTIONS)
        now_ms = time.time_ns() // 1_000_000
        asked = [side.author.request(now_ms) for side in sides]
        if len({repr(Unnamed().value("", each.message)) for each in asked}) > 1:
            tell(f"{count}: another request for each of them: {asked[0]}\n  {asked[1]}")
            return count
        answers = answers_of(sides, number, asked)
        ours, theirs = (side.names.canonical(answer) for side, answer in zip(sides, answers, strict=True))
        if ours != theirs:
            tell(
                f"{count}: {asked[0]}\n  ours   {str(ours)[:SHOWN]}\n  theirs {str(theirs)[:SHOWN]}",
            )
        for side, request, answer in zip(sides, asked, answers, strict=True):
            if answer in (CLOSED, WAITS):
                side.hang_up(number)
            elif ours == theirs:
                # What only one of them says would make the next requests different ones.
                side.author.learn(request, answer)
            side.settle(request.entry.name)
    return requests


def differences(folder: Path, seed: int, requests: int, apis: Container[str] = ()) -> Iterator[str]:
    """Of two brokers that are started for it."""
    entries = [each for each in ENTRIES if (not apis or each.name in apis) and each.name not in NOT_COMPARED]
    told: list[str] = []
    with ExitStack() as stack:
        sides = []
        for kind in (KAFKACOMPAT, APACHE):
            broker = BrokerProcess(kind, folder / kind, SETTINGS)
            stack.callback(broker.kill)
            broker.start()
            sides.append(Side(kind, broker.bootstrap, seed, entries))
            stack.callback(sides[-1].close)
        sent = compare(sides, seed, requests, told.append)
    yield from told
    if sent < requests:
        yield f"{sent} of {requests} requests were sent"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from that one on")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--api", action="append", default=[], help="only this one; again for more")
    options = parser.parse_args()
    count = 0
    for seed in range(options.seed, options.seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            for each in differences(Path(folder), seed, options.requests, options.api):
                count += 1
                print(f"seed {seed}, {each}", flush=True)
    print(f"{count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
