"""Brokers that run at once and take turns of a second under the same load.

A change of a few percent is less than what a virtual machine drifts by within a minute. So each turn of a broker is
compared with the turn of another one beside it, and the order changes from turn to turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from benchmarks.measure import create_topic
from interop_tests.harness.broker import BrokerProcess

Figures = dict[str, float]
REQUESTS = 10_000
"""Of one record. They take about a second."""
TOPIC = "bench"


class Turns:
    """`burst` puts a load of about a second on a broker. A first turn, which does not count, warms up."""

    def __init__(
        self, brokers: Mapping[str, BrokerProcess], burst: Callable[[BrokerProcess], Figures], turns: int
    ) -> None:
        names = list(brokers)
        for broker in brokers.values():
            create_topic(broker, TOPIC, 1)
            burst(broker)
        self._found = [
            {name: burst(brokers[name]) for name in (names if number % 2 == 0 else names[::-1])}
            for number in range(turns)
        ]

    def figures(self, name: str) -> Figures:
        """Medians of this broker."""
        return {
            figure: statistics.median(turn[name][figure] for turn in self._found)
            for figure in self._found[0][name]
        }

    def times(self, name: str, other: str) -> Figures:
        """Medians of this broker's figures over the other one's of the same turn."""
        return {
            figure: statistics.median(turn[name][figure] / turn[other][figure] for turn in self._found)
            for figure in self._found[0][name]
        }
