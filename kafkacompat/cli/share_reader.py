"""Acquires records for a member of a share group, each from its partition's leader, and acknowledges them.

It holds what was acquired and not yet acknowledged, and knows when the locks of these records must be renewed. It
continues after leader changes and while brokers are away; records held from a leader that is lost go to other members.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Collection, Iterable

from kafkacompat.cli.reader import FETCH_RETRIABLE
from kafkacompat.cli.share_member import ShareMember, TopicPartition
from kafkacompat.cli.share_session import (
    Acknowledgement,
    Acquired,
    Range,
    SessionLost,
    ShareSession,
    acquired_of,
    joined,
)
from kafkacompat.cli.trouble import Trouble
from kafkacompat.client.blocking import API_TIMEOUT_S, Backoff, Cluster
from kafkacompat.client.brokers import check, error_name
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.records.compression import DecompressionFailed
from kafkacompat.records.record import Record, RecordMalformed
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse

WAIT_MS = 500
"""Divided by the number of leaders, because they are asked one after the other."""
RENEWALS_A_LOCK = 3
SHARE_FETCH_RETRIABLE = (*FETCH_RETRIABLE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID)
"""Newer metadata or a later fetch may help. Acknowledgements are lost, because the leader has released the locks."""
ACKNOWLEDGE_RETRIABLE = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
)
"""The leader could not store an acknowledgement. It may be sent again while the lock holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """One record that this member has acquired."""

    topic: str
    place: TopicPartition
    offset: int
    record: Record
    count: int
    """How often the group has had the record delivered, this time included."""
    session: ShareSession

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.place[1]} offset {self.offset}"


