"""Members of simulated groups (classic protocol): they join, sync, heartbeat, commit, fetch committed offsets, leave
or vanish.

A member has one request in flight. A member whose commit got no answer joins again with another id: its commit may
still be carried out before the group's next generation, and never after a commit of that generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import GROUP, Client, CoordinatorConnection, outcome_of
from kafkacompat.sim.cluster_options import TOPIC
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.group_clients import (
    AWAY_MS,
    GROUP_SESSION_MS,
    HEARTBEAT_MS,
    IN_DOUBT,
    GroupClient,
    commit_error,
    commit_request,
    read_offsets,
)
from kafkacompat.sim.group_oracles import GroupHistory
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE, LATE_PURPOSE
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.delete_groups_request import DeleteGroupsRequest
from kafkacompat.wire.messages.heartbeat_request import HeartbeatRequest
from kafkacompat.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkacompat.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkacompat.wire.messages.offset_commit_request import OffsetCommitRequest
from kafkacompat.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment


class StandaloneConsumer(GroupClient):
    """Commits without being a member and deletes the group, repeatedly. If a request gets no answer, the group is
    abandoned and the next one has another name."""

    def __init__(self, links: Links, client_id: int) -> None:
        super().__init__(links, client_id)
        self.gone: list[GroupHistory] = []
        """Deleted groups that are checked at the end."""
        self._groups = 0
        self._ledger = self._new_ledger()
        self._coordinator = CoordinatorConnection(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
        self.is_settled = False

    def _new_ledger(self) -> GroupHistory:
        self._groups += 1
        return GroupHistory(f"passing-{self._groups}")

    def start(self) -> None:
        super().start()
        self.later(self._commit, HEARTBEAT_MS)

    def _begin_anew(self) -> None:
        self._ledger = self._new_ledger()
        self._coordinator = CoordinatorConnection(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
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
        topic = self.topic()
        assert topic is not None
        read_offsets(self, self._coordinator, self._ledger, lambda: [(topic[0], 0)], lambda: True, then)

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
        self._ledger.may_return = bool(self.env.counters.clock_jumps)
        self._coordinator = CoordinatorConnection(self, GROUP, self._ledger.group_id, GROUP_PURPOSE)
        self._read(self._look_at_last)


SESSION_MS, REBALANCE_MS = GROUP_SESSION_MS, 900
TOLD_TO_JOIN = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""After these errors the request was certainly not carried out."""


