"""A streams group (KIP-1071): its topology, members, epochs, target assignment, and which process has which task.

It is changed by the replay of records only. What the members report and ask for is lost with the coordinator, as in
Kafka: the offsets of tasks, a request to shut the application down, and how often the endpoints have changed. Follows
Kafka's StreamsGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from kafkacompat.coordinator.core import OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ModernGroup,
    Subscribers,
    assignment_replay,
    member_replay,
    replay_group_metadata,
    replay_modern_record,
    replay_target_metadata,
    throw_if_commit_without_epoch,
)
from kafkacompat.group.records import (
    STREAMS_CURRENT_ASSIGNMENT,
    STREAMS_GROUP_METADATA,
    STREAMS_MEMBER_METADATA,
    STREAMS_TARGET_MEMBER,
    STREAMS_TARGET_METADATA,
    STREAMS_TOPOLOGY,
    GroupKind,
    streams_group_tombstones,
)
from kafkacompat.group.streams.streams_group_member import Endpoint, MemberState, StreamsGroupMember
from kafkacompat.group.streams.streams_topology import StreamsTopology, topology_of
from kafkacompat.group.streams.tasks_tuple import (
    NOTHING_ASSIGNED,
    TasksTuple,
    TasksTupleWithEpochs,
    tasks_of,
    tasks_with_epochs_of,
)
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.group import CommitPartitionValidator, Group
    from kafkacompat.group.records import GroupRecord, StreamsGroupRecord
    from kafkacompat.group.streams.configured_topology import ConfiguredTopology
    from kafkacompat.ids import Uuid
    from kafkacompat.memory import Held, Memory
    from kafkacompat.wire.messages.streams_group_heartbeat_response import EndpointToPartitions


STREAMS_PROTOCOL_TYPE = "streams"
NO_TOPOLOGY_EPOCH = -1
NO_PROCESSES: frozenset[str] = frozenset()
TASK_OFFSET_BYTES = 250
TARGET_TASK_BYTES = 150
ASSIGNED_TASK_BYTES = 250
"""With its process. Of subtopologies that read one topic a client decides how many there are, and so how many tasks."""

Processes = dict[str, dict[int, set[str]]]
"""Subtopology id -> partition -> ids of the processes that have the task."""
Offsets = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> offset."""


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """What a member has told of its tasks' changelogs: how far it is, and where they end."""

    offsets: Offsets = field(default_factory=dict)
    end_offsets: Offsets = field(default_factory=dict)

    def count(self) -> int:
        return sum(map(len, (*self.offsets.values(), *self.end_offsets.values())))

    def size(self) -> int:
        """Bytes of memory."""
        names = sum(map(getsizeof, (*self.offsets, *self.end_offsets)))
        return TASK_OFFSET_BYTES * self.count() + names


NO_TASK_OFFSETS = TaskOffsets()


