"""The sessions of a share group's members, and how a member is removed when it leaves or its session ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.coordinator.core import CoordinatorResult
from kafkacompat.group.environment import Environment, GroupResult, nothing
from kafkacompat.group.fencing import Fencing
from kafkacompat.group.metadata_hash import metadata_hash
from kafkacompat.group.share.records import epoch_record, member_tombstones
from kafkacompat.group.share.share_group import ShareGroup

if TYPE_CHECKING:
    from kafkacompat.group.group import Group
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


class _Fencing(Fencing):
    __slots__ = ()

    def _fenced(self, group: Group | None, member_id: str, now_ms: int) -> GroupResult:
        if not isinstance(group, ShareGroup) or (member := group.members.get(member_id)) is None:
            return nothing()
        return fence_member(self._env, group, member)
