"""An area of the protocol that is compared, and how its talks are held."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from interop_tests.side_by_side.brokers import BOTH
from interop_tests.side_by_side.comparison import Comparison

SOAK = bool(os.environ.get("KAFKACOMPAT_SOAK"))
Sides = Sequence[Any]


class Start(Protocol):
    def __call__(
        self, folder: Path, kinds: Sequence[str] = ..., *, seed: int | None = None, only: Sequence[str] = ()
    ) -> AbstractContextManager[Sides]:
        """The sides, with new brokers. `seed` is of the random talk that is held first, if one is. `only`: APIs of random
        requests."""
        ...


@dataclass(frozen=True)
class Area:
    """`python -m interop_tests.side_by_side NAME` holds its talks."""

    name: str
    start: Start
    random_talk: Callable[[Any, int, int], None]
    """Of a comparison, a seed and the number of requests."""
    talks: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    """The scripted ones. Each has names of its own for what it makes."""
    make: Callable[..., Comparison] = Comparison
    is_bound_to_seed: bool = False
    """Brokers of one seed have other settings, or hold other things, than those of another one."""
    goes_on: bool = False
    """Whether a random talk goes on after a difference: what comes next does not depend on answers."""

    def talk(self, sides: Sides, name: str) -> Comparison:
        """All differences of a scripted talk: it goes on after one, since Kafka's answers lead it."""
        comparison = self.make(sides, name)
        comparison.hold(self.talks[name])
        return comparison

    def seed(self, sides: Sides, seed: int, requests: int) -> Comparison:
        """A random talk with at least so many requests. After the first difference the brokers hold different things."""
        comparison = self.make(sides, f"seed{seed}", stops_at_first=not self.goes_on)
        comparison.hold(lambda talking: self.random_talk(talking, seed, requests))
        return comparison


class KeptBrokers:
    """The brokers of an area that several talks use one after the other. After a difference the next one gets new ones."""

    def __init__(self, area: Area, root: Path, kinds: Sequence[str] = BOTH, only: Sequence[str] = ()) -> None:
        self.area = area
        self._only = only
        self._folders = (root / str(number) for number in count())
        self._kinds = kinds
        self._stack = ExitStack()
        self._sides: Sides | None = None

    def close(self) -> None:
        self._stack.close()
        self._sides = None

    def sides(self, seed: int | None = None) -> Sides:
        if self._sides is None:
            folder = next(self._folders)
            started = self.area.start(folder, self._kinds, seed=seed, only=self._only)
            self._sides = self._stack.enter_context(started)
        return self._sides

    def talk(self, name: str) -> Comparison:
        return self.area.talk(self.sides(), name)

    def seed(self, seed: int, requests: int) -> Comparison:
        if self.area.is_bound_to_seed:
            self.close()
        comparison = self.area.seed(self.sides(seed), seed, requests)
        if comparison.told or comparison.excused:
            self.close()
        return comparison


@contextmanager
def kept_brokers(area: Area, root: Path) -> Iterator[KeptBrokers]:
    with closing(KeptBrokers(area, root)) as brokers:
        yield brokers


def seeds(few: Sequence[int], soak: int = 20) -> list[int]:
    """The seeds of a test: always the same few, and in a soak so many new ones."""
    return [random.randrange(1 << 30) for _ in range(soak)] if SOAK else [*few]


AREAS = {
    "raw": "interop_tests.raw.compare",
    "raw-shares": "interop_tests.raw.sharing_side",
    "rights": "interop_tests.raw.rights",
    "consumer-groups": "interop_tests.consumer_groups.compare",
    "share-groups": "interop_tests.share_groups.compare",
    "streams-groups": "interop_tests.streams_groups.compare",
    "transactions": "interop_tests.transactions.random_talk",
    "quotas": "interop_tests.quotas.compare",
    "telemetry": "interop_tests.telemetry.compare",
    "sasl": "interop_tests.security.sasl_talks",
    "tokens": "interop_tests.security.token_talks",
    "handshakes": "interop_tests.security.damaged_handshakes",
}
"""The module of each area."""


def area_of(name: str) -> Area:
    area = import_module(AREAS[name]).AREA
    assert isinstance(area, Area)
    assert area.name == name
    return area
