"""DescribeGroups, ListGroups, ConsumerGroupDescribe (KIP-848), ShareGroupDescribe (KIP-932) and StreamsGroupDescribe
(KIP-1071) over one shard.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from kafkacompat.group.classic.classic_group import ClassicGroupState
from kafkacompat.group.consumer.assignor import string_order
from kafkacompat.group.consumer.consumer_group import NO_PARTITIONS, ConsumerGroup
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.streams.streams_group import StreamsGroup
from kafkacompat.group.streams.tasks_tuple import NOTHING, sorted_tasks
from kafkacompat.tasks import Pace
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_describe_response import Assignment as ConsumerAssignment
from kafkacompat.wire.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from kafkacompat.wire.messages.consumer_group_describe_response import Member as ConsumerMember
from kafkacompat.wire.messages.consumer_group_describe_response import (
    TopicPartitions as ConsumerTopicPartitions,
)
from kafkacompat.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from kafkacompat.wire.messages.list_groups_response import ListedGroup
from kafkacompat.wire.messages.share_group_describe_response import Assignment as ShareAssignment
from kafkacompat.wire.messages.share_group_describe_response import DescribedGroup as DescribedShareGroup
from kafkacompat.wire.messages.share_group_describe_response import Member as ShareMember
from kafkacompat.wire.messages.share_group_describe_response import TopicPartitions as ShareTopicPartitions
from kafkacompat.wire.messages.streams_group_describe_response import Assignment as StreamsAssignment
from kafkacompat.wire.messages.streams_group_describe_response import DescribedGroup as DescribedStreamsGroup
from kafkacompat.wire.messages.streams_group_describe_response import Endpoint as DescribedEndpoint
from kafkacompat.wire.messages.streams_group_describe_response import KeyValue
from kafkacompat.wire.messages.streams_group_describe_response import Member as StreamsMember
from kafkacompat.wire.messages.streams_group_describe_response import Subtopology as DescribedSubtopology
from kafkacompat.wire.messages.streams_group_describe_response import TaskIds as DescribedTaskIds
from kafkacompat.wire.messages.streams_group_describe_response import TaskOffset as DescribedTaskOffset
from kafkacompat.wire.messages.streams_group_describe_response import TopicInfo as DescribedTopicInfo
from kafkacompat.wire.messages.streams_group_describe_response import Topology as DescribedTopology

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from kafkacompat.group.consumer.consumer_group_member import ConsumerGroupMember
    from kafkacompat.group.group_metadata_manager import GroupMetadataManager
    from kafkacompat.group.share.share_group_member import ShareGroupMember
    from kafkacompat.group.streams.configured_topology import ConfiguredSubtopology
    from kafkacompat.group.streams.streams_group import TaskOffsets
    from kafkacompat.group.streams.streams_group_member import StreamsGroupMember
    from kafkacompat.group.streams.streams_topology import Subtopology
    from kafkacompat.group.streams.streams_topology import TopicInfo as InternalTopic
    from kafkacompat.group.streams.tasks_tuple import TasksTuple, TasksTupleWithEpochs
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid


T = TypeVar("T")

STREAMS_ASSIGNOR = "sticky"
DESCRIBED_TOPIC_COST = 3
"""Cost of one topic of a topology, with its part of the subtopology, in microseconds."""
TOLD_A_STEP = 500
"""Groups or members handled in one step."""
LOWERED_A_STEP = 4_000
"""Names of a filter handled in one step, at a quarter of a microsecond each."""
FILTERED_AS = {"NotReady": "not_ready"}
"""States that a filter names otherwise than in lower case."""
TOLD_COST = 3
"""Cost of one group or member, in microseconds."""


def describe_group(
    machine: GroupMetadataManager, group_id: str, absent_is_error: bool
) -> Generator[int, None, DescribedGroup]:
    """Describe the group as it is at the first step; the steps report their cost. A name without a classic group is
    described as Dead, with GROUP_ID_NOT_FOUND if the client's version knows it."""
    group = machine.env.classic_group(group_id)
    if group is None:
        reason = "is not a classic group" if group_id in machine.groups else "not found"
        return dead_group(group_id, absent_is_error, f"Group {group_id} {reason}.")
    stable = group.state is ClassicGroupState.STABLE
    name = group.protocol_name or ""
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name if stable else "",
    )
    members = [
        (member, member.metadata(name) if stable else b"", member.assignment)
        for member in group.members.values()
    ]
    for start in range(0, len(members), TOLD_A_STEP):
        some = members[start : start + TOLD_A_STEP]
        described.members += [
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=metadata,
                member_assignment=assignment,
            )
            for member, metadata, assignment in some
        ]
        yield len(some) * TOLD_COST
    return described


