"""Share sessions: the partitions that a member of a share group fetches from this node, and the order of its requests; and
the answers, which depend on what the session has told before.

A session belongs to a member and ends with the connection that opened it. Follows Kafka's ShareSessionCache and
ShareSessionContext, and KIP-951 (current leader).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kafkacompat.controller.image import endpoints_of
from kafkacompat.ids import NO_EPOCH, NO_LEADER
from kafkacompat.partition.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.share.service import ShareError, TopicIdPartition
from kafkacompat.wire import codec
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages import share_acknowledge_response as acknowledge
from kafkacompat.wire.messages import share_fetch_response as fetch

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage

T = TypeVar("T")

PARTITIONS_MAX = 1_000_000
"""Partitions of all sessions together. Kafka has no bound, but a client may name half a million in a request."""
FEW_PARTITIONS = 1_000
"""A session with so many is not refused because others have too many."""
PARTITIONS_OF_ONE_MAX = 100_000
"""Partitions of one session. Each of its fetches looks at all of them."""
GROUPS_REMEMBERED_MAX = 100
"""Groups that one connection has spoken for. A client has one."""


STALE_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
SIZE_BYTES = 4
Data = Mapping[TopicIdPartition, fetch.PartitionData]
Acknowledged = Mapping[TopicIdPartition, ShareError]


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class NamedPartition(NamedTuple):
    """A partition and the name of its topic."""

    key: TopicIdPartition
    topic: str


class SessionRefused(Exception):
    """The request does not fit the member's session."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class CachedSharePartition:
    """A partition of a session. `is_news`: the next answer has it even if there is nothing to tell."""

    __slots__ = ("is_news", "key", "topic")

    def __init__(self, key: TopicIdPartition, topic: str | None, *, is_news: bool) -> None:
        self.key = key
        self.topic = topic
        """None if no topic had the id when the session took it up."""
        self.is_news = is_news

    def would_tell(self, *, has_records: bool, has_error: bool) -> bool:
        """Whether an answer has the partition. One with an error is told again when the error is over."""
        told = has_records or has_error or self.is_news
        self.is_news = has_error
        return told


