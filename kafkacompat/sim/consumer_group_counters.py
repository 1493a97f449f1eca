"""Counts what happened to the simulated groups of both protocols. A count of zero over many runs shows a blind spot."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class ConsumerGroupCounters:
    """Counts of one run, or of many."""

    assignments: int = 0
    revocations: int = 0
    fenced: int = 0
    """Members that learned that they had lost their partitions."""
    left: int = 0
    left_for_a_while: int = 0
    """Static members whose partitions stay with their instance."""
    returned: int = 0
    """Partitions that such a member had, and got again at once."""
    static_joins: int = 0
    unreleased: int = 0
    """Members that could not join because another one had their instance id."""
    instances_fenced: int = 0
    """Members that learned that another one had got their instance id."""
    partitions_of_others: int = 0
    """Partitions assigned of other topics than the one that is always there."""
    vanished: int = 0
    silences: int = 0
    commits: int = 0
    commits_refused: int = 0
    """Commits of members or epochs that had lost the partitions."""
    commits_in_doubt: int = 0
    offsets_read: int = 0
    embedded_assignments: int = 0
    """Assignments given to members of the classic protocol in a consumer group."""
    upgrades: int = 0
    """Conversions that members of the classic protocol have noticed."""
    downgrades: int = 0

    def add(self, other: ConsumerGroupCounters) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))
