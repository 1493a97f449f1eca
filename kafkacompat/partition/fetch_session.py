"""Fetch sessions (KIP-227): they remember a client's partitions, so that it sends only changes.

A pure core: the caller passes the time in ms and a function for session ids. Logs are unknown here. It also computes the
size of a response before it is sent, for the quotas of clients: encoding a response twice would cost more than
everything else that a quota costs. max.incremental.fetch.session.cache.slots bounds the number of sessions, and
PARTITIONS_MAX their partitions together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize

from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.tasks import TURN_COST, Work
from kafkacompat.wire.codec import encode_parts, specification
from kafkacompat.wire.definition import FIXED_TYPES
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkacompat.wire.primitives import uvarint_size
from kafkacompat.wire.remember import remembered

if TYPE_CHECKING:
    from kafkacompat.partition.service import FetchParameters, FetchRequestPartition

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
"""Opens a session."""
FINAL_EPOCH = -1
"""Ends the session after the request."""
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""How long other sessions of the same kind cannot evict a session (Kafka's fixed value)."""
PARTITIONS_MAX = 1_000_000
"""Partitions of all sessions together, at about 300 bytes each. A session outlives its connection, so a bound per
session is not enough: with a thousand slots, a client that reconnects repeatedly could use up the memory. A client
without a session names all its partitions in each request."""

NAME_LIKE_A_PARTITION = 300
"""Characters of a topic's name that count as one more partition. No topic has such a name, but requests may name it."""

PartitionKey = tuple[bytes | str, int]
"""(topic id, index) in sessions that use topic ids, otherwise (name, index)."""


PREFIX_BYTES = 4
COMPACT_IN_ONE = 126
"""The largest length, or number of elements, whose varint takes one byte."""
COMPACT_IN_TWO = 16_382
"""The largest that takes two."""


def next_epoch(epoch: int) -> int:
    """The next epoch of a session, or of a share session: -1 stays, and after 2**31-1 comes 1, never 0 or -1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == MAX_EPOCH else epoch + 1


class CachedPartition:
    """One partition of a session: the client's latest request and the last answer."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "settled_epoch",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, asked: FetchRequestPartition, key: PartitionKey) -> None:
        self.key = key
        self.topic_id = asked.topic_id
        self.topic = asked.topic
        self.partition = asked.partition
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        self.fetch_offset = -1
        self.update(asked)

    def update(self, asked: FetchRequestPartition) -> None:
        """Take over a repeated request. If its offset is unchanged, the client may have ignored an answer, as a
        follower does after a change of leader epoch. The high watermark is then sent again, changed or not."""
        if asked.fetch_offset == self.fetch_offset:
            self.told_high_watermark = -1
        self.fetch_offset = asked.fetch_offset
        self.partition_max_bytes = asked.partition_max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset
        self.settled_epoch = -1
        """For a follower: the leader epoch in which its log was found not to diverge from ours."""
        if asked.topic is not None:
            self.topic = asked.topic

    def must_tell(self, answer: Any, *, remember: bool = True) -> bool:
        """Whether an incremental response must include this answer. `remember` that it is sent."""
        if (
            answer.high_watermark != self.told_high_watermark
            or answer.records is not EMPTY_RECORDS
            or answer.log_start_offset != self.told_log_start_offset
            or answer.error_code
            or answer.preferred_read_replica != -1
            or answer.diverging_epoch is not None
        ):
            if remember:
                # After an error, the first success is sent, whatever it is.
                self.told_high_watermark = -1 if answer.error_code else answer.high_watermark
                self.told_log_start_offset = answer.log_start_offset
            return True
        return False


