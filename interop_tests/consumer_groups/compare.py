"""Runs the scripted talks, each with a group of its own, and the random ones, each with groups of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from interop_tests.consumer_groups.administration import ADMINISTRATION
from interop_tests.consumer_groups.asking import Asking
from interop_tests.consumer_groups.conversions import CONVERSIONS
from interop_tests.consumer_groups.expressions import EXPRESSIONS
from interop_tests.consumer_groups.pair import Different, Pair
from interop_tests.consumer_groups.random_talk import RandomTalk
from interop_tests.consumer_groups.scenarios import SCENARIOS
from interop_tests.consumer_groups.strange import STRANGE
from interop_tests.consumer_groups.surroundings import FIXED_TOPICS
from interop_tests.consumer_groups.talk import Side

TALKS = (*SCENARIOS, *ADMINISTRATION, *CONVERSIONS, *EXPRESSIONS, *STRANGE)


def create_topics(sides: Sequence[Side]) -> None:
    for side in sides:
        for name, partitions in FIXED_TOPICS.items():
            side.create_topic(name, partitions)


def talks_compared(
    sides: Sequence[Side],
    only: str = "",
    not_compared: frozenset[str] = frozenset(),
    is_whole_name: bool = False,
) -> Pair:
    """All differences: a talk goes on after one, since Kafka's answers lead it. `only` is in the talk's name."""
    pair = Pair(sides, stops_at_first=False, not_compared=not_compared)
    for talk in TALKS:
        if talk.__name__ == only if is_whole_name else only in talk.__name__:
            pair.place = talk.__name__
            try:
                talk(Asking(pair, talk.__name__))
            except AssertionError as error:
                pair.told.append(f"{pair.place}: {error}")
    return pair


def seeds_compared(
    sides: Sequence[Side], seeds: Iterator[int], steps: int, not_compared: frozenset[str] = frozenset()
) -> Pair:
    """Takes seeds up to the first difference: after it the brokers hold different groups."""
    pair = Pair(sides, stops_at_first=True, not_compared=not_compared)
    try:
        for seed in seeds:
            RandomTalk(pair, seed).walk(steps)
    except Different as difference:
        pair.told = [str(difference)]
    return pair
