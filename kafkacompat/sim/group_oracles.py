"""Checks groups by the answers to their members: commits are not lost, and a partition has one owner per generation.

Independent of the coordinator. Each committed number of a partition is greater than all before it in the group, so the
fetched number shows which commits were lost. `Owners` knows which members of a group may own a partition now.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkacompat.sim.breach import Breach

NOTHING = -1
"""The fetched number of a partition without a commit."""


def named(partition: Hashable) -> str:
    """A partition of a topic's id, or anything else that tells partitions apart."""
    if isinstance(partition, tuple) and isinstance(partition[0], bytes):
        return f"{partition[0].hex()[:8]}-{partition[1]}"
    return str(partition)


class Generation(NamedTuple):
    life: int
    """How many times the group was deleted before."""
    number: int


class GroupHistory:
    """The requests and answers of one group, by partition."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.issued: dict[Hashable, int] = {}
        """The greatest number that was ever sent."""
        self.settled: dict[Hashable, int] = {}
        """The greatest number that was acknowledged or fetched. It must stay, or be replaced by a greater one."""
        self.is_deleted = False
        """True if the group must have no offsets."""
        self.may_return = False
        """Whether a replica may have missed the tombstones of a deleted group: a clock went past delete.retention.ms while it
        was away. Kafka loses them too."""
        self.assigned_last = Generation(0, 0)
        """The greatest generation that a member was assigned something in."""
        self._owners: dict[tuple[Generation, Hashable], str] = {}

    def issue(self, partition: Hashable) -> int:
        number = self.issued[partition] = self.issued.get(partition, 0) + 1
        return number

    def committed(self, partition: Hashable, number: int) -> None:
        """The commit was acknowledged."""
        self.settled[partition] = max(number, self.settled.get(partition, NOTHING))

    def fetched(self, asked_when: Mapping[Any, int], found: Mapping[Any, int]) -> None:
        """Check fetched numbers. `asked_when` is a copy of `settled` from when the request was sent."""
        for partition, number in found.items():
            if self.is_deleted:
                if number != NOTHING and not (
                    self.may_return and number <= self.issued.get(partition, NOTHING)
                ):
                    raise Breach(
                        "deleted groups stay deleted", f"{self.group_id}-{named(partition)} has {number}"
                    )
                continue
            lowest = asked_when.get(partition, NOTHING)
            if not lowest <= number <= self.issued.get(partition, NOTHING):
                raise Breach(
                    "answered commits are fetched",
                    f"{self.group_id}-{named(partition)} has {number}, answered or shown was {lowest}",
                )
            self.committed(partition, number)

    def assigned(
        self, generation: int, member_id: str, partitions: Iterable[Hashable], named_after: Generation
    ) -> None:
        """`named_after` is a copy of `assigned_last` from when the member asked for its id.

        A group without members and offsets is deleted, so its generations begin anew. Only then is a new member in a
        generation that there was before.
        """
        last = self.assigned_last
        if (last.life, generation) <= named_after:
            if any(number != NOTHING for number in self.settled.values()):
                raise Breach(
                    "a group with offsets stays",
                    f"{self.group_id} is in generation {generation}, after {named_after.number}",
                )
            self.assigned_last = Generation(last.life + 1, generation)
        else:
            self.assigned_last = max(last, Generation(last.life, generation))
        now = Generation(self.assigned_last.life, generation)
        for partition in partitions:
            owner = self._owners.setdefault((now, partition), member_id)
            if owner != member_id:
                raise Breach(
                    "one owner a partition a generation",
                    f"{self.group_id}-{named(partition)} is of {owner} and of {member_id} in generation {generation}",
                )


class Grant(NamedTuple):
    """When a member got a partition: after it had asked, and before it was told."""

    asked_us: int
    told_us: int


class Owners:
    """What the members of a group of both protocols own at a time, as they know it.

    A member of the consumer protocol is told to give a partition up before another gets it. It counts as the owner until
    it has done so, knows that it was fenced, or was silent for `session_us`. A member of the classic protocol may be
    deprived of a partition before it knows, but then its commits are refused.
    """

    def __init__(self, group_id: str, session_us: int) -> None:
        self._group_id = group_id
        self._session_us = session_us
        self._grants: dict[Hashable, dict[Hashable, Grant]] = {}
        self._until_us: dict[Hashable, int] = {}
        self._asked_first: set[Hashable] = set()

    def heard(self, member: Hashable, sent_us: int) -> None:
        """The coordinator has answered the member's request: its session began after the request was sent."""
        self._until_us[member] = sent_us + self._session_us

    def told(
        self, member: Hashable, partitions: Iterable[Hashable], grant: Grant, *, is_asked_first: bool
    ) -> None:
        """The coordinator has confirmed that the member owns these. `is_asked_first`: before another gets any of them."""
        before = self._grants.get(member, {})
        self._grants[member] = {each: before.get(each, grant) for each in partitions}
        (self._asked_first.add if is_asked_first else self._asked_first.discard)(member)
        if grant.told_us >= self._until_us.get(member, 0):
            return  # the answer took longer than a session, in which another may have got them
        for partition in self._grants[member]:
            for other in self._others_with(partition, member, grant.told_us):
                if other in self._asked_first:
                    raise Breach(
                        "one owner a partition",
                        f"{self._group_id}-{named(partition)} is of {other}, and {member} is told that it is its own",
                    )

    def gives_up(self, member: Hashable, partitions: Iterable[Hashable] | None = None) -> None:
        """All of its partitions if `partitions` is None. Call it before the coordinator is told."""
        if partitions is None:
            self._grants.pop(member, None)
            return
        owned = self._grants.get(member, {})
        for partition in partitions:
            owned.pop(partition, None)

    def leaves_for_a_while(self, member: Hashable, instance_id: str) -> None:
        """A static member goes, and its partitions stay with the instance until its session ends. Call it before the
        coordinator is told."""
        self._grants[instance_id] = self._grants.pop(member, {})
        self._until_us[instance_id] = self._until_us.get(member, 0)
        self._asked_first.add(instance_id)

    def comes_back(self, instance_id: str) -> None:
        """The instance joins again, perhaps for fewer partitions. Call it before the coordinator is told."""
        self._grants.pop(instance_id, None)

    def committed(self, member: Hashable, partitions: Iterable[Hashable], sent_us: int, now_us: int) -> None:
        """A commit was acknowledged that the member sent at `sent_us`. Nobody may have got the partition between the
        member and the commit."""
        for partition in partitions:
            own = self._grants.get(member, {}).get(partition)
            for other, grant in self._others_with(partition, member, now_us).items():
                if grant.told_us < sent_us and (own is None or own.told_us < grant.asked_us):
                    raise Breach(
                        "only the owner commits",
                        f"{self._group_id}-{named(partition)} is of {other} since {grant.told_us}, and {member}, which had it "
                        f"before, commits at {sent_us}",
                    )

    def _others_with(self, partition: Hashable, member: Hashable, now_us: int) -> dict[Hashable, Grant]:
        """Return who else owns it."""
        return {
            other: owned[partition]
            for other, owned in self._grants.items()
            if other != member and partition in owned and now_us < self._until_us.get(other, 0)
        }