class ShareReader:
    def __init__(self, cluster: Cluster, member: ShareMember, topics: Collection[str]) -> None:
        """Raises CommandFailed if a topic does not exist."""
        self._cluster = cluster
        self._member = member
        self._topics = list(topics)
        self._names: dict[bytes, str] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._sessions: dict[int, ShareSession] = {}
        self._asked_last = -1
        self._held: set[Delivery] = set()
        self._gaps: dict[ShareSession, list[tuple[TopicPartition, Range]]] = {}
        self._lock_s = 0.0
        self._renew_at = 0.0
        self._trouble = Trouble()
        self._backoff = Backoff(API_TIMEOUT_S)
        self._refresh()

    def beat(self) -> None:
        """Send a heartbeat if it is due."""
        self._member.tend()

    def tend(self) -> None:
        """Send what is due: a heartbeat, and the renewal of the locks of all held records."""
        self.beat()
        if self._held and self._lock_s and time.monotonic() >= self._renew_at:
            self._renew_at = time.monotonic() + self._lock_s / RENEWALS_A_LOCK
            self.renew(self._held)

    def acquire(self, most: int, mode: int) -> list[Delivery]:
        """Ask the leaders in turn, until one gives records. Empty if none has any, or none can be asked now."""
        self.beat()
        by_leader = self._by_leader()
        if not by_leader:
            time.sleep(WAIT_MS / 1000 / 5)
            return []
        for leader in [node for node in self._sessions if node not in by_leader]:
            self._end(leader)
        problem: str | None = None
        for leader in self._in_turn(by_leader):
            try:
                answer = self._session(leader).fetch(
                    frozenset(by_leader[leader]), most, mode, WAIT_MS // len(by_leader)
                )
                found, trouble = self._take(self._sessions[leader], answer)
            except (BrokerAway, SessionLost) as lost:
                problem = str(lost)
                continue
            problem = trouble or problem
            if found:
                return found
        if problem is None:
            self._trouble.end()
            self._backoff = Backoff(API_TIMEOUT_S)
            return []
        self._trouble.tell(problem)
        self._backoff.wait()
        with contextlib.suppress(BrokerAway):
            self._refresh()
        return []

    def acknowledge(self, finished: Iterable[Delivery], kind: Acknowledgement) -> bool:
        """Acknowledge records in the same way. If that comes too late for some, it is reported, and False is returned."""
        finished = list(finished)
        is_taken = True
        self._held.difference_update(finished)
        for session in {each.session for each in finished}:
            ranges = [
                (each.place, Range(each.offset, each.offset, kind))
                for each in finished
                if each.session is session
            ]
            is_taken = self._send(session, ranges + self._gaps.pop(session, [])) and is_taken
        return is_taken

    def renew(self, held: Collection[Delivery]) -> None:
        """Prolong the locks of held records, as far as the leader knows renewals and the group allows them."""
        for session in {each.session for each in held if each.session.can_renew}:
            ranges = _by_place(
                (each.place, Range(each.offset, each.offset, Acknowledgement.RENEW))
                for each in held
                if each.session is session
            )
            with contextlib.suppress(BrokerAway, SessionLost):
                for place, code in session.acknowledge(ranges).items():
                    if code:
                        self._trouble.tell(f"{self._name(place)}: no renewal of locks: {error_name(code)}")

    def close(self) -> None:
        """End all sessions. Held records are released for other members."""
        self._held.clear()
        for leader in list(self._sessions):
            self._end(leader)

    def _end(self, leader: int) -> None:
        session = self._sessions.pop(leader)
        self._gaps.pop(session, None)
        if not session.is_lost:
            with contextlib.suppress(BrokerAway, SessionLost):
                session.acknowledge({}, is_last=True)

    def _session(self, leader: int) -> ShareSession:
        found = self._sessions.get(leader)
        if found is None or found.is_lost:
            connection = self._cluster.leader(leader, self._topics[0])
            found = self._sessions[leader] = ShareSession(
                connection, self._member.group, self._member.member_id
            )
        return found

    def _take(self, session: ShareSession, answer: ShareFetchResponse) -> tuple[list[Delivery], str | None]:
        """Return what was acquired, and a problem that may pass."""
        found: list[Delivery] = []
        gaps: list[tuple[TopicPartition, Range]] = []
        problem = None
        for topic in answer.responses:
            for data in topic.partitions:
                place = (topic.topic_id, data.partition_index)
                if data.error_code in SHARE_FETCH_RETRIABLE or data.error_code in ACKNOWLEDGE_RETRIABLE:
                    problem = f"{self._name(place)}: {error_name(data.error_code)}"
                    continue
                check(data.error_code, self._name(place), data.error_message)
                try:
                    acquired: Acquired = acquired_of(data)
                except (BatchCorrupt, RecordMalformed, DecompressionFailed) as error:
                    first = data.acquired_records[0].first_offset
                    raise CommandFailed(
                        f"{self._name(place)} is corrupt at or after offset {first}: {error}"
                    ) from error
                gaps += [(place, gap) for gap in acquired.gaps]
                name = self._names.get(place[0], "")
                found += [
                    Delivery(name, place, offset, record, count, session)
                    for offset, count, record in acquired.records
                ]
        if found:
            if not self._held:
                self._lock_s = answer.acquisition_lock_timeout_ms / 1000
                self._renew_at = time.monotonic() + self._lock_s / RENEWALS_A_LOCK
            self._held.update(found)
            self._gaps.setdefault(session, []).extend(gaps)
        elif gaps:
            self._send(session, gaps)
        return found, problem

    def _send(self, session: ShareSession, ranges: list[tuple[TopicPartition, Range]]) -> bool:
        """Send acknowledgements, again while the leader cannot store them and the locks may hold. Return whether it took
        them all."""
        waiting = _by_place(ranges)
        is_taken = True
        backoff = Backoff(self._lock_s)
        while waiting:
            problems: dict[TopicPartition, str] = {}
            try:
                codes = session.acknowledge(waiting)
            except (BrokerAway, SessionLost) as lost:
                problems = dict.fromkeys(waiting, str(lost))
                again: set[TopicPartition] = set()
            else:
                again = {
                    place
                    for place, code in codes.items()
                    if code in ACKNOWLEDGE_RETRIABLE and not backoff.is_over
                }
                problems = {
                    place: error_name(code) for place, code in codes.items() if code and place not in again
                }
            for place, problem in problems.items():
                self._tell_lost(place, waiting[place], problem)
                is_taken = False
            waiting = {place: waiting[place] for place in again}
            if waiting:
                backoff.wait()
        return is_taken

    def _tell_lost(self, place: TopicPartition, ranges: list[Range], problem: str) -> None:
        if any(each.kind != Acknowledgement.GAP for each in ranges):
            print(
                f"kafkacompat: {self._name(place)} from offset {ranges[0].first} to {ranges[-1].last}: "
                f"not acknowledged ({problem}), so these records may be delivered again",
                file=sys.stderr,
            )

    def _name(self, place: TopicPartition) -> str:
        return f"{self._names.get(place[0], '?')}-{place[1]}"

    def _by_leader(self) -> dict[int, set[TopicPartition]]:
        assigned = self._member.assignment
        if any(place not in self._leaders for place in assigned):
            with contextlib.suppress(BrokerAway):
                self._refresh()
        grouped: dict[int, set[TopicPartition]] = {}
        for place in assigned:
            grouped.setdefault(self._leaders.get(place, -1), set()).add(place)
        return grouped

    def _in_turn(self, leaders: Iterable[int]) -> list[int]:
        """Return the leaders, the one after that which was asked first the last time first."""
        ordered = sorted(leaders)
        start = next((at for at, node in enumerate(ordered) if node > self._asked_last), 0)
        self._asked_last = ordered[start]
        return ordered[start:] + ordered[:start]

    def _refresh(self) -> None:
        self._names, leaders = {}, {}
        for topic in self._cluster.ask_metadata(self._topics).topics:
            if topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
                continue
            check(topic.error_code, f"topic {topic.name}")
            self._names[topic.topic_id] = topic.name or ""
            for each in topic.partitions:
                leaders[topic.topic_id, each.partition_index] = each.leader_id
        self._leaders = leaders


def _by_place(ranges: Iterable[tuple[TopicPartition, Range]]) -> dict[TopicPartition, list[Range]]:
    grouped: dict[TopicPartition, list[Range]] = {}
    for place, each in ranges:
        grouped.setdefault(place, []).append(each)
    return {place: joined(all_of) for place, all_of in grouped.items()}
