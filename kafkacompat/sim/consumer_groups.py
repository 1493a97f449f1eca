"""A simulated group of both protocols: members of the consumer protocol (KIP-848), and members of the classic one with the
subscription of a consumer in it. As the former come and go, the coordinator converts the group to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.sim.clients import Client
from kafkacompat.sim.consumer_group_counters import ConsumerGroupCounters
from kafkacompat.sim.consumer_members import ConsumerMember
from kafkacompat.sim.group_commits import GROUP_SESSION_MS, TOPIC
from kafkacompat.sim.group_offsets import leads
from kafkacompat.sim.group_oracles import Grant, GroupLedger, Owners
from kafkacompat.sim.groups import Member
from kafkacompat.wire.codec import decode, encode
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from kafkacompat.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

SURE_SHARE = 0.9
"""The share of a session after which it has not expired by any node's clock."""
VERSION = 3
VERSION_BYTES = VERSION.to_bytes(2, "big")


class EmbeddedMember(Member):
    """A member of the classic protocol with an eager assignor: it gives everything up before it joins again."""

    protocol_type, protocol = "consumer", "range"

    def __init__(
        self,
        simulation: ClusterSimulation,
        client_id: int,
        ledger: GroupLedger,
        owners: Owners,
        counters: ConsumerGroupCounters,
    ) -> None:
        super().__init__(simulation, client_id, ledger)
        self.owners = owners
        self.counters = counters
        self._sent_us = 0
        self._is_sure = False
        """Whether the coordinator still led the group's partition when its last answer arrived."""
        self._was_converted: bool | None = None
        """Whether the group was a consumer group when it last joined."""

    def metadata(self) -> bytes:
        return VERSION_BYTES + encode(ConsumerProtocolSubscription(topics=[TOPIC]), VERSION)

    def encoded(self, share: Sequence[int]) -> bytes:
        named = [TopicPartition(topic=TOPIC, partitions=list(share))] if share else []
        return VERSION_BYTES + encode(ConsumerProtocolAssignment(assigned_partitions=named), VERSION)

    def decoded(self, assignment: bytes) -> list[int]:
        if not assignment:
            return []
        message = decode(ConsumerProtocolAssignment, VERSION, assignment[len(VERSION_BYTES) :])
        return [index for topic in message.assigned_partitions for index in topic.partitions]

    def _ask(self, request: Any, then: Callable[[ErrorCode, Any], None]) -> None:
        asked_in = leads(self, self.ledger.group_id)
        self._sent_us = self.simulation.scheduler.now_us

        def answered(error: ErrorCode, answer: Any) -> None:
            now_in = leads(self, self.ledger.group_id)
            self._is_sure = asked_in == now_in and asked_in[0] == self._coordinator.node_id
            if error is ErrorCode.NONE and self._is_sure:
                self.owners.heard(self.id, self._sent_us)
            then(error, answer)

        super()._ask(request, answered)

    def _join(self) -> None:
        self.owners.gives_up(self.id)
        super()._join()

    def _joined(self, error: ErrorCode, answer: Any) -> None:
        if error is ErrorCode.NONE:
            is_converted = answer.leader == ""
            if self._was_converted is not None and self._was_converted != is_converted:
                self.counters.upgrades += is_converted
                self.counters.downgrades += not is_converted
            self._was_converted = is_converted
        super()._joined(error, answer)

    def assigned(self, partitions: list[int]) -> None:
        self.counters.embedded_assignments += bool(self._was_converted)
        if self._is_sure:
            grant = Grant(self._sent_us, self.simulation.scheduler.now_us)
            self.owners.told(self.id, partitions, grant, is_asked_first=False)

    def committed(self, partitions: Iterable[int], sent_us: int) -> None:
        self.owners.committed(self.id, partitions, sent_us, self.simulation.scheduler.now_us)

    def _join_again(self, error: ErrorCode) -> None:
        self.owners.gives_up(self.id)
        super()._join_again(error)

    def _vanish(self) -> None:
        self.owners.gives_up(self.id)
        super()._vanish()

    def _leave(self) -> None:
        self.owners.gives_up(self.id)
        super()._leave()


class ConsumerGroups:
    """The members of one group of both protocols."""

    def __init__(self, simulation: ClusterSimulation, first_id: int) -> None:
        options = simulation.options
        self.counters = ConsumerGroupCounters()
        ledger = GroupLedger("consumers")
        owners = Owners(ledger.group_id, int(GROUP_SESSION_MS * 1000 * SURE_SHARE))
        ids = range(first_id, first_id + options.consumer_members + options.embedded_members)
        self._members = [
            ConsumerMember(simulation, each, ledger, owners, self.counters)
            for each in ids[: options.consumer_members]
        ]
        self._embedded = [
            EmbeddedMember(simulation, each, ledger, owners, self.counters)
            for each in ids[options.consumer_members :]
        ]

    @property
    def clients(self) -> list[Client]:
        return [*self._members, *self._embedded]

    def missing(self, partitions: int) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self._members:
            return None
        everyone: list[ConsumerMember | EmbeddedMember] = [*self._members, *self._embedded]
        owned = {each.id: sorted(each.owned or ()) for each in everyone}
        if not all(each.is_settled for each in self._members) or any(
            each.owned is None for each in self._embedded
        ):
            return f"not all members are settled, {owned} are owned"
        if sorted(index for each in owned.values() for index in each) != list(range(partitions)):
            return f"of {partitions} partitions the members own {owned}"
        if not all(each.has_read_at_last or not each.owned for each in everyone):
            return "members have not read what was committed"
        return None