class Member(GroupClient):
    protocol_type, protocol = "simulated", "evenly"

    def __init__(self, links: Links, client_id: int, ledger: GroupHistory) -> None:
        super().__init__(links, client_id)
        self.ledger = ledger
        self._coordinator = CoordinatorConnection(self, GROUP, ledger.group_id, GROUP_PURPOSE)
        self._attempt = 0
        """Answers that belong to an earlier attempt are ignored."""
        self.member_id = ""
        self._named_after = ledger.assigned_last
        self.generation = -1
        self.instance_id: str | None = None
        self.owned: list[Key] | None = None
        """None while it is not in the group."""
        self.has_read_at_last = False
        """Whether it has fetched the offsets of its partitions since the faults ended."""
        self._leads = False
        self._divided: dict[str, tuple[Uuid, int]] = {}
        """The partitions that it has assigned as the leader."""

    def start(self) -> None:
        super().start()
        self.later(self._join, HEARTBEAT_MS)

    def _ask(self, request: Any, then: Callable[[ErrorCode, Any], None]) -> None:
        attempt = self._attempt

        def answered(done: Deferred[Any]) -> None:
            then(*outcome_of(done))

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    # What the members tell each other. The coordinator does not read it.

    def topics(self) -> Sequence[str]:
        """Return those that it reads, and those that it assigns as the leader."""
        return (TOPIC,)

    def metadata(self) -> bytes:
        return b""

    def divided(self, members: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
        """Return each member's assignment. `members`: id and metadata."""
        _, count = self._divided.get(TOPIC, (None, 0))
        return {
            member_id: bytes(range(position, count, len(members)))
            for position, (member_id, _) in enumerate(members)
        }

    def decoded(self, assignment: bytes) -> list[Key]:
        topic = self.topic()
        assert topic is not None
        return [(topic[0], index) for index in assignment]

    def assigned(self, partitions: list[Key]) -> None:
        self.ledger.assigned(self.generation, self.member_id, partitions, self._named_after)

    def committable(self) -> list[Key]:
        """Return the partitions whose offsets it commits and reads."""
        return self.owned or []

    def committed(self, partitions: Iterable[Key], sent_us: int) -> None:
        """The commit was acknowledged."""

    # Joining the group.

    def _join(self) -> None:
        self.owned = None
        if self.topic() is None:
            self.later(self._join, HEARTBEAT_MS)
            return
        if not self.member_id:
            self._named_after = self.ledger.assigned_last
        protocol = JoinGroupRequestProtocol(name=self.protocol, metadata=self.metadata())
        request = JoinGroupRequest(
            group_id=self.ledger.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[protocol],
        )
        self._ask(request, self._joined)

    def _joined(self, error: ErrorCode, answer: Any) -> None:
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._leads = answer.leader == answer.member_id
            self._sync([(each.member_id, each.metadata) for each in answer.members])
        else:
            self._join_again(error)

    def _sync(self, members: list[tuple[str, bytes]]) -> None:
        self._divided = self.layout(self.topics())
        request = SyncGroupRequest(
            group_id=self.ledger.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in self.divided(members).items()
            ],
        )
        self._ask(request, self._synced)

    def _synced(self, error: ErrorCode, answer: Any) -> None:
        if error is not ErrorCode.NONE:
            self._join_again(error)
            return
        self.owned = self.decoded(answer.assignment)
        self.has_read_at_last = False
        self.assigned(self.owned)
        self.env.counters.assignments += 1
        self._read()

    def _join_again(self, error: ErrorCode) -> None:
        if error not in TOLD_TO_JOIN | IN_DOUBT:
            raise Breach("members are understood", f"{self.ledger.group_id} gets {error.name}")
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if error in IN_DOUBT:
            self._coordinator.forget()
        self._attempt += 1
        self.owned = None
        self.later(self._join)

    # As a member.

    def _next(self) -> None:
        self.later(self._act, HEARTBEAT_MS)

    def _act(self) -> None:
        kind = self.chance.uniform()
        if self.env.is_over_for_producers:
            if self.has_read_at_last or not self.owned:
                self._heartbeat()
            else:
                self._read()
        elif kind < 0.5 or not self.committable():
            self._heartbeat()
        elif kind < 0.9:
            self._commit()
        elif kind < 0.95:
            self._leave()
        elif kind < 0.97:
            self._vanish()
        else:
            self._read()

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.ledger.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        self._ask(request, self._heartbeat_answered)

    def _heartbeat_answered(self, error: ErrorCode, _: Any) -> None:
        if error is not ErrorCode.NONE:
            self._join_again(error)
        elif self._leads and self.layout(self.topics()) != self._divided:
            self._join_again(ErrorCode.REBALANCE_IN_PROGRESS)
        else:
            self._next()

    def _commit(self) -> None:
        numbers = self._numbers()
        request = self._commit_request(numbers)
        attempt, sent_us = self._attempt, self.env.scheduler.now_us

        def answered(done: Deferred[Any]) -> None:
            error = commit_error(done)
            if error is ErrorCode.NONE:
                for partition, number in numbers.items():
                    self.ledger.committed(partition, number)
                self.env.counters.commits += 1
                self.committed(numbers, sent_us)
                self._next()
            else:
                if error in IN_DOUBT:
                    self.member_id = ""
                self._join_again(error)

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    def _numbers(self) -> dict[Key, int]:
        return {partition: self.ledger.issue(partition) for partition in self.committable()}

    def _commit_request(self, numbers: dict[Key, int]) -> OffsetCommitRequest:
        return commit_request(
            self.ledger.group_id, numbers, self.generation, self.member_id, self.instance_id
        )

    def _read(self) -> None:
        attempt = self._attempt
        is_last = self.env.is_over_for_producers

        def done() -> None:
            self.has_read_at_last = is_last
            self.env.counters.offsets_read += 1
            self._next()

        read_offsets(
            self,
            self._coordinator,
            self.ledger,
            self.committable,
            lambda: self._attempt == attempt,
            done,
        )

    # Leaving the group.

    def _leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.ledger.group_id, members=[identity])
        self._ask(request, lambda _error, _answer: self._vanish())

    def _vanish(self) -> None:
        """Disappear without leaving, so that the session expires. Another member comes in its place. A commit in
        flight may arrive much later."""
        self.env.counters.members_gone += 1
        if self.committable() and self.chance.happens(0.5):
            self._commit_late(self._numbers())
        self._attempt += 1
        self.member_id, self.owned = "", None
        self.call_after(1 + self.chance.randrange(AWAY_MS), self._join)

    def _commit_late(self, numbers: dict[Key, int]) -> None:
        request = self._commit_request(numbers)

        def answered(done: Deferred[Any]) -> None:
            if commit_error(done) is ErrorCode.NONE:
                for partition, number in numbers.items():
                    self.ledger.committed(partition, number)

        def send() -> None:
            late = CoordinatorConnection(self, GROUP, self.ledger.group_id, LATE_PURPOSE)
            late.send(request, lambda: True, answered)

        self.call_after(SESSION_MS + self.chance.randrange(AWAY_MS), send)


class Groups:
    """The members of one group, and a client that is not a member."""

    def __init__(self, links: Links, first_id: int, members: int) -> None:
        self.ledger = GroupHistory("group")
        self.members = [Member(links, first_id + each, self.ledger) for each in range(members)]
        self.passing = StandaloneConsumer(links, first_id + members) if members else None

    @property
    def clients(self) -> list[Client]:
        return [*self.members] if self.passing is None else [*self.members, self.passing]

    def missing(self, partitions: int) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if not self.members:
            return None
        generations = {each.generation for each in self.members}
        owned = sorted(index for each in self.members for _, index in each.owned or ())
        if any(each.owned is None for each in self.members) or len(generations) > 1:
            return f"not all members are in one generation: {generations}, {owned} are owned"
        if owned != list(range(partitions)):
            return f"of {partitions} partitions the members own {owned}"
        if not all(each.has_read_at_last or not each.owned for each in self.members):
            return "members have not read what was committed"
        if self.passing is not None and not self.passing.is_settled:
            return "the groups that were deleted were not looked for"
        return None
