"""Members of a consumer group that go: they leave, or are fenced."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.coordinator.core import CoordinatorResult, Refused
from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.conversion import downgraded, may_downgrade_without
from kafkacompat.group.consumer.large_conversion import CONVERTED_AT_ONCE, downgrade_later
from kafkacompat.group.consumer.member import ConsumerGroupMember
from kafkacompat.group.consumer.records import (
    epoch_record,
    member_tombstones,
    regular_expression_tombstone,
)
from kafkacompat.group.consumer.sessions import cancel_timers, take_up
from kafkacompat.group.consumer.subscribed_topics import SubscribedTopics
from kafkacompat.group.environment import Environment, GroupResult
from kafkacompat.group.metadata_hash import metadata_hash
from kafkacompat.group.records import GroupRecord


def fence_members(
    env: Environment, group: ConsumerGroup, members: Sequence[ConsumerGroupMember], now_ms: int
) -> GroupResult:
    """Remove members. If only classic members remain, the group becomes a classic one, unless that is impossible."""
    if not members:
        return CoordinatorResult((), None)
    gone = {member.member_id for member in members}
    if may_downgrade_without(env, group, members):
        if len(group.members) - len(gone) > CONVERTED_AT_ONCE:
            downgrade_later(env, group, now_ms)
        else:
            try:
                return downgraded(env, group, gone, now_ms)
            except Refused:
                pass  # the members go all the same: their partitions must not stay with them
    group_id = group.group_id
    records: list[GroupRecord] = []
    for member in members:
        records += member_tombstones(group_id, member.member_id)
        cancel_timers(env, group_id, member.member_id)
    topics = SubscribedTopics(group)
    subscribers = dict(group.regexes)
    for member in members:
        topics.rename(member.subscribed_topic_names, frozenset())
        if member.regex is not None:
            subscribers[member.regex] -= 1
    for regex, count in subscribers.items():
        if count == 0:
            records.append(regular_expression_tombstone(group_id, regex))
            topics.match(regex)
    found_hash = metadata_hash(env, topics.counts())
    records.append(epoch_record(group_id, group.group_epoch + 1, found_hash))
    # Members that stay because the log takes no records must not stay for ever.
    return CoordinatorResult(tuple(records), None, refused=lambda: take_up(env, group, members))
