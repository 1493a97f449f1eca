"""StreamsGroupHeartbeat (KIP-1071): members of a Kafka Streams application join, report, and leave by it.

A heartbeat updates the member and the topology, then the target assignment if the group epoch is ahead of it, then the
member's own tasks. Each step adds records, and nothing changes before the log has them. The answer also says why the
application cannot run yet, and which internal topics the caller has to create. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.config.group import RACK_TAGS
from kafkacompat.config.keys import entries_of
from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.dataclass import dataclass
from kafkacompat.group.consumer.assignor import Meter
from kafkacompat.group.environment import (
    METADATA_REFRESH_INTERVAL_MS,
    Environment,
    GroupResult,
    TimerKey,
    nothing,
)
from kafkacompat.group.modern_group import (
    LEAVE_GROUP_MEMBER_EPOCH,
    cancel_fencing,
    fenced_epoch,
    group_of_kind,
    is_blank,
    metadata_hash,
    schedule_rebalance_timeout,
    schedule_session_timeout,
    session_timeout_ms,
    static_member_or_refused,
    take_up,
    throw_if_full,
    unreleased_instance,
)
from kafkacompat.group.records import (
    GroupRecord,
    streams_current_assignment_record,
    streams_epoch_record,
    streams_member_record,
    streams_member_tombstones,
    streams_target_epoch_record,
    streams_target_record,
    streams_topology_record,
)
from kafkacompat.group.streams.configured_topology import ConfiguredTopology, StatusCode, configure_topology
from kafkacompat.group.streams.current_assignment_builder import Reconciliation
from kafkacompat.group.streams.sticky_task_assignor import (
    HASH_NS,
    MEMBER_NS,
    TaskGroupSpec,
    TaskMemberSpec,
    assign,
)
from kafkacompat.group.streams.streams_group import (
    NO_TASK_OFFSETS,
    NO_TOPOLOGY_EPOCH,
    StreamsGroup,
    TaskOffsets,
)
from kafkacompat.group.streams.streams_group_member import Endpoint, StreamsGroupMember
from kafkacompat.group.streams.streams_topology import StreamsTopology, topology_of
from kafkacompat.group.streams.tasks_tuple import (
    NOTHING,
    TasksTuple,
    TasksTupleWithEpochs,
    sorted_tasks,
    tasks_of,
)
from kafkacompat.group.target_assignment import (
    AT_ONCE_UNITS,
    Target,
    TargetRecords,
    assign_beside,
    assigned_at_once,
    is_assignment_due,
)
from kafkacompat.ids import timeline_place
from kafkacompat.tasks import TURN_COST, at_once
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.streams_group_heartbeat_response import Endpoint as ToldEndpoint
from kafkacompat.wire.messages.streams_group_heartbeat_response import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)

if TYPE_CHECKING:
    from kafkacompat.group.streams.configured_topology import ConfiguredSubtopology, InternalTopic
    from kafkacompat.group.topics import Topics
    from kafkacompat.tasks import Work
    from kafkacompat.wire.messages.streams_group_heartbeat_request import (
        StreamsGroupHeartbeatRequest,
        Topology,
    )


LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
STANDBY_REPLICAS = "num.standby.replicas"
RACK_AWARE_TAGS = "rack.aware.assignment.tags"
MEMBERS_AT_ONCE = 500
"""Members up to which a group is described to the assignor within the request."""
OFFSETS_A_UNIT = 5
"""Offsets of tasks that are as much work for the assignor as one task."""
ENDPOINT_TOPICS_AT_ONCE = 2_000
"""Topics of all members' endpoints up to which these are told within the request, and kept for the next."""
ENDPOINT_TOPIC_COST = 2
"""Cost of telling one of them, in microseconds."""
ENDPOINT_TOPIC_BYTES = 200
CLIENT_TAGS_SINCE = 1
"""The first version whose clients know the status MISSING_CLIENT_TAGS."""


