"""What a server-side assignor of KIP-848 is asked and what it answers.

An assignor is a generator function. It yields the estimated cost of each step in microseconds and returns the target
assignment, in which every member has an entry. Its result depends only on its input, because topics are sorted and
members come in the group's order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from struct import Struct

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import Uuid

Assignment = dict[Uuid, frozenset[int]]
"""Partitions by topic id. A topic without partitions has no entry."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows of a member."""

    instance_id: str | None
    rack_id: str | None
    topic_ids: frozenset[Uuid]
    """The subscribed topics that have metadata."""
    assigned: Mapping[Uuid, frozenset[int]]
    """The member's part of the previous target assignment."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """What an assignor knows of a group."""

    members: Mapping[str, MemberSpec]
    """By member id, in the group's order."""
    partition_counts: Mapping[Uuid, int]
    """The topics that have metadata. A subscribed topic that is missing here is ignored."""
    homogeneous: bool
    """Whether all members subscribe to the same topics."""

    def topics(self, topic_ids: Iterable[Uuid]) -> list[Uuid]:
        """Those of these topics that have metadata, in Kafka's order of ids."""
        counts = self.partition_counts
        return sorted((topic_id for topic_id in topic_ids if topic_id in counts), key=uuid_order)


Assign = Callable[[GroupSpec], Generator[int, None, dict[str, Assignment]]]


def assign_to_one(spec: GroupSpec) -> dict[str, Assignment]:
    """The target assignment of a group with one member. Every assignor gives it all partitions of its topics, so none needs
    to be asked: that would take ten times as long."""
    ((member_id, member),) = spec.members.items()
    all_of = {count: frozenset(range(count)) for count in set(spec.partition_counts.values())}
    counts = spec.partition_counts
    return {
        member_id: {
            topic_id: all_of[counts[topic_id]]
            for topic_id in spec.topics(member.topic_ids)
            if counts[topic_id]
        }
    }


_SIGNED = Struct(">qq")
uuid_order = _SIGNED.unpack
"""The key by which Kafka sorts ids: as two signed numbers."""


def string_order(text: str) -> bytes:
    """The key by which Java sorts strings: by UTF-16 code units and not by characters."""
    return text.encode("utf-16-be", "surrogatepass")


STEP_NS = 2_000_000


class Meter:
    """Adds up the estimated time of a step. Cores have no clock, so each loop knows what its parts cost."""

    __slots__ = ("_ns",)

    def __init__(self) -> None:
        self._ns = 0

    def spend(self, ns: int) -> int:
        """Count some work, in nanoseconds. Return the step's cost in microseconds if it is over, otherwise 0."""
        self._ns += ns
        if self._ns < STEP_NS:
            return 0
        cost, self._ns = self._ns // 1000, 0
        return cost
