"""The area of consumer groups: the scripted talks, each with a group of its own, and the random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop_tests.consumer_groups.administration import ADMINISTRATION
from interop_tests.consumer_groups.asking import Asking
from interop_tests.consumer_groups.conversions import CONVERSIONS
from interop_tests.consumer_groups.expressions import EXPRESSIONS
from interop_tests.consumer_groups.pair import Pair
from interop_tests.consumer_groups.random_talk import RandomTalk
from interop_tests.consumer_groups.scenarios import SCENARIOS
from interop_tests.consumer_groups.strange import STRANGE
from interop_tests.consumer_groups.surroundings import FIXED_TOPICS
from interop_tests.consumer_groups.talk import SETTINGS, Side
from interop_tests.side_by_side.area import Area
from interop_tests.side_by_side.brokers import BOTH, started

TALKS = (*SCENARIOS, *ADMINISTRATION, *CONVERSIONS, *EXPRESSIONS, *STRANGE)


@contextmanager
def start(
    folder: Path, kinds: Sequence[str] = BOTH, *, seed: int | None = None, only: Sequence[str] = ()
) -> Iterator[list[Side]]:
    with started(Side, folder, kinds, SETTINGS) as sides:
        for side in sides:
            for name, partitions in FIXED_TOPICS.items():
                side.create_topic(name, partitions)
        yield sides


def of_own_group(talk: Callable[[Asking], object]) -> Callable[[Pair], Any]:
    return lambda pair: talk(Asking(pair, talk.__name__))


def random_talk(pair: Pair, seed: int, requests: int) -> None:
    """With groups of its own. A step is at most a few requests."""
    RandomTalk(pair, seed).walk(requests)


AREA = Area(
    "consumer-groups",
    start,
    random_talk,
    {talk.__name__: of_own_group(talk) for talk in TALKS},
    make=Pair,
)
