"""Random histories of a small cluster: brokers come, go and send wrong data, partitions move, and the invariants of
the image hold throughout.

Every record is encoded and decoded in its version, so a field that the version lacks is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkacompat._tests.doubles import CountingRandom
from kafkacompat.controller._tests import clusters
from kafkacompat.controller._tests.harness import registration
from kafkacompat.controller.broker_heartbeat_manager import BrokerHeartbeatManager
from kafkacompat.controller.cluster_control_manager import (
    broker_heartbeat,
    broker_registration,
    handle_broker_fenced,
    handle_broker_in_controlled_shutdown,
    unregister_broker,
)
from kafkacompat.controller.configuration_control_manager import incremental_alter_configs
from kafkacompat.controller.controller_result import BrokerRefused, ControllerResult
from kafkacompat.controller.features import directories_supported
from kafkacompat.controller.image import MetadataImage, PartitionRegistration, is_active
from kafkacompat.controller.metadata_delta import MetadataDelta
from kafkacompat.controller.records import RecordClasses, frame, unframe
from kafkacompat.controller.replication_control_manager import (
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    elect_leaders,
    maybe_balance_partition_leaders,
    maybe_elect_unclean_leaders,
)
from kafkacompat.controller.snapshot_records import image_records
from kafkacompat.controller.topics import create_partitions, create_topics, delete_topics
from kafkacompat.ids import DIRECTORY_LOST, NO_LEADER
from kafkacompat.tasks import at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import (
    alter_partition_reassignments_request as reassigning,
)
from kafkacompat.wire.messages import alter_partition_request as altering
from kafkacompat.wire.messages import assign_replicas_to_dirs_request as assigning
from kafkacompat.wire.messages import incremental_alter_configs_request as configuring
from kafkacompat.wire.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkacompat.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.elect_leaders_request import ElectLeadersRequest
from kafkacompat.wire.messages.unregister_broker_request import UnregisterBrokerRequest

T = TypeVar("T")
BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(["a", "b"])
TIMEOUT_MS = 9000


def directories(broker_id: int) -> list[bytes]:
    """Broker 4 has two."""
    first = [clusters.directory(broker_id)]
    return [*first, clusters.directory(50)] if broker_id == 4 else first


class ClusterLife(RuleBasedStateMachine):
    levels: ClassVar[Mapping[str, int]]

    def __init__(self) -> None:
        super().__init__()
        self.settings = clusters.settings(min_insync_replicas="2")
        self.sessions = BrokerHeartbeatManager(TIMEOUT_MS)
        self.random = CountingRandom()
        self.classes = RecordClasses()
        self.image = MetadataImage(offset=9, epoch=1, features=dict(self.levels))
        self.before = self.image
        self.now_ms = 0
        self.incarnations = 100

    # Running commands.

    def do(self, command: Callable[[], ControllerResult[Any, T]]) -> T | None:
        """Replay a command's records through their bytes. None if the broker was refused."""
        try:
            result = command()
        except BrokerRefused:
            return None
        delta = MetadataDelta(self.image)
        for record in result.records:
            delta.replay(*unframe(frame(record), self.classes))
        self.before = self.image
        self.image = delta.apply(self.image.offset + len(result.records), 1)
        self.check_step()
        return result.response

    def check_step(self) -> None:
        for topic_id, topic in self.image.topics_by_id.items():
            old_topic = self.before.topics_by_id.get(topic_id)
            if old_topic is None:
                continue
            assert set(topic.partitions) >= set(old_topic.partitions)
            for index, old in old_topic.partitions.items():
                new = topic.partitions[index]
                assert new.partition_epoch >= old.partition_epoch
                assert new.leader_epoch >= old.leader_epoch
                assert new == old or new.partition_epoch > old.partition_epoch
                assert new.leader == old.leader or new.leader_epoch > old.leader_epoch
                assert set(old.replicas) <= set(new.replicas) or new.leader_epoch > old.leader_epoch

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def seen(self, but: int | None = None) -> MetadataImage:
        """The image for commands."""
        return self.sessions.seen(self.image, but)

    def partitions(self) -> list[tuple[bytes, str, int, PartitionRegistration]]:
        return [
            (topic.id, name, index, topic.partitions[index])
            for name, topic in sorted(self.image.topics.items())
            for index in sorted(topic.partitions)
        ]

    # Brokers.

    @initialize()
    def three_brokers(self) -> None:
        for broker_id in (1, 2, 3):
            self.register(broker_id, again=False, clean=False)
            self.heartbeat(broker_id, 0, False, False, False, False)

    @rule(broker_id=BROKERS, again=st.booleans(), clean=st.booleans())
    def register(self, broker_id: int, again: bool, clean: bool) -> None:
        existing = self.image.brokers.get(broker_id)
        self.incarnations += 1
        incarnation = self.incarnations
        if existing is not None and again:
            incarnation = int.from_bytes(existing.incarnation_id, "big")
        previous = existing.epoch if existing is not None and clean else -1
        request = registration(previous, incarnation, broker_id, directories(broker_id), "ab"[broker_id % 2])
        request.cluster_id = "cluster"
        live = existing is not None and self.sessions.has_valid_session(
            broker_id, existing.epoch, self.now_ms
        )
        answer = self.do(
            lambda: at_once(
                broker_registration(
                    self.seen(broker_id),
                    self.settings,
                    self.sessions,
                    request,
                    self.next_offset,
                    lambda _: live,
                )
            )
        )
        assert (answer is None) == (live and not again)

    @rule(
        broker_id=BROKERS,
        behind=st.sampled_from([0, 0, 0, 3, 40]),
        want_fence=st.booleans(),
        want_shut_down=st.booleans(),
        failed=st.booleans(),
        cordoned=st.booleans(),
    )
    def heartbeat(
        self,
        broker_id: int,
        behind: int,
        want_fence: bool,
        want_shut_down: bool,
        failed: bool,
        cordoned: bool,
    ) -> None:
        broker = self.image.brokers.get(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.epoch,
            current_metadata_offset=max(0, self.image.offset - behind),
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=[clusters.directory(50)] if failed else [],
            cordoned_log_dirs=[directories(broker_id)[0]] if cordoned else None,
        )
        answer = self.do(
            lambda: at_once(
                broker_heartbeat(
                    self.seen(broker_id),
                    self.settings,
                    self.sessions,
                    request,
                    self.next_offset,
                    self.now_ms,
                )
            )
        )
        assert (answer is None) == (broker is None)
        if answer is not None:
            assert answer.is_fenced == self.image.brokers[broker_id].fenced
            assert not answer.should_shut_down or answer.is_fenced
            assert not self.sessions.is_gone(broker_id)
            leaves = want_shut_down or self.sessions.controlled_shutdown_offset(broker_id) >= 0
            assert answer.is_fenced or leaves or not self.image.brokers[broker_id].in_controlled_shutdown

    @rule(broker_id=BROKERS)
    def stay_alive(self, broker_id: int) -> None:
        self.heartbeat(broker_id, 0, False, False, False, False)

    @rule(pause_ms=st.sampled_from([1000, 5000, 9001]))
    def time_passes(self, pause_ms: int) -> None:
        self.now_ms += pause_ms
        due_ms = self.sessions.next_expiry_ms()
        expired = self.sessions.expired(self.now_ms)
        assert bool(expired) == (due_ms is not None and due_ms <= self.now_ms)
        for broker_id in expired:
            self.fence(broker_id)

    @rule(broker_id=BROKERS)
    def process_is_gone(self, broker_id: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced and self.sessions.take_for_gone(broker_id):
            self.do(
                lambda: at_once(
                    handle_broker_in_controlled_shutdown(
                        self.seen(broker_id), self.settings, broker_id, broker.epoch
                    )
                )
            )
            assert all(each.leader != broker_id for _, _, _, each in self.partitions())

    def fence(self, broker_id: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is not None:
            self.do(
                lambda: at_once(
                    handle_broker_fenced(self.seen(broker_id), self.settings, broker_id, broker.epoch)
                )
            )
            assert self.image.brokers[broker_id].fenced

    @rule()
    def another_controller_takes_over(self) -> None:
        self.sessions.reset(self.image, self.now_ms)

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        known = broker_id in self.image.brokers
        request = UnregisterBrokerRequest(broker_id=broker_id)
        assert (
            self.do(lambda: at_once(unregister_broker(self.seen(), self.settings, request))) is not None
        ) == known
        self.sessions.remove(broker_id)
        assert broker_id not in self.image.brokers

    # Leaders.

    @precondition(lambda self: self.image.topics)
    @rule(data=st.data(), epochs_off=st.sampled_from([(0, 0)] * 4 + [(1, 0), (0, -1), (-1, 0), (0, 1)]))
    def alter_isr(self, data: st.DataObject, epochs_off: tuple[int, int]) -> None:
        topic_id, _, index, partition = data.draw(st.sampled_from(self.partitions()))
        leader = self.image.brokers.get(partition.leader)
        if leader is None:
            return
        isr = data.draw(st.permutations(partition.replicas))[: data.draw(st.integers(1, 4))]
        if data.draw(st.booleans()):
            isr = [each for each in partition.replicas if each in self.image.brokers]
        wanted = altering.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch + epochs_off[0],
            partition_epoch=partition.partition_epoch + epochs_off[1],
            new_isr_with_epochs=[
                altering.BrokerState(
                    broker_id=each,
                    broker_epoch=self.image.brokers[each].epoch if each in self.image.brokers else -1,
                )
                for each in isr
            ],
        )
        request = altering.AlterPartitionRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[altering.TopicData(topic_id=topic_id, partitions=[wanted])],
        )
        answer = self.do(lambda: at_once(alter_partition(self.seen(), self.settings, request)))
        assert answer is not None
        (told,) = answer.topics[0].partitions
        now = self.image.topics_by_id[topic_id].partitions[index]
        if epochs_off != (0, 0):
            assert told.error_code != ErrorCode.NONE
        if told.error_code == ErrorCode.NONE:
            assert (told.leader_id, told.leader_epoch) == (now.leader, now.leader_epoch)
            assert (tuple(told.isr), told.partition_epoch) == (now.isr, now.partition_epoch)
            assert now.leader == leader.id
            assert all(is_active(self.image, each) for each in now.isr)
        elif told.error_code != ErrorCode.NEW_LEADER_ELECTED:
            assert now == partition

    @precondition(lambda self: self.image.topics and directories_supported(self.levels["metadata.version"]))
    @rule(data=st.data(), lost=st.booleans())
    def assign_directory(self, data: st.DataObject, lost: bool) -> None:
        topic_id, _, index, partition = data.draw(st.sampled_from(self.partitions()))
        broker = self.image.brokers.get(data.draw(st.sampled_from(partition.replicas)))
        if broker is None:
            return
        chosen = DIRECTORY_LOST if lost else data.draw(st.sampled_from(directories(broker.id)))
        request = assigning.AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[
                assigning.DirectoryData(
                    id=chosen,
                    topics=[
                        assigning.TopicData(
                            topic_id=topic_id, partitions=[assigning.PartitionData(partition_index=index)]
                        )
                    ],
                )
            ],
        )
        assert (
            self.do(lambda: at_once(assign_replicas_to_dirs(self.seen(), self.settings, request))) is not None
        )
        now = self.image.topics_by_id[topic_id].partitions[index]
        if broker.id in now.replicas:  # otherwise this change completed a move away from there
            assert now.directories[now.replicas.index(broker.id)] == chosen
        assert not lost or broker.id not in now.isr or now.isr == (broker.id,)

    # Administrators.

    @rule(name=TOPICS, count=st.integers(1, 3), factor=st.integers(1, 4))
    def create(self, name: str, count: int, factor: int) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=count, replication_factor=factor)]
        )
        existed = name in self.image.topics
        answer = self.do(lambda: at_once(create_topics(self.seen(), self.settings, self.random, request)))
        assert answer is not None
        assert not existed or answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    @rule(name=TOPICS)
    def delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        self.do(lambda: at_once(delete_topics(self.seen(), request)))
        assert name not in self.image.topics

    @rule(name=TOPICS, count=st.integers(1, 4))
    def add_partitions(self, name: str, count: int) -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)]
        )
        self.do(lambda: at_once(create_partitions(self.seen(), self.random, request)))

    @precondition(lambda self: self.image.topics)
    @rule(data=st.data(), to=st.none() | st.lists(BROKERS, unique=True, min_size=1))
    def reassign(self, data: st.DataObject, to: list[int] | None) -> None:
        _, name, index, _ = data.draw(st.sampled_from(self.partitions()))
        request = reassigning.AlterPartitionReassignmentsRequest(
            topics=[
                reassigning.ReassignableTopic(
                    name=name,
                    partitions=[reassigning.ReassignablePartition(partition_index=index, replicas=to)],
                )
            ]
        )
        self.do(lambda: at_once(alter_partition_reassignments(self.seen(), self.settings, request)))

    @rule(kind=st.integers(0, 1))
    def elect(self, kind: int) -> None:
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.do(lambda: at_once(elect_leaders(self.seen(), self.settings, request)))

    @rule()
    def periodic_elections(self) -> None:
        self.do(lambda: at_once(maybe_balance_partition_leaders(self.seen(), self.settings)))
        assert at_once(maybe_balance_partition_leaders(self.seen(), self.settings)).records == ()
        self.do(lambda: at_once(maybe_elect_unclean_leaders(self.seen(), self.settings)))
        assert at_once(maybe_elect_unclean_leaders(self.seen(), self.settings)).records == ()

    @rule(
        name=TOPICS,
        setting=st.sampled_from(
            [
                ("unclean.leader.election.enable", "true"),
                ("unclean.leader.election.enable", "false"),
                ("min.insync.replicas", "1"),
                ("min.insync.replicas", "3"),
            ]
        ),
    )
    def configure(self, name: str, setting: tuple[str, str]) -> None:
        if name not in self.image.topics:
            return
        request = configuring.IncrementalAlterConfigsRequest(
            resources=[
                configuring.AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[
                        configuring.AlterableConfig(name=setting[0], config_operation=0, value=setting[1])
                    ],
                )
            ]
        )
        self.do(lambda: at_once(incremental_alter_configs(self.seen(), self.settings, request)))

    # Invariants.

    @invariant()
    def partitions_are_sound(self) -> None:
        for _, _, _, each in self.partitions():
            assert len(set(each.replicas)) == len(each.replicas) == len(each.directories) > 0
            assert len(set(each.isr)) == len(each.isr)
            assert set(each.isr) <= set(each.replicas)
            assert set(each.adding_replicas) <= set(each.replicas)
            assert set(each.removing_replicas) <= set(each.replicas)
            assert not set(each.isr) & set(each.eligible_leader_replicas)
            if each.leader == NO_LEADER:
                continue
            assert each.leader in each.isr
            leader = self.image.brokers[each.leader]
            assert not leader.fenced
            assert not leader.in_controlled_shutdown
            assert not each.last_known_elr

    @invariant()
    def nobody_waits_for_an_election_in_vain(self) -> None:
        """There is always a leader while a member of the ISR is live."""
        for _, _, _, each in self.partitions():
            if each.leader == NO_LEADER:
                for replica in each.isr:
                    broker = self.image.brokers.get(replica)
                    held = each.directories[each.replicas.index(replica)]
                    assert (
                        broker is None
                        or broker.fenced
                        or broker.in_controlled_shutdown
                        or held not in broker.directories
                    )

    @invariant()
    def a_snapshot_gives_the_same_image(self) -> None:
        delta = MetadataDelta(MetadataImage())
        for record in image_records(self.image):
            delta.replay(*unframe(frame(record), self.classes))
        assert delta.apply(self.image.offset, self.image.epoch) == self.image


class WithEligibleLeaders(ClusterLife):
    levels: ClassVar[Mapping[str, int]] = clusters.LEVELS


class WithoutEligibleLeaders(ClusterLife):
    levels: ClassVar[Mapping[str, int]] = {"metadata.version": 30}

    @invariant()
    def somebody_is_always_listed_in_sync(self) -> None:
        for _, _, _, each in self.partitions():
            assert each.isr
            assert not each.eligible_leader_replicas
            assert not each.last_known_elr


class BeforeDirectories(WithoutEligibleLeaders):
    levels: ClassVar[Mapping[str, int]] = {"metadata.version": 14}


PROFILE = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TestWithEligibleLeaders = WithEligibleLeaders.TestCase
TestWithEligibleLeaders.settings = PROFILE
TestWithoutEligibleLeaders = WithoutEligibleLeaders.TestCase
TestWithoutEligibleLeaders.settings = PROFILE
TestBeforeDirectories = BeforeDirectories.TestCase
TestBeforeDirectories.settings = PROFILE
