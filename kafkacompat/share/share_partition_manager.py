"""Share fetches and acknowledgements of members of share groups: SharePartitionService of share/service.

A share fetch passes session, acknowledgements and fetch, and is answered when both are done. Rights are asked through
`may_read`. Follows Kafka's SharePartitionManager and the handlers of these requests in KafkaApis.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred
from kafkacompat.faults import for_each
from kafkacompat.memory import Freeing
from kafkacompat.partition.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from kafkacompat.ports import EMPTY_RECORDS
from kafkacompat.share.delayed_share_fetch import ShareFetches, ShareFetchParameters, ShareFetchPurgatory
from kafkacompat.share.service import ShareError, TopicIdPartition
from kafkacompat.share.share_partition_cache import ACTIVE, SharePartitionCache, ShareServices
from kafkacompat.share.share_session import (
    PARTITIONS_OF_ONE_MAX,
    NamedPartition,
    SessionKey,
    SessionRefused,
    ShareSessionCache,
    rotated,
    share_acknowledge_response,
    share_fetch_response,
)
from kafkacompat.share.values import SUCCEEDED, AcquireMode, PendingWrite
from kafkacompat.tasks import Pace, in_turns, pause
from kafkacompat.wire.errors import NONE, ErrorCode
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from kafkacompat.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse
from kafkacompat.wire.one_by_one import OneByOne

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.partition.traffic import TopicTraffic
    from kafkacompat.share.delayed_share_fetch import Answers
    from kafkacompat.share.share_partition_cache import LedPartition
    from kafkacompat.share.share_session import CachedSharePartition, ShareSession
    from kafkacompat.tasks import Tasks
    from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
    from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest

    MayRead = Callable[[str], bool]

SHARE_VERSION = "share.version"
NOTED_US = 5
"""Of one acknowledgement that was written."""
NAMED_AT_ONCE = 1_000
"""Partitions of a request that its session takes up in one step."""
FETCHED_AT_ONCE = 500
"""Partitions of one fetch. Those of a larger session have their turns, so that a step stays short."""
LOADED_AT_ONCE = 40
"""Share-partitions whose loading begins in one step."""
OPENED_LIKE_LOADS = 4
"""The cost of a partition whose log the fetch opens."""
SESSION_AT_ONCE = 200
"""A fetch of more partitions pauses before it begins to acquire."""
ACQUIRE_MODES = frozenset(AcquireMode)
NOT_HOSTED = ShareError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)
FIRST_VERSION_WITH_RENEW = 2
WORK_AT_ONCE = 2_000
"""Partitions, batches and acknowledge types of one step."""
WRITTEN_WORK = 100
"""What the change of one share-partition counts besides: if the share coordinator is on this node, it is written at once."""
ACKNOWLEDGE_TYPES = 5
BATCHES_MAX = 20_000
"""Acknowledgement batches of one partition. A member does not hold more records of it, and each takes the loop for a
microsecond."""
ACKNOWLEDGED_MAX = 10_000
"""Topics and partitions of a request that acknowledges. Each is answered."""
RENEW = 4
LAST_TYPE_WITHOUT_RENEW = 3
RELEASED_AT_ONCE = 10
"""Share-partitions of which a member's records are released in one turn of the loop, if few records are in flight."""


