"""A timer of a group's member that fences the member when it fires.

It belongs to the ids, because the log makes the group: it looks for the member when it fires.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkacompat.group.environment import Environment, GroupResult

if TYPE_CHECKING:
    from kafkacompat.group.group import Group

RETRY_MS = 500
"""A fencing that the log refuses is tried again after this time."""


class Fencing(ABC):
    """There is one for each timer of each member, so it is small."""

    __slots__ = ("_env", "_key")

    def __init__(self, env: Environment, key: tuple[str, str, str]) -> None:
        """`key`: the kind of the timer, the group id and the member id."""
        self._env = env
        self._key = key

    def __call__(self, now_ms: int) -> GroupResult:
        _, group_id, member_id = self._key
        result = self._fenced(self._env.groups.get(group_id), member_id, now_ms)
        undo = result.refused

        def refused() -> None:
            if undo is not None:
                undo()
            self._env.timers.schedule(self._key, RETRY_MS, self)

        return replace(result, refused=refused) if result.records else result

    @abstractmethod
    def _fenced(self, group: Group | None, member_id: str, now_ms: int) -> GroupResult:
        """Fence the member, if it is still there."""
