"""What an administrator does to the states of an empty share group: set their start offsets, or delete them (KIP-932).

As for members, the group's record comes first and the share coordinator after it. Follows Kafka's
GroupMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.environment import Environment
from kafkacompat.group.records import GroupRecord
from kafkacompat.group.share.heartbeat import share_group_for
from kafkacompat.group.share.initialization import Initialization, since_now, states_record
from kafkacompat.group.share.records import state_partitions_record
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import (
    NO_STATES,
    NamedPartitions,
    StatePartitions,
    merged,
    name_of,
)
from kafkacompat.wire.error_texts import error_text
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkacompat.group.share.member import Partitions
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest


NOTHING_TO_DELETE = "There is no offset information to delete."


# --- start offsets


class Altering(NamedTuple):
    response: AlterShareGroupOffsetsResponse
    """If the share coordinator refuses nothing."""
    initialization: Initialization


def alter_offsets(
    env: Environment, request: AlterShareGroupOffsetsRequest
) -> CoordinatorResult[GroupRecord, Altering]:
    """The states are made anew, with these start offsets. The group is created if there is none. Raises Refused."""
    group_id = request.group_id
    group = share_group_for(env, group_id, creates=True)
    _throw_if_not_empty(group)
    named: dict[Uuid, NamedPartitions] = {}
    start_offsets: dict[Uuid, dict[int, int]] = {}
    answers = []
    for topic in request.topics:
        known = env.topics.by_name.get(topic.topic_name)
        count = 0 if known is None else len(known.partitions)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        offsets = {
            each.partition_index: each.start_offset
            for each in topic.partitions
            if 0 <= each.partition_index < count
        }
        answer.partitions = [
            AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            if each.partition_index in offsets
            else AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index,
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=error_text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for each in topic.partitions
        ]
        answers.append(answer)
        if known is not None:
            answer.topic_id = known.id
            named[known.id] = NamedPartitions(known.name, frozenset(offsets))
            if offsets:
                start_offsets[known.id] = offsets
    records: tuple[GroupRecord, ...] = ()
    if named:
        states = NO_STATES if group.states is None else group.states
        records = (states_record(env, group_id, states.began(named)),)
    return CoordinatorResult(
        records,
        Altering(
            AlterShareGroupOffsetsResponse(responses=answers),
            Initialization(group_id, group.group_epoch, start_offsets),
        ),
        committed=since_now(env, group_id) if records else None,
    )


# --- deletion of topics' states


class Deletion(NamedTuple):
    partitions: Partitions
    """What to ask the share coordinator to delete."""
    refused: Sequence[DeleteShareGroupOffsetsResponseTopic] = ()


def begin_deletion_of_offsets(
    env: Environment, group_id: str, topic_names: Sequence[str]
) -> CoordinatorResult[GroupRecord, Deletion]:
    """Raises Refused."""
    group = _empty_share_group(env, group_id)
    states = group.states
    if states is None:
        return CoordinatorResult((), Deletion({}))
    initialized = dict(states.initialized)
    deleting = set(states.deleting)
    partitions: dict[Uuid, frozenset[int]] = {}
    refused: list[DeleteShareGroupOffsetsResponseTopic] = []
    for name in topic_names:
        topic = env.topics.by_name.get(name)
        if topic is not None and topic.id in initialized:
            partitions[topic.id] = initialized.pop(topic.id).partitions
            deleting.add(topic.id)
        elif topic is not None and topic.id in deleting:
            # An earlier deletion has not come to its end. It may be repeated.
            partitions.setdefault(topic.id, frozenset(range(len(topic.partitions))))
        else:
            refused.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message=error_text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    if topic is None
                    else NOTHING_TO_DELETE,
                )
            )
    record = states_record(
        env, group_id, StatePartitions(states.initializing, initialized, frozenset(deleting))
    )
    return CoordinatorResult((record,), Deletion(partitions, refused))


def end_deletion_of_offsets(
    env: Environment, group_id: str, topic_ids: Sequence[Uuid]
) -> CoordinatorResult[GroupRecord, list[DeleteShareGroupOffsetsResponseTopic]]:
    """These topics' states are deleted."""
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup) or group.states is None:
        return CoordinatorResult((), [])
    states = group.states
    record = states_record(
        env,
        group_id,
        StatePartitions(states.initializing, states.initialized, states.deleting.difference(topic_ids)),
    )
    answers = [
        DeleteShareGroupOffsetsResponseTopic(topic_id=topic_id, topic_name=name_of(env.topics, topic_id))
        for topic_id in topic_ids
    ]
    return CoordinatorResult((record,), answers)


# --- deletion of the group


def begin_deletion_of_states(env: Environment, group_id: str) -> CoordinatorResult[GroupRecord, Partitions]:
    """All states of a share group that is about to be deleted. None of a group of another kind. Raises Refused."""
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup) or group.states is None:
        return CoordinatorResult((), {})
    _throw_if_not_empty(group)
    states = group.states
    gone = merged(states.initialized, states.initializing)
    for topic_id in states.deleting:
        topic = env.topics.by_id.get(topic_id)
        if topic is not None:
            everything = frozenset(range(len(topic.partitions)))
            gone = merged(gone, {topic_id: NamedPartitions(topic.name, everything)})
    names = {topic_id: each.name for topic_id, each in gone.items()}
    record = state_partitions_record(group_id, {}, {}, names)
    return CoordinatorResult((record,), {topic_id: each.partitions for topic_id, each in gone.items()})


def _empty_share_group(env: Environment, group_id: str) -> ShareGroup:
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        reason = "not found" if group is None else "is not a share group"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    _throw_if_not_empty(group)
    return group


def _throw_if_not_empty(group: ShareGroup) -> None:
    if group.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, error_text(ErrorCode.NON_EMPTY_GROUP))
