"""Checks a streams group (KIP-1071) at its coordinators: whatever is in the log is in memory, a task is active once, and a
process has a task in one role at most.

The oracle reads the records of each leader of the group's partition, as its log has them, and keeps the last value of each
key. It shares no code with the coordinator except the messages. It compares after every event, because a coordinator
applies its records as it appends them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kafkacompat.dataclass import dataclass
from kafkacompat.ids import OFFSETS_TOPIC, partition_for_key
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.cluster_options import APPLICATION, is_of_application
from kafkacompat.sim.partition_history import opened
from kafkacompat.wire.codec import decode
from kafkacompat.wire.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from kafkacompat.wire.messages.streams_group_current_member_assignment_value import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from kafkacompat.wire.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from kafkacompat.wire.messages.streams_group_member_metadata_value import StreamsGroupMemberMetadataValue
from kafkacompat.wire.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from kafkacompat.wire.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from kafkacompat.wire.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from kafkacompat.wire.messages.streams_group_target_assignment_member_value import (
    StreamsGroupTargetAssignmentMemberValue,
)
from kafkacompat.wire.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from kafkacompat.wire.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from kafkacompat.wire.messages.streams_group_topology_key import StreamsGroupTopologyKey
from kafkacompat.wire.messages.streams_group_topology_value import StreamsGroupTopologyValue

if TYPE_CHECKING:
    from kafkacompat.ports import Log
    from kafkacompat.sim.counters import StreamsGroupCounters
    from kafkacompat.sim.processes import Environment
    from kafkacompat.sim.views import MachineView, NodeView

GROUP, MEMBER, TARGET_EPOCH, TARGET, ASSIGNMENT, TOPOLOGY = 17, 19, 20, 21, 22, 23
MESSAGES: dict[int, tuple[type[Any], type[Any]]] = {
    GROUP: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    MEMBER: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    TARGET_EPOCH: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    TARGET: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    ASSIGNMENT: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    TOPOLOGY: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
TYPE_BYTES, VERSION_BYTES = 2, 2
NOBODY = ""
"""The member id in the key of a record of the whole group."""
STABLE, UNREVOKED, UNRELEASED = 1, 2, 3


@dataclass(slots=True)
class Followed:
    """A coordinator's partition on one node, and its records up to `end`."""

    machine: Any
    end: int = 0
    values: dict[tuple[int, str], Any] = field(default_factory=dict)
    """By record type and member id."""