def validate_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises OperationRefused INVALID_REQUEST or STREAMS_INVALID_TOPOLOGY."""
    epoch, topology = request.member_epoch, request.topology
    subtopologies = () if topology is None else topology.subtopologies
    _refuse_if(
        any(each.source_topic_regex for each in subtopologies),
        "Regular expressions for source topics are not supported yet.",
    )
    _refuse_if(is_blank(request.member_id), "MemberId can't be empty.")
    _refuse_if(is_blank(request.group_id), "GroupId can't be empty.")
    _refuse_if(is_blank(request.instance_id), "InstanceId can't be empty.")
    _refuse_if(is_blank(request.rack_id), "RackId can't be empty.")
    if epoch == 0:
        _refuse_if(
            request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request."
        )
        _refuse_if(request.active_tasks != [], "ActiveTasks must be empty when (re-)joining.")
        _refuse_if(request.standby_tasks != [], "StandbyTasks must be empty when (re-)joining.")
        _refuse_if(request.warmup_tasks != [], "WarmupTasks must be empty when (re-)joining.")
        _refuse_if(topology is None, "Topology must be non-null when (re-)joining.")
        for subtopology in subtopologies:
            for topic in subtopology.state_changelog_topics:
                if topic.partitions:
                    raise OperationRefused(
                        ErrorCode.STREAMS_INVALID_TOPOLOGY,
                        f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                        f"{topic.partitions}.",
                    )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        _refuse_if(
            epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            f"MemberEpoch is {epoch}, but must be greater than or equal to -2.",
        )
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    _refuse_if(
        any(tasks is not None for tasks in owned) and any(tasks is None for tasks in owned),
        "If one task-type is non-null, all must be non-null.",
    )
    _refuse_if(epoch != 0 and topology is not None, "Topology can only be provided when (re-)joining.")


def _refuse_if(is_so: bool, message: str) -> None:
    if is_so:
        raise OperationRefused(ErrorCode.INVALID_REQUEST, message)


class StreamsBeat(NamedTuple):
    """The answer to a member."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, InternalTopic]
    """By name. The response also says that the application waits for them."""
    endpoints: Work[list[EndpointToPartitions]] | None = None
    """What the response has to say of endpoints, if that takes long."""


Result = CoordinatorResult[GroupRecord, StreamsBeat]


@dataclass(frozen=True, slots=True)
class HeartbeatCaller:
    client_id: str
    client_host: str
    """With the leading slash of Java's InetAddress."""
    api_version: int


@dataclass(frozen=True, slots=True)
class PreparedTopology:
    """The topology of a request, and what it is beside these topics."""

    topology: StreamsTopology
    topics: Topics
    configured: ConfiguredTopology


def prepare_topology(env: Environment, told: Topology) -> Work[PreparedTopology | None]:
    """Read a large topology before the request is carried out. None if the request will be refused for it."""
    try:
        topology = topology_of(told)
        yield TURN_COST
        topics = env.topics
        return PreparedTopology(topology, topics, configure_topology(topology, topics))
    except (OperationRefused, ValueError):
        return None


def streams_group_heartbeat(
    env: Environment,
    request: StreamsGroupHeartbeatRequest,
    caller: HeartbeatCaller,
    now_ms: int,
    prepared: PreparedTopology | None = None,
) -> Result:
    """`prepared`: of the request's topology. Raises OperationRefused."""
    if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
        return _leave(env, request)
    if request.task_offsets is None and request.task_end_offsets is None:
        return _heartbeat(env, request, caller, now_ms, prepared)

    def forget() -> None:
        group: Any = env.groups.get(request.group_id)
        if isinstance(group, StreamsGroup) and request.member_id not in group.members:
            group.forget_task_offsets(request.member_id)

    try:
        result = _heartbeat(env, request, caller, now_ms, prepared)
    except OperationRefused:
        forget()
        raise
    return replace(result, refused=forget)


