"""What must hold of groups, judged from what their members are told: commits stay, and a partition has one owner a generation.

Knows no coordinator. A number that is committed for a partition is greater than any before it in the group, so that whichever is
fetched tells what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkacompat.sim.quorum_oracles import Breach

NOTHING = -1
"""What is fetched of a partition without a commit."""


class GroupLedger:
    """Of one group: what was asked for, answered and shown. Partitions are those of one topic, by index."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.issued: dict[int, int] = {}
        """The greatest number that was ever sent."""
        self.settled: dict[int, int] = {}
        """What must be there or be followed: the greatest number that was answered for, or shown."""
        self.is_deleted = False
        """Nothing of it may be there."""
        self._owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> member."""

    def issue(self, partition: int) -> int:
        number = self.issued[partition] = self.issued.get(partition, 0) + 1
        return number

    def committed(self, partition: int, number: int) -> None:
        """It was answered."""
        self.settled[partition] = max(number, self.settled.get(partition, NOTHING))

    def fetched(self, asked_when: Mapping[int, int], found: Mapping[int, int]) -> None:
        """`asked_when` is a copy of `settled` from when the question was sent."""
        for partition, number in found.items():
            if self.is_deleted:
                if number != NOTHING:
                    raise Breach("deleted groups stay deleted", f"{self.group_id}-{partition} has {number}")
                continue
            lowest = asked_when.get(partition, NOTHING)
            if not lowest <= number <= self.issued.get(partition, NOTHING):
                raise Breach(
                    "answered commits are fetched",
                    f"{self.group_id}-{partition} has {number}, answered or shown was {lowest}",
                )
            self.committed(partition, number)

    def assigned(self, generation: int, member_id: str, partitions: Iterable[int]) -> None:
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Breach(
                    "one owner a partition a generation",
                    f"{self.group_id}-{partition} is of {owner} and of {member_id} in generation {generation}",
                )