class StreamsGroup(ModernGroup[StreamsGroupMember, TasksTuple]):
    __slots__ = (
        "_active_processes",
        "_standby_processes",
        "_task_offsets",
        "_task_offsets_held",
        "_tasks_held",
        "_topology_held",
        "_warmup_processes",
        "configured_topology",
        "described_endpoints",
        "endpoint_information_epoch",
        "failed_description_epoch",
        "last_assignment_configs",
        "most_members",
        "shutdown_request_member_id",
        "source_topics",
        "stored_description_epoch",
        "topic_names",
        "topology",
        "validated_topology_epoch",
    )

    kind = GroupKind.STREAMS
    session_timeout = "streams.session.timeout.ms"
    assignment_interval = "streams.assignment.interval.ms"
    listed_protocol_type = STREAMS_PROTOCOL_TYPE

    def __init__(self, group_id: str, subscribers: Subscribers, memory: Memory | None = None) -> None:
        super().__init__(group_id, subscribers, memory)
        self.topology: StreamsTopology | None = None
        self.topic_names: dict[str, int] = {}
        """All topics of the topology."""
        self.source_topics: dict[str, str] = {}
        """Topic from which a subtopology reads -> subtopology id."""
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        """The epoch of the topology whose topics were found to be as it needs them."""
        self.last_assignment_configs: dict[str, str] = {}
        self.stored_description_epoch = NO_TOPOLOGY_EPOCH
        self.failed_description_epoch = NO_TOPOLOGY_EPOCH
        """What a plug-in of Apache Kafka has of the topology's description (KIP-1331). Kept as it was written."""
        self.configured_topology: ConfiguredTopology | None = None
        """The topology with the numbers of partitions that its topics have, or the reason why it cannot run."""
        self.most_members = 0
        """That the group has had at once. Kafka's order of the members depends on it."""
        self.endpoint_information_epoch = 0
        self.described_endpoints: dict[str, tuple[EndpointToPartitions, Held | None]] = {}
        """Member id -> what others are told of its endpoint, and its memory."""
        self.shutdown_request_member_id: str | None = None
        self._active_processes: dict[str, dict[int, str]] = {}
        self._standby_processes: Processes = {}
        self._warmup_processes: Processes = {}
        self._task_offsets: dict[str, TaskOffsets] = {}
        self._task_offsets_held: dict[str, Held] = {}
        self._topology_held: Held | None = None
        self._tasks_held = None if memory is None else memory.hold(0)

    def _state_of_members(self) -> str:
        topology = self.topology
        if topology is None or topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        return super()._state_of_members()

    # --- the topology

    def set_topology(self, topology: StreamsTopology | None) -> None:
        names = () if topology is None else topology.required_topics()
        for name in self.topic_names.keys() - names:
            self._unsubscribe(name)
        for name in names:
            if name not in self.topic_names:
                self._subscribe(name)
        self.topic_names = dict.fromkeys(names, 1)
        self.source_topics = {} if topology is None else topology.source_topics()
        self.topology = topology
        if self._memory is not None:
            self._topology_held = None if topology is None else self._memory.hold(topology.size())
        self._state_may_change()

    @property
    def topology_epoch(self) -> int:
        return NO_TOPOLOGY_EPOCH if self.topology is None else self.topology.epoch

    def set_configured_topology(self, topology: ConfiguredTopology) -> None:
        self.configured_topology = topology
        self.described_endpoints.clear()

    def keep_endpoint(self, member_id: str, told: EndpointToPartitions, size: int) -> None:
        held = None if self._memory is None else self._memory.hold(size)
        self.described_endpoints[member_id] = told, held

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and not self._is_dead and topic in self.source_topics

    # --- members

    def _count(self, old: StreamsGroupMember | None, new: StreamsGroupMember | None) -> None:
        self.most_members = max(self.most_members, len(self.members))
        if not self.members:
            self.shutdown_request_member_id = None
        member_id = new.member_id if new is not None else old.member_id if old is not None else ""
        self.described_endpoints.pop(member_id, None)
        if new is None:
            self.forget_task_offsets(member_id)
        if (
            old is not None
            and new is not None
            and (old.assigned, old.pending_revocation, old.process_id)
            == (new.assigned, new.pending_revocation, new.process_id)
        ):
            return
        more = 0
        if old is not None:
            self._release(old.assigned, old.process_id)
            self._release(old.pending_revocation, old.process_id)
            more -= old.assigned.count() + old.pending_revocation.count()
        if new is not None:
            self._take(new.assigned, new.process_id)
            self._take(new.pending_revocation, new.process_id)
            more += new.assigned.count() + new.pending_revocation.count()
        if self._tasks_held is not None:
            self._tasks_held.grow(ASSIGNED_TASK_BYTES * more)

    def _take(self, tasks: TasksTupleWithEpochs, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            processes = self._active_processes.setdefault(subtopology_id, {})
            for partition in epochs:
                processes[partition] = process_id
        for replicas, counted in (
            (tasks.standby, self._standby_processes),
            (tasks.warmup, self._warmup_processes),
        ):
            for subtopology_id, partitions in replicas.items():
                of_subtopology = counted.setdefault(subtopology_id, {})
                for partition in partitions:
                    of_subtopology.setdefault(partition, set()).add(process_id)

    def _release(self, tasks: TasksTupleWithEpochs, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            processes = self._active_processes.get(subtopology_id, {})
            for partition in epochs:
                if processes.get(partition) == process_id:  # otherwise another process has it by now
                    del processes[partition]
            if not processes:
                self._active_processes.pop(subtopology_id, None)
        for replicas, counted in (
            (tasks.standby, self._standby_processes),
            (tasks.warmup, self._warmup_processes),
        ):
            for subtopology_id, partitions in replicas.items():
                of_subtopology = counted.get(subtopology_id, {})
                for partition in partitions:
                    having = of_subtopology.get(partition)
                    if having is not None:
                        having.discard(process_id)
                        if not having:
                            del of_subtopology[partition]
                if not of_subtopology:
                    counted.pop(subtopology_id, None)

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        """The process in which the task is active, or still has to be revoked."""
        return self._active_processes.get(subtopology_id, {}).get(partition)

    def standby_processes(self, subtopology_id: str, partition: int) -> AbstractSet[str]:
        return self._standby_processes.get(subtopology_id, {}).get(partition, NO_PROCESSES)

    def warmup_processes(self, subtopology_id: str, partition: int) -> AbstractSet[str]:
        return self._warmup_processes.get(subtopology_id, {}).get(partition, NO_PROCESSES)

    def set_target(self, member_id: str, target: TasksTuple | None) -> None:
        more = 0 if target is None else target.count()
        if member_id in self.targets:
            more -= self.targets[member_id].count()
        if self._tasks_held is not None:
            self._tasks_held.grow(TARGET_TASK_BYTES * more)
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    # --- what members report

    def task_offsets(self, member_id: str) -> TaskOffsets:
        return self._task_offsets.get(member_id, NO_TASK_OFFSETS)

    def all_task_offsets(self) -> dict[str, TaskOffsets]:
        """By member id, as they are now."""
        return dict(self._task_offsets)

    def set_task_offsets(self, member_id: str, told: TaskOffsets) -> None:
        self._task_offsets[member_id] = told
        if self._memory is not None:
            self._task_offsets_held.pop(member_id, None)
            self._task_offsets_held[member_id] = self._memory.hold(told.size())

    def forget_task_offsets(self, member_id: str) -> None:
        self._task_offsets.pop(member_id, None)
        self._task_offsets_held.pop(member_id, None)

    def request_shutdown(self, member_id: str) -> None:
        """The first who asks is named to all."""
        if self.shutdown_request_member_id is None:
            self.shutdown_request_member_id = member_id

    # --- offsets

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        is_transactional: bool,
        api_version: int,
    ) -> CommitPartitionValidator | None:
        member = self.committing_member(member_id, group_instance_id, member_epoch, is_transactional)
        if member is None:
            return None
        if not is_transactional:
            throw_if_commit_without_epoch(api_version, "streams")
        if member_epoch == member.member_epoch:
            return None
        if member_epoch > member.member_epoch or self.topology is None:
            raise OperationRefused(ErrorCode.STALE_MEMBER_EPOCH)
        source_topics = self.source_topics

        def validate(topic: str, topic_id: Uuid, partition: int) -> None:
            """A commit with an older epoch counts for the tasks that the member has had since then."""
            subtopology_id = source_topics.get(topic, "")
            assigned_at = member.assigned.active.get(subtopology_id, {}).get(partition)
            if assigned_at is None:
                assigned_at = member.pending_revocation.active.get(subtopology_id, {}).get(partition)
            if topic not in source_topics or assigned_at is None or member_epoch < assigned_at:
                raise OperationRefused(ErrorCode.STALE_MEMBER_EPOCH)

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        if member_epoch != self.member(member_id or "").member_epoch:
            raise OperationRefused(ErrorCode.STALE_MEMBER_EPOCH)

    def tombstones(self) -> list[GroupRecord]:
        return list(streams_group_tombstones(self.group_id, list(self.members)))


# --- replay


def replay_streams_record(
    groups: dict[str, Group],
    subscribers: Subscribers,
    record: StreamsGroupRecord,
    memory: Memory | None = None,
) -> None:
    """Raises LoadFailure for a record that does not fit those before it. A tombstone of nothing is ignored."""
    replay_modern_record(groups, subscribers, record, StreamsGroup, _REPLAYS, STREAMS_GROUP_METADATA, memory)


def _group_metadata(group: StreamsGroup, key: Any, value: Any) -> None:
    replay_group_metadata(group, key, value)
    if value is None:
        return
    group.validated_topology_epoch = value.validated_topology_epoch
    group.stored_description_epoch = value.stored_description_topology_epoch
    group.failed_description_epoch = value.failed_description_topology_epoch
    group.last_assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}


