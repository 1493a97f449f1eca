"""Placement of new partitions' replicas: striped over racks, and over brokers within a rack, as in Kafka's striped
placer.

Pure; the caller passes the random numbers. Unfenced brokers are used before fenced ones, and the first replica (the
leader) is never on a fenced broker. Each further partition of a call starts one rack later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from kafkacompat.controller.image import BrokerRegistration
from kafkacompat.ports import Random

T = TypeVar("T")


class PlacementRefused(Exception):
    """INVALID_REPLICATION_FACTOR with Kafka's text."""


class _Stripe:
    """A list of brokers that is walked once per round. The start moves by one each round."""

    __slots__ = ("brokers", "index", "offset", "round")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.index = 0
        self.offset = 0
        self.round = 0

    def next(self, current_round: int) -> int:
        if not self.brokers:
            return -1
        if self.round != current_round:
            self.round = current_round
            self.index = 0
            self.offset = (self.offset + 1) % len(self.brokers)
        if self.index >= len(self.brokers):
            return -1
        broker = self.brokers[(self.index + self.offset) % len(self.brokers)]
        self.index += 1
        return broker


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _Stripe()
        self.unfenced = _Stripe()

    def next(self, current_round: int) -> int:
        broker = self.unfenced.next(current_round)
        return broker if broker >= 0 else self.fenced.next(current_round)


def _is_usable(broker: BrokerRegistration) -> bool:
    if broker.in_controlled_shutdown and not broker.fenced:
        return False
    return broker.has_uncordoned_directories


class StripedReplicaPlacer:
    """Places the partitions of one request one by one. Brokers in controlled shutdown, and those with every log
    directory cordoned, are left out."""

    def __init__(self, brokers: Iterable[BrokerRegistration], random: Random) -> None:
        self._random = random
        racks: dict[str, _Rack] = {}
        self._total = 0
        self._unfenced = 0
        for broker in sorted(filter(_is_usable, brokers), key=lambda each: each.id):
            rack = racks.setdefault("" if broker.rack is None else "r" + broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
            self._total += 1
            self._unfenced += not broker.fenced
        self._racks = [racks[name] for name in sorted(racks)]
        for rack in self._racks:
            for stripe in (rack.fenced, rack.unfenced):
                if stripe.brokers:
                    stripe.offset = random.randrange(len(stripe.brokers))
        self._offset = random.randrange(len(self._racks)) if self._racks else 0
        self._round = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Broker ids, leader first. Raises PlacementRefused if there are too few brokers."""
        if replication_factor <= 0:
            raise PlacementRefused(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if replication_factor > self._total:
            raise PlacementRefused(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._total} broker(s) are registered or some brokers have all their log directories cordoned."
            )
        if self._unfenced == 0:
            raise PlacementRefused(
                "All brokers are currently fenced, or have all their log directories cordoned."
            )
        if self._round == self._unfenced and self._unfenced > 1:
            self._shuffle()
            self._round = 0
        racks, count = self._racks, len(self._racks)
        self._offset %= count
        leader_rack = self._offset
        leader = racks[leader_rack].unfenced.next(self._round)
        while leader < 0:
            leader_rack = (leader_rack + 1) % count
            leader = racks[leader_rack].unfenced.next(self._round)
        replicas = [leader]
        rack_index, skip = self._offset, leader_rack
        while len(replicas) < replication_factor:
            if rack_index == skip:
                skip = -1
                broker = -1
            else:
                broker = racks[rack_index].next(self._round)
            rack_index = (rack_index + 1) % count
            if broker >= 0:
                replicas.append(broker)
        self._round += 1
        self._offset += 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._random)
        for rack in self._racks:
            _shuffle(rack.fenced.brokers, self._random)
            _shuffle(rack.unfenced.brokers, self._random)


def _shuffle(items: list[T], random: Random) -> None:
    for position in range(len(items) - 1, 0, -1):
        other = random.randrange(position + 1)
        items[position], items[other] = items[other], items[position]


def place_partitions(
    brokers: Iterable[BrokerRegistration], partitions: int, replication_factor: int, random: Random
) -> Iterator[tuple[int, ...]]:
    """The replicas of each partition, computed on demand. Raises PlacementRefused."""
    placer = StripedReplicaPlacer(brokers, random)
    return (placer.place(replication_factor) for _ in range(partitions))
