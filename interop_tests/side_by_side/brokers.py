"""Brokers of several kinds with the same settings, started for a comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess

BOTH = (APACHE, KAFKACOMPAT)


class Closing(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=Closing)


def unchanged(broker: BrokerProcess) -> None:
    """Nothing is to be changed before its start."""


@contextmanager
def started_brokers(
    folder: Path,
    kinds: Sequence[str] = BOTH,
    settings: Mapping[str, str] | None = None,
    prepare: Callable[[BrokerProcess], None] = unchanged,
) -> Iterator[list[BrokerProcess]]:
    """A new broker of each kind. `prepare` may change the settings of one that has not started."""
    with ExitStack() as stack:
        brokers = [
            BrokerProcess(kind, folder / f"{number}-{kind}", dict(settings or {}))
            for number, kind in enumerate(kinds)
        ]
        for broker in brokers:
            prepare(broker)
            stack.callback(broker.kill)
        # Apache Kafka's start takes longer.
        for broker in sorted(brokers, key=lambda each: each.kind != APACHE):
            broker.launch()
        for broker in brokers:
            broker.wait_until_ready()
        yield brokers


@contextmanager
def started(
    make: Callable[[BrokerProcess], S],
    folder: Path,
    kinds: Sequence[str] = BOTH,
    settings: Mapping[str, str] | None = None,
    prepare: Callable[[BrokerProcess], None] = unchanged,
) -> Iterator[list[S]]:
    """What `make` makes of a new broker of each kind. It is closed at the end."""
    with started_brokers(folder, kinds, settings, prepare) as brokers, ExitStack() as stack:
        sides = []
        for broker in brokers:
            sides.append(make(broker))
            stack.callback(sides[-1].close)
        yield sides