def _heartbeat(
    env: Environment,
    request: StreamsGroupHeartbeatRequest,
    caller: HeartbeatCaller,
    now_ms: int,
    prepared: PreparedTopology | None,
) -> Result:
    records: list[GroupRecord] = []
    statuses: list[Status] = []
    group_id, member_id, joins = request.group_id, request.member_id, request.member_epoch == 0
    group = _group_for(env, group_id, joins, records)
    if joins and group.static_member(request.instance_id) is None:
        throw_if_full(group, env.settings.streams.max_size, member_id)
    former = group.static_member(request.instance_id)
    member = _member_for(group, request, records)
    told = _told_of(request, caller, member)
    task_offsets = _task_offsets_of(group, request)
    topology = _topology_for(group, request, prepared)
    more = 0 if group.topology is not None else topology.size()
    more += 0 if task_offsets is None else task_offsets.size() - group.task_offsets(member_id).size()
    env.throw_if_no_room(group.growth(told) + more)

    bump = _note_member(group, member, told, request.instance_id, records)
    if group.topology is None:
        records.append(streams_topology_record(group_id, topology))
    elif told.topology_epoch < group.topology.epoch:
        _add_status(
            statuses,
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {told.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}.",
        )
    configured, found_hash = _configured(env, group, topology, prepared, now_ms)
    bump = bump or found_hash != group.metadata_hash
    validated_epoch = NO_TOPOLOGY_EPOCH
    if configured.is_ready:
        validated_epoch = topology.epoch
        for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            _throw_if_tasks_are_invalid(configured, tasks)
    if task_offsets is not None:
        group.set_task_offsets(member_id, task_offsets)
    configs = assignment_configs(env, group_id)
    bump = (
        bump or validated_epoch != group.validated_topology_epoch or configs != group.last_assignment_configs
    )
    group_epoch = group.group_epoch
    if bump:
        group_epoch += 1
        records.append(_epoch_record(group, group_epoch, found_hash, validated_epoch, configs))
        env.meters.streams_rebalanced()
        group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, group_epoch)
    if group.is_empty():
        _schedule_initial_rebalance(env, group_id)
    target = _target(env, group, group_epoch, told, configured, configs, statuses, records, now_ms)
    owned = _owned_of(request)
    updated = _reconciled(env, group, told, target, owned, records)
    schedule_session_timeout(env, group_id, member_id, session_timeout_ms(env, group))
    if request.shutdown_application:
        group.request_shutdown(member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=updated.member_epoch,
        heartbeat_interval_ms=env.configs.get_int(group_id, "streams.heartbeat.interval.ms"),
        task_offset_interval_ms=env.configs.get_int(group_id, "streams.task.offset.interval.ms"),
        acceptable_recovery_lag=env.configs.get_int(group_id, "streams.acceptable.recovery.lag"),
    )
    tasks_changed = updated.assigned != member.assigned
    # A client that got no answer repeats what it has. As Kafka does not tell it again what it was assigned meanwhile, it would not
    # run these tasks, nor give up what another member waits for.
    if joins or tasks_changed or (owned is not None and not owned.has_same_tasks(updated.assigned)):
        response.active_tasks = _task_ids(updated.assigned.active)
        response.standby_tasks = _task_ids(updated.assigned.standby)
        response.warmup_tasks = _task_ids(updated.assigned.warmup)
    replaced = None if former is None or former.member_id == member_id else former
    endpoints = _tell_endpoints(env, group, request, member, updated, replaced, joins, response)
    if configured.status is not None:
        _add_status(statuses, configured.status, configured.detail)
    if group.shutdown_request_member_id is not None:
        _add_status(
            statuses,
            StatusCode.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_request_member_id} encountered a fatal error and requested a shutdown "
            "for the entire application.",
        )
    required = configs.get(RACK_AWARE_TAGS, "").strip()
    if required and caller.api_version >= CLIENT_TAGS_SINCE:
        missing = [tag for tag in entries_of(required) if tag not in updated.client_tags]
        if missing:
            _add_status(
                statuses,
                StatusCode.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them via "
                "'client.tag.<tagKey>' in your Streams config.",
            )
    response.status = statuses
    return CoordinatorResult(tuple(records), StreamsBeat(response, configured.topics_to_create, endpoints))


def _add_status(statuses: list[Status], code: StatusCode, detail: str) -> None:
    statuses.append(Status(status_code=code, status_detail=detail))


# --- the group and its member


