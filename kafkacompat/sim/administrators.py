"""The clients that administer a simulated cluster while producers and consumers run: topics and replicas, settings and
features, the quorum's voters.

They know brokers by address and leaders by Metadata. Most ignore most answers, because the oracles check the effects of
their requests. This module has the oracle of settings: at the end each log has the settings in the metadata (`unlike`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.config.topic import LogConfig
from kafkacompat.controller.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.clients import TIMEOUT_MS, Client, Place
from kafkacompat.sim.cluster_options import (
    COORDINATORS_TOPICS,
    LOG_DIRECTORIES,
    MADE_ANEW,
    MOVE_RATE,
    REPLICATION_FACTOR,
    TOPIC,
    coordinators_settings,
    is_for_producers,
    kept_topics,
    tier_settings,
)
from kafkacompat.sim.consumers import Reader
from kafkacompat.sim.links import CLUSTER_ID, Links
from kafkacompat.sim.partition_oracles import ClientOracles
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
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
from kafkacompat.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkacompat.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkacompat.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.raft.voter_node import VoterNode


SEGMENT_MS = "segment.ms"
TOPIC_INDEX_INTERVAL = "index.interval.bytes"
INDEX_INTERVAL = "log.index.interval.bytes"
"""Set for all topics of all brokers. segment.ms is not used: the coordinators' topics would be cleaned, and the
ledgers do not know about that."""
SMALLEST, GREATEST = 300, 60_000
DEFAULT_BROKER = ""
MOST_PARTITIONS = 4
SET, DELETE = 0, 1
UPGRADE, SAFE_DOWNGRADE = 1, 2


class ClusterChanges(Client):
    """Changes topic t0 and others. Each request is sent once, and its result does not matter."""

    def start(self) -> None:
        self._plan()

    def _plan(self) -> None:
        self.later(self._act, 2 * self.env.options.change_ms)

    def _act(self) -> None:
        if self.env.is_over_for_producers:
            return
        self._plan()
        kind = self.chance.uniform()
        if kind < 0.35:
            self._configure(int(ConfigResourceType.TOPIC), TOPIC, SEGMENT_MS)
        elif kind < 0.55:
            self._configure(int(ConfigResourceType.BROKER), DEFAULT_BROKER, INDEX_INTERVAL)
        elif kind < 0.85:
            self._switch()
        else:
            self._add_partition()

    def _configure(self, kind: int, name: str, setting: str) -> None:
        value: str | None = str(self.chance.between(SMALLEST, GREATEST))
        if self.chance.happens(0.25):
            value = None
        self._send(setting_request(kind, name, setting, value), "responses")

    def _switch(self) -> None:
        """Switch whether replicas that left an ISR stay eligible (KIP-966)."""
        level = self.env.metadata.newest.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
        update = FeatureUpdateKey(
            feature=ELIGIBLE_LEADER_REPLICAS_VERSION,
            max_version_level=1 - level,
            upgrade_type=SAFE_DOWNGRADE if level else UPGRADE,
        )
        self._send(UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update]), None)

    def _add_partition(self) -> None:
        topic = self.env.metadata.newest.topics.get(TOPIC)
        if topic is not None and len(topic.partitions) < MOST_PARTITIONS:
            more = CreatePartitionsTopic(name=TOPIC, count=len(topic.partitions) + 1, assignments=None)
            self._send(CreatePartitionsRequest(topics=[more], timeout_ms=TIMEOUT_MS), "results")

    def _send(self, request: Any, rows: str | None) -> None:
        def answered(done: Deferred[Any]) -> None:
            try:
                answer = done.result()
            except ChannelError:
                return
            error = answer.error_code if rows is None else getattr(answer, rows)[0].error_code
            self.env.counters.settings_changed += error == ErrorCode.NONE

        self.ask(self.any_broker(), request, "admin").on_done(answered)


def setting_request(kind: int, name: str, setting: str, value: str | None) -> IncrementalAlterConfigsRequest:
    """Return a request that sets one setting of a resource. None removes the setting."""
    return settings_request(kind, name, {setting: value})


def settings_request(
    kind: int, name: str, settings: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest:
    """Return a request that sets several settings of a resource at once."""
    configs = [
        AlterableConfig(name=setting, config_operation=DELETE if value is None else SET, value=value)
        for setting, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def unlike(core: Partition, image: MetadataImage) -> str | None:
    """Return how a log's settings differ from those in the metadata, or None."""
    of_topic = image.config(int(ConfigResourceType.TOPIC), core.topic_partition.topic)
    of_brokers = image.config(int(ConfigResourceType.BROKER), DEFAULT_BROKER)
    config, usual = core.log.config, LogConfig()
    interval = of_topic.get(TOPIC_INDEX_INTERVAL) or of_brokers.get(INDEX_INTERVAL)
    told = (int(of_topic.get(SEGMENT_MS) or usual.segment_ms), int(interval or usual.index_interval_bytes))
    has = (config.segment_ms, config.index_interval_bytes)
    return None if has == told else f"has {has} for {SEGMENT_MS} and {INDEX_INTERVAL} instead of {told}"


