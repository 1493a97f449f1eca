"""What the simulated members of the newer kinds of groups have in common: heartbeats, which are all they join by (KIP-848), commits
and reads with their epoch, leaving, vanishing, silences, and instance ids.

What a member is told to give up it gives up before it says so. A kind of group says what its members own: partitions, or
tasks in a role.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafkacompat.deferred import Deferred
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import GROUP, CoordinatorConnection, outcome_of
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.counters import ModernGroupCounters
from kafkacompat.sim.group_clients import (
    AWAY_MS,
    GROUP_SESSION_MS,
    HEARTBEAT_MS,
    IN_DOUBT,
    GroupClient,
    commit_errors,
    commit_request,
    leads,
    read_offsets,
)
from kafkacompat.sim.group_oracles import Grant, GroupHistory, Owners
from kafkacompat.sim.links import Links
from kafkacompat.sim.machine import GROUP_PURPOSE, LATE_PURPOSE
from kafkacompat.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

REBALANCE_MS = 3 * GROUP_SESSION_MS
"""Longer than a member takes to learn what to give up, and to give it up."""
STEPS_TO_REVOKE = 3
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
"""After these errors a member has lost what it owned."""
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""The member's epoch has changed in a heartbeat that was not answered."""
SURE_SHARE = 0.9
"""The share of a session after which it has not expired by any node's clock."""

P = TypeVar("P", bound=Hashable)