def _group_for(env: Environment, group_id: str, creates: bool, records: list[GroupRecord]) -> StreamsGroup:
    """The group, or one that comes to be with these records. An empty classic group is replaced. Raises OperationRefused."""
    group = env.groups.get(group_id)
    if group is not None and group.is_dead():
        raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if isinstance(group, StreamsGroup):
        return group
    if group is None:
        if not creates:
            raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return StreamsGroup(group_id, {})
    classic = env.classic_group(group_id)
    if not creates or classic is None or not classic.is_empty():
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
    records += classic.tombstones()
    return StreamsGroup(group_id, {})


def _member_for(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, records: list[GroupRecord]
) -> StreamsGroupMember:
    """A static member that joins takes the place of the former one with its instance id. Raises OperationRefused."""
    member_id, instance_id, joins = request.member_id, request.instance_id, request.member_epoch == 0
    if instance_id is None or (joins and group.static_member(instance_id) is None):
        member = group.members.get(member_id)
        if member is None:
            member = StreamsGroupMember(member_id) if joins else group.member(member_id)
        if instance_id is None:
            _check_epoch(group, member, request)
        return member
    if not joins:
        member = static_member_or_refused(group, member_id, instance_id)
        _check_epoch(group, member, request)
        return member
    existing = group.static_member(instance_id)
    assert existing is not None
    if existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise unreleased_instance(member_id, instance_id, existing.member_id)
    new = replace(existing, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += streams_member_tombstones(group.group_id, existing.member_id)
    records.append(streams_member_record(group.group_id, new))
    target = group.targets.get(existing.member_id, NOTHING)
    records.append(streams_target_record(group.group_id, member_id, target))
    records.append(streams_current_assignment_record(group.group_id, new))
    return new


def _check_epoch(
    group: StreamsGroup, member: StreamsGroupMember, request: StreamsGroupHeartbeatRequest
) -> None:
    """The answer with a new epoch may have been lost: the previous epoch is accepted from a member that has nothing but
    what it may have."""
    received, known = request.member_epoch, member.member_epoch
    if received in (0, known):
        return
    assigned = member.assigned
    if (
        received < known
        and received == member.previous_member_epoch
        and _are_within(request.active_tasks, assigned.active)
        and _are_within(request.standby_tasks, assigned.standby)
        and _are_within(request.warmup_tasks, assigned.warmup)
    ):
        return
    raise fenced_epoch(group, received, known)


def _are_within(owned: Sequence[Any] | None, assigned: Mapping[str, Any]) -> bool:
    return owned is not None and all(
        each.subtopology_id in assigned
        and all(partition in assigned[each.subtopology_id] for partition in each.partitions)
        for each in owned
    )


def _told_of(
    request: StreamsGroupHeartbeatRequest, caller: HeartbeatCaller, member: StreamsGroupMember
) -> StreamsGroupMember:
    """The member with what the request tells. None means unchanged, but for the endpoint of a member that joins. Raises
    OperationRefused for a tag that is there twice, as Kafka does."""
    tags, endpoint = member.client_tags, member.user_endpoint
    if request.client_tags is not None:
        told_tags = {each.key: each.value for each in request.client_tags}
        if len(told_tags) < len(request.client_tags):
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        tags = tags if told_tags == tags else told_tags
    if request.user_endpoint is not None:
        told_endpoint = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
        endpoint = endpoint if told_endpoint == endpoint else told_endpoint
    elif request.member_epoch == 0:
        endpoint = None
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=caller.client_id,
        client_host=caller.client_host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=endpoint,
        client_tags=tags,
    )
    return member if updated == member else updated


def _note_member(
    group: StreamsGroup,
    old: StreamsGroupMember,
    new: StreamsGroupMember,
    instance_id: str | None,
    records: list[GroupRecord],
) -> bool:
    """Add the record of a member that is new or has changed. Return whether tasks must be assigned anew."""
    if new is old:
        return False
    records.append(streams_member_record(group.group_id, new))
    return instance_id is None or (old.topology_epoch, old.rack_id, old.client_tags, old.process_id) != (
        new.topology_epoch,
        new.rack_id,
        new.client_tags,
        new.process_id,
    )


