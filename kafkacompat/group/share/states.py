"""How the states of a group's share-partitions come to be, and what an administrator does to those of an empty group:
set their start offsets, or delete them (KIP-932).

The group's record comes first, then the share coordinator, then the record that says what became of it. The share
coordinator is asked by the caller, once the first record is committed. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult, OperationRefused
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.records import GroupRecord, state_partitions_record
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import (
    NO_STATES,
    NamedPartitions,
    StatePartitions,
    merged,
    name_of,
    to_initialize,
)
from kafkacompat.ids import NO_OFFSET
from kafkacompat.wire.errors import ErrorCode, error_text
from kafkacompat.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kafkacompat.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponseTopic

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kafkacompat.group.records import ShareGroupRecord
    from kafkacompat.group.share.share_group_member import Partitions
    from kafkacompat.group.topics import Topics
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest


class Initialization(NamedTuple):
    """What to ask the share coordinator."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]
    """Topic id -> partition -> start offset. -1 if share.auto.offset.reset decides."""

    @property
    def partitions(self) -> Partitions:
        return {topic_id: frozenset(offsets) for topic_id, offsets in self.start_offsets.items()}


def share_group_for(env: Environment, group_id: str, creates: bool) -> ShareGroup:
    """The group, or one that comes to be with these records. No group of another kind becomes one. Raises OperationRefused."""
    group = env.groups.get(group_id)
    if group is None:
        if creates:
            return ShareGroup(group_id, {})
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    if group.is_dead():
        raise OperationRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return group


def begin_initialization(
    env: Environment,
    group: ShareGroup,
    names: Collection[str],
    group_epoch: int,
    records: list[GroupRecord],
    now_ms: int,
) -> Initialization | None:
    """Add the record of subscribed partitions that have no state. None if all have one, or are about to.

    A partition that a known topic gets is shared from its beginning: the group misses none of its records.
    """
    is_own = names is group.topic_names
    if is_own and group.initialized_for is env.topics:
        return None
    states = NO_STATES if group.states is None else group.states
    if group.initializing_since_ms is None:
        group.initializing_since_ms = now_ms
    # A time in the future is that of a clock which was set back since.
    waited_ms = now_ms - group.initializing_since_ms
    retries = not 0 <= waited_ms < env.settings.share.initialize_retry_interval_ms
    if group.alterations:
        retries = False  # it would undo an alteration that is retried itself
    missing = to_initialize(env.topics, names, states, retries)
    if not missing:
        if is_own and not states.initializing:
            group.initialized_for = env.topics
        return None
    records.append(states_record(env, group.group_id, states.began(missing)))
    start_offsets = {
        topic_id: dict.fromkeys(
            sorted(each.partitions),
            0 if topic_id in states.initialized or topic_id in states.initializing else NO_OFFSET,
        )
        for topic_id, each in missing.items()
    }
    return Initialization(group.group_id, group_epoch, start_offsets)


def states_record(env: Environment, group_id: str, states: StatePartitions) -> ShareGroupRecord:
    return state_partitions_record(
        group_id, states.initializing, states.initialized, states.deleting_names(env.topics)
    )


def since_now(env: Environment, group_id: str) -> Callable[[ErrorCode, int], None]:
    """To be called when a record of states is committed: the time until a retry begins."""

    def committed(code: ErrorCode, now_ms: int) -> None:
        group = env.groups.get(group_id)
        if code is ErrorCode.NONE and isinstance(group, ShareGroup):
            group.initializing_since_ms = now_ms

    return committed


def end_initialization(
    env: Environment, group_id: str, partitions: Partitions, succeeded: bool
) -> GroupResult:
    """Write what became of these. Topics that were deleted meanwhile are forgotten. So are those whose states are being deleted:
    that was asked for later, and takes what was made."""
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not partitions:
        return nothing()
    states = NO_STATES if group.states is None else group.states
    by_id = env.topics.by_id
    if succeeded:
        present = {
            topic_id: NamedPartitions(by_id[topic_id].name, each)
            for topic_id, each in partitions.items()
            if topic_id in by_id and topic_id not in states.deleting
        }
        ended = states.succeeded(present).failed(
            {topic_id: each for topic_id, each in partitions.items() if topic_id not in present}
        )
    else:
        if not states.initializing:
            return nothing()
        ended = states.failed(partitions)
    return CoordinatorResult((states_record(env, group_id, ended),), None, committed=since_now(env, group_id))


def forget_absent_topics(env: Environment, group: ShareGroup) -> ShareGroupRecord | None:
    """The record without the topics that do not exist any more. None if it mentions none of them."""
    if group.states is None:
        return None
    gone = [topic_id for topic_id in group.states.topic_ids() if topic_id not in env.topics.by_id]
    return states_record(env, group.group_id, group.states.without_topics(gone)) if gone else None


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
    created if there is none. Raises OperationRefused."""
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
    """Raises OperationRefused."""
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
    """All states of a share group that is about to be deleted. None of a group of another kind. Raises OperationRefused."""
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
        raise OperationRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    _throw_if_not_empty(group)
    return group


def _throw_if_not_empty(group: ShareGroup) -> None:
    if group.members:
        raise OperationRefused(ErrorCode.NON_EMPTY_GROUP, error_text(ErrorCode.NON_EMPTY_GROUP))
