"""What the members of the random talks know: their epochs, partitions and generations, as Kafka's answers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from interop_tests.consumer_groups.asking import Owned

OUT, MADE, JOINED, STABLE, WAITING = "out", "made", "joined", "stable", "waiting"
"""The stages of a classic member: not in the group, with an id, with a generation, with an assignment, and while a
request waits for others."""


def partitions_in(answer: Any) -> Owned | None:
    """The partitions in an answer, by the name of the topic with the number of its incarnation."""
    if answer["Assignment"] is None:
        return None
    return {each["TopicId"]: each["Partitions"] for each in answer["Assignment"]["TopicPartitions"]}


@dataclass
class Walker:
    """A member of KIP-848. It takes a new id when it comes back after it has left."""

    slot: str
    assignor: str
    incarnation: int = 0
    instance: str | None = None
    epoch: int = 0
    """0 while it is not in the group, -2 while its instance is released."""
    owned: Owned = field(default_factory=dict)
    owned_before: Owned = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.slot}{self.incarnation}"

    @property
    def is_in(self) -> bool:
        return self.epoch > 0

    def begin_again(self) -> None:
        self.incarnation += 1
        self.epoch = 0
        self.owned, self.owned_before = {}, {}

    def learn(self, answer: Any) -> None:
        if answer["ErrorCode"] == 0 and answer["MemberEpoch"] > 0:
            self.epoch = answer["MemberEpoch"]
            given = partitions_in(answer)
            if given is not None:
                self.owned_before, self.owned = self.owned, given


@dataclass
class ClassicWalker:
    """A member of the classic protocol."""

    slot: str
    stage: str = OUT
    incarnation: int = 0
    id: str = ""
    instance: str | None = None
    generation: int = -1
    topics: list[str] = field(default_factory=list)
    revision: int = 0
    """Goes into the metadata, so that each JoinGroup has other metadata than the one before.

    If they were equal, it would depend on the leader whether the group rebalances, and which of two members leads is the
    order of a hash table.
    """
    is_refused: bool = False
    """Its own id was refused: the group is a classic one, in which the coordinator makes ids."""

    @property
    def client_id(self) -> str:
        """Begins the ids that a classic group makes, so the order of the ids is that of the slots."""
        return f"{self.slot}{self.incarnation}"

    def leave(self) -> None:
        self.stage, self.id, self.generation, self.is_refused = OUT, "", -1, False