def _task_offsets_of(group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> TaskOffsets | None:
    """None if the request tells nothing of them. Raises OperationRefused INVALID_REQUEST."""
    if request.task_offsets is None and request.task_end_offsets is None:
        return None
    known = group.task_offsets(request.member_id)
    return TaskOffsets(
        known.offsets if request.task_offsets is None else _by_task(request.task_offsets),
        known.end_offsets if request.task_end_offsets is None else _by_task(request.task_end_offsets),
    )


def _by_task(told: Sequence[Any]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for each in told:
        of_subtopology = found.setdefault(each.subtopology_id, {})
        if each.partition in of_subtopology:
            raise OperationRefused(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} and partition {each.partition}.",
            )
        of_subtopology[each.partition] = each.offset
    return found


# --- the topology


def _topology_for(
    group: StreamsGroup, request: StreamsGroupHeartbeatRequest, prepared: PreparedTopology | None
) -> StreamsTopology:
    """The group's topology. The first member sets it, and later ones must have the same. Raises OperationRefused."""
    known = group.topology
    if request.topology is None:
        if known is None:
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return known
    try:
        told = topology_of(request.topology) if prepared is None else prepared.topology
    except ValueError:
        raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR) from None
    if known is None:
        return told
    _refuse_if(known.epoch <= told.epoch and known != told, "Topology updates are not supported yet.")
    return known


def _configured(
    env: Environment,
    group: StreamsGroup,
    topology: StreamsTopology,
    prepared: PreparedTopology | None,
    now_ms: int,
) -> tuple[ConfiguredTopology, int]:
    """The topology with its topics as they are now, and their hash."""
    configured, found_hash = group.configured_topology, group.metadata_hash
    if group.topology is not None and configured is not None and not group.has_metadata_expired(now_ms):
        return configured, found_hash
    found_hash = metadata_hash(env, topology.required_topics())
    if group.topology is None or configured is None or found_hash != group.metadata_hash:
        if prepared is not None and topology is prepared.topology and env.topics is prepared.topics:
            configured = prepared.configured
        else:
            configured = configure_topology(topology, env.topics)
        group.set_configured_topology(configured)
    if found_hash == group.metadata_hash:
        # Apache Kafka looks again with each heartbeat until the group's epoch changes.
        group.set_refresh_deadline(now_ms + METADATA_REFRESH_INTERVAL_MS, group.group_epoch)
    return configured, found_hash


