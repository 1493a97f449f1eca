"""Sends the same hostile requests to Apache Kafka and to kafkacompat, and reports different responses.

python -m interop_tests.raw.compare --seed 1 --requests 1000

excused.py lists what may differ and which requests are not sent, with the reasons. The author learns only from equal
responses.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.raw import sharing_side
from interop_tests.raw.canonical import Unnamed, differing
from interop_tests.raw.excused import is_lost_share_fetch
from interop_tests.raw.side_by_side import CLOSED, CONNECTIONS, WAITS, Connect, Side, answers_of
from kafkacompat.api.registry import ENTRIES, Entry

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
SHOWN = 6
"""Fields of a response that differ."""


@dataclass
class Outcome:
    told: list[str] = field(default_factory=list)
    """The differences found."""
    sent: int = 0
    never_asked: list[tuple[str, int]] = field(default_factory=list)
    """The APIs and versions that were never sent."""


def compare(sides: Sequence[Side], seed: int | str, requests: int, outcome: Outcome) -> None:
    """The run ends if the two sides would get different requests, because of what their earlier responses said."""
    chance = random.Random(seed)
    for count in range(requests):
        number = chance.randrange(CONNECTIONS)
        now_ms = time.time_ns() // 1_000_000
        asked = [side.author.request(now_ms) for side in sides]
        pairs = list(zip(sides, asked, strict=True))
        if len({Unnamed(side.data_dir).canonical(each.message) for side, each in pairs}) > 1:
            outcome.told.append(f"{count}: another request for each of them: {asked[0]}\n  {asked[1]}")
            return
        number = sides[0].connection_for(number, asked[0])
        outcome.sent += 1
        for side, request in pairs:
            side.names.canonical(request.message)
        answers = answers_of(sides, number, asked)
        ours, theirs = (side.names.canonical(answer) for side, answer in zip(sides, answers, strict=True))
        is_lost = is_lost_share_fetch(*answers)
        if ours != theirs and not is_lost:
            where = "\n  ".join(islice(differing(ours, theirs), SHOWN))
            outcome.told.append(f"{count}: {asked[0]}\n  {where}")
        for (side, request), answer in zip(pairs, answers, strict=True):
            if answer in (CLOSED, WAITS) or is_lost:
                side.hang_up(number)
            elif ours == theirs:
                # If only one response contains a value, the next requests to the two brokers would differ.
                side.author.learn(request, answer)
            side.settle(request.entry.name)


@contextmanager
def two_sides(
    folder: Path,
    seed: int,
    entries: Sequence[Entry],
    settings: Mapping[str, str] = SETTINGS,
    connecting: Callable[[BrokerProcess], Connect] | None = None,
    make_side: Callable[..., Side] = Side,
) -> Iterator[list[Side]]:
    """The sides of kafkacompat and of Apache Kafka, with new brokers. `connecting` may change the settings of a broker
    before it starts, and returns what connects to it (see Side)."""
    with ExitStack() as stack:
        brokers = [BrokerProcess(kind, folder / kind, settings) for kind in (APACHE, KAFKACOMPAT)]
        connects = {broker.kind: connecting and connecting(broker) for broker in brokers}
        for broker in brokers:
            stack.callback(broker.kill)
        brokers[0].launch()  # Apache Kafka's start takes longer, so start it first
        brokers[1].start()
        brokers[0].wait_until_ready()
        sides = []
        for broker in reversed(brokers):
            connect = connects[broker.kind]
            sides.append(
                make_side(broker, seed, entries, connect) if connect else make_side(broker, seed, entries)
            )
            stack.callback(sides[-1].close)
        yield sides


def compared(
    folder: Path, seed: int, requests: int, apis: Container[str] = (), *, shares: bool = False
) -> Outcome:
    """Compare two new brokers. `shares`: the author knows share groups, and the same seed has other requests."""
    entries = [each for each in ENTRIES if not apis or each.name in apis]
    outcome = Outcome()
    settings, make_side = SETTINGS, Side
    if shares:
        settings, make_side = sharing_side.SETTINGS, sharing_side.SharingSide
    with two_sides(folder, seed, entries, settings, make_side=make_side) as sides:
        compare(sides, seed, requests, outcome)
        outcome.never_asked = sides[0].author.never_asked()
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from that one on")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--api", action="append", default=[], help="only this one; again for more")
    parser.add_argument("--shares", action="store_true", help="by an author who knows share groups")
    options = parser.parse_args()
    count = 0
    for seed in range(options.seed, options.seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            outcome = compared(Path(folder), seed, options.requests, options.api, shares=options.shares)
        count += len(outcome.told)
        for each in outcome.told:
            print(f"seed {seed}, {each}", flush=True)
        print(f"seed {seed}: {outcome.sent} requests", flush=True)
    print(f"{count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
