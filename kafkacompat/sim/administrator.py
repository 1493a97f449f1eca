"""The administrator of a simulated cluster, who moves things about while producers and consumers are at work.

Knows brokers by address and leaders by Metadata. Whatever the answers are, the oracles see what comes of the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.clients import TIMEOUT_MS, Client, Place
from kafkacompat.sim.cluster_options import REPLICATION_FACTOR
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation


class Administrator(Client):
    """Makes topics, moves partitions, calls it off again, elects preferred leaders, deletes old records."""

    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self._topics = 0

    def start(self) -> None:
        self._create_topic()
        self._plan()

    def _plan(self) -> None:
        self.later(self._act, 2 * self.simulation.options.admin_interval_ms)

    def _act(self) -> None:
        if self.simulation.is_over_for_producers:
            return
        self._plan()
        self.refresh()
        if not self.places:
            return
        keys = list(self.places)
        place = self.places[keys[self.chance.randrange(len(keys))]]
        kind = self.chance.uniform()
        if kind < 0.5:
            self._move(place)
        elif kind < 0.6:
            self._reassign(place, None)
        elif kind < 0.75:
            self._ignore(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS))
        elif kind < 0.95:
            self._delete_records(place)
        elif self._topics < 2:
            self._create_topic()

    def _create_topic(self) -> None:
        """Again until one broker says that it is there."""
        name = f"t{self._topics}"
        topic = CreatableTopic(
            name=name,
            num_partitions=self.simulation.options.partitions,
            replication_factor=REPLICATION_FACTOR,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        def created(done: Deferred[Any]) -> None:
            try:
                error = done.result().topics[0].error_code
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                if name == f"t{self._topics}":
                    self._topics += 1
                self.refresh()
                self.simulation.topic_created(name)
            else:
                self.later(self._create_topic, 300)

        self.ask(self.any_broker(), request, "admin").on_done(created)

    def _move(self, place: Place) -> None:
        brokers = list(self.simulation.options.brokers)
        target: list[int] = []
        while len(target) < REPLICATION_FACTOR:
            target.append(brokers.pop(self.chance.randrange(len(brokers))))
        self._reassign(place, target)

    def _reassign(self, place: Place, target: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=place.partition, replicas=target)
        topic = ReassignableTopic(name=place.topic, partitions=[partition])
        self._ignore(AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[topic]))

    def call_off(self) -> None:
        """Every move that still goes on."""
        for place in self.places.values():
            self._reassign(place, None)

    def _delete_records(self, place: Place) -> None:
        """What every consumer has read, at most."""
        read = self.simulation.lowest_position(place.key)
        if read <= 0 or place.leader == NO_LEADER or not self.simulation.is_for_producers(place.topic):
            return
        one = DeleteRecordsPartition(partition_index=place.partition, offset=self.chance.between(0, read))
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=place.topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )

        def deleted(done: Deferred[Any]) -> None:
            try:
                error = done.result().topics[0].partitions[0].error_code
            except ChannelError:
                return
            self.simulation.counters.deletions += error == ErrorCode.NONE

        self.ask(place.leader, request, "admin").on_done(deleted)

    def _ignore(self, request: Any) -> None:
        """Whatever the answer: the oracles see what comes of it."""
        self.ask(self.any_broker(), request, "admin").on_done(_look_away)


def _look_away(done: Deferred[Any]) -> None:
    """A lost answer is as good as any."""
