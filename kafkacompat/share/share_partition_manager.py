"""Share fetches and acknowledgements of members of share groups: SharePartitionService of api/share_services.

Rights are asked through `may_read`. Follows Kafka's SharePartitionManager and the handlers of these requests in
KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.meters import Histogram
from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
from kafkacompat.share.acknowledging import AcknowledgementMeter, acknowledge, is_long
from kafkacompat.share.answers import share_acknowledge_response
from kafkacompat.share.delayed_share_fetch import DelayedShareFetch, ShareFetches
from kafkacompat.share.partition_cache import SharePartitionCache
from kafkacompat.share.parts import ShareParts
from kafkacompat.share.requests import ACKNOWLEDGED_MAX, names_more
from kafkacompat.share.serving import NAMED_AT_ONCE, SESSION_AT_ONCE, Serving
from kafkacompat.share.session_ends import SessionEnds
from kafkacompat.share.sessions import FINAL_EPOCH, SessionKey, SessionRefused, ShareSessionCache
from kafkacompat.stepping.jobs import all_steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.share_services import SharePersister
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Clock, Random, Timers, Workers
    from kafkacompat.share.dead_letter_queue import DeadLetterQueue
    from kafkacompat.share.settings import GroupSettingsCache
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.tasks import Tasks
    from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
    from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
    from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse

    MayRead = Callable[[str], bool]

SHARE_VERSION = "share.version"


class SharePartitionManager:
    """Used in the loop's thread only."""

    def __init__(
        self,
        manager: ReplicaManager,
        persister: SharePersister,
        settings: GroupSettingsCache,
        clock: Clock,
        timers: Timers,
        tasks: Tasks,
        random: Random,
        workers: Workers,
        sessions_max: int,
        fetch_max_bytes: Callable[[], int],
        dead_letters: DeadLetterQueue,
    ) -> None:
        """`workers` read what is not in the page cache."""
        self.sessions = sessions = ShareSessionCache(sessions_max)
        self.cache = cache = SharePartitionCache(
            manager, persister, settings, clock, timers, tasks, dead_letters
        )
        self.load_times_ms = Histogram()
        """Of the states of share-partitions."""
        cache.load_times_ms = self.load_times_ms.note
        purgatory: DelayedOperationPurgatory[DelayedShareFetch] = DelayedOperationPurgatory(
            clock, timers, manager.wakeups.budget
        )
        self.fetches = fetches = ShareFetches(cache, purgatory, clock, timers, random, workers)
        self._ends = ends = SessionEnds(sessions, cache, tasks)
        self._meter = meter = AcknowledgementMeter()
        self._parts = ShareParts(
            manager, sessions, ends, cache, meter, fetches, settings, clock, timers, fetch_max_bytes
        )

    @property
    def acknowledged(self) -> Sequence[int]:
        """Records that members have acknowledged, by type."""
        return self._meter.by_type

    def share_fetch(
        self, request: ShareFetchRequest, context: RequestContext, may_read: MayRead | None
    ) -> ShareFetchResponse | Deferred[Any] | Steps[Any]:
        steps = Serving(self._parts, request, context, may_read).steps()
        if is_long(request.topics, SESSION_AT_ONCE) or _forgets_many(request):
            return steps
        session = self.sessions.get(SessionKey(request.group_id or "", request.member_id or ""))
        if session is not None and len(session.partitions) > SESSION_AT_ONCE:
            return steps
        return all_steps(steps)

    def share_acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext, may_read: MayRead | None
    ) -> ShareAcknowledgeResponse | Deferred[Any] | Steps[Any]:
        steps = self._acknowledge(request, context, may_read)
        return steps if is_long(request.topics) else all_steps(steps)

    def _acknowledge(
        self, request: ShareAcknowledgeRequest, context: RequestContext, may_read: MayRead | None
    ) -> Steps[ShareAcknowledgeResponse | Deferred[Any]]:
        parts = self._parts
        key = SessionKey(request.group_id or "", request.member_id or "")
        if names_more(request.topics, ACKNOWLEDGED_MAX):
            return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            self.sessions.acknowledged(key, request.share_session_epoch)
        except SessionRefused as refused:
            return ShareAcknowledgeResponse(error_code=refused.code)
        acknowledged = yield from acknowledge(
            self.cache, parts.meter, parts.clock, request, context.api_version, parts.image, may_read
        )

        def answer(_: object) -> ShareAcknowledgeResponse:
            if request.share_session_epoch == FINAL_EPOCH:
                self._ends.release_session(key)
            lock_ms = parts.lock_timeout_ms(key.group_id)
            return share_acknowledge_response(acknowledged.errors, parts.image, context, lock_ms)

        if all(write.done for write in acknowledged.writes):
            return answer(None)
        return when_all_done(acknowledged.writes).then(answer)

    def on_connection_closed(self, connection_id: int) -> None:
        self._ends.on_connection_closed(connection_id)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Forget everything when the cluster's share groups are switched off."""
        if old.features.get(SHARE_VERSION, 0) and not new.features.get(SHARE_VERSION, 0):
            self._ends.end_all()
            self.cache.drop_all()


def _forgets_many(request: ShareFetchRequest) -> bool:
    topics = request.forgotten_topics_data
    return len(topics) > NAMED_AT_ONCE or sum(len(each.partitions) for each in topics) > NAMED_AT_ONCE
