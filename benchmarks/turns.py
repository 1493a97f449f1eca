"""Brokers that run at once and take turns of a second under the same load.

A change of a few percent is less than what a virtual machine drifts by within a minute. So each turn of a broker is
compared with the turn of another one beside it, and the order changes from turn to turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from benchmarks.measure import client, create_topic
from interop_tests.harness.broker import BrokerProcess

Figures = dict[str, float]
CPU, RATE = "broker CPU us/request", "requests/s"
REQUESTS = 10_000
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


def one_record_burst(in_flight: int) -> Callable[[BrokerProcess], Figures]:
    """Produce requests of one record of 100 B."""

    def burst(broker: BrokerProcess) -> Figures:
        job = {"topic": TOPIC, "size": 100, "acks": "all", "in_flight": in_flight}
        found = client(broker, work="raw_produce", requests=REQUESTS, **job)
        return {CPU: found["broker_cpu_s"] / REQUESTS * 1e6, RATE: found["requests_per_s"]}

    return burst
