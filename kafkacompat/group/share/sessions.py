"""The sessions of a share group's members, and how a member is removed when it leaves or its session ends.

A timer belongs to the ids, because the log makes the group: it looks for the member when it fires.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.consumer.sessions import RETRY_MS
from kafkacompat.group.consumer.target_assignment import metadata_hash
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.share.records import epoch_record, member_tombstones
from kafkacompat.group.share.share_group import ShareGroup

if TYPE_CHECKING:
    from kafkacompat.group.share.member import ShareGroupMember


def schedule_session_timeout(env: Environment, group_id: str, member_id: str) -> None:
    """The member has a full session from now on."""
    key = ("session", group_id, member_id)
    env.timers.schedule(key, env.share_setting(group_id, "session_timeout_ms"), _Fencing(env, key))


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


class _Fencing:
    """Fences the member of the key, if it is still there. There is one for each member, so it is small."""

    __slots__ = ("_env", "_key")

    def __init__(self, env: Environment, key: tuple[str, str, str]) -> None:
        self._env = env
        self._key = key

    def __call__(self, now_ms: int) -> GroupResult:
        _, group_id, member_id = self._key
        group = self._env.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ShareGroup) else None
        if member is None:
            return nothing()
        assert isinstance(group, ShareGroup)
        result = fence_member(self._env, group, member)
        return replace(result, refused=lambda: self._env.timers.schedule(self._key, RETRY_MS, self))
