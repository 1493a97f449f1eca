"""A client that is not a member of a group: it commits, reads, deletes the group, and checks that it stays deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.coordinated import GROUP, Coordinated
from kafkacompat.sim.group_commits import (
    AWAY_MS,
    HEARTBEAT_MS,
    GroupClient,
    commit_error,
    commit_request,
)
from kafkacompat.sim.group_offsets import IN_DOUBT, read_offsets
from kafkacompat.sim.group_oracles import GroupLedger
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest


class Passing(GroupClient):
    """Commits without being a member and deletes the group, repeatedly. If a request gets no answer, the group is
    abandoned and the next one has another name."""

    def __init__(self, links: Links, client_id: int) -> None:
        super().__init__(links, client_id)
        self.gone: list[GroupLedger] = []
        """Deleted groups that are checked at the end."""
        self._groups = 0
        self._ledger = self._new_ledger()
        self._coordinator = Coordinated(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
        self.is_settled = False

    def _new_ledger(self) -> GroupLedger:
        self._groups += 1
        return GroupLedger(f"passing-{self._groups}")

    def start(self) -> None:
        super().start()
        self.later(self._commit, HEARTBEAT_MS)

    def _begin_anew(self) -> None:
        self._ledger = self._new_ledger()
        self._coordinator = Coordinated(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
        self.later(self._commit)

    def _pause(self, call: Callable[[], None]) -> None:
        self.call_after(1 + self.chance.randrange(AWAY_MS), call)

    def _commit(self) -> None:
        topic = self.topic()
        if self.env.is_over_for_producers:
            self._look_at_last()
            return
        if topic is None:
            self.later(self._commit, HEARTBEAT_MS)
            return
        ledger, key = self._ledger, (topic[0], 0)
        number = ledger.issue(key)
        request = commit_request(ledger.group_id, {key: number}, -1, "")

        def answered(done: Deferred[Any]) -> None:
            error = commit_error(done)
            if error is not ErrorCode.NONE:
                if error not in IN_DOUBT:
                    raise Breach("members are understood", f"{ledger.group_id} gets {error.name}")
                self._begin_anew()
                return
            ledger.is_deleted = False
            ledger.committed(key, number)
            self.env.counters.commits += 1
            self._pause(lambda: self._read(self._delete))

        self._coordinator.send(request, lambda: True, answered)

    def _read(self, then: Callable[[], None]) -> None:
        ledger, topic = self._ledger, self.topic()
        assert topic is not None
        asked_when = dict(ledger.settled)

        def done(found: dict[Key, int]) -> None:
            ledger.fetched(asked_when, found)
            then()

        read_offsets(
            self,
            self._coordinator,
            ledger.group_id,
            lambda: [(topic[0], 0)],
            lambda: True,
            _nothing,
            done,
        )

    def _delete(self) -> None:
        ledger = self._ledger

        def answered(done: Deferred[Any]) -> None:
            try:
                error = ErrorCode(done.result().results[0].error_code)
            except ChannelError:
                error = ErrorCode.REQUEST_TIMED_OUT
            if error in IN_DOUBT:
                self._begin_anew()
                return
            if error is not ErrorCode.NONE:
                raise Breach("answered commits are fetched", f"{ledger.group_id} is there: {error.name}")
            ledger.is_deleted = True
            ledger.settled.clear()
            self.env.counters.groups_deleted += 1
            self._pause(lambda: self._read(self._deleted))

        request = DeleteGroupsRequest(groups_names=[ledger.group_id])
        self._coordinator.send(request, lambda: True, answered)

    def _deleted(self) -> None:
        """Every second group is created again under the same name."""
        if self.chance.happens(0.5):
            self._commit()
        else:
            self.gone.append(self._ledger)
            self._begin_anew()

    def _look_at_last(self) -> None:
        """Check all deleted groups at the end: a later coordinator may have read them from the log again."""
        if not self.gone:
            self.is_settled = True
            return
        self._ledger = self.gone.pop()
        self._coordinator = Coordinated(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
        self._read(self._look_at_last)


def _nothing() -> None:
    """Only this client changes `settled`."""
