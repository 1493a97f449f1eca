"""The client's side of a fetch session with one leader (KIP-227): a request names only what has changed, so many quiet partitions
cost nothing. Pure.

Followers fetch through it, and mirrors. A leader that has no room for the session answers without one. Then each request names
all partitions. A partition that waits leaves the session, so the leader does not answer it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkacompat.dataclass import dataclass
from kafkacompat.partition.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from kafkacompat.ids import Uuid
    from kafkacompat.wire.messages.fetch_request import ReplicaState
    from kafkacompat.wire.messages.fetch_response import FetchResponse

Key = tuple[bytes, int]
"""The topic's id at the leader, and the partition."""
Position = tuple[int, int, int, int]
"""What a request says of a partition: (fetch offset, log start, last fetched epoch, leader epoch)."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The session is over, as after a restart of the leader. Nothing else is the matter."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


class FetchedPartition:
    """A partition that is fetched, as the session sees it."""

    __slots__ = ("asked", "due_ms", "is_fresh", "key", "resolving")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.asked: Position | None = None
        """As known to the session. None if it is not in the session."""
        self.is_fresh = True
        """Not fetched yet since it was added. The session may know an earlier request of this partition, whose answer
        the log may have ignored: a high watermark does not move while the name of the log's directory is not durable.
        The leader repeats its answer only for a new request."""
        self.due_ms = 0
        """The partition is not fetched before this time."""
        self.resolving = False
        """Waits for the leader's offsets, or for the checkpoints after a truncation."""

    def position(self) -> Position | None:
        """What to ask for now. None: the partition is not to be fetched any more."""
        raise NotImplementedError

    def is_ready_for_fetch(self, now_ms: int) -> bool:
        return not self.resolving and self.due_ms <= now_ms


P = TypeVar("P", bound=FetchedPartition)


class FetchSessionHandler(Generic[P]):
    """The partitions that are fetched from one leader."""

    def __init__(self, settings: FetchSettings, named_max: int | None = None) -> None:
        """`named_max` bounds the partitions that a request of a session names. A session of more begins with several requests,
        which do not wait."""
        self.partitions: dict[Key, P] = {}
        self._settings = settings
        self._named_max = named_max
        self._changed: dict[Key, P] = {}
        """Partitions that the session may not know as they are. All others are unchanged."""
        self._idle: dict[Key, P] = {}
        """Partitions that wait."""
        self._forget: dict[Key, None] = {}
        """Partitions that the session knows and the leader is not to answer any more."""
        self._session_id = INVALID_SESSION_ID
        self._session_epoch = INITIAL_EPOCH
        self._has_room = True
        """The leader has, as far as is known."""

    # Partitions

    def add(self, fetched: P) -> None:
        """A partition that is there already begins anew."""
        key = fetched.key
        known = self.partitions.get(key)
        fetched.asked = None if known is None else known.asked
        fetched.is_fresh = True
        self.partitions[key] = self._changed[key] = fetched
        self._idle.pop(key, None)
        if fetched.resolving:
            self._idle[key] = self._changed.pop(key)

    def remove(self, fetched: P) -> None:
        key = fetched.key
        if self.partitions.get(key) is fetched:
            del self.partitions[key]
            self._changed.pop(key, None)
            self._idle.pop(key, None)
            self._leave(fetched)

    def _leave(self, fetched: P) -> None:
        if fetched.asked is not None:
            fetched.asked = None
            self._forget[fetched.key] = None

    def changed(self, fetched: P) -> None:
        """Its position may be another."""
        key = fetched.key
        if key not in self._idle and self.partitions.get(key) is fetched:
            self._changed[key] = fetched

    def move_to_end(self, fetched: P) -> None:
        """A full request names it last. The leader fills a response in this order."""
        partitions = self.partitions
        if len(partitions) > 1 and partitions.get(fetched.key) is fetched:
            partitions[fetched.key] = partitions.pop(fetched.key)

    def delay(self, fetched: P, due_ms: int) -> None:
        """Do not fetch it before that time, and not while it is not ready."""
        fetched.due_ms = due_ms
        key = fetched.key
        if self.partitions.get(key) is fetched:
            self._idle[key] = fetched
            self._changed.pop(key, None)
            self._leave(fetched)

    def resume(self, now_ms: int) -> None:
        """Fetch those again that are ready now."""
        if not self._idle:
            return
        for key, fetched in list(self._idle.items()):
            if fetched.is_ready_for_fetch(now_ms):
                del self._idle[key]
                self._changed[key] = fetched

    def in_turn(self) -> dict[Key, P]:
        """Those that do not wait."""
        if not self._idle:
            return self.partitions.copy()
        return {key: fetched for key, fetched in self.partitions.items() if key not in self._idle}

    def next_due_ms(self) -> int | None:
        """When the next delay ends. None: nothing waits for a time."""
        return min(
            (each.due_ms for each in self._idle.values() if each.is_ready_for_fetch(each.due_ms)),
            default=None,
        )

    # Requests and responses

    def build(self, asking: ReplicaState, removed: list[P] | None = None) -> FetchRequest | None:
        """The next request of who is asking. None if nothing is to be fetched now. `removed` gets partitions without a
        position."""
        settings, is_full = self._settings, self._session_epoch == INITIAL_EPOCH
        if is_full:
            self._changed = self.in_turn()
        named = self._changed
        if self._named_max is not None and self._has_room and len(named) > self._named_max:
            named = {key: named.pop(key) for key in list(islice(named, self._named_max))}
        elif named:
            self._changed = {}
        topics: dict[Uuid, FetchTopic] = {}
        for key, fetched in named.items():
            position = fetched.position()
            if position is None:
                self.remove(fetched)
                if removed is not None:
                    removed.append(fetched)
                continue
            if position == fetched.asked and not is_full and not fetched.is_fresh:
                continue
            fetched.asked = position
            fetched.is_fresh = False
            self._forget.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0])
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=position[3],
                    fetch_offset=position[0],
                    last_fetched_epoch=position[2],
                    log_start_offset=position[1],
                    partition_max_bytes=settings.partition_max_bytes,
                )
            )
        if len(self._idle) >= len(self.partitions):
            return None
        forgotten: dict[Uuid, ForgottenTopic] = {}
        if self._forget:
            for topic_id, partition in () if is_full else self._forget:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(partition)
            self._forget.clear()
        return FetchRequest(
            replica_state=asking,
            max_wait_ms=0 if self._changed else settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def handle_response(self, response: FetchResponse) -> None:
        """A response without an error of its own."""
        self._has_room = response.session_id != INVALID_SESSION_ID
        if self._has_room:
            self._session_id, self._session_epoch = response.session_id, next_epoch(self._session_epoch)
        else:
            self._session_id, self._session_epoch = INVALID_SESSION_ID, INITIAL_EPOCH

    def is_over(self, error: ErrorCode) -> bool:
        """Whether an error of a whole response is that of the session, which then begins anew."""
        if error not in SESSION_ERRORS:
            return False
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._session_id = INVALID_SESSION_ID
        self._begin_anew()
        return True

    def lost(self, now_ms: int) -> None:
        """A request got no answer: delay all partitions, and start a new session."""
        self._begin_anew()
        for fetched in self.partitions.values():
            self.delay(fetched, now_ms + self._settings.backoff_ms)

    def _begin_anew(self) -> None:
        """Name every partition from the next request on. That closes the old session on the leader."""
        self._session_epoch = INITIAL_EPOCH
        self._forget.clear()
        for fetched in self.partitions.values():
            fetched.asked = None