def configs_of(settings: Mapping[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=each, value=value) for each, value in settings.items()]


SETUP_AGAIN_MS, SETUP_LOOK_MS = 300, 100


class TopicSetup(Client):
    def start(self) -> None:
        for name, settings in kept_topics(self.env.options).items():
            self._create(name, settings)
        if self.env.options.segment_bytes:
            for name in COORDINATORS_TOPICS:
                self._clean(name)

    def _create(self, name: str, settings: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=REPLICATION_FACTOR,
            configs=configs_of(settings),
        )

        def created(done: Deferred[Any]) -> None:
            error = _error_of(done, "topics")
            if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.env.topics.add(name)
            else:
                self.later(lambda: self._create(name, settings), SETUP_AGAIN_MS)

        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "keeper").on_done(created)

    def _clean(self, name: str) -> None:
        """Change the settings of the topic as soon as a coordinator has created it."""
        if self.env.is_over_for_producers:
            return
        if name not in self.env.metadata.newest.topics:
            self.later(lambda: self._clean(name), SETUP_LOOK_MS)
            return
        settings = coordinators_settings(self.env.options)
        resource = AlterConfigsResource(
            resource_type=int(ConfigResourceType.TOPIC),
            resource_name=name,
            configs=[
                AlterableConfig(name=each, config_operation=SET, value=value)
                for each, value in settings.items()
            ],
        )

        def altered(done: Deferred[Any]) -> None:
            if _error_of(done, "responses") != ErrorCode.NONE:
                self.later(lambda: self._clean(name), SETUP_AGAIN_MS)

        self.ask(self.any_broker(), IncrementalAlterConfigsRequest(resources=[resource]), "keeper").on_done(
            altered
        )


FIRST_CHANGE_MS = 1_500
VOTER_PAUSE_MS = 1_500
VOTER_AGAIN_MS = 300


class VoterChanges(Client):
    def __init__(self, links: Links, client_id: int, voters: Sequence[VoterNode]) -> None:
        super().__init__(links, client_id)
        self._voters = voters

    def start(self) -> None:
        self.call_after(FIRST_CHANGE_MS, self._remove_one)

    def _pause(self, call: Callable[[], None]) -> None:
        self.call_after(1 + self.chance.randrange(VOTER_PAUSE_MS), call)

    def _remove_one(self) -> None:
        voters = self._voters
        self._remove(voters[self.chance.randrange(len(voters))])

    def _remove(self, voter: VoterNode) -> None:
        if self.env.is_over_for_producers:
            self._take_in(voter)
            return
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=voter.id, voter_directory_id=voter.directory_id
        )
        self._ask(
            request,
            ErrorCode.VOTER_NOT_FOUND,
            lambda: self._pause(lambda: self._take_in(voter)),
            lambda: self._remove(voter),
        )

    def _take_in(self, voter: VoterNode) -> None:
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=TIMEOUT_MS,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[Listener(name=name, host=host, port=port) for name, host, port in voter.listeners],
        )
        self._ask(
            request, ErrorCode.DUPLICATE_VOTER, lambda: self._go_on(voter), lambda: self._take_in(voter)
        )

    def _go_on(self, voter: VoterNode) -> None:
        """A late removal may have removed another voter. So at the end each voter is added once more."""
        if not self.env.is_over_for_producers:
            self._pause(self._remove_one)
            return
        voters = self._voters
        following = voters[(voters.index(voter) + 1) % len(voters)]
        self.call_after(VOTER_AGAIN_MS, lambda: self._take_in(following))

    def _ask(
        self, request: Any, is_so_already: ErrorCode, then: Callable[[], None], again: Callable[[], None]
    ) -> None:
        def answered(done: Deferred[Any]) -> None:
            try:
                error = done.result().error_code
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in (ErrorCode.NONE, is_so_already):
                self.env.counters.voter_changes += error == ErrorCode.NONE
                then()
            else:
                self.later(again, VOTER_AGAIN_MS)

        self.ask(self.any_broker(), request, "voters").on_done(answered)


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
            configs=configs_of(tier_settings(self.env.options)),
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
            configs=configs_of(tier_settings(self.env.options)),
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