class StreamsOracle:
    def __init__(
        self, env: Environment, machines: Mapping[int, MachineView], counters: StreamsGroupCounters
    ) -> None:
        self._env = env
        self._machines = machines
        self._counters = counters
        self._followed: dict[NodeView, Followed] = {}
        self._topics: set[bytes] = set()

    def group(self) -> Any:
        """The group at its coordinator. None if no coordinator has it."""
        leader = self._leader()
        life = self._machines[leader].life if leader in self._machines else None
        machine = None if life is None else self._machine_of(life)
        return None if machine is None else machine.groups.get(APPLICATION)

    def _leader(self) -> int:
        topic = self._env.metadata.newest.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return -1
        return topic.partitions[partition_for_key(APPLICATION, len(topic.partitions))].leader

    def _machine_of(self, life: NodeView) -> Any:
        machines = life.group_machines()
        return machines.get(partition_for_key(APPLICATION, self._partitions())) if machines else None

    def _partitions(self) -> int:
        return len(self._env.metadata.newest.topics[OFFSETS_TOPIC].partitions)

    # The records.

    def after_event(self, life: NodeView) -> None:
        if not life.alive or life.partitions is None:
            return
        machine = self._machine_of(life)
        if machine is None:
            self._followed.pop(life, None)
            return
        followed = self._followed.get(life)
        if followed is None or followed.machine is not machine:
            followed = self._followed[life] = Followed(machine)
            self._counters.loads += APPLICATION in machine.groups
            self._count_topics()
        topic_id = self._env.metadata.newest.topics[OFFSETS_TOPIC].id
        core = life.partitions.by_id.get((topic_id, partition_for_key(APPLICATION, self._partitions())))
        if core is not None and core.log.log_end_offset != followed.end:
            with life.machine.watched():
                self._read(followed, core.log)
            self._counters.compared += 1
            self._compare(
                f"node {life.id} at {followed.end}", followed.values, machine.groups.get(APPLICATION)
            )

    def _count_topics(self) -> None:
        for topic_id, name in self._env.metadata.names.items():
            if is_of_application(name) and topic_id not in self._topics:
                self._topics.add(topic_id)
                self._counters.internal_topics += 1

    def _read(self, followed: Followed, log: Log) -> None:
        position, end = followed.end, log.log_end_offset
        for header, view in opened(log, position, end):
            if header.is_control:
                continue
            for offset, record in records_of(view, header):
                if position <= offset < end:
                    self._take(followed.values, bytes(record.key or b""), record.value)
        followed.end = end

    def _take(self, values: dict[tuple[int, str], Any], key: bytes, value: Any) -> None:
        kind = int.from_bytes(key[:TYPE_BYTES], "big")
        if kind not in MESSAGES:
            return
        key_class, value_class = MESSAGES[kind]
        named = decode(key_class, 0, key[TYPE_BYTES:])
        if named.group_id != APPLICATION:
            return
        name = kind, getattr(named, "member_id", NOBODY)
        if value is None:
            values.pop(name, None)
            return
        body = bytes(value)
        read = decode(value_class, int.from_bytes(body[:VERSION_BYTES], "big"), body[VERSION_BYTES:])
        before = values.get(name)
        if kind == GROUP and before is not None and read.epoch <= before.epoch:
            raise Breach("group epochs grow", f"from {before.epoch} to {read.epoch}")
        values[name] = read

    # The memory.

    def _compare(self, where: str, values: Mapping[tuple[int, str], Any], group: Any) -> None:
        metadata = values.get((GROUP, NOBODY))
        if metadata is None or group is None or not hasattr(group, "topology"):
            if metadata is not None or (group is not None and hasattr(group, "topology")):
                raise Breach("memory is what the log has", f"{where}: {group} and {metadata}")
            return
        for what, live, kept in self._pairs(values, group, metadata):
            if live != kept:
                raise Breach("memory is what the log has", f"{where}: {what} is {live}, kept is {kept}")
        self._check_members(where, list(group.members.values()), group.group_epoch)
        self._check_processes(where, group)

    def _pairs(
        self, values: Mapping[tuple[int, str], Any], group: Any, metadata: Any
    ) -> Iterable[tuple[str, Any, Any]]:
        yield (
            "the group",
            (group.group_epoch, group.metadata_hash, group.validated_topology_epoch),
            (metadata.epoch, metadata.metadata_hash, metadata.validated_topology_epoch),
        )
        yield (
            "its settings",
            group.last_assignment_configs,
            {each.key: each.value for each in metadata.last_assignment_configs or ()},
        )
        epoch = values.get((TARGET_EPOCH, NOBODY))
        if epoch is not None:
            yield (
                "the assignment epoch",
                (group.assignment_epoch, group.assignment_timestamp_ms),
                (epoch.assignment_epoch, epoch.assignment_timestamp),
            )
        topology = values.get((TOPOLOGY, NOBODY))
        live = group.topology
        yield (
            "the topology",
            None if live is None else (live.epoch, sorted(live.subtopologies)),
            None
            if topology is None
            else (topology.epoch, sorted(each.subtopology_id for each in topology.subtopologies)),
        )
        targets = {name: value for (kind, name), value in values.items() if kind == TARGET}
        yield (
            "the target",
            {
                name: tuple(map(_tasks, (each.active, each.standby, each.warmup)))
                for name, each in group.targets.items()
            },
            {
                name: tuple(map(_named, (each.active_tasks, each.standby_tasks, each.warmup_tasks)))
                for name, each in targets.items()
            },
        )
        told = {name: value for (kind, name), value in values.items() if kind == MEMBER}
        yield "the members", sorted(group.members), sorted(told)
        instances = {each.instance_id: name for name, each in told.items() if each.instance_id is not None}
        yield "static members", group.static_members, instances
        for name, value in told.items():
            yield name, _live_member(group.members[name]), _kept_member(value, values.get((ASSIGNMENT, name)))

    def _check_members(self, where: str, members: list[Any], group_epoch: int) -> None:
        active: dict[tuple[str, int], str] = {}
        processes: dict[tuple[str, str, int], str] = {}
        for each in members:
            name, assigned, pending = each.member_id, each.assigned, each.pending_revocation
            if each.member_epoch > group_epoch:
                raise Breach(
                    "members follow the group", f"{where}: {name} is at {each.member_epoch} of {group_epoch}"
                )
            roles = [_tasks(some) for some in (assigned.active, assigned.standby, assigned.warmup)]
            if len(set().union(*roles)) < sum(map(len, roles)):
                raise Breach("a task has one role at a member", f"{where}: {name} has {roles}")
            for task in sorted(roles[0] | _tasks(pending.active)):
                if active.setdefault(task, name) != name:
                    raise Breach("a task is active once", f"{where}: {task} is at {active[task]} and {name}")
            replicas = [_tasks(some) for some in (pending.standby, pending.warmup)]
            for task in sorted(set().union(*roles, *replicas, _tasks(pending.active))):
                if processes.setdefault((each.process_id, *task), name) != name:
                    raise Breach(
                        "a task is at a process once",
                        f"{where}: {task} is at {processes[(each.process_id, *task)]} and {name} of {each.process_id}",
                    )

    def _check_processes(self, where: str, group: Any) -> None:
        """What is derived from the members."""
        tasks = {
            task
            for each in group.members.values()
            for some in (each.assigned, each.pending_revocation)
            for role in (some.active, some.standby, some.warmup)
            for task in _tasks(role)
        }
        for task in sorted(tasks):
            by_role = [
                {
                    each.process_id
                    for each in group.members.values()
                    for some in (each.assigned, each.pending_revocation)
                    if task in _tasks(getattr(some, role))
                }
                for role in ("active", "standby", "warmup")
            ]
            active = group.active_process(*task)
            live = [
                set() if active is None else {active},
                set(group.standby_processes(*task)),
                set(group.warmup_processes(*task)),
            ]
            if live != by_role:
                raise Breach("processes are those of members", f"{where}: {task} is at {live}, not {by_role}")

    def at_rest(self, group: Any, owned: Mapping[str, set[tuple[str, str, int]]]) -> str | None:
        """What is left to do in a group whose members own these. None if nothing is."""
        if group.state_name != "Stable" or group.assignment_epoch != group.group_epoch:
            return f"the group is {group.state_name} at {group.assignment_epoch} of {group.group_epoch}"
        live = {
            name: {
                (f"{role}_tasks", *task)
                for role in ("active", "standby", "warmup")
                for task in _tasks(getattr(each.assigned, role))
            }
            for name, each in group.members.items()
        }
        return None if live == owned else f"the coordinator has {live}, the members {owned}"


