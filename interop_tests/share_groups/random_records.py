"""The topic of a random talk: what is written to it, and what is deleted."""

from __future__ import annotations

import random

from interop_tests.share_groups.asking import Place, ShareAsking

PARTITIONS = 2
FIRST_RECORDS = 5


class RandomTopic:
    """One topic with the records that its group reads, which can be deleted and created again."""

    def __init__(self, group: ShareAsking, name: str, chance: random.Random) -> None:
        self._group = group
        self._pair = group.pair
        self._chance = chance
        self.name = name
        self.places: list[Place] = [(name, number) for number in range(PARTITIONS)]
        self.ends: dict[Place, int] = {}
        self._borders: dict[Place, list[int]] = {}
        """Where batches begin or end."""
        self._open_transactions: set[Place] = set()
        self.cut: dict[Place, int] = {}
        """Partitions that have lost their first records, and where they begin."""
        self._pair.cut = self.cut
        self.made = 0
        """How often the topic was created."""

    def create(self) -> None:
        self.made += 1
        self._pair.change("create", lambda side: side.create_topic(self.name, PARTITIONS))
        self.ends = dict.fromkeys(self.places, 0)
        self._borders = {place: [0] for place in self.places}
        self.cut.clear()

    def fill(self) -> None:
        for place in self.places:
            self._produce_to(place, FIRST_RECORDS)

    def delete(self) -> None:
        """The group's partitions have states, which are deleted with the topic."""
        self.end_transactions()
        before = self._pair.states_of(self._group.group)
        self._pair.change("delete", lambda side: side.delete_topic(self.name))
        self._pair.wait_for_states(self._group.group, before, PARTITIONS)

    @property
    def last_name(self) -> str:
        """The name by which the topic is known that was created last."""
        return f"{self.name}#{self.made}"

    def produce(self) -> None:
        count = self._chance.choice([1, 1, 1, 2, 2, 3, 3, 7, 7, 40])
        self._produce_to(self._chance.choice(self.places), count)

    def _produce_to(self, place: Place, count: int) -> None:
        self._group.produce(self.name, count, place[1])
        self._go_to(place, count)

    def _go_to(self, place: Place, count: int) -> None:
        """A batch of so many offsets is at the end of the partition now."""
        self.ends[place] += count
        self._borders[place].append(self.ends[place])

    def transaction(self) -> None:
        place = self._chance.choice(self.places)
        if place in self._open_transactions:
            self._end_transaction(place)
            return
        count = self._chance.choice([1, 2, 3])
        outcome = self._chance.choice([True, False, None])
        self._group.transaction(self.name, count, outcome, place[1])
        self._go_to(place, count)
        if outcome is None:
            self._open_transactions.add(place)
        else:
            self._go_to(place, 1)

    def _end_transaction(self, place: Place) -> None:
        self._open_transactions.remove(place)
        end, outcome = self.ends[place], self._chance.random() < 0.5
        self._pair.change(
            f"end the transaction of {place}: {outcome}",
            lambda side: side.end_transaction(self.name, place[1], outcome, end),
        )
        self._go_to(place, 1)

    def end_transactions(self) -> None:
        for place in sorted(self._open_transactions):
            self._end_transaction(place)

    def delete_records(self) -> None:
        place = self._chance.choice(self.places)
        # Of a batch that is cut, Kafka acquires deleted records too.
        offset = self._chance.choice(self._borders[place])
        self._group.delete_records(self.name, offset, place[1])
        self.cut[place] = max(offset, self.cut.get(place, 0))
