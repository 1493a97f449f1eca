"""The sessions of a share group's members, and how a member is removed when it leaves or its session ends.

A timer belongs to the ids, because the log makes the group: it looks for the member when it fires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.consumer.sessions import RETRY_MS
from kafkacompat.group.consumer.target_assignment import metadata_hash
from kafkacompat.group.environment import Environment, GroupResult, TimerKey, nothing
from kafkacompat.group.share.records import epoch_record, member_tombstones
from kafkacompat.group.share.share_group import ShareGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkacompat.group.share.member import ShareGroupMember


def schedule_session_timeout(env: Environment, group_id: str, member_id: str) -> None:
    """The member has a full session from now on."""
    key = ("session", group_id, member_id)
    env.timers.schedule(
        key, env.share_setting(group_id, "session_timeout_ms"), _fencing(env, key, group_id, member_id)
    )


def fence_member(env: Environment, group: ShareGroup, member: ShareGroupMember) -> GroupResult:
    group_id = group.group_id
    found_hash = metadata_hash(env, group.topic_counts(member, None))
    env.timers.cancel(("session", group_id, member.member_id))
    records = (
        *member_tombstones(group_id, member.member_id),
        epoch_record(group_id, group.group_epoch + 1, found_hash),
    )
    return CoordinatorResult(
        records, None, refused=lambda: schedule_session_timeout(env, group_id, member.member_id)
    )


def _fencing(env: Environment, key: TimerKey, group_id: str, member_id: str) -> Callable[[int], GroupResult]:
    def fence(now_ms: int) -> GroupResult:
        group = env.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if member is None:
            return nothing()
        assert isinstance(group, ShareGroup)
        return replace(
            fence_member(env, group, member), refused=lambda: env.timers.schedule(key, RETRY_MS, fence)
        )

    return fence
