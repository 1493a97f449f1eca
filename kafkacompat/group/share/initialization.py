"""How the states of a group's share-partitions come to be: the group's record first, then the share coordinator, then
the record that says what became of it.

The share coordinator is asked by the caller, once the first record is committed. Follows Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.share.records import state_partitions_record
from kafkacompat.group.share.share_group import ShareGroup
from kafkacompat.group.share.state_partitions import (
    NO_STATES,
    NamedPartitions,
    StatePartitions,
    to_initialize,
)
from kafkacompat.ids import NO_OFFSET
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from kafkacompat.group.records import GroupRecord
    from kafkacompat.group.share.member import Partitions
    from kafkacompat.group.share.records import ShareGroupRecord
    from kafkacompat.ids import Uuid


class Initialization(NamedTuple):
    """What to ask the share coordinator."""

    group_id: str
    state_epoch: int
    start_offsets: Mapping[Uuid, Mapping[int, int]]
    """Topic id -> partition -> start offset. -1 if share.auto.offset.reset decides."""

    @property
    def partitions(self) -> Partitions:
        return {topic_id: frozenset(offsets) for topic_id, offsets in self.start_offsets.items()}


def begin_initialization(
    env: Environment,
    group: ShareGroup,
    names: Collection[str],
    group_epoch: int,
    records: list[GroupRecord],
    now_ms: int,
) -> Initialization | None:
    """Add the record of subscribed partitions that have no state. None if all have one, or are about to."""
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
    return Initialization(
        group.group_id,
        group_epoch,
        {topic_id: dict.fromkeys(sorted(each.partitions), NO_OFFSET) for topic_id, each in missing.items()},
    )


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
    """Write what became of these. Topics that were deleted meanwhile are forgotten."""
    group = env.groups.get(group_id)
    if not isinstance(group, ShareGroup) or not partitions:
        return nothing()
    states = NO_STATES if group.states is None else group.states
    by_id = env.topics.by_id
    if succeeded:
        present = {
            topic_id: NamedPartitions(by_id[topic_id].name, each)
            for topic_id, each in partitions.items()
            if topic_id in by_id
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
