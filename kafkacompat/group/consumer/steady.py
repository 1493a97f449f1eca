"""Heartbeats of a member to whom nothing happens: the member tells nothing new, has what it should have, and learns nothing.

Nearly all heartbeats are of this kind. One that was carried out once is carried out again by a few comparisons, with the
effects that consumer_group_heartbeat would have: the session goes on, and expressions are resolved when that is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from kafkacompat.group.consumer.consumer_group import ConsumerGroup
from kafkacompat.group.consumer.heartbeat import told_of
from kafkacompat.group.consumer.member import MemberState
from kafkacompat.group.consumer.regular_expressions import maybe_update_regular_expressions
from kafkacompat.group.consumer.sessions import session_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkacompat.group.consumer.heartbeat import HeartbeatCaller
    from kafkacompat.group.consumer.member import ConsumerGroupMember
    from kafkacompat.group.environment import Environment
    from kafkacompat.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from kafkacompat.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class SteadyHeartbeat:
    __slots__ = ("_configs", "_instance_id", "_member", "_session_key", "_session_timeout_ms", "group_id")

    def __init__(
        self,
        group_id: str,
        member: ConsumerGroupMember,
        instance_id: str | None,
        session_timeout_ms: int,
        configs: Mapping[str, str],
    ) -> None:
        """`instance_id` is that of the request. `configs`: the group's own settings, on which the answer depends."""
        self.group_id = group_id
        self._member = ref(member)
        """Repetitions are kept for long, and a member that has left may have had many partitions."""
        self._instance_id = instance_id
        self._configs = configs
        self._session_timeout_ms = session_timeout_ms
        self._session_key = session_key(group_id, member.member_id)

    def again(self, env: Environment, now_ms: int) -> bool:
        """Carry the heartbeat out. False, and nothing done, if it might have another answer now or records to write."""
        group = env.groups.get(self.group_id)
        member = self._member()
        if member is None:
            return False
        epoch = member.member_epoch
        if (
            type(group) is not ConsumerGroup
            or group.members.get(member.member_id) is not member
            or group.assignment_epoch != epoch
            or group.group_epoch != epoch
            or group.has_metadata_expired(now_ms)
            or (self._instance_id is not None and group.static_member(self._instance_id) is not member)
            or env.group_configs(self.group_id) != self._configs
            or not env.timers.reschedule(self._session_key, self._session_timeout_ms)
        ):
            return False
        if group.regexes:
            maybe_update_regular_expressions(env, group, member, member, None, [], now_ms)
        return True


def steady_heartbeat(
    env: Environment,
    request: ConsumerGroupHeartbeatRequest,
    caller: HeartbeatCaller,
    answer: ConsumerGroupHeartbeatResponse,
) -> SteadyHeartbeat | None:
    """The heartbeat that has just got this answer, if the next one might get it too. `caller` may describe all topics."""
    epoch = request.member_epoch
    if epoch <= 0 or answer.error_code or answer.member_epoch != epoch or answer.assignment is not None:
        return None
    group = env.groups.get(request.group_id)
    member = group.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
    if (
        member is None
        or member.member_epoch != epoch
        or member.state is not MemberState.STABLE
        or told_of(request, caller, member) is not member
    ):
        return None
    return SteadyHeartbeat(
        request.group_id,
        member,
        request.instance_id,
        env.consumer_setting(request.group_id, "session_timeout_ms"),
        env.group_configs(request.group_id),
    )
