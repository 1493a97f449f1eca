"""The administrator of a simulated cluster, who changes topics and moves replicas while producers and consumers run.

It knows brokers by address and leaders by Metadata. It ignores most answers, because the oracles check the effects of
its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.client_oracles import ClientOracles
from kafkacompat.sim.clients import TIMEOUT_MS, Client, Place
from kafkacompat.sim.cluster_changes import DEFAULT_BROKER, setting_request
from kafkacompat.sim.cluster_options import LOG_DIRECTORIES, MOVE_RATE, REPLICATION_FACTOR
from kafkacompat.sim.links import Links
from kafkacompat.sim.readers import Reader
from kafkacompat.sim.topics import MADE_ANEW, is_for_producers
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkacompat.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest

AS_FAST_AS_CAN_BE = 1 << 40


class Administrator(Client):
    """Creates topics, reassigns partitions, cancels reassignments, elects preferred leaders, deletes old records.

    It repeatedly deletes one topic and creates it again under the same name.
    """

    def __init__(
        self, links: Links, client_id: int, oracle: ClientOracles, readers: Sequence[Reader]
    ) -> None:
        super().__init__(links, client_id)
        self._oracle = oracle
        self._readers = readers
        self._topics = 0
        self._anew = Chance(links.env.seed, "made anew")
        self._directories = Chance(links.env.seed, "directories")
        self._may_be_deleted = False
        """A deletion got no answer, and may still be carried out."""
        self.is_settled = not links.env.options.remake_ms
        """True if no topic is missing only for a while."""

    def start(self) -> None:
        self._create_topic()
        self._plan()
        if not self.is_settled:
            self._remake_later(self._make_anew)
        if self.env.options.directories > 1:
            self._change_directory()

    def _plan(self) -> None:
        self.later(self._act, 2 * self.env.options.admin_interval_ms)

    def _act(self) -> None:
        if self.env.is_over_for_producers:
            return
        self._plan()
        self.refresh()
        keys = [key for key in self.places if not self.env.metadata.is_deleted(key)]
        if not keys:
            return
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
        """Repeat the request until a broker reports that the topic exists."""
        name = f"t{self._topics}"
        topic = CreatableTopic(
            name=name,
            num_partitions=self.env.options.partitions,
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
                self.env.topics.add(name)
            else:
                self.later(self._create_topic, 300)

        self.ask(self.any_broker(), request, "admin").on_done(created)

    # The topic that is deleted and created again.

    def _remake_later(self, call: Callable[[], None]) -> None:
        mean_ms = self.env.options.remake_ms
        self.call_after(1 + self._anew.randrange(2 * mean_ms), call)

    def _make_anew(self) -> None:
        topic = CreatableTopic(
            name=MADE_ANEW,
            num_partitions=self._anew.between(1, 2),
            replication_factor=REPLICATION_FACTOR,
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        def created(done: Deferred[Any]) -> None:
            if _error_of(done, "topics") not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._remake_later(self._make_anew)
            elif self.env.is_over_for_producers and self._may_be_deleted:
                self._delete()
            elif self.env.is_over_for_producers:
                self.env.topics.add(MADE_ANEW)
                self.is_settled = True
            else:
                self.refresh()
                self._remake_later(self._delete)

        self.ask(self.any_broker(), request, "remaking").on_done(created)

    def _delete(self) -> None:
        """Delete the topic by its id, so that a late request cannot delete its successor."""
        topic = self.env.metadata.newest.topics.get(MADE_ANEW)
        if topic is None:
            self._may_be_deleted = False
        if topic is None or (self.env.is_over_for_producers and not self._may_be_deleted):
            self._make_anew()
            return
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=TIMEOUT_MS
        )

        def deleted(done: Deferred[Any]) -> None:
            is_gone = _error_of(done, "responses") in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
            self._may_be_deleted = not is_gone
            self._remake_later(self._make_anew if is_gone else self._delete)

        self.ask(self.any_broker(), request, "remaking").on_done(deleted)

    # Moves of replicas between directories.

    def _change_directory(self) -> None:
        """Move a random replica from time to time. A later move may reverse one that is in progress."""
        if self.env.is_over_for_producers:
            if self.env.options.move_bytes:
                self._let_moves_go_on()
            return
        self.call_after(
            1 + self._directories.randrange(self.env.options.admin_interval_ms), self._change_directory
        )
        places = [place for place in self.places.values() if not self.env.metadata.is_deleted(place.key)]
        if not places:
            return
        place = places[self._directories.randrange(len(places))]
        topic = AlterReplicaLogDirTopic(name=place.topic, partitions=[place.partition])
        path = LOG_DIRECTORIES[self._directories.randrange(self.env.options.directories)]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        replica = place.replicas[self._directories.randrange(len(place.replicas))]
        self.ask(replica, request, "admin").on_done(_look_away)

    def _let_moves_go_on(self) -> None:
        """Let the moves in progress complete at the end of the run."""
        kind = int(ConfigResourceType.BROKER)
        request = setting_request(kind, DEFAULT_BROKER, MOVE_RATE, str(AS_FAST_AS_CAN_BE))

        def altered(done: Deferred[Any]) -> None:
            if _error_of(done, "responses") != ErrorCode.NONE:
                self.later(self._let_moves_go_on, self.env.options.admin_interval_ms)

        self.ask(self.any_broker(), request, "admin").on_done(altered)

    def _move(self, place: Place) -> None:
        brokers = list(self.env.options.brokers)
        target: list[int] = []
        while len(target) < REPLICATION_FACTOR:
            target.append(brokers.pop(self.chance.randrange(len(brokers))))
        self._reassign(place, target)

    def _reassign(self, place: Place, target: list[int] | None) -> None:
        partition = ReassignablePartition(partition_index=place.partition, replicas=target)
        topic = ReassignableTopic(name=place.topic, partitions=[partition])
        self._ignore(AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[topic]))

    def call_off(self) -> None:
        """Cancel all reassignments in progress."""
        for place in self.places.values():
            self._reassign(place, None)

    def _delete_records(self, place: Place) -> None:
        """Delete only records that every consumer has read."""
        read = min(reader.positions.get(place.key, 0) for reader in self._readers)
        if read <= 0 or place.leader == NO_LEADER or not is_for_producers(place.topic):
            return
        offset = self.chance.between(0, read)
        self._oracle.asked_to_delete(place.key, offset)
        one = DeleteRecordsPartition(partition_index=place.partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=place.topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )

        def deleted(done: Deferred[Any]) -> None:
            try:
                error = done.result().topics[0].partitions[0].error_code
            except ChannelError:
                return
            self.env.counters.deletions += error == ErrorCode.NONE

        self.ask(place.leader, request, "admin").on_done(deleted)

    def _ignore(self, request: Any) -> None:
        """Ignore the answer: the oracles check the effects."""
        self.ask(self.any_broker(), request, "admin").on_done(_look_away)


def _error_of(done: Deferred[Any], field: str) -> int:
    try:
        code: int = getattr(done.result(), field)[0].error_code
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT
    return code


def _look_away(done: Deferred[Any]) -> None:
    """Ignore the answer. It may also be lost."""
