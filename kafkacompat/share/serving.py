"""One share fetch on its way: session, acknowledgements, fetch, and the answer when both are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkacompat.api.share_services import TopicIdPartition
from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.share.acknowledging import FIRST_VERSION_WITH_RENEW, Acknowledged, acknowledge
from kafkacompat.share.answers import share_fetch_response
from kafkacompat.share.partition_cache import ACTIVE
from kafkacompat.share.requests import (
    ACKNOWLEDGED_MAX,
    ShareFetchParameters,
    has_acknowledgements,
    names_more,
)
from kafkacompat.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PARTITIONS_OF_ONE_MAX,
    NamedPartition,
    SessionKey,
    SessionRefused,
    rotated,
)
from kafkacompat.share.values import AcquireMode
from kafkacompat.tasks import Pace
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.share_services import ShareError
    from kafkacompat.share.delayed_share_fetch import Answers
    from kafkacompat.share.led_partition import LedPartition
    from kafkacompat.share.parts import ShareParts
    from kafkacompat.share.sessions import CachedSharePartition, ShareSession
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest

    MayRead = Callable[[str], bool]

NAMED_AT_ONCE = 1_000
"""Partitions of a request that its session takes up in one step."""
FETCHED_AT_ONCE = 500
"""Partitions of one fetch. Those of a larger session have their turns, so that a step stays short."""
LOADED_AT_ONCE = 40
"""Share-partitions whose loading begins in one step. The log may have to be opened first."""
SESSION_AT_ONCE = 200
"""A fetch of a session with more partitions takes several steps."""
ACQUIRE_MODES = frozenset(AcquireMode)


class Serving:
    __slots__ = ("_context", "_epoch", "_image", "_key", "_may_read", "_parts", "_request", "_session")

    def __init__(
        self,
        parts: ShareParts,
        request: ShareFetchRequest,
        context: RequestContext,
        may_read: MayRead | None,
    ) -> None:
        self._parts = parts
        self._request = request
        self._context = context
        self._may_read = may_read
        self._image = parts.image
        self._epoch = request.share_session_epoch
        self._key = SessionKey(request.group_id or "", request.member_id or "")
        self._session: ShareSession | None = None
        """None if the request ends the session."""

    def steps(self) -> Steps[ShareFetchResponse | Deferred[Any]]:
        """Of a request that is not long, they are carried out at once."""
        request, parts = self._request, self._parts
        try:
            has_acks = self._acknowledges()
            yield from self._open(has_acks)
        except SessionRefused as refused:
            answer = ShareFetchResponse(error_code=refused.code)
            if refused.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                return self._later(request.max_wait_ms, answer)
            return answer
        acknowledged = Acknowledged()
        if has_acks:
            acknowledged = yield from acknowledge(
                parts.cache,
                parts.meter,
                parts.clock,
                request,
                self._context.api_version,
                self._image,
                self._may_read,
            )
        return (yield from self._fetch_and_answer(acknowledged))

    def _acknowledges(self) -> bool:
        """Raises SessionRefused if the request names too much. That is not looked at in steps: the session is opened while
        the connection is known to be there."""
        topics = self._request.topics
        if names_more(topics, 2 * PARTITIONS_OF_ONE_MAX):
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if not has_acknowledgements(topics):
            return False
        if names_more(topics, ACKNOWLEDGED_MAX):
            raise SessionRefused(ErrorCode.INVALID_REQUEST)
        return True

    def _open(self, has_acks: bool) -> Steps[None]:
        """Find the session, and take up what the request adds and forgets. Raises SessionRefused."""
        request, sessions, epoch = self._request, self._parts.sessions, self._epoch
        if epoch == FINAL_EPOCH:
            sessions.check_open(self._key)
            return
        is_initial = epoch == INITIAL_EPOCH
        if is_initial:
            if has_acks:
                raise SessionRefused(ErrorCode.INVALID_REQUEST)
            session = self._parts.ends.open_session(self._key, self._context.connection_id)
        else:
            session = sessions.go_on(self._key, epoch)
        self._session = session
        topics_by_id, pace, count = self._image.topics_by_id, Pace(NAMED_AT_ONCE), 0
        for topic in request.topics:
            known = topics_by_id.get(topic.topic_id)
            name = None if known is None else known.name
            for one in topic.partitions:
                session.add(
                    TopicIdPartition(topic.topic_id, one.partition_index), name, is_news=not is_initial
                )
                count += 1
                if pace.is_over():
                    self._check_size(session)
                    yield None
            if pace.is_over():
                yield None
        self._check_size(session)
        if is_initial:
            if len(session.partitions) < count:
                # Kafka fails in this way over a partition that is named twice.
                sessions.remove(self._key)
                raise SessionRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.forget(TopicIdPartition(forgotten.topic_id, index))
                if pace.is_over():
                    yield None
            if pace.is_over():
                yield None

    def _check_size(self, session: ShareSession) -> None:
        """Raises SessionRefused, and ends the session, if it has too many partitions."""
        if session.has_too_many():
            if self._parts.sessions.get(self._key) is session:
                self._parts.ends.release_session(self._key)
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _fetch_and_answer(self, acknowledged: Acknowledged) -> Steps[ShareFetchResponse | Deferred[Any]]:
        request, session = self._request, self._session
        told: dict[TopicIdPartition, ErrorCode] = {}
        fetched: Deferred[Answers] | None = None
        if session is not None and not self._renews():
            interested = self._interested(self._in_turn(session), told)
            if len(interested) > SESSION_AT_ONCE:
                yield None
            if interested:
                if request.share_acquire_mode not in ACQUIRE_MODES:
                    return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                if request.max_records > 0 and request.max_bytes > 0:
                    fetched = yield from self._fetch(interested)
        waits: list[Deferred[Any]] = [write for write in acknowledged.writes if not write.done]
        if fetched is not None and not fetched.done:
            waits.append(fetched)
        if not waits:
            return self._answer(fetched, told, acknowledged)
        later = when_all_done(waits).then(lambda _: self._answer(fetched, told, acknowledged))
        if fetched is not None:
            later.when_abandoned = fetched.abandon
        return later

    def _renews(self) -> bool:
        return self._context.api_version >= FIRST_VERSION_WITH_RENEW and bool(self._request.is_renew_ack)

    def _in_turn(self, session: ShareSession) -> Sequence[CachedSharePartition]:
        """The partitions of this fetch, as Kafka rotates them."""
        partitions = list(session.partitions.values())
        if len(partitions) > FETCHED_AT_ONCE:
            return rotated(partitions, self._epoch * FETCHED_AT_ONCE)[:FETCHED_AT_ONCE]
        return partitions

    def _interested(
        self, partitions: Iterable[CachedSharePartition], told: dict[TopicIdPartition, ErrorCode]
    ) -> list[NamedPartition]:
        """The partitions that may be fetched. `told` gets the errors of the others."""
        interested: list[NamedPartition] = []
        topics, may_read = self._image.topics_by_id, self._may_read
        for cached in partitions:
            key = cached.key
            known = topics.get(key.topic_id)
            if known is not None:
                cached.topic = known.name
            if cached.topic is None:
                told[key] = ErrorCode.UNKNOWN_TOPIC_ID
            elif may_read is not None and not may_read(cached.topic):
                told[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or key.partition not in known.partitions:
                told[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                interested.append(NamedPartition(key, cached.topic))
        return interested

    def _fetch(self, interested: list[NamedPartition]) -> Steps[Deferred[Answers]]:
        request, parts, group_id = self._request, self._parts, self._key.group_id
        cache = parts.cache
        refused: dict[TopicIdPartition, ErrorCode] = {}
        asked: list[LedPartition] = []
        pace = Pace(LOADED_AT_ONCE)
        for key, topic in rotated(interested, self._epoch):
            if parts.sessions.get(self._key) is not self._session:
                # Its connection was closed between two steps. What is loaded from now on would never be dropped.
                return Deferred.of({})
            led = cache.get_or_load(group_id, key, topic)
            if isinstance(led, ErrorCode):
                refused[key] = led
                continue
            if led.core.state is not ACTIVE:
                loaded = cache.load(led)
                if pace.is_over():
                    yield None
                if isinstance(loaded, Deferred):
                    loaded.on_done(partial(_note, refused, key))
                elif loaded is not None and loaded.code is not NONE:
                    refused[key] = loaded.code
                    continue
            parts.ends.finish_release(led, self._key.member_id)
            asked.append(led)
        if parts.sessions.get(self._key) is not self._session:
            return Deferred.of({})  # its connection was closed between two steps
        for traffic in {led.partition.traffic for led in asked}:
            traffic.share_fetches += 1
        throttling = self._context.throttling
        max_bytes = min(request.max_bytes, parts.fetch_max_bytes())
        if throttling is not None:
            max_bytes = max(min(max_bytes, throttling.fetch_bytes_max), 1)
        parameters = ShareFetchParameters(
            self._key.member_id,
            AcquireMode(request.share_acquire_mode),
            request.max_wait_ms if asked else 0,
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_records,
            max(request.batch_size, 1),
            read_committed=parts.settings.of(group_id).read_committed,
        )
        return parts.fetches.start(parameters, asked, refused).answer

    def _answer(
        self,
        fetched: Deferred[Answers] | None,
        told: dict[TopicIdPartition, ErrorCode],
        acknowledged: Acknowledged,
    ) -> ShareFetchResponse:
        parts, group_id = self._parts, self._key.group_id
        data = {} if fetched is None else fetched.result()
        for key, error in told.items():
            data[key] = PartitionData(partition_index=key.partition, error_code=error, records=EMPTY_RECORDS)
        if any(one.error_code for one in data.values()):
            self._count_failures(data)
        response = share_fetch_response(
            self._session,
            self._epoch,
            data,
            acknowledged.errors,
            parts.image,
            self._context,
            parts.lock_timeout_ms(group_id),
        )
        self._count(response)
        if self._session is None:
            parts.ends.release_session(self._key)
        return response

    def _later(self, delay_ms: int, answer: ShareFetchResponse) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        timer = self._parts.timers.call_after(delay_ms, lambda: later.resolve(answer))
        later.when_abandoned = timer.cancel
        return later

    def _count_failures(self, data: Answers) -> None:
        by_id = self._parts.manager.by_id
        failed = {by_id[key].traffic for key, one in data.items() if one.error_code and key in by_id}
        for traffic in failed:
            traffic.failed_share_fetches += 1

    def _count(self, response: ShareFetchResponse) -> None:
        by_id = self._parts.manager.by_id
        for topic in response.responses:
            for one in topic.partitions:
                if one.records:
                    core = by_id.get((topic.topic_id, one.partition_index))
                    if core is not None:
                        core.traffic.bytes_out += len(one.records)


def _note(
    refused: dict[TopicIdPartition, ErrorCode], key: TopicIdPartition, done: Deferred[ShareError]
) -> None:
    error = done.result()
    if error.code is not NONE:
        refused[key] = error.code