def _tasks(tasks: Mapping[str, Iterable[int]]) -> set[tuple[str, int]]:
    return {(subtopology_id, partition) for subtopology_id, some in tasks.items() for partition in some}


def _named(structs: Iterable[Any]) -> set[tuple[str, int]]:
    return {(struct.subtopology_id, partition) for struct in structs for partition in struct.partitions}


def _epochs(structs: Iterable[Any]) -> dict[tuple[str, int], int]:
    return {
        (struct.subtopology_id, partition): epoch
        for struct in structs
        for partition, epoch in zip(struct.partitions, struct.assignment_epochs, strict=True)
    }


def _live_member(member: Any) -> tuple[Any, ...]:
    endpoint, assigned, pending = member.user_endpoint, member.assigned, member.pending_revocation
    told = (
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.topology_epoch,
        member.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        member.client_tags,
    )
    roles = [
        {(each, index): epoch for each, epochs in some.active.items() for index, epoch in epochs.items()}
        for some in (assigned, pending)
    ]
    replicas = [_tasks(some) for some in (assigned.standby, assigned.warmup, pending.standby, pending.warmup)]
    return told, member.member_epoch, member.previous_member_epoch, int(member.state), roles, replicas


def _kept_member(value: Any, assignment: Any) -> tuple[Any, ...]:
    endpoint = value.user_endpoint
    told = (
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        value.rebalance_timeout_ms,
        value.topology_epoch,
        value.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {each.key: each.value for each in value.client_tags},
    )
    if assignment is None:
        return told, 0, 0, STABLE, [{}, {}], [set(), set(), set(), set()]
    roles = [_epochs(assignment.active_tasks), _epochs(assignment.active_tasks_pending_revocation)]
    replicas = [
        _named(some)
        for some in (
            assignment.standby_tasks,
            assignment.warmup_tasks,
            assignment.standby_tasks_pending_revocation,
            assignment.warmup_tasks_pending_revocation,
        )
    ]
    return (
        told,
        assignment.member_epoch,
        assignment.previous_member_epoch,
        assignment.state,
        roles,
        replicas,
    )