class SharePartitionManager:
    """Used in the loop's thread only."""

    def __init__(self, services: ShareServices) -> None:
        self.services = services
        self.sessions = ShareSessionCache(services.sessions_max)
        purgatory = ShareFetchPurgatory(services)
        self.cache = SharePartitionCache(services, purgatory)
        self.fetches = ShareFetches(services, self.cache, purgatory)
        self.ends = SessionEnds(self.sessions, self.cache, services.tasks)
        self._meter = AcknowledgementMeter()

    @property
    def acknowledged(self) -> Sequence[int]:
        """Records that members have acknowledged, by type."""
        return self._meter.by_type

    async def share_fetch(
        self, request: ShareFetchRequest, context: RequestContext, may_read: MayRead | None
    ) -> ShareFetchResponse:
        return await ShareFetch(self, request, context, may_read).answer()

    async def share_acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext, may_read: MayRead | None
    ) -> ShareAcknowledgeResponse:
        key = SessionKey(request.group_id or "", request.member_id or "")
        if names_more(request.topics, ACKNOWLEDGED_MAX):
            return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            self.sessions.acknowledged(key, request.share_session_epoch)
        except SessionRefused as refused:
            return ShareAcknowledgeResponse(error_code=refused.code)
        image = self.services.manager.image
        acknowledged = await self.acknowledge(request, context.api_version, image, may_read)
        await acknowledged.written
        if request.share_session_epoch == FINAL_EPOCH:
            self.ends.release_session(key)
        lock_ms = self.lock_timeout_ms(key.group_id)
        return share_acknowledge_response(acknowledged.errors, self.services.manager.image, context, lock_ms)

    def lock_timeout_ms(self, group_id: str) -> int:
        return self.services.settings.of(group_id).record_lock_duration_ms

    async def acknowledge(
        self, request: Any, api_version: int, image: MetadataImage, may_read: MayRead | None
    ) -> Acknowledged:
        """Judge the acknowledgements of a ShareFetch or a ShareAcknowledge, and give them to the share-partitions."""
        outcome = Acknowledged()
        errors = outcome.errors
        supports_renew, is_renew = api_version >= FIRST_VERSION_WITH_RENEW, request.is_renew_ack
        asked: dict[TopicIdPartition, Any] = {}
        empty: list[TopicIdPartition] = []
        pace = Pace(WORK_AT_ONCE)
        for topic in request.topics:
            known = image.topics_by_id.get(topic.topic_id)
            is_readable = known is not None and (may_read is None or may_read(known.name))
            for one in topic.partitions:
                key = TopicIdPartition(topic.topic_id, one.partition_index)
                batches = one.acknowledgement_batches
                if known is None:
                    errors[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_ID)
                elif not are_valid(batches, supports_renew=supports_renew, is_renew=is_renew):
                    errors[key] = ShareError(ErrorCode.INVALID_REQUEST)
                elif not is_readable:
                    errors[key] = ShareError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif key.partition not in known.partitions:
                    errors[key] = ShareError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                elif batches:
                    asked[key] = batches
                else:
                    empty.append(key)
                if pace.is_over(1 + len(batches)):
                    await pause()
            if pace.is_over():
                await pause()
        named: set[TopicTraffic] = set()
        writes: list[tuple[TopicIdPartition, Any, TopicTraffic, Deferred[ShareError]]] = []
        for key, batches in asked.items():
            work = work_of(batches)
            if pace.is_over(work + WRITTEN_WORK):
                await pause()
            led = self.cache.get(request.group_id, key)
            if led is None:
                errors[key] = NOT_HOSTED
                continue
            traffic = led.partition.traffic
            if traffic not in named:
                named.add(traffic)
                traffic.share_acknowledgements += 1
            now_ms = self.services.clock.monotonic_ms()
            try:
                if work > WORK_AT_ONCE:
                    result = await in_turns(led.core.acknowledge_in_turns(request.member_id, batches, now_ms))
                else:
                    result = led.core.acknowledge(request.member_id, batches, now_ms)
            except Exception:
                # Nobody would write or undo the half of it. The next fetch loads the state anew.
                self.cache.drop(led)
                raise
            if isinstance(result, PendingWrite):
                written = self.cache.write(led, result)
                if not written.done:
                    writes.append((key, batches, traffic, written))
                else:
                    self._note(outcome, key, batches, traffic, written.result())
            else:
                self._note(outcome, key, batches, traffic, result)
            self.cache.changed(led)
        if asked:  # as in Kafka, without any acknowledgement the others are not told
            errors.update(dict.fromkeys(empty, SUCCEEDED))
        if writes:
            # A task of its own, because it goes on although the client has left.
            outcome.written = self.services.tasks.run(
                "waiting for acknowledgements to be written", self._note_writes(outcome, writes)
            )
        return outcome

    async def _note_writes(
        self,
        outcome: Acknowledged,
        writes: list[tuple[TopicIdPartition, Any, TopicTraffic, Deferred[ShareError]]],
    ) -> None:
        for key, batches, traffic, written in writes:
            self._note(outcome, key, batches, traffic, await written)
            await pause(NOTED_US)

    def _note(
        self,
        outcome: Acknowledged,
        key: TopicIdPartition,
        batches: Any,
        traffic: TopicTraffic,
        error: ShareError,
    ) -> None:
        outcome.errors[key] = error
        if error.code is NONE:
            self._meter.count(batches)
        else:
            traffic.failed_share_acknowledgements += 1

    def on_connection_closed(self, connection_id: int) -> None:
        self.ends.on_connection_closed(connection_id)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Forget everything when the cluster's share groups are switched off."""
        if old.features.get(SHARE_VERSION, 0) and not new.features.get(SHARE_VERSION, 0):
            self.ends.end_all()
            self.cache.drop_all()


