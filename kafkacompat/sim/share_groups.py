"""The workers of one simulated share group (KIP-932), their share sessions, and whoever sets the group's configuration and
creates its dead-letter topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.controller.image import MetadataImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.share.dead_letter_queue import GROUP_ENABLE
from kafkacompat.sim.administrators import settings_request
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.clients import GROUP, TIMEOUT_MS, Client, CoordinatorConnection, outcome_of
from kafkacompat.sim.cluster_options import DEAD_LETTERS, REPLICATION_FACTOR, TOPIC, ClusterOptions
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.group_clients import AWAY_MS, GROUP_SESSION_MS, HEARTBEAT_MS, IN_DOUBT, GroupClient
from kafkacompat.sim.links import BROKER_PORT, Links, SimulatedChannel, host_name
from kafkacompat.sim.machine import GROUP_PURPOSE, SHARE_PURPOSE
from kafkacompat.sim.oracles import ClusterOracles
from kafkacompat.sim.share_model import ACCEPT, GAP, REJECT, RELEASE, RENEW, acknowledge_error, rows_of
from kafkacompat.sim.share_oracles import GROUP_ID
from kafkacompat.sim.views import MachineView
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_acknowledge_request as acknowledge
from kafkacompat.wire.messages import share_fetch_request as fetch
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
from kafkacompat.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    pass


CLOSES = -1
"""The epoch of a session's last request."""


class Owed(NamedTuple):
    """An acknowledgement that the worker is going to send. `types`: one for all of the records, or one for each."""

    ready_us: int
    key: Key
    first: int
    last: int
    types: list[int]
    is_late: bool = False


