"""Checks groups by the answers to their members: commits are not lost, and a partition has one owner per generation.

Independent of the coordinator. Each committed number of a partition is greater than all before it in the group, so the
fetched number shows which commits were lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkacompat.sim.quorum_oracles import Breach

NOTHING = -1
"""The fetched number of a partition without a commit."""


class GroupLedger:
    """The requests and answers of one group. Partitions are those of one topic, by index."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.issued: dict[int, int] = {}
        """The greatest number that was ever sent."""
        self.settled: dict[int, int] = {}
        """The greatest number that was acknowledged or fetched. It must stay, or be replaced by a greater one."""
        self.is_deleted = False
        """True if the group must have no offsets."""
        self._owners: dict[tuple[int, int], str] = {}
        """(generation, partition) -> member id."""

    def issue(self, partition: int) -> int:
        number = self.issued[partition] = self.issued.get(partition, 0) + 1
        return number

    def committed(self, partition: int, number: int) -> None:
        """The commit was acknowledged."""
        self.settled[partition] = max(number, self.settled.get(partition, NOTHING))

    def fetched(self, asked_when: Mapping[int, int], found: Mapping[int, int]) -> None:
        """Check fetched numbers. `asked_when` is a copy of `settled` from when the request was sent."""
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