class Acknowledged:
    """What became of the partitions of a request, in its order."""

    __slots__ = ("errors", "written")

    def __init__(self) -> None:
        self.errors: dict[TopicIdPartition, ShareError] = {}
        """Those of the writes are there when `written` is."""
        self.written: Deferred[None] = Deferred.of(None)


class ShareFetch:
    """One share fetch on its way: session, acknowledgements, fetch, and the answer when all are done."""

    __slots__ = ("_context", "_epoch", "_image", "_key", "_manager", "_may_read", "_request", "_session")

    def __init__(
        self,
        manager: SharePartitionManager,
        request: ShareFetchRequest,
        context: RequestContext,
        may_read: MayRead | None,
    ) -> None:
        self._manager = manager
        self._request = request
        self._context = context
        self._may_read = may_read
        self._image = manager.services.manager.image
        self._epoch = request.share_session_epoch
        self._key = SessionKey(request.group_id or "", request.member_id or "")
        self._session: ShareSession | None = None
        """None if the request ends the session."""

    async def answer(self) -> ShareFetchResponse:
        request = self._request
        try:
            has_acks = self._acknowledges()
            await self._open(has_acks)
        except SessionRefused as refusal:
            if refusal.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
                await self._manager.services.tasks.sleep(request.max_wait_ms)
            return ShareFetchResponse(error_code=refusal.code)
        acknowledged = Acknowledged()
        if has_acks:
            acknowledged = await self._manager.acknowledge(
                request, self._context.api_version, self._image, self._may_read
            )
        refused: dict[TopicIdPartition, ErrorCode] = {}
        answers: Answers = {}
        session = self._session
        if session is not None and not self._renews():
            interested = self._interested(self._in_turn(session), refused)
            if len(interested) > SESSION_AT_ONCE:
                await pause()
            if interested:
                if request.share_acquire_mode not in ACQUIRE_MODES:
                    return ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                if request.max_records > 0 and request.max_bytes > 0:
                    # First of all that the request waits for: it must acquire nothing once its connection is closed.
                    answers = await self._fetch(interested)
        await acknowledged.written
        return self._respond(answers, refused, acknowledged)

    def _acknowledges(self) -> bool:
        """Raises SessionRefused if the request names too much. It does not pause: the session is opened while the connection is
        known to be there."""
        topics = self._request.topics
        if names_more(topics, 2 * PARTITIONS_OF_ONE_MAX):
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if not has_acknowledgements(topics):
            return False
        if names_more(topics, ACKNOWLEDGED_MAX):
            raise SessionRefused(ErrorCode.INVALID_REQUEST)
        return True

    async def _open(self, has_acks: bool) -> None:
        """Find the session, and take up what the request adds and forgets. Raises SessionRefused."""
        request, sessions, epoch = self._request, self._manager.sessions, self._epoch
        if epoch == FINAL_EPOCH:
            sessions.check_open(self._key)
            return
        is_initial = epoch == INITIAL_EPOCH
        if is_initial:
            if has_acks:
                raise SessionRefused(ErrorCode.INVALID_REQUEST)
            session = self._manager.ends.open_session(self._key, self._context.connection_id)
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
                    await pause()
            if pace.is_over():
                await pause()
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
                    await pause()
            if pace.is_over():
                await pause()

    def _check_size(self, session: ShareSession) -> None:
        """Raises SessionRefused, and ends the session, if it has too many partitions."""
        if session.has_too_many():
            if self._manager.sessions.get(self._key) is session:
                self._manager.ends.release_session(self._key)
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def _renews(self) -> bool:
        return self._context.api_version >= FIRST_VERSION_WITH_RENEW and bool(self._request.is_renew_ack)

    def _in_turn(self, session: ShareSession) -> Sequence[CachedSharePartition]:
        """The partitions of this fetch, as Kafka rotates them."""
        partitions = list(session.partitions.values())
        if len(partitions) > FETCHED_AT_ONCE:
            return rotated(partitions, self._epoch * FETCHED_AT_ONCE)[:FETCHED_AT_ONCE]
        return partitions

    def _interested(
        self, partitions: Iterable[CachedSharePartition], refused: dict[TopicIdPartition, ErrorCode]
    ) -> list[NamedPartition]:
        """The partitions that may be fetched. `refused` gets the errors of the others."""
        interested: list[NamedPartition] = []
        topics, may_read = self._image.topics_by_id, self._may_read
        for cached in partitions:
            key = cached.key
            known = topics.get(key.topic_id)
            if known is not None:
                cached.topic = known.name
            if cached.topic is None:
                refused[key] = ErrorCode.UNKNOWN_TOPIC_ID
            elif may_read is not None and not may_read(cached.topic):
                refused[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or key.partition not in known.partitions:
                refused[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                interested.append(NamedPartition(key, cached.topic))
        return interested

    async def _fetch(self, interested: list[NamedPartition]) -> Answers:
        request, manager, group_id = self._request, self._manager, self._key.group_id
        services, cache = manager.services, manager.cache
        refused: dict[TopicIdPartition, ErrorCode] = {}
        asked: list[LedPartition] = []
        pace = Pace(LOADED_AT_ONCE)
        for key, topic in rotated(interested, self._epoch):
            if services.manager.opens_logs and pace.is_over(OPENED_LIKE_LOADS):
                await pause()
            if manager.sessions.get(self._key) is not self._session:
                # Its connection was closed meanwhile. What is loaded from now on would never be dropped.
                return {}
            led = cache.get_or_load(group_id, key, topic)
            if isinstance(led, ErrorCode):
                refused[key] = led
                continue
            if led.core.state is not ACTIVE:
                cache.load(led)
                if pace.is_over():
                    await pause()
                if led.load_error is not NONE:
                    refused[key] = led.load_error
                    continue
            manager.ends.finish_release(led, self._key.member_id)
            asked.append(led)
        if manager.sessions.get(self._key) is not self._session:
            return {}  # its connection was closed meanwhile
        for traffic in {led.partition.traffic for led in asked}:
            traffic.share_fetches += 1
        throttling = self._context.throttling
        max_bytes = min(request.max_bytes, services.fetch_max_bytes())
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
            read_committed=services.settings.of(group_id).read_committed,
        )
        return await manager.fetches.start(parameters, asked, refused).answer

    def _respond(
        self, data: Answers, refused: dict[TopicIdPartition, ErrorCode], acknowledged: Acknowledged
    ) -> ShareFetchResponse:
        manager = self._manager
        for key, error in refused.items():
            data[key] = PartitionData(partition_index=key.partition, error_code=error, records=EMPTY_RECORDS)
        if any(one.error_code for one in data.values()):
            self._count_failures(data)
        response = share_fetch_response(
            self._session,
            self._epoch,
            data,
            acknowledged.errors,
            manager.services.manager.image,
            self._context,
            manager.lock_timeout_ms(self._key.group_id),
        )
        self._count(response)
        if self._session is None:
            manager.ends.release_session(self._key)
        return response

    def _count_failures(self, data: Answers) -> None:
        by_id = self._manager.services.manager.by_id
        failed = {by_id[key].traffic for key, one in data.items() if one.error_code and key in by_id}
        for traffic in failed:
            traffic.failed_share_fetches += 1

    def _count(self, response: ShareFetchResponse) -> None:
        by_id = self._manager.services.manager.by_id
        for topic in response.responses:
            for one in topic.partitions:
                if one.records:
                    core = by_id.get((topic.topic_id, one.partition_index))
                    if core is not None:
                        core.traffic.bytes_out += len(one.records)


class AcknowledgementMeter:
    """Counts the records that members have acknowledged, by type."""

    __slots__ = ("by_type",)

    def __init__(self) -> None:
        self.by_type = [0] * ACKNOWLEDGE_TYPES

    def count(self, batches: Iterable[Any]) -> None:
        by_type = self.by_type
        if isinstance(batches, OneByOne):
            all_types = b"".join([run.types for run in batches.runs])
            for each in range(ACKNOWLEDGE_TYPES):
                by_type[each] += all_types.count(each)
            return
        for batch in batches:
            types = batch.acknowledge_types
            if len(types) == 1:
                by_type[types[0]] += batch.last_offset - batch.first_offset + 1
            else:
                for each in types:
                    by_type[each] += 1


def work_of(batches: Iterable[Any]) -> int:
    if isinstance(batches, OneByOne):
        return sum([2 + _work_of_run(run.types) for run in batches.runs])
    return sum(1 + len(batch.acknowledge_types) for batch in batches)


def _work_of_run(types: bytes) -> int:
    """What is of one type is changed together, except that locks are renewed one by one."""
    first = types[0]
    return len(types) // 16 if first != RENEW and types.count(first) == len(types) else 2 * len(types)


def has_acknowledgements(topics: Iterable[Any]) -> bool:
    return any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions)


