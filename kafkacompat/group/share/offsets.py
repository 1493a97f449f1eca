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
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kafkacompat.group.share.member import Partitions
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest


SORTED_AT_ONCE = 500
"""Partitions of a request, without a turn of the loop in between."""
NOTHING_TO_DELETE = "There is no offset information to delete."


# --- start offsets


class StartOffsets(NamedTuple):
    """What an administrator asks for. A request may name many partitions, so this is made in steps."""

    names: dict[Uuid, str]
    """Of the topics that exist."""
    by_topic: dict[Uuid, dict[int, int]]
    """Topic id -> partition -> start offset, of partitions that exist."""
    answers: list[AlterShareGroupOffsetsResponseTopic]
    """If the share coordinator refuses nothing."""


def sort_out(topics: Topics, request: AlterShareGroupOffsetsRequest) -> Generator[int, None, StartOffsets]:
    """Yields costs in microseconds."""
    asked = StartOffsets({}, {}, [])
    for topic in request.topics:
        known = topics.by_name.get(topic.topic_name)
        count = 0 if known is None else len(known.partitions)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        asked.answers.append(answer)
        offsets: dict[int, int] = {}
        if known is not None:
            answer.topic_id = known.id
            asked.names[known.id] = known.name
            offsets = asked.by_topic.setdefault(known.id, offsets)
        yield 5
        for start in range(0, len(topic.partitions), SORTED_AT_ONCE):
            some = topic.partitions[start : start + SORTED_AT_ONCE]
            for each in some:
                index = each.partition_index
                told = AlterShareGroupOffsetsResponsePartition(partition_index=index)
                if 0 <= index < count:
                    offsets[index] = each.start_offset
                else:
                    told.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    told.error_message = error_text(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                answer.partitions.append(told)
            yield 2 * len(some)
    return asked


def alter_offsets(
    env: Environment, group_id: str, asked: StartOffsets
) -> CoordinatorResult[GroupRecord, Initialization]:
    """The states are made anew, with these start offsets, except for topics that were deleted meanwhile. The group is
    created if there is none. Raises Refused."""
    group = share_group_for(env, group_id, creates=True)
    _throw_if_not_empty(group)
    by_id = env.topics.by_id
    named = {
        topic_id: NamedPartitions(name, frozenset(asked.by_topic[topic_id]))
        for topic_id, name in asked.names.items()
        if topic_id in by_id
    }
    start_offsets = {
        topic_id: asked.by_topic[topic_id] for topic_id, each in named.items() if each.partitions
    }
    begun = Initialization(group_id, group.group_epoch, start_offsets)
    if not named:
        return CoordinatorResult((), begun)
    states = NO_STATES if group.states is None else group.states
    return CoordinatorResult(
        (states_record(env, group_id, states.began(named)),), begun, committed=since_now(env, group_id)
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
