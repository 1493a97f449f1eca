"""The area of all APIs: hostile requests by an author who learns from the answers.

excused.py lists what may differ and which requests are not sent, with the reasons. The author learns only from equal
responses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import BrokerProcess
from interop_tests.raw.canonical import Unnamed
from interop_tests.raw.excused import is_lost_share_fetch
from interop_tests.raw.side_by_side import CLOSED, CONNECTIONS, WAITS, Connect, Side, answers_of
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.side_by_side.comparison import Comparison
from kafkacompat.api.registry import ENTRIES, Entry

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
LOST = "Kafka loses the answer about a topic that does not exist"


def hostile_requests(comparison: Comparison, seed: int | str, requests: int) -> None:
    """The talk ends if the sides would get different requests, because of what their earlier responses said."""
    chance = random.Random(seed)
    sides: Sequence[Side] = comparison.sides
    for count in range(requests):
        number = chance.randrange(CONNECTIONS)
        now_ms = time.time_ns() // 1_000_000
        asked = [side.author.request(now_ms) for side in sides]
        pairs = list(zip(sides, asked, strict=True))
        if len({Unnamed(side.data_dir).canonical(each.message) for side, each in pairs}) > 1:
            told = "\n  ".join(map(str, asked))
            comparison.told.append(f"{comparison.place}, {count}: another request for each of them: {told}")
            return
        number = sides[0].connection_for(number, asked[0])
        for side, request in pairs:
            side.names.canonical(request.message)
        answers = answers_of(sides, number, asked)
        canonical = [side.names.canonical(answer) for side, answer in zip(sides, answers, strict=True)]
        is_lost = any(is_lost_share_fetch(ours, answers[0]) for ours in answers[1:])
        if is_lost:
            comparison.asked += 1
            comparison.excused.append((LOST, f"{comparison.place}, {count}: {asked[0]}"))
        is_alike = is_lost or comparison.answered(f"{count}: {asked[0]}", canonical)
        for (side, request), answer in zip(pairs, answers, strict=True):
            if answer in (CLOSED, WAITS) or is_lost:
                side.hang_up(number)
            elif is_alike:
                # If only one response contains a value, the next requests to the brokers would differ.
                side.author.learn(request, answer)
            side.settle(request.entry.name)


def all_sides(
    folder: Path,
    seed: int | None,
    entries: Sequence[Entry],
    settings: Mapping[str, str] = SETTINGS,
    connecting: Callable[[BrokerProcess], Connect] | None = None,
    make_side: Callable[..., Any] = Side,
    kinds: Sequence[str] = BOTH,
) -> AbstractContextManager[list[Any]]:
    """The sides with new brokers. `connecting` may change the settings of a broker before it starts, and returns what
    connects to it (see Side)."""
    connects: dict[Path, Connect] = {}

    def prepare(broker: BrokerProcess) -> None:
        if connecting is not None:
            connects[broker.data_dir] = connecting(broker)

    def make(broker: BrokerProcess) -> Any:
        more = [connects[broker.data_dir]] if connecting is not None else []
        return make_side(broker, seed, entries, *more)

    return started(make, folder, kinds, settings, prepare)


def chosen(entries: Sequence[Entry], only: Sequence[str]) -> list[Entry]:
    return [each for each in entries if not only or each.name in only]


def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> AbstractContextManager[list[Side]]:
    return all_sides(folder, seed, chosen(ENTRIES, only), kinds=kinds)


AREA = Area("raw", start, hostile_requests, is_bound_to_seed=True, goes_on=True)