class _Count:
    """How many partitions sessions have together."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class ShareSession:
    __slots__ = ("_count", "connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int, count: _Count) -> None:
        self._count = count
        self.key = key
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[TopicIdPartition, CachedSharePartition] = {}
        """In the order in which they were added. One whose records were sent goes to the end."""

    def add(self, key: TopicIdPartition, topic: str | None, *, is_news: bool) -> None:
        if key not in self.partitions:
            self.partitions[key] = CachedSharePartition(key, topic, is_news=is_news)
            self._count.value += 1

    def forget(self, key: TopicIdPartition) -> None:
        if self.partitions.pop(key, None) is not None:
            self._count.value -= 1

    def has_too_many(self) -> bool:
        """Whether the session, or all of them, have more partitions than they may."""
        own = len(self.partitions)
        return own > PARTITIONS_OF_ONE_MAX or (own > FEW_PARTITIONS and self._count.value > PARTITIONS_MAX)

    def end(self) -> None:
        """It is removed. What it takes up or forgets from now on does not count."""
        self._count.value -= len(self.partitions)
        self._count = _Count()

    def to_the_end(self, cached: CachedSharePartition) -> None:
        del self.partitions[cached.key]
        self.partitions[cached.key] = cached


class _Spoken:
    """What one connection has opened."""

    __slots__ = ("groups", "sessions")

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, ShareSession] = {}
        self.groups: dict[str, None] = {}


class ShareSessionCache:
    """All sessions of this node. Used in the loop's thread only."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._partitions = _Count()
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._members: dict[str, int] = {}
        """Sessions by group."""
        self._spoken: dict[int, _Spoken] = {}
        self.evictions = 0
        """Sessions that ended with their connection."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return self._partitions.value

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def has_members(self, group_id: str) -> bool:
        return group_id in self._members

    def open(self, key: SessionKey, connection_id: int) -> ShareSession:
        """A new session in place of the member's old one. Raises SessionRefused if there are too many."""
        self.remove(key)
        if len(self._sessions) >= self._sessions_max:
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, connection_id, self._partitions)
        group_id = key.group_id
        self._members[group_id] = self._members.get(group_id, 0) + 1
        spoken = self._spoken.get(connection_id)
        if spoken is None:
            spoken = self._spoken[connection_id] = _Spoken()
        spoken.sessions[key] = session
        spoken.groups[group_id] = None
        return session

    def go_on(self, key: SessionKey, epoch: int) -> ShareSession:
        """The member's session if the request is its next one. Raises SessionRefused."""
        session = self._sessions.get(key)
        if session is None:
            raise SessionRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
        return session

    def acknowledged(self, key: SessionKey, epoch: int) -> None:
        """A request that only acknowledges. Raises SessionRefused."""
        if epoch == INITIAL_EPOCH:
            raise SessionRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if epoch == FINAL_EPOCH:
            self.check_open(key)
        else:
            self.go_on(key, epoch)

    def check_open(self, key: SessionKey) -> None:
        if key not in self._sessions:
            raise SessionRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)

    def remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        session.end()
        left = self._members[key.group_id] - 1
        if left:
            self._members[key.group_id] = left
        else:
            del self._members[key.group_id]
        spoken = self._spoken.get(session.connection_id)
        if spoken is not None and spoken.sessions.get(key) is session:
            del spoken.sessions[key]
        return session

    def remove_all(self) -> list[ShareSession]:
        """Returns the sessions, which have ended."""
        ended = list(self._sessions.values())
        for session in ended:
            session.end()
        self._sessions.clear()
        self._members.clear()
        for spoken in self._spoken.values():
            spoken.sessions.clear()
        return ended

    def sessions_of(self, connection_id: int) -> list[ShareSession]:
        spoken = self._spoken.get(connection_id)
        return [] if spoken is None else list(spoken.sessions.values())

    def connection_closed(self, connection_id: int) -> list[str]:
        """The connection is gone, and its sessions are removed. Returns its groups that have no session left."""
        spoken = self._spoken.pop(connection_id, None)
        if spoken is None:
            return []
        return [group_id for group_id in spoken.groups if group_id not in self._members]

    def surplus_groups(self, connection_id: int) -> list[str]:
        """Forget the oldest groups of a connection that has spoken for very many. Returns those without a session."""
        spoken = self._spoken.get(connection_id)
        if spoken is None:
            return []
        surplus = list(spoken.groups)[: max(len(spoken.groups) - GROUPS_REMEMBERED_MAX, 0)]
        ended = [group_id for group_id in surplus if group_id not in self._members]
        for group_id in ended:
            del spoken.groups[group_id]
        return ended


def rotated(partitions: Sequence[T], epoch: int) -> Sequence[T]:
    """The partitions of a fetch, beginning with another one each time, so that none starves."""
    if len(partitions) < 2 or epoch < 1:
        return partitions
    first = epoch % len(partitions)
    return [*partitions[first:], *partitions[:first]] if first else partitions


def share_fetch_response(
    session: ShareSession | None,
    epoch: int,
    data: Data,
    acknowledged: Acknowledged,
    image: MetadataImage,
    context: RequestContext,
    lock_timeout_ms: int,
) -> fetch.ShareFetchResponse:
    """`session` is None for the request that ends it. Counts what is sent towards the client's quota."""
    response = fetch.ShareFetchResponse(acquisition_lock_timeout_ms=lock_timeout_ms)
    leaders: set[int] = set()
    for key, one in data.items():
        if one.error_code in STALE_LEADER:
            leader, leader_epoch = leader_of(image, key)
            one.current_leader = fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)
            leaders.add(leader)
    throttling = context.throttling
    is_subsequent = session is not None and epoch != INITIAL_EPOCH
    if throttling is not None:
        response.throttle_time_ms = throttling.fetched(
            context, _size(data, session if is_subsequent else None, context)
        )
    if is_subsequent and session is not None and session.epoch != next_epoch(epoch):
        response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    elif not response.throttle_time_ms:
        _add(response, _told(data, session) if is_subsequent and session is not None else data)
    _add_acknowledged(response, acknowledged)
    if leaders:
        response.node_endpoints = endpoints_of(image, leaders, context.listener_name, fetch.NodeEndpoint)
    return response


