"""A simulated group of both protocols: members of the consumer protocol (KIP-848), and members of the classic one with the
subscription of a consumer in it. As the former come and go, the coordinator converts the group to and fro.

They subscribe to several topics. One is always there and gets partitions. Another is created later. A third is deleted
and created again under the same name, so that its partitions are known by its id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.sim.breach import Breach
from kafkacompat.sim.classic_group import Member
from kafkacompat.sim.clients import Client
from kafkacompat.sim.cluster_options import MADE_ANEW, TOPIC
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ConsumerGroupCounters
from kafkacompat.sim.group_clients import GROUP_SESSION_MS, by_topic, leads
from kafkacompat.sim.group_oracles import Grant, GroupHistory, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.modern_members import REBALANCE_MS, SURE_SHARE, ModernMember
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.sim.chance import Chance


LASTING = (TOPIC, "t1")
"""Never deleted."""
OTHERS = ("t1", MADE_ANEW)
EXPRESSIONS = (TOPIC, "t[01]", f"t.|{MADE_ANEW}", ".*n")
"""The last one matches no topic other than the one that comes and goes."""


def drawn_topics(chance: Chance) -> list[str]:
    return [TOPIC, *(topic for topic in OTHERS if chance.happens(0.5))]


def matches(topic: str, names: Sequence[str], expression: str | None) -> bool:
    return topic in names or (expression is not None and re.fullmatch(expression, topic) is not None)


def partitions_of_topics(image: MetadataImage, topics: set[str]) -> list[Key]:
    return sorted(
        (topic.id, index)
        for name, topic in image.topics.items()
        if name in topics
        for index in topic.partitions
    )


class ConsumerMember(ModernMember[Key]):
    """A member of the consumer protocol (KIP-848). It owns partitions."""

    counters: ConsumerGroupCounters

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupHistory,
        owners: Owners,
        counters: ConsumerGroupCounters,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        super().__init__(links, client_id, ledger, owners, counters, instance_id, is_twin=is_twin)
        self.subscribed: list[str] = []
        self.expression: str | None = None
        self._assignor: str | None = None

    def draw_another(self) -> None:
        by_regex = self.chance.happens(0.25)
        self._assignor = (None, "range", "uniform")[self.chance.randrange(3)]
        self.expression = EXPRESSIONS[self.chance.randrange(len(EXPRESSIONS))] if by_regex else None
        self.subscribed = [] if by_regex and self.chance.happens(0.5) else drawn_topics(self.chance)

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if self._tells_all:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = self.subscribed
            # An empty one ends that of the former member of a static one.
            request.subscribed_topic_regex = self.expression or ""
            request.server_assignor = self._assignor
        if self._tells_all or self._told_owned != self.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(self.owned).items()
            ]
        return request

    def leave_request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )

    def told(self, answer: Any) -> set[Key] | None:
        if answer.assignment is None:
            return None
        told = {
            (topic.topic_id, index)
            for topic in answer.assignment.topic_partitions
            for index in topic.partitions
        }
        self._check_subscribed(told - self.owned)
        return told

    def _check_subscribed(self, told: set[Key]) -> None:
        """New partitions are those of topics that it subscribes to."""
        for topic_id, index in told:
            name = self.env.metadata.names.get(topic_id, "")
            self.counters.partitions_of_others += name != TOPIC
            if not matches(name, self.subscribed, self.expression):
                raise Breach(
                    "members get what they subscribe to",
                    f"{self.member_id} with {self.subscribed} and {self.expression} is told of {name}-{index}",
                )

    def partitions(self) -> set[Key]:
        return self.owned

    def alone(self, parts: AbstractSet[Key]) -> AbstractSet[Key]:
        return parts

    def part_of(self, partition: Key) -> Key:
        return partition


VERSION = 3
VERSION_BYTES = VERSION.to_bytes(2, "big")


class EmbeddedMember(Member):
    """It has an eager assignor: it gives everything up before it joins again.

    It knows partitions by the names of their topics. Of a topic that is deleted and created again, it cannot tell which
    one it was given, so only partitions of the others are committed and checked.
    """

    protocol_type, protocol = "consumer", "range"

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupHistory,
        owners: Owners,
        counters: ConsumerGroupCounters,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        super().__init__(links, client_id, ledger)
        self.owners = owners
        self.counters = counters
        self.instance_id = instance_id
        self.is_twin = is_twin
        """It has the instance id of another member, and goes at the end."""
        self.is_retired = False
        self.subscribed = drawn_topics(self.chance)
        self._sent_us = 0
        self._is_sure = False
        """Whether the coordinator still led the group's partition when its last answer arrived."""
        self._was_converted: bool | None = None
        """Whether the group was a consumer group when it last joined."""

    # What the members tell each other.

    def topics(self) -> Sequence[str]:
        return (TOPIC, *OTHERS)

    def metadata(self) -> bytes:
        return VERSION_BYTES + encode(ConsumerProtocolSubscription(topics=self.subscribed), VERSION)

    def divided(self, members: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        named: dict[str, list[TopicPartition]] = {member_id: [] for member_id, _ in members}
        readers = {
            member_id: decode(ConsumerProtocolSubscription, VERSION, metadata[len(VERSION_BYTES) :]).topics
            for member_id, metadata in members
        }
        for topic, (_, count) in self._divided.items():
            of = [member_id for member_id, topics in readers.items() if topic in topics]
            for position, member_id in enumerate(of):
                share = list(range(position, count, len(of)))
                if share:
                    named[member_id].append(TopicPartition(topic=topic, partitions=share))
        return {
            member_id: VERSION_BYTES + encode(ConsumerProtocolAssignment(assigned_partitions=each), VERSION)
            for member_id, each in named.items()
        }

    def decoded(self, assignment: bytes) -> list[Key]:
        if not assignment:
            return []
        message = decode(ConsumerProtocolAssignment, VERSION, assignment[len(VERSION_BYTES) :])
        topics = self.env.metadata.newest.topics
        return [
            (topics[each.topic].id, index)
            for each in message.assigned_partitions
            if each.topic in topics
            for index in each.partitions
        ]

    def committable(self) -> list[Key]:
        topics = self.env.metadata.newest.topics
        lasting = {topics[name].id for name in LASTING if name in topics}
        return [key for key in self.owned or () if key[0] in lasting]

    # What it tells the oracles.

    def _ask(self, request: Any, then: Callable[[ErrorCode, Any], None]) -> None:
        asked_in = leads(self, self.ledger.group_id)
        self._sent_us = self.env.scheduler.now_us

        def answered(error: ErrorCode, answer: Any) -> None:
            now_in = leads(self, self.ledger.group_id)
            self._is_sure = asked_in == now_in and asked_in[0] == self._coordinator.node_id
            if error is ErrorCode.NONE and self._is_sure:
                self.owners.heard(self.id, self._sent_us)
            then(error, answer)

        super()._ask(request, answered)

    def _joined(self, error: ErrorCode, answer: Any) -> None:
        if error is ErrorCode.NONE:
            is_converted = answer.leader == ""
            if self._was_converted is not None and self._was_converted != is_converted:
                self.counters.upgrades += is_converted
                self.counters.downgrades += not is_converted
            self._was_converted = is_converted
        super()._joined(error, answer)

    def assigned(self, partitions: list[Key]) -> None:
        self.counters.embedded_assignments += bool(self._was_converted)
        if self._is_sure:
            grant = Grant(self._sent_us, self.env.scheduler.now_us)
            self.owners.told(self.id, self.committable(), grant, is_asked_first=False)

    def committed(self, partitions: Iterable[Key], sent_us: int) -> None:
        self.owners.committed(self.id, partitions, sent_us, self.env.scheduler.now_us)

    # Joining and leaving.

    def _join(self) -> None:
        self.owners.gives_up(self.id)
        if self.is_twin and self.env.is_over_for_producers:
            self.owned, self.is_retired = None, True
            return
        if self.instance_id is not None:
            self.owners.comes_back(self.instance_id)
        super()._join()

    def _join_again(self, error: ErrorCode) -> None:
        self.owners.gives_up(self.id)
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.counters.instances_fenced += 1
            self._vanish()
            return
        super()._join_again(error)

    def _act(self) -> None:
        if self.is_twin and self.env.is_over_for_producers:
            self._leave()
            return
        super()._act()

    def _vanish(self) -> None:
        super()._vanish()
        self.owners.gives_up(self.id)
        self.subscribed = drawn_topics(self.chance)

    def _leave(self) -> None:
        self.owners.gives_up(self.id)
        super()._leave()


class ConsumerGroups:
    """The members of one group. The first of each protocol are static. A twin has the instance id of another member."""

    def __init__(self, links: Links, first_id: int) -> None:
        options = links.env.options
        self.counters = ConsumerGroupCounters()
        ledger = GroupHistory("consumers")
        owners = Owners(ledger.group_id, int(GROUP_SESSION_MS * 1000 * SURE_SHARE))
        instances = [f"consumer-{each}" for each in range(options.static_members)]
        embedded_instances = [f"embedded-{each}" for each in range(options.static_embedded_members)]
        ids = iter(range(first_id, first_id + 100))
        members: list[ConsumerMember] = []
        embedded: list[EmbeddedMember] = []

        def add(is_embedded: bool, instance_id: str | None, *, is_twin: bool = False) -> None:
            to: list[ConsumerMember] | list[EmbeddedMember] = embedded if is_embedded else members
            kind: type[ConsumerMember | EmbeddedMember] = EmbeddedMember if is_embedded else ConsumerMember
            member = kind(links, next(ids), ledger, owners, self.counters, instance_id, is_twin=is_twin)
            to.append(member)  # type: ignore[arg-type]  # both lists are of their own kind

        for number in range(options.consumer_members):
            add(False, instances[number] if number < len(instances) else None)
        for number in range(options.embedded_members):
            add(True, embedded_instances[number] if number < len(embedded_instances) else None)
        for is_embedded in options.twins:
            add(is_embedded, (instances or embedded_instances)[0], is_twin=True)
        self._members, self._embedded = members, embedded
        for each in members:
            if each.instance_id is not None:
                twins = [other for other in self._everyone if other.instance_id == each.instance_id]
                each.is_alone = len(twins) == 1
                each.has_classic_twin = any(isinstance(other, EmbeddedMember) for other in twins)

    @property
    def _everyone(self) -> list[ConsumerMember | EmbeddedMember]:
        return [*self._members, *self._embedded]

    @property
    def clients(self) -> list[Client]:
        return [*self._everyone]

    def missing(self, image: MetadataImage) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self._members:
            return None
        if not all(each.is_retired for each in self._everyone if each.is_twin):
            return "not all twins have gone"
        members = [each for each in self._members if not each.is_twin]
        embedded = [each for each in self._embedded if not each.is_twin]
        everyone: list[ConsumerMember | EmbeddedMember] = [*members, *embedded]
        owned = {each.id: sorted(each.owned or ()) for each in everyone}
        if not all(each.is_settled for each in members) or any(each.owned is None for each in embedded):
            return f"not all members are settled, {owned} are owned"
        topics = {
            topic
            for topic in image.topics
            if any(matches(topic, each.subscribed, each.expression) for each in members)
            or any(topic in each.subscribed for each in embedded)
        }
        partitions = partitions_of_topics(image, topics)
        if sorted(key for each in owned.values() for key in each) != partitions:
            return f"of {partitions} the members own {owned}"
        if not all(each.has_read_at_last or not each.owned for each in everyone):
            return "members have not read what was committed"
        return None
