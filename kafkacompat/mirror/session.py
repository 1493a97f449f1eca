"""A fetch session with one leader at the source (KIP-227): a request names only what has changed, so many quiet partitions
cost nothing. Pure.

A request names a bounded number of partitions, so a session of many begins with several requests. A source that has no room for
the session answers without one. Then each request names all partitions.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kafkacompat.ids import Uuid
from kafkacompat.partition.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from kafkacompat.mirror.mirrored_partition import MirroredPartition
    from kafkacompat.wire.messages.fetch_response import FetchResponse

MAX_WAIT_MS = 500
RESPONSE_MAX_BYTES = 10 << 20
PARTITION_MAX_BYTES = 1 << 20
NAMED_MAX = 1_000
"""Partitions that a request of a session names. Each takes some microseconds."""

Key = tuple[Uuid, int]
"""The topic's id at the source, and the partition."""
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""The session is over, as after a restart of the source's broker. Nothing else is the matter."""


class LeaderSession:
    """The partitions that are fetched from one leader."""

    def __init__(self) -> None:
        self.partitions: dict[Key, MirroredPartition] = {}
        self._changed: dict[Key, MirroredPartition] = {}
        """Those that the session may not know as they are."""
        self._idle: dict[Key, MirroredPartition] = {}
        """Those that wait: for a time, for offsets of the source, or for checkpoints."""
        self._forget: dict[Key, None] = {}
        """Those that the session knows and is not to answer any more."""
        self._id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._has_room = True
        """At the source, as far as is known."""

    def add(self, followed: MirroredPartition) -> None:
        followed.asked = None
        self.partitions[followed.key] = followed
        (self._idle if followed.resolving else self._changed)[followed.key] = followed

    def remove(self, followed: MirroredPartition) -> None:
        key = followed.key
        if self.partitions.get(key) is followed:
            del self.partitions[key]
            self._changed.pop(key, None)
            self._idle.pop(key, None)
            self._leave(followed)

    def _leave(self, followed: MirroredPartition) -> None:
        if followed.asked is not None:
            followed.asked = None
            self._forget[followed.key] = None

    def changed(self, followed: MirroredPartition) -> None:
        """Its log, or its leader's epoch."""
        if followed.key not in self._idle:
            self._changed[followed.key] = followed

    def served(self, followed: MirroredPartition) -> None:
        """It has got records. A full request names it last: the source fills a response in this order. While they were appended
        it may have left for another leader."""
        if self.partitions.get(followed.key) is followed:
            self.partitions[followed.key] = self.partitions.pop(followed.key)
            self.changed(followed)

    def wait(self, followed: MirroredPartition) -> None:
        """Do not fetch it before it is due."""
        self._idle[followed.key] = followed
        self._changed.pop(followed.key, None)
        self._leave(followed)

    def next_due_ms(self) -> int | None:
        """When the next delay ends. None: nothing waits for a time."""
        return min((each.due_ms for each in self._idle.values() if not each.resolving), default=None)

    def build(self, now_ms: int, stale: list[MirroredPartition]) -> FetchRequest | None:
        """The next request. None if nothing is to be fetched now. `stale` gets partitions that this node leads no more."""
        for key, followed in list(self._idle.items()):
            if followed.is_due(now_ms):
                del self._idle[key]
                self._changed[key] = followed
        is_full = self._epoch == INITIAL_EPOCH
        if is_full:
            self._changed = {
                key: followed for key, followed in self.partitions.items() if key not in self._idle
            }
        topics: dict[Uuid, FetchTopic] = {}
        for key in list(islice(self._changed, NAMED_MAX if self._has_room else None)):
            followed = self._changed.pop(key)
            if not followed.is_current():
                stale.append(followed)
                self.remove(followed)
                continue
            position = followed.position()
            if position == followed.asked and not is_full:
                continue
            followed.asked = position
            self._forget.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0])
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=position[2],
                    fetch_offset=position[0],
                    last_fetched_epoch=position[1],
                    partition_max_bytes=PARTITION_MAX_BYTES,
                )
            )
        if len(self._idle) >= len(self.partitions):
            return None
        forgotten: dict[Uuid, ForgottenTopic] = {}
        for topic_id, partition in () if is_full else self._forget:
            forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(partition)
        self._forget.clear()
        return FetchRequest(
            replica_state=ReplicaState(),
            max_wait_ms=0 if self._changed else MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=RESPONSE_MAX_BYTES,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def take(self, response: FetchResponse) -> None:
        """An answer without an error."""
        self._has_room = response.session_id != INVALID_SESSION_ID
        if self._has_room:
            self._id, self._epoch = response.session_id, next_epoch(self._epoch)
        else:
            self._id, self._epoch = INVALID_SESSION_ID, INITIAL_EPOCH

    def restart(self) -> None:
        """The next request names all partitions, which ends the old session at the source."""
        self._epoch = INITIAL_EPOCH
        self._forget.clear()
        for followed in self.partitions.values():
            followed.asked = None

    def is_over(self, error: ErrorCode) -> bool:
        """Whether an error of a whole response is that of the session, which then begins anew."""
        if error not in SESSION_ERRORS:
            return False
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = INVALID_SESSION_ID
        self.restart()
        return True