class ModernMember(GroupClient, Generic[P]):
    """It owns parts P: partitions or tasks."""

    def __init__(
        self,
        links: Links,
        client_id: int,
        ledger: GroupHistory,
        owners: Owners,
        counters: ModernGroupCounters,
        instance_id: str | None = None,
        *,
        is_twin: bool = False,
    ) -> None:
        super().__init__(links, client_id)
        self.ledger = ledger
        self.owners = owners
        self.counters = counters
        self._coordinator = CoordinatorConnection(self, GROUP, ledger.group_id, GROUP_PURPOSE)
        self._attempt = 0
        """Answers that belong to an earlier attempt are ignored."""
        self._lives = 0
        self.instance_id = instance_id
        self.is_twin = is_twin
        """It has the instance id of another member, and goes at the end."""
        self.is_alone = False
        """It is static, and nobody else has its instance id."""
        self.has_classic_twin = False
        """A member of the classic protocol may take its place at any time."""
        self.is_retired = False
        self._had: frozenset[P] = frozenset()
        """What a static member had when it went for a while."""
        self.member_id = ""
        self.epoch = 0
        self.owned: set[P] = set()
        self._to_revoke: set[P] = set()
        """Those of `owned` that it was told to give up."""
        self._steps_to_revoke = 0
        self._tells_all = True
        """Whether the next heartbeat has every field."""
        self._told_owned: set[P] | None = None
        """What the coordinator knows it to own. None if it does not know."""
        self.has_read_at_last = False
        """Whether it has fetched the offsets of its partitions since the faults ended."""

    # What a kind of group says.

    def draw_another(self) -> None:
        """Draw what the member tells in its next life."""

    def heartbeat_request(self) -> Any:
        raise NotImplementedError

    def leave_request(self, epoch: int) -> Any:
        raise NotImplementedError

    def told(self, answer: Any) -> set[P] | None:
        """Return what the answer says that the member shall own. None if it says nothing."""
        raise NotImplementedError

    def partitions(self) -> AbstractSet[Key]:
        """Return the partitions for which it commits."""
        raise NotImplementedError

    def alone(self, parts: AbstractSet[P]) -> AbstractSet[Hashable]:
        """Return those of the parts that no other member may own."""
        raise NotImplementedError

    def part_of(self, partition: Key) -> Hashable:
        """Return the part, as `alone` does, of a partition for which it commits."""
        raise NotImplementedError

    def refused_in_another_way(self, error: ErrorCode) -> None:
        raise Breach("members are understood", f"{self.ledger.group_id} gets {error.name}")

    # Lives.

    @property
    def is_settled(self) -> bool:
        return self.epoch > 0 and not self._to_revoke and self._told_owned == self.owned

    def start(self) -> None:
        super().start()
        self._be_another()
        self.later(self._beat, HEARTBEAT_MS)

    def _be_another(self) -> None:
        """Get another id. The former may still be in the group."""
        self._lives += 1
        self.member_id = f"{self.id}-{self._lives}"
        self._lose_all()
        self.draw_another()

    def _lose_all(self) -> None:
        self._attempt += 1
        self.epoch, self._tells_all, self._told_owned = 0, True, None
        self.owned, self._to_revoke = set(), set()
        self.owners.gives_up(self.id)

    # Heartbeats.

    def _beat(self) -> None:
        if self.is_twin and self.env.is_over_for_producers:
            self._retire()
            return
        request = self.heartbeat_request()
        self.counters.tells(request)
        if self.epoch == 0 and self.instance_id is not None:
            self.owners.comes_back(self.instance_id)
        owned = set(self.owned)
        sent_us, asked_in, attempt = self.env.scheduler.now_us, self._leads(), self._attempt

        def answered(done: Deferred[Any]) -> None:
            error, answer = outcome_of(done)
            if (
                error is ErrorCode.NONE
                and asked_in == self._leads()
                and asked_in[0] == self._coordinator.node_id
            ):
                self._told_owned = owned
                self._confirmed(answer, sent_us)
            elif error is ErrorCode.NONE or error in IN_DOUBT:
                # A deposed coordinator's answer is worth nothing.
                self._coordinator.forget()
                self._tells_all, self._told_owned = True, None
                self.later(self._beat)
            else:
                self._refused(error)

        self._coordinator.send(request, lambda: self._attempt == attempt, answered)

    def _leads(self) -> tuple[int, int]:
        return leads(self, self.ledger.group_id)

    def _confirmed(self, answer: Any, sent_us: int) -> None:
        self._tells_all = False
        if self.epoch == 0 and self.instance_id is not None:
            self.counters.static_joins += 1
        self.epoch = answer.member_epoch
        has_new = False
        told = self.told(answer)
        if told is not None:
            self.counters.returned += len(told & self._had)
            self._had = frozenset()
            has_new = bool(told - self.owned)
            if has_new:
                self.has_read_at_last = False
                self.env.counters.assignments += 1
                self.counters.assignments += 1
            self._to_revoke = self.owned - told
            self._steps_to_revoke = STEPS_TO_REVOKE
            self.owned |= told
        self.owners.heard(self.id, sent_us)
        grant = Grant(sent_us, self.env.scheduler.now_us)
        self.owners.told(self.id, self.alone(self.owned), grant, is_asked_first=not self.has_classic_twin)
        if has_new and self.chance.happens(0.5):
            self._read()
        else:
            self._next()

    def _refused(self, error: ErrorCode) -> None:
        """The request was certainly not carried out."""
        if error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID) and self.instance_id:
            self.counters.unreleased += error is ErrorCode.UNRELEASED_INSTANCE_ID
            self.counters.instances_fenced += error is ErrorCode.FENCED_INSTANCE_ID
            self._be_away()
            return
        if error in STALE:
            self._tells_all, self._told_owned = True, None
            self.later(self._beat)
            return
        if error not in FENCED:
            self.refused_in_another_way(error)
            return
        self.counters.fenced += self.epoch > 0
        self._lose_all()
        self.later(self._beat)

    # What a member does between two heartbeats.

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
        """Before it gives parts up, a member may commit, and heartbeat once more."""
        self._steps_to_revoke -= 1
        if kind < 0.5 or not self._steps_to_revoke:
            self.counters.revocations += 1
            self.owners.gives_up(self.id, self.alone(self._to_revoke))
            self.owned -= self._to_revoke
            self._to_revoke = set()
            self._beat()
        elif kind < 0.8:
            self._commit()
        else:
            self._beat()

    def _commit(self) -> None:
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.partitions())}
        if not numbers:
            self._beat()
            return
        sent_us, attempt = self.env.scheduler.now_us, self._attempt

        def answered(done: Deferred[Any]) -> None:
            errors = self._count_commits(numbers, done)
            taken = [
                self.part_of(partition) for partition in numbers if errors.get(partition) is ErrorCode.NONE
            ]
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
        is_last = self.env.is_over_for_producers

        def done() -> None:
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
            self.ledger,
            self.partitions,
            lambda: self._attempt == attempt,
            done,
            (self.member_id, self.epoch),
            refused,
        )

    # Leaving the group.

    def _leave(self) -> None:
        """A static member mostly leaves for a while only, and what it owns stays with the instance."""
        epoch = LEAVES
        if self.instance_id is not None and self.chance.happens(0.75):
            epoch = LEAVES_FOR_A_WHILE
            self._had = frozenset(self.owned)
            self.counters.left_for_a_while += 1
            if self.is_alone:
                self.owners.leaves_for_a_while(self.id, self.instance_id)
        self._send_leave(epoch, self._be_away)

    def _send_leave(self, epoch: int, then: Callable[[], None]) -> None:
        request = self.leave_request(epoch)
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
        numbers = {partition: self.ledger.issue(partition) for partition in sorted(self.partitions())}
        if not numbers:
            return
        request = self._commit_request(numbers)
        late = CoordinatorConnection(self, GROUP, self.ledger.group_id, LATE_PURPOSE)
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
