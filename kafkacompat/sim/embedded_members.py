"""Members of the classic protocol with the subscription of a consumer in it, in a simulated group of both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ConsumerGroupCounters
from kafkacompat.sim.group_commits import TOPIC
from kafkacompat.sim.group_offsets import leads
from kafkacompat.sim.group_oracles import Grant, GroupLedger, Owners
from kafkacompat.sim.groups import Member
from kafkacompat.sim.links import Links
from kafkacompat.sim.subscriptions import LASTING, OTHERS, drawn_topics
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

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
        ledger: GroupLedger,
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
