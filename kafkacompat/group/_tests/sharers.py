"""Members of share groups as clients keep them, and a share coordinator that remembers what it was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafkacompat.api.share_group_describe import HANDLER as DESCRIBE
from kafkacompat.api.share_group_heartbeat import HANDLER as HEARTBEAT
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.deferred import Deferred
from kafkacompat.group.environment import GroupSettings, ShareGroupSettings
from kafkacompat.share.service import (
    ReadState,
    ShareError,
    SharePartitionKey,
    StateSummary,
    TopicIdPartition,
    WriteState,
)
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

GROUP = "s"
Outcome = Mapping[TopicIdPartition, ShareError]


class Persister:
    """SharePersister. `refusal` fails requests; while `held` they wait for `release`."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, TopicIdPartition], tuple[int, int]] = {}
        """Group and partition -> state epoch and start offset."""
        self.asked: list[tuple[str, str, int, dict[TopicIdPartition, int]]] = []
        """(call, group, state epoch, start offsets)."""
        self.summaries: dict[tuple[str, TopicIdPartition], StateSummary] = {}
        self.refusal = E.NONE
        self.refused: set[TopicIdPartition] | None = None
        """Those that `refusal` is for. None for all."""
        self.held = False
        self._waiting: list[tuple[Deferred[Outcome], Outcome]] = []

    def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> Deferred[Outcome]:
        self.asked.append(("initialize", group_id, state_epoch, dict(start_offsets)))
        outcome = self._outcome(list(start_offsets))
        for partition, error in outcome.items():
            if error.code is E.NONE:
                self.states[group_id, partition] = state_epoch, start_offsets[partition]
        return self._answer(outcome)

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> Deferred[Outcome]:
        self.asked.append(("delete", group_id, -1, dict.fromkeys(partitions, -1)))
        outcome = self._outcome(partitions)
        for partition, error in outcome.items():
            if error.code is E.NONE:
                self.states.pop((group_id, partition), None)
        return self._answer(outcome)

    def read_summary(
        self, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Deferred[Mapping[TopicIdPartition, StateSummary]]:
        known = self.summaries
        return Deferred.of({each: known.get((group_id, each), StateSummary()) for each in partitions})

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Deferred[ReadState]:
        raise NotImplementedError

    def write(self, key: SharePartitionKey, state: WriteState) -> Deferred[ShareError]:
        raise NotImplementedError

    def release(self) -> None:
        self.held = False
        waiting, self._waiting = self._waiting, []
        for answer, outcome in waiting:
            answer.resolve(outcome)

    def _outcome(self, partitions: Sequence[TopicIdPartition]) -> Outcome:
        return {
            each: ShareError(self.refusal if self.refused is None or each in self.refused else E.NONE)
            for each in partitions
        }

    def _answer(self, outcome: Outcome) -> Deferred[Outcome]:
        if not self.held:
            return Deferred.of(outcome)
        answer: Deferred[Outcome] = Deferred()
        self._waiting.append((answer, outcome))
        return answer


class SharingCoordinator(LeadingCoordinator):
    """A coordinator with a share coordinator."""

    def __init__(self, assignment_interval_ms: int = 0, **settings: Any) -> None:
        super().__init__(
            GroupSettings(share=ShareGroupSettings(**settings)),
            node={"group.share.assignment.interval.ms": assignment_interval_ms},
            persister=Persister(),
        )


def heartbeat(world: LeadingCoordinator, **fields: Any) -> Any:
    fields = {"group_id": GROUP, **fields}
    answer = world.call(HEARTBEAT, ShareGroupHeartbeatRequest(**fields), 1)
    world.time.advance(0)  # what was begun beside the answer
    return answer


def described(world: LeadingCoordinator, *groups: str) -> Any:
    request = ShareGroupDescribeRequest(group_ids=list(groups or (GROUP,)))
    return world.call(DESCRIBE, request, 1).groups


class Sharer:
    """A client. It has at once what it is told."""

    def __init__(self, world: LeadingCoordinator, member_id: str, *topics: str, group: str = GROUP) -> None:
        self.world = world
        self.member_id = member_id
        self.group = group
        self.epoch = 0
        self.topics = list(topics)
        self.has: dict[bytes, list[int]] = {}

    def join(self) -> Any:
        self.epoch, self.has = 0, {}
        return self._send(subscribed_topic_names=self.topics)

    def beat(self, **fields: Any) -> Any:
        return self._send(**fields)

    def settle(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            self.beat()

    def leave(self) -> Any:
        return heartbeat(self.world, group_id=self.group, member_id=self.member_id, member_epoch=-1)

    def _send(self, **fields: Any) -> Any:
        answer = heartbeat(
            self.world,
            **{
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                **fields,
            },
        )
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    @property
    def partitions(self) -> set[tuple[str, int]]:
        names = {topic.id: topic.name for topic in self.world.image.topics.values()}
        return {(names[topic_id], index) for topic_id, each in self.has.items() for index in each}