class Session:
    """A share session with one node. Epoch 0: none is open."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = 0
        self.partitions: set[Key] = set()
        self.owed: list[Owed] = []
        self.is_busy = False
        """Whether a request is in flight."""

    def lose(self) -> int:
        """The session is over. Return how many records are not acknowledged."""
        count = sum(each.last - each.first + 1 for each in self.owed)
        self.epoch, self.partitions, self.owed = 0, set(), []
        return count

    def take_due(self, now_us: int | None) -> list[Owed]:
        """Take the acknowledgements that are due, in order. Of two for the same record, one waits for the next request.

        None: all of them are due.
        """
        taken, left = [], []
        ends: dict[Key, int] = {}
        for each in sorted(self.owed, key=lambda owed: (owed.key, owed.first)):
            is_early = now_us is not None and each.ready_us > now_us
            if is_early or each.first <= ends.get(each.key, -1):
                left.append(each)
                continue
            ends[each.key] = each.last
            taken.append(each)
        self.owed = left
        return taken

    def fetch_request(
        self,
        group_id: str,
        member_id: str,
        chance: Chance,
        wanted: set[Key],
        due: list[Owed],
        epoch: int,
    ) -> fetch.ShareFetchRequest:
        """A fetch of the wanted partitions with the acknowledgements that are due."""
        request = fetch.ShareFetchRequest(
            group_id=group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            max_wait_ms=chance.randrange(250),
            min_bytes=1,
            max_bytes=(300, 2_000, 100_000)[chance.randrange(3)],
            max_records=chance.between(1, 30),
            batch_size=chance.between(1, 10),
            share_acquire_mode=chance.randrange(2),
        )
        partitions = {key: fetch.FetchPartition(partition_index=key[1]) for key in wanted - self.partitions}
        for each in due:
            one = partitions.setdefault(each.key, fetch.FetchPartition(partition_index=each.key[1]))
            one.acknowledgement_batches.append(_batch(fetch.AcknowledgementBatch, each))
        for topic_id, ones in _by_topic(partitions).items():
            request.topics.append(fetch.FetchTopic(topic_id=topic_id, partitions=ones))
        unwanted = {key: key[1] for key in self.partitions - wanted if key not in partitions}
        for topic_id, indexes in _by_topic(unwanted).items():
            request.forgotten_topics_data.append(fetch.ForgottenTopic(topic_id=topic_id, partitions=indexes))
        if any(RENEW in each.types for each in due):
            request.is_renew_ack = True
            request.max_wait_ms = request.min_bytes = request.max_bytes = request.max_records = 0
        self.partitions = (self.partitions | partitions.keys()) - unwanted.keys()
        return request


def acknowledge_request(
    group_id: str, member_id: str, due: list[Owed], epoch: int
) -> acknowledge.ShareAcknowledgeRequest:
    partitions: dict[Key, Any] = {}
    for each in due:
        one = partitions.setdefault(each.key, acknowledge.AcknowledgePartition(partition_index=each.key[1]))
        one.acknowledgement_batches.append(_batch(acknowledge.AcknowledgementBatch, each))
    return acknowledge.ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(RENEW in each.types for each in due),
        topics=[
            acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=ones)
            for topic_id, ones in _by_topic(partitions).items()
        ],
    )


def _batch(kind: Any, owed: Owed) -> Any:
    return kind(first_offset=owed.first, last_offset=owed.last, acknowledge_types=owed.types)


def types_of(owed: Owed) -> list[int]:
    return owed.types if len(owed.types) > 1 else owed.types * (owed.last - owed.first + 1)


def _by_topic(partitions: dict[Key, Any]) -> dict[Uuid, list[Any]]:
    topics: dict[Uuid, list[Any]] = {}
    for (topic_id, _), one in sorted(partitions.items(), key=lambda item: item[0]):
        topics.setdefault(topic_id, []).append(one)
    return topics


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
    def __init__(self, links: Links, client_id: int, group: ShareGroups) -> None:
        super().__init__(links, client_id)
        self._group = group
        self._counters = group.counters
        self._coordinator = CoordinatorConnection(self, GROUP, group.group_id, GROUP_PURPOSE)
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
        return self.env.is_over_for_producers

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
        self._counters.tells(request)
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
        taken = session.take_due(None if self._is_over else self.env.scheduler.now_us)
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
        self._group.client_oracle.consumed(key, data)
        present = {
            offset: record.value
            for header in iterate_batches(data)
            if not header.is_control
            for offset, record in records_of(data[header.position : header.position + header.size], header)
        }
        for offset, value in present.items():
            assert self._group.oracles is not None
            self._group.oracles.letters.shown(key, offset, value)
        for acquired in row.acquired_records:
            offsets = range(acquired.first_offset, acquired.last_offset + 1)
            missing = [each for each in offsets if each not in present]
            if missing and not self.env.options.transactional_producers:
                raise Breach(
                    "what is acquired is shown", f"{missing} of partition {key[1]} came without data"
                )
            self._counters.delivered += len(offsets)
            self._counters.delivered_again += len(offsets) * (acquired.delivery_count > 1)
            self._plan(session, key, [offset in present for offset in offsets], acquired.first_offset)

    def _plan(self, session: Session, key: Key, present: list[bool], first: int) -> None:
        """Decide what becomes of acquired records."""
        now_us, lock_us = self.env.scheduler.now_us, 1000 * self.env.options.share_lock_ms
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


RESET, EARLIEST = "share.auto.offset.reset", "earliest"
LETTERS_TOPIC = "errors.deadletterqueue.topic.name"
LETTERS_COPY = "errors.deadletterqueue.copy.record.enable"
LETTERS_PARTITIONS = 2
AGAIN_MS = 300


class ShareGroupSettings(Client):
    """Sets where the group begins and where its dead letters go. Repeats each request until it is carried out.

    Then it may switch the dead-letter topic on and off.
    """

    def __init__(self, links: Links, client_id: int, is_ready: Callable[[], bool]) -> None:
        super().__init__(links, client_id)
        self._is_ready = is_ready

    def start(self) -> None:
        options = self.env.options
        self._configure()
        if options.share_dead_letters:
            if not options.share_letters_made:
                self._create_topic()
            if options.share_letters_switch_ms:
                self.later(self._switch, AGAIN_MS)

    def _configure(self) -> None:
        request = settings_request(int(ConfigResourceType.GROUP), GROUP_ID, group_settings(self.env.options))
        self.ask(self.any_broker(), request, "admin").on_done(
            lambda done: self._repeat(done, "responses", self._configure)
        )

    def _create_topic(self) -> None:
        topic = CreatableTopic(
            name=DEAD_LETTERS,
            num_partitions=LETTERS_PARTITIONS,
            replication_factor=REPLICATION_FACTOR,
            configs=[CreatableTopicConfig(name=GROUP_ENABLE, value="true")],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        self.ask(self.any_broker(), request, "admin").on_done(
            lambda done: self._repeat(done, "topics", self._create_topic)
        )

    def _switch(self) -> None:
        """While the topic does not exist, the request is refused."""
        if self.env.is_over_for_producers:
            return
        if self._is_ready():
            value = "true" if self.chance.happens(0.5) else "false"
            request = settings_request(int(ConfigResourceType.TOPIC), DEAD_LETTERS, {GROUP_ENABLE: value})
            self.ask(self.any_broker(), request, "admin").on_done(_ignored)
        self.later(self._switch, 2 * self.env.options.share_letters_switch_ms)

    def _repeat(self, done: Deferred[Any], rows: str, ask: Callable[[], None]) -> None:
        try:
            error: int = getattr(done.result(), rows)[0].error_code
        except ChannelError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.later(ask, AGAIN_MS)


def _ignored(done: Deferred[Any]) -> None:
    """Whether it is carried out does not matter."""


def group_settings(options: ClusterOptions) -> dict[str, str]:
    settings = {RESET: EARLIEST}
    if options.share_dead_letters:
        settings |= {LETTERS_TOPIC: DEAD_LETTERS, LETTERS_COPY: str(options.share_letters_copy).lower()}
    return settings


class ShareGroups:
    def __init__(
        self, links: Links, first_id: int, oracles: ClusterOracles, machines: Mapping[int, MachineView]
    ) -> None:
        workers = links.env.options.share_workers
        self.group_id = GROUP_ID
        self.counters = oracles.share_counters
        self.oracles = oracles.shares
        self.client_oracle = oracles.clients
        self._options = links.env.options
        self._machines = machines
        self._workers = [ShareWorker(links, first_id + each, self) for each in range(workers)]
        self._settings = ShareGroupSettings(links, first_id + workers, self.is_ready)
        self._was_ready = False

    @property
    def clients(self) -> list[Client]:
        return [*self._workers, self._settings] if self._workers else []

    def is_ready(self) -> bool:
        """Whether all brokers have known where the group begins, and its dead-letter topic. Before that a leader would begin
        at the latest records, and give dead letters up."""
        self._was_ready = self._was_ready or all(
            machine.life is not None
            and hasattr(machine.life, "metadata")
            and self._is_known(machine.life.metadata.core.image)
            for machine in self._machines.values()
            if machine.is_broker
        )
        return self._was_ready

    def _is_known(self, image: MetadataImage) -> bool:
        options = self._options
        is_needed = options.share_dead_letters and not options.share_letters_made
        has_topic = image.config(int(ConfigResourceType.TOPIC), DEAD_LETTERS).get(GROUP_ENABLE) == "true"
        settings = image.config(int(ConfigResourceType.GROUP), GROUP_ID)
        return settings == group_settings(options) and (has_topic or not is_needed)

    def missing(self, topic_id: bytes, partitions: int) -> str | None:
        """Return what a healed cluster has not done for them yet. None if everything is done."""
        if self.oracles is None:
            return None
        keys = [(topic_id, index) for index in range(partitions)]
        assigned = {key for each in self._workers for key in each.assigned}
        if assigned != set(keys):
            return f"of {partitions} partitions the share group has {sorted(index for _, index in assigned)}"
        return self.oracles.missing(keys)
