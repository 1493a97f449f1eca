"""Members of consumer groups as clients keep them: what they own, and what they tell with each heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafkacompat.api.consumer_group_describe import HANDLER as DESCRIBE
from kafkacompat.api.consumer_group_heartbeat import HANDLER as HEARTBEAT
from kafkacompat.coordinator._tests import clients
from kafkacompat.coordinator._tests.kit import LeadingCoordinator
from kafkacompat.deferred import Deferred
from kafkacompat.group.consumer_protocol import subscribed_topics
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode as E
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kafkacompat.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)

GROUP = "g"
Owned = dict[bytes, set[int]]


def heartbeat(world: LeadingCoordinator, *, version: int = 1, **fields: Any) -> Any:
    fields = {"group_id": GROUP, **fields}
    return world.call(HEARTBEAT, ConsumerGroupHeartbeatRequest(**fields), version)


def described(world: LeadingCoordinator, *groups: str) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups or (GROUP,)))
    return world.call(DESCRIBE, request, 1).groups


def topic_partitions(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in owned.items()
    ]


class Member:
    """A client of the consumer protocol. It does at once what its assignment tells it, unless it `keeps` what it has.
    Then it does so in `catch_up`."""

    def __init__(
        self,
        world: LeadingCoordinator,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 60_000,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.instance = instance
        self.epoch = 0
        self.owned: Owned = {}
        self.keeps = False
        self._due: Owned | None = None
        """An assignment that it was told and has not followed yet."""
        self._told: dict[str, Any] = {
            "subscribed_topic_names": list(topics) if topics or regex is None else None,
            "subscribed_topic_regex": regex,
            "server_assignor": assignor,
            "rebalance_timeout_ms": rebalance_ms,
        }

    def join(self) -> Any:
        self.lose_all()
        return self._send(**self._told, topic_partitions=[])

    def beat(self, **fields: Any) -> Any:
        """With what it owns, unless told otherwise."""
        return self._send(**{"topic_partitions": topic_partitions(self.owned), **fields})

    def leave(self, epoch: int = -1) -> Any:
        return heartbeat(self.world, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance)

    def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            self.beat()

    def _send(self, **fields: Any) -> Any:
        answer = heartbeat(
            self.world,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            **fields,
        )
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self._due = {
                    each.topic_id: set(each.partitions) for each in answer.assignment.topic_partitions
                }
            if not self.keeps:
                self.catch_up()
        return answer

    def catch_up(self) -> None:
        if self._due is not None:
            self.owned, self._due = self._due, None

    def lose_all(self) -> None:
        """The coordinator does not know it, or knows a later one: it has to join anew."""
        self.epoch, self.owned, self._due = 0, {}, None

    @property
    def partitions(self) -> set[tuple[str, int]]:
        names = {topic.id: topic.name for topic in self.world.image.topics.values()}
        return {(names[topic_id], index) for topic_id, each in self.owned.items() for index in each}


def member_of(world: LeadingCoordinator, member_id: str, group: str = GROUP) -> SimpleNamespace:
    """A member as ConsumerGroupDescribe tells it."""
    (found,) = described(world, group)
    (member,) = [each for each in found.members if each.member_id == member_id]
    return SimpleNamespace(
        epoch=member.member_epoch,
        current={
            (each.topic_name, index)
            for each in member.assignment.topic_partitions
            for index in each.partitions
        },
        target={
            (each.topic_name, index)
            for each in member.target_assignment.topic_partitions
            for index in each.partitions
        },
        type=member.member_type,
    )


class ClassicMember:
    """A client of the classic protocol with an eager assignor: it gives everything up before it joins again. As leader it
    shares the partitions out in turn. Each step goes as far as the coordinator answers."""

    def __init__(self, world: LeadingCoordinator, *topics: str) -> None:
        self.world = world
        self.topics = topics
        self.member_id = ""
        self.generation = -1
        self.partitions: set[tuple[str, int]] = set()
        self._parked: Any = None
        self._then: Callable[[Any], None] | None = None

    def step(self) -> None:
        if self._parked is not None:
            if not self._parked.done:
                return
            answer, then, self._parked = self._parked.result(), self._then, None
            assert then is not None
            then(answer)
        elif self.generation < 0:
            self._join()
        else:
            code = clients.beat(self.world, self.member_id, self.generation)
            if code == E.REBALANCE_IN_PROGRESS:
                self._join()
            elif code != E.NONE:
                self.lost(code)

    def lost(self, code: int) -> None:
        self.partitions, self.generation = set(), -1
        if code in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
            self.member_id = ""

    def join_again(self) -> None:
        if self._parked is None:
            self._join()

    def leave(self) -> None:
        self.partitions = set()
        if self.member_id:
            clients.leave(self.world, (self.member_id, None))

    def _join(self) -> None:
        self.partitions = set()
        protocols = (("range", clients.subscription(*self.topics)),)
        self._await(clients.join(self.world, self.member_id, protocols, session=30_000), self._joined)

    def _await(self, answer: Any, then: Callable[[Any], None]) -> None:
        if isinstance(answer, Deferred):
            self._parked, self._then = answer, then
        else:
            then(answer)

    def _joined(self, answer: Any) -> None:
        if answer.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
            return
        if answer.error_code:
            self.lost(answer.error_code)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        plan = {each.member_id: b"" for each in answer.members}
        if plan:
            plan = self._plan([(each.member_id, subscribed_topics(each.metadata)) for each in answer.members])
        self._await(clients.sync(self.world, self.member_id, self.generation, plan), self._synced)

    def _plan(self, members: list[tuple[str, list[str]]]) -> dict[str, bytes]:
        shares: dict[str, dict[str, list[int]]] = {member_id: {} for member_id, _ in members}
        for topic in sorted(self.world.image.topics):
            subscribed = [member_id for member_id, topics in members if topic in topics]
            for index in range(len(self.world.image.topics[topic].partitions) if subscribed else 0):
                shares[subscribed[index % len(subscribed)]].setdefault(topic, []).append(index)
        return {member_id: assignment_of(share) for member_id, share in shares.items()}

    def _synced(self, answer: Any) -> None:
        if answer.error_code:
            self.lost(answer.error_code)
            return
        if answer.assignment:
            decoded = decode(ConsumerProtocolAssignment, 0, answer.assignment[2:])
            self.partitions = {
                (each.topic, index) for each in decoded.assigned_partitions for index in each.partitions
            }


def assignment_of(share: dict[str, list[int]]) -> bytes:
    """ConsumerProtocolAssignment version 0."""
    named = [TopicPartition(topic=topic, partitions=indexes) for topic, indexes in share.items()]
    return b"\0\0" + encode(ConsumerProtocolAssignment(assigned_partitions=named, user_data=None), 0)