class FetchSession:
    __slots__ = (
        "__weakref__",
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "partitions",
        "privileged",
        "uses_topic_ids",
        "weight",
    )

    def __init__(
        self,
        session_id: int,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[PartitionKey, CachedPartition],
        weight: int,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        """Followers' sessions, which may evict consumers' sessions."""
        self.uses_topic_ids = uses_topic_ids
        self.partitions = partitions
        """In the order of service. A partition that got records moves to the end."""
        self.weight = weight
        """The number of its partitions, more if their names are long."""
        self.epoch = 1
        """The session epoch that the next request must have."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms

    def eviction_key(self) -> tuple[bool, int, int]:
        return (self.privileged, len(self.partitions), self.id)

    def move_to_end(self, asked: CachedPartition) -> None:
        """It is served last the next time."""
        known, key = self.partitions, asked.key
        if len(known) > 1 and known.get(key) is asked:
            known[key] = known.pop(key)

    def update(
        self,
        partitions: Iterable[FetchRequestPartition],
        forgotten: Iterable[tuple[Uuid, str | None, int]],
    ) -> None:
        """Add the partitions that a request names, then remove the forgotten ones."""
        known, uses_topic_ids = self.partitions, self.uses_topic_ids
        for asked in partitions:
            key = (asked.topic_id if uses_topic_ids else asked.topic or "", asked.partition)
            present = known.get(key)
            if present is None:
                known[key] = CachedPartition(asked, key)
                self.weight += weight_of(key)
            else:
                present.update(asked)
        for topic_id, topic, partition in forgotten:
            key = (topic_id if uses_topic_ids else topic or "", partition)
            if known.pop(key, None) is not None:
                self.weight -= weight_of(key)


class FetchContext:
    """How one fetch request is served: its partitions, and the answers that its response includes."""

    __slots__ = ("_cache", "_privileged", "_uses_topic_ids", "_weight", "error", "partitions", "session")

    def __init__(
        self,
        partitions: Sequence[Any],
        *,
        session: FetchSession | None = None,
        error: ErrorCode = NONE,
        cache: FetchSessionCache | None = None,
        privileged: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self.partitions = partitions
        """FetchRequestPartition or CachedPartition, in the order of service."""
        self.session = session
        self.error = error
        """The error of the whole request (70, 71, 106). It then has no partitions."""
        self._cache = cache
        self._privileged = privileged
        self._uses_topic_ids = uses_topic_ids
        self._weight = 0
        """Of the future session."""

    def select(
        self, answers: Sequence[tuple[Any, Any]], monotonic_ms: Callable[[], int]
    ) -> tuple[int, Sequence[tuple[Any, Any]]]:
        """(session id, pairs to send) for (asked, answer) pairs. Remembers what is sent. A new session asks for the time."""
        session = self.session
        if session is None:
            return self._maybe_create(answers, monotonic_ms()), answers
        selected = []
        for pair in answers:
            asked, answer = pair
            if asked.must_tell(answer):
                selected.append(pair)
                if answer.records is not EMPTY_RECORDS:
                    session.move_to_end(asked)
        return session.id, selected

    def _maybe_create(self, pairs: Sequence[tuple[Any, Any]], now_ms: int) -> int:
        """A new session has what is answered, so every partition that was asked for must be among it."""
        if self._cache is None:
            return INVALID_SESSION_ID
        partitions: dict[PartitionKey, CachedPartition] = {}
        self.remember(pairs, partitions)
        return self.create_of(partitions, now_ms)

    @property
    def wants_a_session(self) -> bool:
        return self._cache is not None

    def remember(
        self, pairs: Iterable[tuple[Any, Any]], partitions: dict[PartitionKey, CachedPartition]
    ) -> None:
        """Add what is sent to the client to the future session."""
        for asked, answer in pairs:
            key = partition_key(asked, self._uses_topic_ids)
            remembered = partitions[key] = CachedPartition(asked, key)
            remembered.must_tell(answer)
            self._weight += weight_of(key)

    def create_of(self, partitions: dict[PartitionKey, CachedPartition], now_ms: int) -> int:
        """The id of a new session with these partitions, if there is room."""
        if self._cache is None:
            return INVALID_SESSION_ID
        created = self._cache.maybe_create(
            self._privileged, self._uses_topic_ids, partitions, self._weight, now_ms
        )
        if created is None:
            self._cache.free(partitions)
            return INVALID_SESSION_ID
        return created.id


class FetchSessionCache:
    """All sessions of this node: at most `slots`, with at most `partitions_max` partitions together.

    `new_id` gives candidates in 1..2**31-1. `free` is called with what may be very large and is not used any more.
    """

    def __init__(
        self,
        slots: int,
        new_id: Callable[[], int],
        free: Callable[[list[Any] | dict[Any, Any]], None],
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self.slots = slots
        self.partitions_max = partitions_max
        self.partition_count = 0
        self._weight = 0
        """Of all sessions together. It is bounded by `partitions_max`."""
        self.evictions = 0
        self.free = free
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def open(
        self,
        session_id: int,
        epoch: int,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
        *,
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> FetchContext:
        """The context for a request's (session id, epoch): without a session, full and asking for a session,
        incremental, or refused."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            ended = self._sessions.get(session_id)
            if ended is not None:
                self._drop(ended)
            if epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return FetchContext(partitions, cache=self, privileged=privileged, uses_topic_ids=uses_topic_ids)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext((), error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext((), error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.last_used_ms = now_ms
        if (partitions or forgotten) and not self.learn(session, partitions, forgotten):
            return FetchContext((), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        known = session.partitions
        if not known:
            self._drop(session)
            return FetchContext(())
        del self._sessions[session_id]
        self._sessions[session_id] = session
        session.epoch = next_epoch(epoch)
        return FetchContext(list(known.values()), session=session)

    def drop_if_empty(self, session: FetchSession) -> bool:
        if session.partitions:
            return False
        self._drop(session)
        return True

    def learn(
        self,
        session: FetchSession,
        partitions: Sequence[FetchRequestPartition],
        forgotten: Sequence[tuple[Uuid, str | None, int]],
    ) -> bool:
        """Add and remove a request's partitions. Returns False, and ends the session, if there is no room."""
        if len(partitions) == 1 and not forgotten:
            asked = partitions[0]
            present = session.partitions.get(partition_key(asked, session.uses_topic_ids))
            if present is not None:
                present.update(asked)
                return True
        before, count = session.weight, len(session.partitions)
        session.update(partitions, forgotten)
        if session.weight == before and len(session.partitions) == count:
            return True  # as mostly: it knows the partitions, and is told of new offsets
        if self._sessions.get(session.id) is not session:
            return True  # evicted since it was opened: only this request uses it
        grown = session.weight - before
        self._weight += grown
        self.partition_count += len(session.partitions) - count
        if grown <= 0 or self._weight <= self.partitions_max:
            return True
        if self._make_room(session.privileged, 0, session.last_used_ms):
            return True
        self._drop(session)
        return False

    def _drop(self, session: FetchSession) -> None:
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            self.partition_count -= len(session.partitions)
            self._weight -= session.weight
            # A fetch may still use it.
            finalize(session, self.free, session.partitions).atexit = False

    def maybe_create(
        self,
        privileged: bool,
        uses_topic_ids: bool,
        partitions: dict[PartitionKey, CachedPartition],
        weight: int,
        now_ms: int,
    ) -> FetchSession | None:
        """A new session if there is room, or if another one may be evicted."""
        if not self._make_room(privileged, weight, now_ms):
            return None
        if len(self._sessions) >= self.slots and not self._maybe_evict(privileged, len(partitions), now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._new_id()
        session = FetchSession(session_id, privileged, uses_topic_ids, partitions, weight, now_ms)
        self._sessions[session_id] = session
        self.partition_count += len(partitions)
        self._weight += session.weight
        return session

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Whether `size` more partitions have room. If necessary, idle sessions are dropped, and consumers' sessions
        for a follower's. If that is not enough, no session is dropped."""
        excess = self._weight + size - self.partitions_max
        if excess <= 0:
            return True
        victims = []
        for session in self._sessions.values():
            is_idle = now_ms - session.last_used_ms > EVICTION_MS
            if is_idle or (privileged and not session.privileged):
                victims.append(session)
                excess -= session.weight
                if excess <= 0:
                    break
        else:
            return False
        for session in victims:
            self._drop(session)
        self.evictions += len(victims)
        return True

    def _maybe_evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        victim = oldest
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            candidates = [session for session in self._sessions.values() if may_evict(session, privileged)]
            if not candidates:
                return False
            victim = min(candidates, key=FetchSession.eviction_key)
            if (privileged, size, 0) < victim.eviction_key():
                return False
        self._drop(victim)
        self.evictions += 1
        return True


def weight_of(key: PartitionKey) -> int:
    """How many partitions this one counts as."""
    return 1 + len(key[0]) // NAME_LIKE_A_PARTITION


def may_evict(session: FetchSession, for_privileged: bool) -> bool:
    """Whether a new session may evict one that is in use. Its age is measured up to its last use."""
    aged = session.last_used_ms - session.created_ms > EVICTION_MS
    return aged or (for_privileged and not session.privileged)


def partition_key(asked: Any, uses_topic_ids: bool) -> PartitionKey:
    return (asked.topic_id if uses_topic_ids else asked.topic or "", asked.partition)


def response_size(
    context: FetchContext, parameters: FetchParameters, answers: list[tuple[Any, PartitionData]]
) -> int:
    """Return the bytes of the response with its size prefix, without its header and node endpoints, as Kafka counts them.

    Every fetch of a client with a quota asks. So the usual one, a few records of one partition, is a matter of one sum.
    """
    sizes = sizes_of(parameters.version)
    if len(answers) == 1:
        asked, answer = answers[0]
        records, name = len(answer.records), asked.topic or ""
        if (
            0 < records <= COMPACT_IN_TWO
            and len(name) <= COMPACT_IN_ONE
            and name.isascii()
            and not sizes.has_more(answer)
        ):
            size = sizes.one + records + (len(name) if sizes.has_names else 0)
            return size + 1 if sizes.is_compact and records > COMPACT_IN_ONE else size
    size = PREFIX_BYTES + sizes.empty
    topics = partitions = 0
    last_name: str | None = None
    last_id: Uuid = ZERO_UUID
    for asked, answer in answers:
        if context.session is not None and not asked.must_tell(answer, remember=False):
            continue
        if not topics or asked.topic != last_name or asked.topic_id != last_id:
            last_name, last_id = asked.topic, asked.topic_id
            size += sizes.topic
            if sizes.has_names:
                size += sizes.of_name(last_name or "")
            if partitions > COMPACT_IN_ONE:
                size += sizes.of_count(partitions)
            topics += 1
            partitions = 0
        partitions += 1
        records = len(answer.records)
        size += records
        size += _size_but_records(answer, parameters) if sizes.has_more(answer) else sizes.partition
        if sizes.is_compact and records > COMPACT_IN_ONE:
            size += uvarint_size(records + 1) - 1
    if partitions > COMPACT_IN_ONE or topics > COMPACT_IN_ONE:
        size += sizes.of_count(partitions) + sizes.of_count(topics)
    return size


def response_size_in_steps(
    context: FetchContext,
    parameters: FetchParameters,
    answers: list[tuple[Any, PartitionData]],
    step: int,
) -> Work[int]:
    """As `response_size`, some answers at a time. A topic that is divided between two steps counts twice."""
    size = empty = response_size(context, parameters, [])
    for start in range(0, len(answers), step):
        if start:
            yield TURN_COST
        size += response_size(context, parameters, answers[start : start + step]) - empty
    return size


def _size_but_records(answer: PartitionData, parameters: FetchParameters) -> int:
    version = parameters.version
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[answer])])
    size = sum(map(len, encode_parts(response, version))) - len(answer.records)
    sizes = sizes_of(version)
    if sizes.is_compact:
        size -= uvarint_size(len(answer.records) + 1) - 1
    return size - sizes.empty - sizes.topic


class Sizes(NamedTuple):
    """The bytes of a version's parts: a response without topics, a topic with no name and no partitions, and a
    partition without records."""

    empty: int
    topic: int
    partition: int
    one: int
    """A response with a partition, and the size prefix."""
    is_compact: bool
    """Lengths are varints. The parts count one byte of each."""
    has_names: bool
    has_more: Callable[[PartitionData], Any]
    """Whether a partition has more than `partition` counts, besides its records."""

    def of_name(self, name: str) -> int:
        """What a topic's name adds, in a version with names."""
        size = len(name) if name.isascii() else len(name.encode())
        return size + uvarint_size(size + 1) - 1 if self.is_compact else size

    def of_count(self, elements: int) -> int:
        """What an array's length adds."""
        return uvarint_size(elements + 1) - 1 if self.is_compact and elements > COMPACT_IN_ONE else 0


@remembered
def sizes_of(version: int) -> Sizes:
    def size(*topics: FetchableTopicResponse) -> int:
        return sum(map(len, encode_parts(FetchResponse(responses=list(topics)), version)))

    empty = size()
    topic = size(FetchableTopicResponse())
    partition = size(FetchableTopicResponse(partitions=[PartitionData(records=b"")]))
    is_compact = version >= FetchResponse.FLEXIBLE_MIN
    has_names = size(FetchableTopicResponse(topic="t")) > topic
    one = PREFIX_BYTES + partition
    return Sizes(empty, topic - empty, partition - topic, one, is_compact, has_names, _has_more())


@remembered
def _has_more() -> Callable[[PartitionData], Any]:
    """Whether any field but the records has a value that changes the size. It is asked of each answer, so it is one
    expression, made of the definition: three times as fast as to look for the names."""
    spec = next(each for each in specification(FetchResponse).structs if each.name == PartitionData.__name__)
    varying = [
        each.name
        for each in spec.fields
        if each.kind != "records" and (each.is_array or each.ever_tagged or each.kind not in FIXED_TYPES)
    ]
    made: Callable[[PartitionData], Any] = eval(  # noqa: S307 - the source is of our own definition
        f"lambda answer: {' or '.join(f'answer.{name}' for name in varying)}"
    )
    return made