def _told(group: StreamsGroup, member: StreamsGroupMember, value: Any) -> StreamsGroupMember:
    endpoint = value.user_endpoint
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags={each.key: each.value for each in value.client_tags},
    )


def _target_member(group: StreamsGroup, key: Any, value: Any) -> None:
    target = None
    if value is not None:
        target = TasksTuple(
            tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks)
        )
    group.set_target(key.member_id, target)


def _assigned(member: StreamsGroupMember, value: Any) -> StreamsGroupMember:
    epoch = value.member_epoch
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=TasksTupleWithEpochs(
            tasks_with_epochs_of(value.active_tasks, epoch),
            tasks_of(value.standby_tasks),
            tasks_of(value.warmup_tasks),
        ),
        pending_revocation=TasksTupleWithEpochs(
            tasks_with_epochs_of(value.active_tasks_pending_revocation, epoch),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        ),
    )


def _left(member: StreamsGroupMember) -> StreamsGroupMember:
    return replace(
        member,
        member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
        assigned=NOTHING_ASSIGNED,
        pending_revocation=NOTHING_ASSIGNED,
    )


def _topology(group: StreamsGroup, key: Any, value: Any) -> None:
    group.set_topology(None if value is None else topology_of(value))


_REPLAYS: dict[int, Callable[[StreamsGroup, Any, Any], None]] = {
    STREAMS_GROUP_METADATA: _group_metadata,
    STREAMS_MEMBER_METADATA: member_replay(StreamsGroupMember, _told),
    STREAMS_TARGET_METADATA: replay_target_metadata,
    STREAMS_TARGET_MEMBER: _target_member,
    STREAMS_CURRENT_ASSIGNMENT: assignment_replay(StreamsGroupMember, _assigned, _left),
    STREAMS_TOPOLOGY: _topology,
}
