"""Share fetches and acknowledgements of members of share groups: SharePartitionService of api/share_services.

It connects sessions, share-partitions and waiting fetches, and ends sessions. Rights are asked through `may_read`.
Follows Kafka's SharePartitionManager and the handlers of these requests in KafkaApis.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkacompat.deferred import Deferred, when_all_done
from kafkacompat.faults import report
from kafkacompat.partition.delayed_operations import DelayedOperationPurgatory
from kafkacompat.share.acknowledging import acknowledge, is_long
from kafkacompat.share.answers import share_acknowledge_response
from kafkacompat.share.delayed_share_fetch import DelayedShareFetch, ShareFetches
from kafkacompat.share.partition_cache import SharePartitionCache
from kafkacompat.share.serving import NAMED_AT_ONCE, Serving
from kafkacompat.share.sessions import FINAL_EPOCH, SessionKey, SessionRefused, ShareSessionCache
from kafkacompat.share.values import PendingWrite
from kafkacompat.stepping.jobs import all_steps
from kafkacompat.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse

if TYPE_CHECKING:
    from kafkacompat.api.request_context import RequestContext
    from kafkacompat.api.share_services import SharePersister
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Clock, Random, Timers, Workers
    from kafkacompat.share.acknowledging import Acknowledged
    from kafkacompat.share.partition_cache import LedPartition
    from kafkacompat.share.sessions import ShareSession
    from kafkacompat.share.settings import GroupSettingsCache
    from kafkacompat.stepping.jobs import Steps
    from kafkacompat.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
    from kafkacompat.wire.messages.share_fetch_request import ShareFetchRequest
    from kafkacompat.wire.messages.share_fetch_response import ShareFetchResponse

    MayRead = Callable[[str], bool]

RELEASED_AT_ONCE = 10
"""Share-partitions of which a member's records are released in one turn of the loop. Each may have thousands."""
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
        random: Random,
        workers: Workers,
        sessions_max: int,
        fetch_max_bytes: Callable[[], int],
    ) -> None:
        """`workers` read what is not in the page cache."""
        self._manager = manager
        self._timers = timers
        self.clock = clock
        self.settings = settings
        self.fetch_max_bytes = fetch_max_bytes
        self.sessions = ShareSessionCache(sessions_max)
        self.cache = SharePartitionCache(manager, persister, settings, clock, timers)
        purgatory: DelayedOperationPurgatory[DelayedShareFetch] = DelayedOperationPurgatory(clock, timers)
        self.fetches = ShareFetches(self.cache, purgatory, clock, random, workers)
        self._releases: deque[tuple[LedPartition, str]] = deque()
        self._ended_groups: list[str] = []
        """Groups without a session, whose share-partitions are dropped after the releases."""
        self._is_releasing = False

    @property
    def image(self) -> MetadataImage:
        return self._manager.image

    def share_fetch(
        self, request: ShareFetchRequest, context: RequestContext, may_read: MayRead | None
    ) -> ShareFetchResponse | Deferred[Any] | Steps[Any]:
        steps = Serving(self, request, context, may_read, self.image).steps()
        if is_long(request.topics) or _forgets_many(request):
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
        key = SessionKey(request.group_id or "", request.member_id or "")
        try:
            self.sessions.acknowledged(key, request.share_session_epoch)
        except SessionRefused as refused:
            return ShareAcknowledgeResponse(error_code=refused.code)
        acknowledged: Acknowledged = yield from acknowledge(
            self.cache, self.clock, request, context.api_version, self.image, may_read
        )

        def answer(_: object) -> ShareAcknowledgeResponse:
            if request.share_session_epoch == FINAL_EPOCH:
                self.release_session(key)
            lock_ms = self.lock_timeout_ms(key.group_id)
            return share_acknowledge_response(acknowledged.errors, self.image, context, lock_ms)

        if all(write.done for write in acknowledged.writes):
            return answer(None)
        return when_all_done(acknowledged.writes).then(answer)

    # For requests on their way

    def open_session(self, key: SessionKey, connection_id: int) -> ShareSession:
        session = self.sessions.open(key, connection_id)
        self.cache.keep_group(key.group_id)
        self._ended_groups += self.sessions.surplus_groups(connection_id)
        if self._ended_groups:
            self._release_some()
        return session

    def later(self, delay_ms: int, answer: Any) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        timer = self._timers.call_after(delay_ms, lambda: later.resolve(answer))
        later.when_abandoned = timer.cancel
        return later

    def lock_timeout_ms(self, group_id: str) -> int:
        return self.settings.of(group_id).partition.record_lock_duration_ms

    def count_sent(self, response: ShareFetchResponse) -> None:
        for topic in response.responses:
            for one in topic.partitions:
                if one.records:
                    core = self._manager.by_id.get((topic.topic_id, one.partition_index))
                    if core is not None:
                        core.traffic.bytes_out += len(one.records)

    # Ends of sessions

    def release_session(self, key: SessionKey) -> None:
        """End a session. What its member holds becomes available."""
        session = self.sessions.remove(key)
        if session is None:
            return
        for partition in session.partitions:
            led = self.cache.get(key.group_id, partition)
            if led is not None:
                self._releases.append((led, key.member_id))
        self._release_some()

    def on_connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.sessions_of(connection_id):
            self.sessions.evictions += 1
            self.release_session(session.key)
        ended = self.sessions.connection_closed(connection_id)
        if ended:
            self._ended_groups += ended
            self._release_some()

    def _release_some(self) -> None:
        """Release records for the sessions that have ended. If there is much to do, the rest follows in later turns."""
        if not self._is_releasing:
            self._go_on_releasing()

    def _go_on_releasing(self) -> None:
        self._is_releasing = True
        for _ in range(min(RELEASED_AT_ONCE, len(self._releases))):
            led, member_id = self._releases.popleft()
            try:
                outcome = led.core.release_acquired_records(member_id)
                if isinstance(outcome, PendingWrite):
                    self.cache.write(led, outcome)
                self.cache.changed(led)
            except Exception as error:
                report(f"releasing records of {led.key}", error)
        if self._releases:
            self._timers.call_after(0, self._go_on_releasing)
            return
        self._is_releasing = False
        ended, self._ended_groups = self._ended_groups, []
        for group_id in ended:
            if not self.sessions.has_members(group_id):
                self.cache.drop_group(group_id)

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Forget everything when the cluster's share groups are switched off."""
        if old.features.get(SHARE_VERSION, 0) and not new.features.get(SHARE_VERSION, 0):
            self.sessions.remove_all()
            self.cache.drop_all()


def _forgets_many(request: ShareFetchRequest) -> bool:
    topics = request.forgotten_topics_data
    return len(topics) > NAMED_AT_ONCE or sum(len(each.partitions) for each in topics) > NAMED_AT_ONCE