def dead_group(group_id: str, absent_is_error: bool, message: str) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    if absent_is_error:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = message
    return described


def lowered(names: Sequence[str]) -> Generator[int, None, frozenset[str]]:
    """A filter in lower case, in steps that report their cost. A request may have hundreds of thousands of names."""
    found: set[str] = set()
    for start in range(0, len(names), LOWERED_A_STEP):
        found.update([name.lower() for name in names[start : start + LOWERED_A_STEP]])
        yield LOWERED_A_STEP // 4
    return frozenset(found)


def list_groups(
    machine: GroupMetadataManager, states: AbstractSet[str], types: AbstractSet[str]
) -> Generator[int, None, list[ListedGroup]]:
    """List groups in steps that report their cost. Filters are in lower case. An empty filter accepts everything."""
    listed: list[ListedGroup] = []
    groups = list(machine.groups.values())
    for start in range(0, len(groups), TOLD_A_STEP):
        some = groups[start : start + TOLD_A_STEP]
        listed += [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.kind.value,
            )
            for group in some
            if (not types or group.kind.value in types)
            and (not states or FILTERED_AS.get(group.state_name, group.state_name.lower()) in states)
        ]
        yield len(some) * TOLD_COST
    return listed


# --- ConsumerGroupDescribe


MEMBER_COST = 10
"""Cost of one member besides its topics, in microseconds."""
ASSIGNED_TOPIC_COST = 1
"""Cost of a topic with few partitions in an assignment, in microseconds."""
PARTITIONS_A_MICROSECOND = 10
NAMES_A_MICROSECOND = 4
STEP_COST = 1_000
"""After so many microseconds a step is over. One member may have thousands of topics."""
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_group(
    machine: GroupMetadataManager, group_id: str
) -> Generator[int, None, DescribedConsumerGroup]:
    """The group as it is at the first step; the steps report their cost."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "is not a consumer group" if group_id in machine.groups else "not found"
        return DescribedConsumerGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    env = machine.env
    described = DescribedConsumerGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or env.settings.consumer.assignors[0],
    )
    topics = env.topics
    members = [
        (member, group.targets.get(member.member_id, NO_PARTITIONS)) for member in group.members.values()
    ]
    pace = Pace(STEP_COST)
    for member, target in members:
        described.members.append((yield from _consumer_member(topics, member, target, pace)))
    return described


def _consumer_member(
    topics: Topics, member: ConsumerGroupMember, target: Mapping[Uuid, Iterable[int]], pace: Pace
) -> Generator[int, None, ConsumerMember]:
    if pace.is_over(MEMBER_COST + len(member.subscribed_topic_names) // NAMES_A_MICROSECOND):
        yield STEP_COST
    owned = member.assigned, member.pending_revocation
    current = yield from _named(ConsumerTopicPartitions, topics, owned, pace)
    targeted = yield from _named(ConsumerTopicPartitions, topics, (target,), pace)
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=ConsumerAssignment(topic_partitions=current),
        target_assignment=ConsumerAssignment(topic_partitions=targeted),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _named(
    topic_partitions: Callable[..., T],
    topics: Topics,
    assignments: Sequence[Mapping[Uuid, Iterable[int]]],
    pace: Pace,
) -> Generator[int, None, list[T]]:
    """What a member has of each topic in these assignments together. Topics that no longer exist are left out."""
    told: list[T] = []
    for topic_id in dict.fromkeys(chain(*assignments)):
        topic = topics.by_id.get(topic_id)
        if topic is None:
            continue
        partitions = sorted({partition for each in assignments for partition in each.get(topic_id, ())})
        told.append(topic_partitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions))
        if pace.is_over(ASSIGNED_TOPIC_COST + len(partitions) // PARTITIONS_A_MICROSECOND):
            yield STEP_COST
    return told


# --- ShareGroupDescribe


def describe_share_group(
    machine: GroupMetadataManager, group_id: str
) -> Generator[int, None, DescribedShareGroup]:
    """The group as it is at the first step; the steps report their cost."""
    group = machine.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        reason = "is not a share group" if group_id in machine.groups else "not found"
        return DescribedShareGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    topics = machine.env.topics
    described = DescribedShareGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=machine.env.settings.share.assignor,
    )
    pace = Pace(STEP_COST)
    for member in list(group.members.values()):
        described.members.append((yield from _share_member(topics, member, pace)))
    return described


def _share_member(topics: Topics, member: ShareGroupMember, pace: Pace) -> Generator[int, None, ShareMember]:
    if pace.is_over(MEMBER_COST + len(member.subscribed_topic_names) // NAMES_A_MICROSECOND):
        yield STEP_COST
    assigned = yield from _named(ShareTopicPartitions, topics, (member.assigned,), pace)
    return ShareMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=ShareAssignment(topic_partitions=assigned),
    )


# --- StreamsGroupDescribe


def describe_streams_group(
    machine: GroupMetadataManager, group_id: str
) -> Generator[int, None, DescribedStreamsGroup]:
    """The group as it is at the first step; the steps report their cost."""
    group = machine.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        reason = "is not a streams group" if group_id in machine.groups else "not found"
        return DescribedStreamsGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    described = DescribedStreamsGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=STREAMS_ASSIGNOR,
        topology=_described_topology(group),
    )
    members = [
        (member, group.targets.get(member.member_id, NOTHING), group.task_offsets(member.member_id))
        for member in group.members.values()
    ]
    yield DESCRIBED_TOPIC_COST * len(group.topic_names)
    for member, target, offsets in members:
        described.members.append(_streams_member(member, target, offsets))
        yield MEMBER_COST + offsets.count()
    return described


def _described_topology(group: StreamsGroup) -> DescribedTopology | None:
    """With the numbers of partitions that the topics have, if the application can run."""
    topology, configured = group.topology, group.configured_topology
    if topology is None:
        return None
    running = None
    if configured is not None and configured.is_ready:
        running = configured.subtopologies
    return DescribedTopology(
        epoch=topology.epoch,
        subtopologies=[
            _described_subtopology(subtopology, None if running is None else running.get(subtopology_id))
            for subtopology_id, subtopology in sorted(
                topology.subtopologies.items(), key=lambda each: string_order(each[0])
            )
        ],
    )


def _described_subtopology(told: Subtopology, running: ConfiguredSubtopology | None) -> DescribedSubtopology:
    counts = (
        {}
        if running is None
        else {each.name: each.number_of_partitions for each in running.internal_topics()}
    )
    names = told if running is None else running  # each topic once
    return DescribedSubtopology(
        subtopology_id=told.subtopology_id,
        source_topics=sorted(names.source_topics, key=string_order),
        repartition_sink_topics=sorted(names.repartition_sink_topics, key=string_order),
        state_changelog_topics=_topic_infos(told.state_changelog_topics, counts),
        repartition_source_topics=_topic_infos(told.repartition_source_topics, counts),
    )


def _topic_infos(topics: Iterable[InternalTopic], counts: Mapping[str, int]) -> list[DescribedTopicInfo]:
    return [
        DescribedTopicInfo(
            name=topic.name,
            partitions=counts.get(topic.name, topic.partitions),
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda each: string_order(each.name))
    ]


def _streams_member(member: StreamsGroupMember, target: TasksTuple, offsets: TaskOffsets) -> StreamsMember:
    endpoint = member.user_endpoint
    return StreamsMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else DescribedEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        task_offsets=_task_offsets(offsets.offsets),
        task_end_offsets=_task_offsets(offsets.end_offsets),
        assignment=_streams_assignment(member.assigned),
        target_assignment=_streams_assignment(target),
    )


def _streams_assignment(tasks: TasksTuple | TasksTupleWithEpochs) -> StreamsAssignment:
    def told(some: Mapping[str, Iterable[int]]) -> list[DescribedTaskIds]:
        return [
            DescribedTaskIds(subtopology_id=subtopology_id, partitions=partitions)
            for subtopology_id, partitions in sorted_tasks(some)
        ]

    return StreamsAssignment(
        active_tasks=told(tasks.active), standby_tasks=told(tasks.standby), warmup_tasks=told(tasks.warmup)
    )


def _task_offsets(offsets: Mapping[str, Mapping[int, int]]) -> list[DescribedTaskOffset]:
    return [
        DescribedTaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)
        for subtopology_id in sorted(offsets, key=string_order)
        for partition, offset in sorted(offsets[subtopology_id].items())
    ]
