"""Ways to serve that take turns of a second under the same load.

A change of a few percent is less than what a virtual machine drifts by within a minute. So each turn of a way is
compared with the turn of another one beside it, and the order changes from turn to turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

Figures = dict[str, float]
Turn = dict[str, Figures]
"""By way."""
REQUESTS = 10_000
"""Of one record. They take about a second."""
TOPIC = "bench"


def taken(ways: Mapping[str, Callable[[], Figures]], count: int) -> list[Turn]:
    """The figures of so many turns of each way."""
    names = list(ways)
    turns = []
    for number in range(count):
        found = {name: ways[name]() for name in (names if number % 2 == 0 else names[::-1])}
        turns.append({name: found[name] for name in names})
    return turns


def medians(turns: list[Turn], way: str) -> Figures:
    return {figure: statistics.median(turn[way][figure] for turn in turns) for figure in turns[0][way]}


def ratios(turns: list[Turn], way: str, other: str) -> Figures:
    """Medians of this way's figures over the other one's of the same turn."""
    return {
        figure: statistics.median(turn[way][figure] / turn[other][figure] for turn in turns)
        for figure in turns[0][way]
    }