def _told(data: Data, session: ShareSession) -> Data:
    """The partitions of an answer in an open session. Those with records are the last ones of the next fetch."""
    told: dict[TopicIdPartition, fetch.PartitionData] = {}
    for key, one in data.items():
        cached = session.partitions.get(key)
        if cached is None:
            continue
        has_records = len(one.records) > 0
        if cached.would_tell(has_records=has_records, has_error=one.error_code != 0):
            told[key] = one
            if has_records:
                session.to_the_end(cached)
    return told


def _add(response: fetch.ShareFetchResponse, data: Data) -> None:
    topics: dict[bytes, fetch.ShareFetchableTopicResponse] = {}
    for key, one in data.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = fetch.ShareFetchableTopicResponse(topic_id=key.topic_id)
            response.responses.append(topic)
        topic.partitions.append(one)


def _add_acknowledged(response: fetch.ShareFetchResponse, acknowledged: Acknowledged) -> None:
    if not acknowledged:
        return
    topics = {topic.topic_id: topic for topic in response.responses}
    present = {
        (topic.topic_id, one.partition_index): one for topic in response.responses for one in topic.partitions
    }
    for key, error in acknowledged.items():
        one = present.get(key)
        if one is None:
            one = fetch.PartitionData(partition_index=key.partition, records=EMPTY_RECORDS)
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = fetch.ShareFetchableTopicResponse(topic_id=key.topic_id)
                response.responses.append(topic)
            topic.partitions.append(one)
        one.acknowledge_error_code = error.code
        one.acknowledge_error_message = error.message


def _size(data: Data, session: ShareSession | None, context: RequestContext) -> int:
    """The bytes of the answer as Kafka counts them for the quota: without acknowledgements and header."""
    response = fetch.ShareFetchResponse()
    if session is not None:
        known = session.partitions
        data = {
            key: one
            for key, one in data.items()
            if len(one.records) or one.error_code or (key in known and known[key].is_news)
        }
    _add(response, data)
    return SIZE_BYTES + sum(map(len, codec.encode_parts(response, context.api_version)))


def share_acknowledge_response(
    acknowledged: Acknowledged, image: MetadataImage, context: RequestContext, lock_timeout_ms: int
) -> acknowledge.ShareAcknowledgeResponse:
    response = acknowledge.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_timeout_ms)
    topics: dict[bytes, acknowledge.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for key, error in acknowledged.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = acknowledge.ShareAcknowledgeTopicResponse(topic_id=key.topic_id)
            response.responses.append(topic)
        one = acknowledge.PartitionData(
            partition_index=key.partition, error_code=error.code, error_message=error.message
        )
        if error.code in STALE_LEADER:
            leader, epoch = leader_of(image, key)
            one.current_leader = acknowledge.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            leaders.add(leader)
        topic.partitions.append(one)
    if leaders:
        response.node_endpoints = endpoints_of(
            image, leaders, context.listener_name, acknowledge.NodeEndpoint
        )
    return response


def leader_of(image: MetadataImage, key: TopicIdPartition) -> tuple[int, int]:
    topic = image.topics_by_id.get(key.topic_id)
    partition = None if topic is None else topic.partitions.get(key.partition)
    return (NO_LEADER, NO_EPOCH) if partition is None else (partition.leader, partition.leader_epoch)