def names_more(topics: Iterable[Any], most: int) -> bool:
    """Whether there are more topics and partitions than that."""
    for topic in topics:
        most -= 1 + len(topic.partitions)
        if most < 0:
            return True
    return False


def are_valid(batches: Sequence[Any], *, supports_renew: bool, is_renew: bool) -> bool:
    """Whether the acknowledgement batches of one partition are well formed and in order.

    As in Kafka, a batch may begin with the last offset of the one before.
    """
    last_type = RENEW if supports_renew else LAST_TYPE_WITHOUT_RENEW
    end = -1
    if len(batches) > BATCHES_MAX:
        return False
    if isinstance(batches, OneByOne):
        for run in batches.runs:
            if run.first_offset < end or max(run.types) > last_type or (RENEW in run.types and not is_renew):
                return False
            end = run.last_offset
        return True
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < end or not types:
            return False
        if len(types) > 1:
            if last - first != len(types) - 1 or min(types) < 0 or max(types) > last_type:
                return False
            renews = RENEW in types
        else:
            only = types[0]
            if not 0 <= only <= last_type:
                return False
            renews = only == RENEW
        if renews and not is_renew:
            return False
        end = last
    return True


class SessionEnds:
    def __init__(self, sessions: ShareSessionCache, cache: SharePartitionCache, tasks: Tasks) -> None:
        self._sessions = sessions
        self._cache = cache
        self._tasks = tasks
        self._freeing = Freeing(tasks)
        self._releases: OrderedDict[tuple[LedPartition, str], None] = OrderedDict()
        """Share-partitions and members, in order."""
        self._ended_groups: list[str] = []
        """Groups without a session, whose share-partitions are dropped after the releases."""
        self._is_releasing = False

    def open_session(self, key: SessionKey, connection_id: int) -> ShareSession:
        """A new session, which ends an old one of the same member. Raises SessionRefused."""
        session = self._sessions.open(key, connection_id)
        self._cache.keep_group(key.group_id)
        self._ended_groups += self._sessions.surplus_groups(connection_id)
        if self._ended_groups:
            self._release_some()
        return session

    def release_session(self, key: SessionKey) -> None:
        """End a session. What its member holds becomes available."""
        session = self._sessions.remove(key)
        if session is None:
            return
        partitions = session.partitions
        # A session may have many partitions that do not exist, and a group many that the session does not have.
        known = self._cache.groups.get(key.group_id, {})
        fewer: Iterable[TopicIdPartition] = list(known) if len(known) < len(partitions) else partitions
        for partition in fewer:
            led = self._cache.get(key.group_id, partition) if partition in partitions else None
            if led is not None:
                self._releases[led, key.member_id] = None
        self._freeing.free(partitions)
        self._release_some()

    def end_all(self) -> None:
        """End all sessions. What their members hold is dropped with its share-partitions."""
        for session in self._sessions.remove_all():
            self._freeing.free(session.partitions)

    def finish_release(self, led: LedPartition, member_id: str) -> None:
        """Call before a member acquires: it may be back before its former session has released everything, and what it
        acquires from now on is not to be released."""
        if (led, member_id) in self._releases:
            del self._releases[led, member_id]
            self._release(led, member_id)

    def on_connection_closed(self, connection_id: int) -> None:
        for session in self._sessions.sessions_of(connection_id):
            self._sessions.evictions += 1
            self.release_session(session.key)
        ended = self._sessions.connection_closed(connection_id)
        if ended:
            self._ended_groups += ended
            self._release_some()

    def _release_some(self) -> None:
        """Release records for the sessions that have ended. If there is much to do, the rest follows in later turns."""
        if not self._is_releasing:
            self._is_releasing = True
            self._tasks.start("releasing records of ended share sessions", self._release_all())

    async def _release_all(self) -> None:
        left = RELEASED_AT_ONCE
        try:
            while self._releases:
                if left <= 0:
                    await pause()
                    left = RELEASED_AT_ONCE
                    continue
                (led, member_id), _ = self._releases.popitem(last=False)
                left -= self._release(led, member_id)
        finally:
            self._is_releasing = False
        ended, self._ended_groups = self._ended_groups, []
        for_each(ended, self._drop_if_left, "dropping a share group without sessions")

    def _drop_if_left(self, group_id: str) -> None:
        if not self._sessions.has_members(group_id):
            self._cache.drop_group(group_id)

    def _release(self, led: LedPartition, member_id: str) -> int:
        """Returns how long it took, as `LedPartition.looks` counts."""
        looks = 1
        try:
            looks = led.looks()
            outcome = led.core.release_acquired_records(member_id)
            if isinstance(outcome, PendingWrite):
                self._cache.write_unasked(led, outcome)
            self._cache.changed(led)
        except Exception as error:
            self._cache.load_anew(led, "releasing records of", error)
        return looks
