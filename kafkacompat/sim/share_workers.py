"""Members of a simulated share group (KIP-932): they heartbeat, fetch from the leaders of their partitions in share sessions,
and acknowledge, in time or too late, whole batches or record by record.

A worker has one request in flight to each node. It leaves, crashes, is silent, closes sessions, and loses answers, so that
acknowledgements are in doubt. Then it opens a new session, as clients do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.clients import TIMEOUT_MS, Key
from kafkacompat.sim.coordinated import GROUP, Coordinated, outcome_of
from kafkacompat.sim.frames import GROUP_PURPOSE, SHARE_PURPOSE
from kafkacompat.sim.group_commits import AWAY_MS, GROUP_SESSION_MS, HEARTBEAT_MS, TOPIC, GroupClient
from kafkacompat.sim.group_offsets import IN_DOUBT
from kafkacompat.sim.links import BROKER_PORT, SimulatedChannel, host_name
from kafkacompat.sim.share_ledgers import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    acknowledge_error,
    rows_of,
)
from kafkacompat.sim.share_sessions import CLOSES, Owed, Session, acknowledge_request, types_of
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from kafkacompat.sim.cluster_simulation import ClusterSimulation
    from kafkacompat.sim.share_groups import ShareGroups

LEAVES = -1
TURN_MS = 120
"""Maximum pause of a worker between two requests to one node."""
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
NO_SESSION = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""Nothing of the request was carried out."""
FETCH_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""A member repeats a fetch after them."""
REFUSALS = FETCH_ERRORS | {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
"""Errors of acknowledgements. INVALID_REQUEST: the records were delivered before the state was loaded again."""


class ShareWorker(GroupClient):
    def __init__(self, simulation: ClusterSimulation, client_id: int, group: ShareGroups) -> None:
        super().__init__(simulation, client_id)
        self._group = group
        self._counters = group.counters
        self._coordinator = Coordinated(self, GROUP, group.group_id, GROUP_PURPOSE)
        self._attempt = 0
        """Answers that belong to an earlier attempt are ignored."""
        self._lives = 0
        self.member_id = ""
        self.epoch = 0
        self._tells_all = True
        self.assigned: set[Key] = set()
        self._sessions: dict[int, Session] = {}

    def start(self) -> None:
        super().start()
        self._be_another()
        self.later(self._join, HEARTBEAT_MS)

    def _be_another(self) -> None:
        self._lives += 1
        self._attempt += 1
        self.member_id = f"{self.id}-{self._lives}"
        self._sessions = {}
        self._lose_all()

    def _lose_all(self) -> None:
        self.epoch, self._tells_all, self.assigned = 0, True, set()

    @property
    def _is_over(self) -> bool:
        return self.simulation.is_over_for_producers

    # Membership.

    def _join(self) -> None:
        if self._group.is_ready():
            self._beat()
        else:
            self.later(self._join, HEARTBEAT_MS)

    def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self._tells_all:
            request.subscribed_topic_names = [TOPIC]
        attempt = self._attempt
        self._coordinator.send(request, lambda: self._attempt == attempt, self._beaten)

    def _beaten(self, done: Deferred[Any]) -> None:
        error, answer = outcome_of(done)
        if error is ErrorCode.NONE:
            self.epoch, self._tells_all = answer.member_epoch, False
            if answer.assignment is not None:
                self._assigned(answer.assignment)
        elif error in IN_DOUBT:
            self._coordinator.forget()
            self._tells_all = True
        elif error in FENCED:
            self._counters.fenced += self.epoch > 0
            self._lose_all()
        else:
            raise Breach("members are understood", f"{self._group.group_id} gets {error.name}")
        self._go_on()
        attempt = self._attempt
        pause_ms = 1 + self.chance.randrange(HEARTBEAT_MS)
        if self.chance.happens(0.03) and not self._is_over:
            self._counters.silences += 1
            pause_ms += GROUP_SESSION_MS // 2 + self.chance.randrange(AWAY_MS)
        self.call_after(pause_ms, lambda: self._beat() if self._attempt == attempt else None)

    def _assigned(self, assignment: Any) -> None:
        told: set[Key] = {
            (topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions
        }
        if told != self.assigned:
            self._counters.assignments += 1
            self.assigned = told

    # Sessions.

    def _go_on(self) -> None:
        """Open sessions with the leaders of the partitions that have none."""
        for key in sorted(self.assigned):
            place = self.places.get(key)
            if place is None or place.leader == NO_LEADER:
                self.refresh()
            elif place.leader not in self._sessions:
                session = self._sessions[place.leader] = Session(place.leader)
                self._next(session)

    def _wanted(self, session: Session) -> set[Key]:
        return {
            key
            for key in self.assigned
            if (place := self.places.get(key)) is not None and place.leader == session.node_id
        }

    def _next(self, session: Session) -> None:
        attempt = self._attempt
        self.later(lambda: self._turn(session) if self._attempt == attempt else None, TURN_MS)

    def _turn(self, session: Session) -> None:
        wanted = self._wanted(session)
        kind = self.chance.uniform()
        if session.epoch == 0:
            session.lose()
            if wanted:
                self._fetch(session, wanted, [])
            else:
                del self._sessions[session.node_id]
            return
        if not self._is_over and kind < 0.025:
            self._crash()
            return
        if not self._is_over and kind < 0.045:
            self._leave()
            return
        due = self._take_due(session)
        if not wanted or (not self._is_over and kind < 0.065):
            self._close(session, due)
        elif due and kind < 0.5:
            self._acknowledge(session, due)
        else:
            self._fetch(session, wanted, due)

    def _take_due(self, session: Session) -> list[Owed]:
        taken = session.take_due(None if self._is_over else self.simulation.scheduler.now_us)
        self._counters.acknowledged_late += sum(each.is_late for each in taken)
        return taken

    # Requests.

    def _fetch(self, session: Session, wanted: set[Key], due: list[Owed], epoch: int | None = None) -> None:
        self._counters.sessions += session.epoch == 0
        asked = session.epoch if epoch is None else epoch
        request = session.fetch_request(self._group.group_id, self.member_id, self.chance, wanted, due, asked)
        self._send(session, request, due)

    def _acknowledge(self, session: Session, due: list[Owed], epoch: int | None = None) -> None:
        asked = session.epoch if epoch is None else epoch
        self._send(session, acknowledge_request(self._group.group_id, self.member_id, due, asked), due)

    def _close(self, session: Session, due: list[Owed]) -> None:
        """End the session with a last request. What is not acknowledged in it is released."""
        if self.chance.happens(0.5):
            self._acknowledge(session, due, CLOSES)
        else:
            self._fetch(session, session.partitions, due, CLOSES)

    def _channel(self, session: Session) -> SimulatedChannel:
        return self.channels.get(host_name(session.node_id), BROKER_PORT, SHARE_PURPOSE)

    def _send(self, session: Session, request: Any, due: list[Owed]) -> None:
        attempt = self._attempt
        channel = self._channel(session)
        session.is_busy = True

        def answered(done: Deferred[Any]) -> None:
            session.is_busy = False
            if self._attempt == attempt:
                self._answered(session, request, due, done)

        channel.request(request, TIMEOUT_MS).on_done(answered)
        if self.chance.happens(0.04) and not self._is_over:
            # The answer is lost with the connection, and perhaps the request.
            self.call_after(1 + self.chance.randrange(30), channel.close)

    def _answered(self, session: Session, request: Any, due: list[Owed], done: Deferred[Any]) -> None:
        try:
            answer = done.result()
        except ChannelError:
            self._counters.acknowledgements_in_doubt += sum(each.last - each.first + 1 for each in due)
            self._lost(session)
            return
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            if error not in NO_SESSION:
                raise Breach("members are understood", f"{type(request).__name__} is answered {error.name}")
            self._counters.sessions_refused += 1
            self._lost(session)
            return
        self._note(due, answer)
        if request.share_session_epoch == CLOSES:
            self._lost(session)
            return
        session.epoch += 1
        if isinstance(request, ShareFetchRequest):
            self._take_all(session, request, answer)
        self._next(session)

    def _lost(self, session: Session) -> None:
        session.lose()
        self.refresh()
        self._next(session)

    def _note(self, due: list[Owed], answer: Any) -> None:
        """Count what became of the acknowledgements of a request."""
        errors = {key: acknowledge_error(row) for key, row in rows_of(answer)}
        for each in due:
            error = errors.get(each.key)
            if error is None or error not in REFUSALS:
                raise Breach(
                    "members are understood", f"acknowledgements of {each.key[1]} are answered {error!r}"
                )
            if error is not ErrorCode.NONE:
                self._counters.acknowledgements_refused += 1
                continue
            for kind in types_of(each):
                self._counters.accepted += kind == ACCEPT
                self._counters.released += kind == RELEASE
                self._counters.rejected += kind == REJECT

    # Records.

    def _take_all(self, session: Session, request: ShareFetchRequest, answer: Any) -> None:
        has_records = False
        for key, row in rows_of(answer):
            error = ErrorCode(row.error_code)
            if error not in FETCH_ERRORS:
                raise Breach("members are understood", f"a share fetch of {key[1]} is answered {error.name}")
            if error is not ErrorCode.NONE:
                self.refresh()
            if row.acquired_records:
                has_records = True
                self._take(session, key, row)
        if has_records:
            self._counters.by_batch += request.share_acquire_mode == 0
            self._counters.by_record += request.share_acquire_mode == 1

    def _take(self, session: Session, key: Key, row: Any) -> None:
        data = bytes(row.records or b"")
        self.simulation.client_oracles.consumed(key, data)
        present = {
            offset: record.value
            for header in iterate_batches(data)
            if not header.is_control
            for offset, record in records_of(data[header.position : header.position + header.size], header)
        }
        for offset, value in present.items():
            self._group.oracles.letters.shown(key, offset, value)
        for acquired in row.acquired_records:
            offsets = range(acquired.first_offset, acquired.last_offset + 1)
            missing = [each for each in offsets if each not in present]
            if missing and not self.simulation.options.transactional_producers:
                raise Breach(
                    "what is acquired is shown", f"{missing} of partition {key[1]} came without data"
                )
            self._counters.delivered += len(offsets)
            self._counters.delivered_again += len(offsets) * (acquired.delivery_count > 1)
            self._plan(session, key, [offset in present for offset in offsets], acquired.first_offset)

    def _plan(self, session: Session, key: Key, present: list[bool], first: int) -> None:
        """Decide what becomes of acquired records."""
        now_us, lock_us = self.simulation.scheduler.now_us, 1000 * self.simulation.options.share_lock_ms
        kind = 0.0 if self._is_over else self.chance.uniform()
        ready_us, is_late = now_us, False
        if kind > 0.95:
            self._counters.dropped += len(present)
            return
        if kind > 0.9:
            ready_us, is_late = now_us + int(lock_us * (1.0 + self.chance.uniform())), True
        elif kind > 0.83 and all(present):
            session.owed.append(Owed(now_us, key, first, first + len(present) - 1, [RENEW]))
            self._counters.renewed += len(present)
            ready_us += int(lock_us * self.chance.uniform() * 0.8)
        elif kind > 0.5:
            ready_us += int(lock_us * self.chance.uniform() * 0.5)
        verdict = ACCEPT
        if not self._is_over:
            verdict = (ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT)[self.chance.randrange(5)]
        types = [verdict if each else GAP for each in present]
        if not self._is_over and self.chance.happens(0.4):
            types = [(ACCEPT, RELEASE, REJECT)[self.chance.randrange(3)] if each else GAP for each in present]
        middle = self.chance.between(1, len(types)) if self.chance.happens(0.3) else len(types)
        for begin, part in ((0, types[:middle]), (middle, types[middle:])):
            if part:
                whole = part[:1] if len(set(part)) == 1 and self.chance.happens(0.7) else part
                last = first + begin + len(part) - 1
                session.owed.append(Owed(ready_us, key, first + begin, last, whole, is_late))
            ready_us += int(lock_us * self.chance.uniform() * 0.2)

    # Leaving the group.

    def _leave(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self._group.group_id, member_id=self.member_id, member_epoch=LEAVES
        )
        self._counters.left += 1
        sessions = list(self._sessions.values())
        for session in sessions:
            if session.is_busy:
                self._channel(session).close()
            elif session.epoch:
                self._close(session, self._take_due(session))
        self._coordinator.send(request, lambda: True, lambda done: None)
        self._be_away()

    def _crash(self) -> None:
        self._counters.crashes += 1
        self._attempt += 1
        self.channels.close_all()
        self._be_away()

    def _be_away(self) -> None:
        self._be_another()
        attempt = self._attempt
        pause_ms = 1 + self.chance.randrange(AWAY_MS)
        self.call_after(pause_ms, lambda: self._join() if self._attempt == attempt else None)
