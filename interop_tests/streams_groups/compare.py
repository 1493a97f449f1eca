"""The area of streams groups: random talks, each with groups of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from interop_tests.consumer_groups.pair import Pair
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started
from interop_tests.streams_groups.asking import STREAMS_SETTINGS, StreamsSide
from interop_tests.streams_groups.random_talk import EPISODE, FIXED_TOPICS, RandomTalk


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[StreamsSide]]:
    with started(StreamsSide, folder, kinds, STREAMS_SETTINGS) as sides:
        for side in sides:
            for name, partitions in FIXED_TOPICS.items():
                side.create_topic(name, partitions)
        yield sides


def random_talk(pair: Pair, seed: int, requests: int) -> None:
    until = pair.asked + requests
    for episode in count():
        if pair.asked >= until:
            return
        RandomTalk(pair, seed, episode).walk(min(EPISODE, until - pair.asked))


AREA = Area("streams-groups", start, random_talk, make=Pair)
