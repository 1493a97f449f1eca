"""Members of a simulated group that use the consumer protocol (KIP-848): they heartbeat, give up what they are told to,
commit and fetch offsets with their epoch, leave, vanish, are silent for too long, and join again when they are fenced.

A member has one request in flight. After a heartbeat without an answer it tells everything again. A member whose commit
got no answer continues with another id: the commit may still be carried out until the former id has lost its partitions,
and never after that. A static member that goes for a while comes back with another id and the same instance id.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from kafkacompat.deferred import Deferred
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.consumer_heartbeats import (
    FENCED,
    LEAVES,
    LEAVES_FOR_A_WHILE,
    STALE,
    UNKNOWN,
    HeartbeatingMember,
)
from kafkacompat.sim.coordinated import GROUP, Coordinated, outcome_of
from kafkacompat.sim.group_commits import (
    AWAY_MS,
    GROUP_SESSION_MS,
    HEARTBEAT_MS,
    commit_errors,
    commit_request,
)
from kafkacompat.sim.group_offsets import IN_DOUBT, read_offsets
from kafkacompat.sim.machine import LATE_PURPOSE
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
)


class ConsumerMember(HeartbeatingMember):
    """It also commits, reads, leaves, and is silent."""

    def _next(self) -> None:
        self.later(self._act, HEARTBEAT_MS)

    def _act(self) -> None:
        kind = self.chance.uniform()
        if self._to_revoke:
            self._step_to_revoke(kind)
        elif self.env.is_over_for_producers:
            if self.has_read_at_last or not self.owned:
                self._beat()
            else:
                self._read()
        elif self.epoch == 0 or not self.owned:
            (self._leave if kind > 0.98 else self._beat)()
        elif kind < 0.5:
            self._beat()
        elif kind < 0.82:
            self._commit()
        elif kind < 0.88:
            self._leave()
        elif kind < 0.92:
            self._vanish()
        elif kind < 0.95:
            self._fall_silent()
        else:
            self._read()

    def _step_to_revoke(self, kind: float) -> None:
        """Before it gives partitions up, a member may commit, and heartbeat once more."""
        self._steps_to_revoke -= 1
        if kind < 0.5 or not self._steps_to_revoke:
            self.counters.revocations += 1
            self.owners.gives_up(self.id, self._to_revoke)
            self.owned -= self._to_revoke
            self._to_revoke = set()
            self._beat()
        elif kind < 0.8:
            self._commit()
        else:
            self._beat()

    def _commit(self) -> None:
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.owned)}
        sent_us, attempt = self.env.scheduler.now_us, self._attempt

        def answered(done: Deferred[Any]) -> None:
            errors = self._count_commits(numbers, done)
            taken = [partition for partition in numbers if errors.get(partition) is ErrorCode.NONE]
            self.owners.committed(self.id, taken, sent_us, self.env.scheduler.now_us)
            error = next(
                (
                    each
                    for key, each in errors.items()
                    if each is not ErrorCode.NONE and not self._is_gone(key, each)
                ),
                ErrorCode.NONE,
            )
            if error is ErrorCode.NONE:
                self._next()
            elif error in IN_DOUBT:
                self.counters.commits_in_doubt += 1
                self._coordinator.forget()
                self._be_another()
                self.later(self._beat)
            else:
                self._refused(error)

        self._coordinator.send(self._commit_request(numbers), lambda: self._attempt == attempt, answered)

    def _is_gone(self, key: Key, error: ErrorCode) -> bool:
        return error in UNKNOWN and self.env.metadata.is_deleted(key)

    def _commit_request(self, numbers: dict[Key, int]) -> Any:
        return commit_request(self.ledger.group_id, numbers, self.epoch, self.member_id, self.instance_id)

    def _count_commits(self, numbers: dict[Key, int], done: Deferred[Any]) -> dict[Key, ErrorCode]:
        """Return the error of each partition. An older epoch may commit some of its partitions and others not."""
        errors = commit_errors(done, numbers)
        for partition, error in errors.items():
            if error is ErrorCode.NONE:
                self.ledger.committed(partition, numbers[partition])
                self.env.counters.commits += 1
                self.counters.commits += 1
            self.counters.commits_refused += error in STALE | FENCED
        return errors

    def _read(self) -> None:
        attempt = self._attempt
        asked_when: dict[Hashable, int] = {}
        is_last = self.env.is_over_for_producers

        def asks() -> None:
            nonlocal asked_when
            asked_when = dict(self.ledger.settled)

        def done(found: dict[Key, int]) -> None:
            self.ledger.fetched(asked_when, found)
            self.has_read_at_last = is_last
            self.counters.offsets_read += 1
            self._next()

        def refused(error: ErrorCode) -> bool:
            if error in STALE | FENCED:
                self._refused(error)
            return error in STALE | FENCED

        read_offsets(
            self,
            self._coordinator,
            self.ledger.group_id,
            lambda: self.owned,
            lambda: self._attempt == attempt,
            asks,
            done,
            (self.member_id, self.epoch),
            refused,
        )

    # Leaving the group.

    def _leave(self) -> None:
        """A static member mostly leaves for a while only, and its partitions stay with the instance."""
        epoch = LEAVES
        if self.instance_id is not None and self.chance.happens(0.75):
            epoch = LEAVES_FOR_A_WHILE
            self._had = frozenset(self.owned)
            self.counters.left_for_a_while += 1
            if self.is_alone:
                self.owners.leaves_for_a_while(self.id, self.instance_id)
        self._send_leave(epoch, self._be_away)

    def _send_leave(self, epoch: int, then: Callable[[], None]) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.ledger.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )
        if self.chance.happens(0.2):
            self._commit_late()
        self._lose_all()
        self.counters.left += 1
        attempt = self._attempt

        def answered(done: Deferred[Any]) -> None:
            error, _ = outcome_of(done)
            if error not in IN_DOUBT | FENCED | {ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID}:
                raise Breach("members are understood", f"{self.ledger.group_id} gets {error.name}")
            then()

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    def _vanish(self) -> None:
        """Disappear without leaving, so that the session expires. A commit in flight may arrive much later."""
        self.counters.vanished += 1
        if self.chance.happens(0.5):
            self._commit_late()
        self._be_away()

    def _commit_late(self) -> None:
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.owned)}
        if not numbers:
            return
        request = self._commit_request(numbers)
        late = Coordinated(self, GROUP, self.ledger.group_id, LATE_PURPOSE)
        self.call_after(
            self._long_ms(),
            lambda: late.send(
                request, lambda: True, lambda done: _ignore(self._count_commits(numbers, done))
            ),
        )

    def _retire(self) -> None:
        """The other member with this instance id stays."""
        self.is_retired = True
        self._send_leave(LEAVES, self._lose_all)

    def _be_away(self) -> None:
        self.env.counters.members_gone += 1
        self._be_another()
        self.call_after(1 + self.chance.randrange(AWAY_MS), self._beat)

    def _fall_silent(self) -> None:
        """Long enough to be fenced or not, and then go on as if nothing had happened."""
        self.counters.silences += 1
        then: Callable[[], None] = self._commit if self.chance.happens(0.5) else self._beat
        self.call_after(self._long_ms() // 2, then)

    def _long_ms(self) -> int:
        return GROUP_SESSION_MS + self.chance.randrange(AWAY_MS)


def _ignore(_: Iterable[Any]) -> None:
    """A late commit counts if it was taken. Nobody waits for it."""