def _throw_if_tasks_are_invalid(configured: ConfiguredTopology, tasks: Sequence[Any] | None) -> None:
    subtopologies = configured.subtopologies
    assert subtopologies is not None
    for task in tasks or ():
        found = subtopologies.get(task.subtopology_id)
        if found is None:
            raise OperationRefused(
                ErrorCode.INVALID_REQUEST,
                f"Subtopology {task.subtopology_id} does not exist in the topology.",
            )
        for partition in task.partitions:
            if not 0 <= partition < found.number_of_tasks:
                raise OperationRefused(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {partition} for subtopology {task.subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {found.number_of_tasks}",
                )


# --- the target assignment


def assignment_configs(env: Environment, group_id: str) -> dict[str, str]:
    """The settings on which the assignment depends, as the group's record has them. Their order is that of their names."""
    configs = {STANDBY_REPLICAS: str(env.configs.get_int(group_id, "streams.num.standby.replicas"))}
    tags = env.configs.get_list(group_id, RACK_TAGS)
    if tags:
        configs[RACK_AWARE_TAGS] = ",".join(tags)
    return configs


def _epoch_record(
    group: StreamsGroup, epoch: int, found_hash: int, validated_epoch: int, configs: Mapping[str, str]
) -> GroupRecord:
    return streams_epoch_record(
        group.group_id,
        epoch,
        found_hash,
        validated_epoch,
        configs,
        group.stored_description_epoch,
        group.failed_description_epoch,
    )


def initial_rebalance_key(group_id: str) -> TimerKey:
    """The timer for which the first members of a group wait."""
    return ("initial-rebalance", group_id)


def _schedule_initial_rebalance(env: Environment, group_id: str) -> None:
    """The first members of a group wait a while for others, so that tasks are not moved from one to the next."""
    key, delay_ms = (
        initial_rebalance_key(group_id),
        env.configs.get_int(group_id, "streams.initial.rebalance.delay.ms"),
    )
    if delay_ms > 0 and not env.timers.is_scheduled(key):
        env.timers.schedule(key, delay_ms, lambda now_ms: _rebalanced_initially(env, group_id, now_ms))


def _rebalanced_initially(env: Environment, group_id: str, now_ms: int) -> GroupResult:
    group: Any = env.groups.get(group_id)
    if (
        not isinstance(group, StreamsGroup)
        or group.is_empty()
        or group.configured_topology is None
        or group.group_epoch <= group.assignment_epoch
    ):
        return nothing()
    records: list[GroupRecord] = []
    _target(
        env,
        group,
        group.group_epoch,
        None,
        group.configured_topology,
        group.last_assignment_configs,
        [],
        records,
        now_ms,
    )
    return CoordinatorResult(tuple(records), None)


def _target(
    env: Environment,
    group: StreamsGroup,
    group_epoch: int,
    member: StreamsGroupMember | None,
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    statuses: list[Status],
    records: list[GroupRecord],
    now_ms: int,
) -> Target[TasksTuple]:
    """Add the records of a new target assignment if the group epoch is ahead of it. Return the member's target. `member`: as it
    is with the request. None if there is none."""
    if env.timers.is_scheduled(initial_rebalance_key(group.group_id)):
        _add_status(
            statuses,
            StatusCode.ASSIGNMENT_DELAYED,
            "Assignment delayed due to the configured initial rebalance delay.",
        )
        return Target(group.assignment_epoch, NOTHING)
    last = Target(
        group.assignment_epoch,
        NOTHING if member is None else group.target_of(member.member_id, member.instance_id, NOTHING),
    )
    if group.assignment_epoch >= group_epoch:
        return last
    if not is_assignment_due(env, group, group_epoch, now_ms):
        _add_status(
            statuses,
            StatusCode.ASSIGNMENT_DELAYED,
            "Assignment delayed due to the configured assignment interval.",
        )
        return last
    describing = _spec(group, member, configured, int(configs.get(STANDBY_REPLICAS, 0)))
    spec = None if len(group.members) > MEMBERS_AT_ONCE else at_once(describing)
    member_id, instance_id = ("", None) if member is None else (member.member_id, member.instance_id)
    if spec is None or _is_large(spec):
        work = _described_and_assigned(describing) if spec is None else assign(spec)
        assign_beside(_RECORDS, env, group, group_epoch, work, instance_id, member_id)
        return last
    assigned = at_once(assign(spec))
    former = group.static_member(instance_id)
    replaced = None if former is None or former.member_id == member_id else former.member_id
    inherited = None if replaced is None else group.targets.get(replaced, NOTHING)
    return assigned_at_once(_RECORDS, group, group_epoch, assigned, member_id, records, now_ms, inherited)


_RECORDS: TargetRecords[TasksTuple] = TargetRecords(
    StreamsGroup, streams_target_record, streams_target_epoch_record, NOTHING
)


def _is_large(spec: TaskGroupSpec) -> bool:
    offsets = sum([len(some) for each in spec.members.values() for some in each.offsets.values()])
    units = len(spec.members) + (1 + spec.standby_replicas) * sum(spec.task_counts.values())
    return units + offsets // OFFSETS_A_UNIT > AT_ONCE_UNITS


def _described_and_assigned(describing: Work[TaskGroupSpec]) -> Work[dict[str, TasksTuple]]:
    spec = yield from describing
    return (yield from assign(spec))


def _spec(
    group: StreamsGroup, member: StreamsGroupMember | None, configured: ConfiguredTopology, replicas: int
) -> Work[TaskGroupSpec]:
    """The group as it is now, with the member, described in steps. While the application cannot run, there are no tasks."""
    members = dict(group.members)
    if member is not None:
        former = group.static_member(member.instance_id)
        if former is not None and former.member_id != member.member_id:
            del members[former.member_id]
    subtopologies = configured.subtopologies if configured.is_ready else None
    return _described(
        members, member, group.most_members, group.all_task_offsets(), subtopologies or {}, replicas
    )


def _described(
    members: dict[str, StreamsGroupMember],
    member: StreamsGroupMember | None,
    most_members: int,
    offsets: Mapping[str, TaskOffsets],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    replicas: int,
) -> Work[TaskGroupSpec]:
    place_of, places, meter = timeline_place(most_members), {}, Meter()
    for member_id in reversed(members):
        places[member_id] = place_of(member_id)
        if cost := meter.spend(HASH_NS):
            yield cost
    ordered = {member_id: members[member_id] for member_id in sorted(places, key=places.__getitem__)}
    if member is not None:
        ordered[member.member_id] = member
    specs = {}
    for member_id, each in ordered.items():
        active = {
            subtopology_id: frozenset(epochs) for subtopology_id, epochs in each.assigned.active.items()
        }
        told = offsets.get(member_id, NO_TASK_OFFSETS).offsets
        specs[member_id] = TaskMemberSpec(each.process_id, active, each.assigned.standby, told)
        if cost := meter.spend(MEMBER_NS):
            yield cost
    return TaskGroupSpec(
        specs,
        {each: found.number_of_tasks for each, found in subtopologies.items()},
        frozenset(each for each, found in subtopologies.items() if found.is_stateful),
        replicas,
    )


# --- the member's tasks


def _owned_of(request: StreamsGroupHeartbeatRequest) -> TasksTuple | None:
    """The tasks that the member has. None if the request does not tell."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TasksTuple(tasks_of(active), tasks_of(standby), tasks_of(warmup))


def _reconciled(
    env: Environment,
    group: StreamsGroup,
    member: StreamsGroupMember,
    target: Target[TasksTuple],
    owned: TasksTuple | None,
    records: list[GroupRecord],
) -> StreamsGroupMember:
    """The member after its next step towards the target. Raises OperationRefused."""
    if member.is_reconciled_to(target.epoch):
        return member
    reconciled = Reconciliation(
        target.epoch,
        target.assignment,
        group.active_process,
        group.standby_processes,
        group.warmup_processes,
        owned,
    ).next_of(member)
    if reconciled == member:
        return member
    records.append(streams_current_assignment_record(group.group_id, reconciled))
    schedule_rebalance_timeout(env, group.group_id, reconciled)
    return reconciled


def _task_ids(tasks: Mapping[str, Any]) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=partitions)
        for subtopology_id, partitions in sorted_tasks(tasks)
    ]


# --- endpoints for interactive queries


def _tell_endpoints(
    env: Environment,
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    member: StreamsGroupMember,
    updated: StreamsGroupMember,
    replaced: StreamsGroupMember | None,
    joins: bool,
    response: StreamsGroupHeartbeatResponse,
) -> Work[list[EndpointToPartitions]] | None:
    """Count changes, and tell a member that has not heard of the last one where which partitions are. Returns what is left to
    tell."""
    tasks_changed = updated.assigned != member.assigned
    endpoint_changed = updated.user_endpoint != member.user_endpoint
    if joins or tasks_changed or endpoint_changed or replaced is not None:
        group.described_endpoints.pop(updated.member_id, None)
        if replaced is not None:
            group.described_endpoints.pop(replaced.member_id, None)
    if endpoint_changed or (tasks_changed and updated.user_endpoint is not None):
        group.endpoint_information_epoch += 1
    if group.group_id in env.groups:
        response.endpoint_information_epoch = group.endpoint_information_epoch
    if group.endpoint_information_epoch == request.endpoint_information_epoch:
        return None
    gone = {updated.member_id, None if replaced is None else replaced.member_id}
    others = [each for member_id, each in group.members.items() if member_id not in gone]
    members = [each for each in (*others, updated) if each.user_endpoint is not None]
    if not members:
        response.partitions_by_user_endpoint = []
        return None
    configured = group.configured_topology
    subtopologies = None if configured is None else configured.subtopologies
    if subtopologies is None:
        raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
    if _have_many_topics(subtopologies, members):
        if any(
            name not in env.topics.by_name for each in subtopologies.values() for name in each.input_topics()
        ):
            raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _endpoints_in_steps(env.topics, subtopologies, members)
    response.partitions_by_user_endpoint = [
        _kept_endpoint(env.topics, group, subtopologies, each) for each in members
    ]
    return None


def _have_many_topics(
    subtopologies: Mapping[str, ConfiguredSubtopology], members: Iterable[StreamsGroupMember]
) -> bool:
    left = ENDPOINT_TOPICS_AT_ONCE
    for member in members:
        assigned = member.assigned
        for subtopology_id in (*assigned.active, *assigned.standby, *assigned.warmup):
            left -= subtopologies[subtopology_id].input_count
            if left < 0:
                return True
    return False


def _endpoints_in_steps(
    topics: Topics,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    members: Iterable[StreamsGroupMember],
) -> Work[list[EndpointToPartitions]]:
    found = []
    for each in members:
        told = _told_endpoint(topics, subtopologies, each)
        found.append(told)
        yield ENDPOINT_TOPIC_COST * (1 + len(told.active_partitions) + len(told.standby_partitions))
    return found


def _kept_endpoint(
    topics: Topics,
    group: StreamsGroup,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    member: StreamsGroupMember,
) -> EndpointToPartitions:
    known = group.described_endpoints.get(member.member_id)
    if known is not None:
        return known[0]
    told = _told_endpoint(topics, subtopologies, member)
    both = (*told.active_partitions, *told.standby_partitions)
    size = sum([ENDPOINT_TOPIC_BYTES + 8 * len(of_topic.partitions) for of_topic in both])
    group.keep_endpoint(member.member_id, told, size)
    return told


def _told_endpoint(
    topics: Topics, subtopologies: Mapping[str, ConfiguredSubtopology], member: StreamsGroupMember
) -> EndpointToPartitions:
    endpoint, assigned = member.user_endpoint, member.assigned
    assert endpoint is not None
    replicas = TasksTupleWithEpochs({}, assigned.standby).merged_with(
        TasksTupleWithEpochs({}, assigned.warmup)
    )
    return EndpointToPartitions(
        user_endpoint=ToldEndpoint(host=endpoint.host, port=endpoint.port),
        active_partitions=_partitions_of(topics, subtopologies, assigned.active),
        standby_partitions=_partitions_of(topics, subtopologies, replicas.standby),
    )


def _partitions_of(
    topics: Topics, subtopologies: Mapping[str, ConfiguredSubtopology], tasks: Mapping[str, Any]
) -> list[TopicPartition]:
    """Partitions of the topics that the tasks read."""
    found = []
    for subtopology_id, partitions in sorted_tasks(tasks):
        for name in subtopologies[subtopology_id].input_topics():
            topic = topics.by_name.get(name)
            if topic is None:
                raise OperationRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
            of_topic = partitions[: bisect_left(partitions, len(topic.partitions))]
            if of_topic:
                found.append(TopicPartition(topic=name, partitions=of_topic))
    return found


# --- leaving


def _leave(env: Environment, request: StreamsGroupHeartbeatRequest) -> Result:
    group = group_of_kind(env, request.group_id, StreamsGroup)
    if request.shutdown_application:
        group.request_shutdown(request.member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, status=[]
    )
    answer = StreamsBeat(response, {})
    if request.instance_id is None:
        return fence_member(env, group, group.member(request.member_id)).answering(answer)
    member = static_member_or_refused(group, request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
        return fence_member(env, group, member).answering(answer)
    # The tasks stay with the instance, and its next member id has them from the beginning.
    left = member.left_for_a_while()
    return CoordinatorResult((streams_current_assignment_record(group.group_id, left),), answer)


def fence_member(env: Environment, group: StreamsGroup, member: StreamsGroupMember) -> GroupResult:
    group_id, epoch = group.group_id, group.group_epoch + 1
    records = [
        *streams_member_tombstones(group_id, member.member_id),
        _epoch_record(
            group, epoch, group.metadata_hash, group.validated_topology_epoch, group.last_assignment_configs
        ),
    ]
    if len(group.members) == 1:
        records.append(streams_target_epoch_record(group_id, epoch, 0))
    for kind in ("session", "rebalance"):
        cancel_fencing(env, kind, group_id, member.member_id)
    return CoordinatorResult(tuple(records), None, refused=lambda: take_up(env, group, (member,)))
