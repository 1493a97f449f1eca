"""Ends of share sessions: what their members hold becomes available, and groups without a session are forgotten."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafkacompat.faults import for_each, report
from kafkacompat.memory import Freeing
from kafkacompat.share.values import PendingWrite
from kafkacompat.tasks import pause

if TYPE_CHECKING:
    from kafkacompat.api.share_services import TopicIdPartition
    from kafkacompat.share.led_partition import LedPartition
    from kafkacompat.share.partition_cache import SharePartitionCache
    from kafkacompat.share.sessions import (
        SessionKey,
        ShareSession,
        ShareSessionCache,
    )
    from kafkacompat.tasks import Tasks

RELEASED_AT_ONCE = 10
"""Share-partitions of which a member's records are released in one turn of the loop, if few records are in flight."""


class SessionEnds:
    def __init__(self, sessions: ShareSessionCache, cache: SharePartitionCache, tasks: Tasks) -> None:
        self._sessions = sessions
        self._cache = cache
        self._tasks = tasks
        self._freeing = Freeing(tasks)
        self._releases: OrderedDict[tuple[LedPartition, str], None] = OrderedDict()
        """Share-partitions and members, in order."""
        self._ended_groups: list[str] = []
        """Groups without a session, whose share-partitions are dropped after the releases."""
        self._is_releasing = False

    def open_session(self, key: SessionKey, connection_id: int) -> ShareSession:
        """A new session, which ends an old one of the same member. Raises SessionRefused."""
        session = self._sessions.open(key, connection_id)
        self._cache.keep_group(key.group_id)
        self._ended_groups += self._sessions.surplus_groups(connection_id)
        if self._ended_groups:
            self._release_some()
        return session

    def release_session(self, key: SessionKey) -> None:
        """End a session. What its member holds becomes available."""
        session = self._sessions.remove(key)
        if session is None:
            return
        partitions = session.partitions
        # A session may have many partitions that do not exist, and a group many that the session does not have.
        known = self._cache.groups.get(key.group_id, {})
        fewer: Iterable[TopicIdPartition] = list(known) if len(known) < len(partitions) else partitions
        for partition in fewer:
            led = self._cache.get(key.group_id, partition) if partition in partitions else None
            if led is not None:
                self._releases[led, key.member_id] = None
        self._freeing.free(partitions)
        self._release_some()

    def end_all(self) -> None:
        """End all sessions. What their members hold is dropped with its share-partitions."""
        for session in self._sessions.remove_all():
            self._freeing.free(session.partitions)

    def finish_release(self, led: LedPartition, member_id: str) -> None:
        """Call before a member acquires: it may be back before its former session has released everything, and what it
        acquires from now on is not to be released."""
        if (led, member_id) in self._releases:
            del self._releases[led, member_id]
            self._release(led, member_id)

    def on_connection_closed(self, connection_id: int) -> None:
        for session in self._sessions.sessions_of(connection_id):
            self._sessions.evictions += 1
            self.release_session(session.key)
        ended = self._sessions.connection_closed(connection_id)
        if ended:
            self._ended_groups += ended
            self._release_some()

    def _release_some(self) -> None:
        """Release records for the sessions that have ended. If there is much to do, the rest follows in later turns."""
        if not self._is_releasing:
            self._is_releasing = True
            self._tasks.start("releasing records of ended share sessions", self._release_all())

    async def _release_all(self) -> None:
        left = RELEASED_AT_ONCE
        try:
            while self._releases:
                if left <= 0:
                    await pause()
                    left = RELEASED_AT_ONCE
                    continue
                (led, member_id), _ = self._releases.popitem(last=False)
                left -= self._release(led, member_id)
        finally:
            self._is_releasing = False
        ended, self._ended_groups = self._ended_groups, []
        for_each(ended, self._drop_if_left, "dropping a share group without sessions")

    def _drop_if_left(self, group_id: str) -> None:
        if not self._sessions.has_members(group_id):
            self._cache.drop_group(group_id)

    def _release(self, led: LedPartition, member_id: str) -> int:
        """Returns how long it took, as `LedPartition.looks` counts."""
        looks = 1
        try:
            looks = led.looks()
            outcome = led.core.release_acquired_records(member_id)
            if isinstance(outcome, PendingWrite):
                self._cache.write_unasked(led, outcome)
            self._cache.changed(led)
        except Exception as error:
            report(f"releasing records of {led.key}", error)
        return looks
