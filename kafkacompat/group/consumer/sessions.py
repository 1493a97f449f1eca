"""The timers of a consumer group's members. A member whose time is over is fenced.

Each join of a member sets the timers of its id anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.environment import Environment, GroupResult, TimerKey, nothing
from kafkacompat.group.fencing import Fencing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkacompat.group.consumer.member import ConsumerGroupMember
    from kafkacompat.group.group import Group


def schedule_session_timeout(env: Environment, group_id: str, member_id: str, timeout_ms: int) -> None:
    key = _key("session", group_id, member_id)
    env.timers.schedule(key, timeout_ms, _Fencing(env, key))


def session_key(group_id: str, member_id: str) -> TimerKey:
    """The timer that `schedule_session_timeout` sets."""
    return _key("session", group_id, member_id)


def take_up(
    env: Environment, group: ConsumerGroup, members: Iterable[ConsumerGroupMember] | None = None
) -> None:
    """Every member gets a full session, after a load for example. Or only these."""
    timeout_ms = env.consumer_setting(group.group_id, "session_timeout_ms")
    for member in group.members.values() if members is None else members:
        schedule_session_timeout(env, group.group_id, member.member_id, timeout_ms)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            schedule_rebalance_timeout(env, group.group_id, member)


def schedule_rebalance_timeout(env: Environment, group_id: str, member: ConsumerGroupMember) -> None:
    """The member has this long to revoke its partitions."""
    key = _key("rebalance", group_id, member.member_id)
    env.timers.schedule(
        key,
        member.rebalance_timeout_ms,
        _Fencing(env, key, member.member_epoch),
    )


def cancel_rebalance_timeout(env: Environment, group_id: str, member_id: str) -> None:
    env.timers.cancel(_key("rebalance", group_id, member_id))


def schedule_join_timeout_if_absent(env: Environment, group_id: str, member: ConsumerGroupMember) -> None:
    """A classic member was told to join again."""
    key = _key("consumer-join", group_id, member.member_id)
    if not env.timers.is_scheduled(key):
        env.timers.schedule(key, member.rebalance_timeout_ms, _Fencing(env, key))


def cancel_join_timeout(env: Environment, group_id: str, member_id: str) -> None:
    env.timers.cancel(_key("consumer-join", group_id, member_id))


def schedule_sync_timeout(env: Environment, group_id: str, member_id: str, timeout_ms: int) -> None:
    """A classic member has joined, and must ask for its assignment."""
    key = _key("consumer-sync", group_id, member_id)
    env.timers.schedule(key, timeout_ms, _Fencing(env, key))


def cancel_sync_timeout(env: Environment, group_id: str, member_id: str) -> None:
    env.timers.cancel(_key("consumer-sync", group_id, member_id))


def cancel_timers(env: Environment, group_id: str, member_id: str) -> None:
    for kind in ("session", "rebalance", "consumer-join", "consumer-sync"):
        env.timers.cancel(_key(kind, group_id, member_id))


def _key(kind: str, group_id: str, member_id: str) -> tuple[str, str, str]:
    return (kind, group_id, member_id)


class _Fencing(Fencing):
    __slots__ = ("_epoch",)

    def __init__(self, env: Environment, key: tuple[str, str, str], epoch: int | None = None) -> None:
        """With an epoch, only a member that is still at it."""
        super().__init__(env, key)
        self._epoch = epoch

    def _fenced(self, group: Group | None, member_id: str, now_ms: int) -> GroupResult:
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if member is None or self._epoch not in (None, member.member_epoch):
            return nothing()
        return self._env.fence(group, [member], now_ms)
