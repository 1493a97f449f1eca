"""The requests of one fetcher and the handling of the responses: the follower's side of replication.

A pure core over the partitions' logs (a Protocol): it builds requests and takes responses, and the fetcher sends them.
Times are milliseconds of one monotonic clock. Sockets and other leaders are unknown here. Follows Kafka's fetcher
threads: truncation by diverging epoch in Fetch itself (KIP-595), sessions (KIP-227), broker epoch (KIP-903, so Fetch
from version 15 on). A partition's fetch offset is always its log end offset. An error delays only its own partition.
Settings: replica.fetch.*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkacompat.ids import Uuid
from kafkacompat.partition.following import (
    BATCHES_AT_ONCE,
    append_in_steps,
    divergence,
    parts_below_start,
    take_watermarks,
    truncate_to_divergence,
)
from kafkacompat.partition.partition_fetch_state import Fetched, PartitionFetchState
from kafkacompat.partition.sessions import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from kafkacompat.ports import LogRefused
from kafkacompat.stepping.jobs import Steps, all_steps
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
    from kafkacompat.wire.messages.fetch_response import FetchResponse

Key = tuple[bytes, int]
"""(topic id, partition): the key of a partition in a session."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_ms: int = 1000


BATCHES_A_PARTITION = 4
"""The cost of a partition in a response besides its batches, in batches."""
BATCHES_A_TRUNCATION = BATCHES_AT_ONCE // 2
"""The cost of a truncation in batches. It may read again what producers have written."""

METADATA_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a leader that has not received its new role yet. Usually it does so soon."""
FIRST_BACKOFF_MS = 20
"""Delay after the first of these errors in a row. It doubles each time, up to replica.fetch.backoff.ms."""


class FollowerFetches:
    """The partitions of one fetcher, and its session with the leader."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        settings: FetchSettings,
        throttle: ReplicationQuotaManager | None = None,
        is_being_added: Callable[[Partition, int], bool] = lambda core, replica: False,
    ) -> None:
        """`is_being_added`: whether a reassignment adds the replica with this id."""
        self.partitions: dict[Key, PartitionFetchState] = {}
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._throttle = throttle
        self._is_being_added = is_being_added
        self._session_id = INVALID_SESSION_ID
        self._session_epoch = INITIAL_EPOCH
        self._changed: dict[Key, PartitionFetchState] = {}
        """Partitions that may have to be sent to the session. All others are unchanged."""
        self._forget: dict[Key, None] = {}
        """Partitions in the session that must no longer be fetched."""
        self._idle: dict[Key, PartitionFetchState] = {}
        """Partitions that are not fetched: delayed, held back, failed, or waiting for the leader's offsets."""

    # Partitions

    def add(self, core: Partition) -> None:
        """Follow a partition in its core's present epoch. A partition that is already followed starts again."""
        key = core.topic_id, core.topic_partition.partition
        known = self.partitions.get(key)
        followed = PartitionFetchState(core)
        if known is not None:
            followed.asked = known.asked
        self.partitions[key] = self._changed[key] = followed
        self._forget.pop(key, None)
        self._idle.pop(key, None)

    def remove(self, core: Partition) -> None:
        key = core.topic_id, core.topic_partition.partition
        followed = self.partitions.pop(key, None)
        self._changed.pop(key, None)
        self._idle.pop(key, None)
        if followed is not None and followed.asked is not None:
            self._forget[key] = None

    def current(self, followed: PartitionFetchState) -> PartitionFetchState | None:
        """The present state of the same partition: `followed` itself, unless it was removed or started again."""
        return self.partitions.get((followed.core.topic_id, followed.core.topic_partition.partition))

    def next_due_ms(self) -> int | None:
        """When the next delay ends. None if there is none."""
        return min(
            (each.due_ms for each in self._idle.values() if not each.resolving and not each.failed),
            default=None,
        )

    # Requests

    def build(self, now_ms: int) -> FetchRequest | None:
        """The next request. None if there is nothing to fetch now."""
        for key, followed in list(self._idle.items()):
            if followed.is_ready_for_fetch(now_ms):
                del self._idle[key]
                self._changed[key] = followed
        if self._throttle is not None and self._throttle.is_limited():
            for key, followed in self.partitions.items():
                if key not in self._idle and self._throttle.should_throttle(followed.core, self._node_id):
                    self._delay_partition(key, followed, now_ms + self._settings.max_wait_ms)
        if len(self._idle) >= len(self.partitions):
            return None
        is_full = self._session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        wanted = self.partitions if is_full else self._changed
        topics: dict[Uuid, FetchTopic] = {}
        for key, followed in wanted.items():
            if key in self._idle:
                continue
            now = self._position(followed)
            if not is_full and not followed.is_fresh and now == followed.asked:
                continue
            followed.asked = now
            followed.is_fresh = False
            self._forget.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopic(topic_id=key[0])
            topic.partitions.append(
                FetchPartition(
                    partition=key[1],
                    current_leader_epoch=now[3],
                    fetch_offset=now[0],
                    last_fetched_epoch=now[2],
                    log_start_offset=now[1],
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )
        self._changed.clear()
        forgotten: dict[Uuid, ForgottenTopic] = {}
        if not is_full:
            for topic_id, partition in self._forget:
                topic_forgotten = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
                topic_forgotten.partitions.append(partition)
        self._forget.clear()
        settings = self._settings
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def _position(self, followed: PartitionFetchState) -> tuple[int, int, int, int]:
        log = followed.core.log
        return log.log_end_offset, log.log_start_offset, log.latest_epoch(), followed.current_leader_epoch

    # Responses

    def lost(self, now_ms: int) -> None:
        """A request got no answer: delay all partitions, and start a new session."""
        self._restart_session()
        for key, followed in self.partitions.items():
            if not followed.failed:
                self._delay_partition(key, followed, now_ms + self._settings.backoff_ms)

    def take(self, response: FetchResponse, now_ms: int) -> Fetched:
        """Run `take_in_steps` in one step."""
        outcome = Fetched.nothing()
        all_steps(self.take_in_steps(response, now_ms, outcome))
        return outcome

    def take_in_steps(self, response: FetchResponse, now_ms: int, outcome: Fetched) -> Steps[None]:
        """Append, truncate, move watermarks. What must be done elsewhere is in the outcome. No request is built
        meanwhile."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
                self._restart_session()
            elif response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                self._restart_session()
            else:
                self.lost(now_ms)
            outcome.notes.append(f"the leader refused the fetch with error {response.error_code}")
            return
        if response.session_id == INVALID_SESSION_ID:
            self._session_id, self._session_epoch = INVALID_SESSION_ID, INITIAL_EPOCH
        else:
            self._session_id = response.session_id
            self._session_epoch = next_epoch(self._session_epoch)
        left = BATCHES_AT_ONCE
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                if left <= 0:
                    left = BATCHES_AT_ONCE
                    yield None
                followed = self.partitions.get(key)
                if (
                    followed is not None
                    and followed.asked is not None
                    and followed.is_ready_for_fetch(now_ms)
                ):
                    outcome.batches = 0
                    yield from self._take_partition(key, followed, answer, outcome, now_ms)
                    left -= BATCHES_A_PARTITION + outcome.batches

    def _restart_session(self) -> None:
        """Name every partition in the next request. That closes the old session on the leader."""
        self._session_epoch = INITIAL_EPOCH
        for followed in self.partitions.values():
            followed.asked = None
        self._forget.clear()

    def _take_partition(
        self, key: Key, followed: PartitionFetchState, answer: Any, outcome: Fetched, now_ms: int
    ) -> Steps[None]:
        core = followed.core
        asked = followed.asked
        assert asked is not None  # the caller has checked it
        if asked[0] != core.log.log_end_offset or asked[3] != followed.current_leader_epoch:
            self._changed[key] = followed  # the answer belongs to an outdated request
            return
        error = answer.error_code
        try:
            if error == ErrorCode.NONE and self._diverges(followed, answer, outcome):
                if followed.begins_anew or self._position(followed) != asked:
                    followed.resolving = True
                    followed.refusals = 0
                    (outcome.out_of_range if followed.begins_anew else outcome.truncated).append(followed)
                    self._delay_partition(key, followed, now_ms)
                    return
            elif error == ErrorCode.NONE:
                is_settled = yield from self._take_records(key, followed, answer, outcome)
                if self.partitions.get(key) is not followed:
                    return  # taken out meanwhile, or begun afresh
                if is_settled or self._position(followed) != asked:
                    self._changed[key] = followed
                    followed.refusals = 0
                    return
        except LogRefused as refused:
            outcome.notes.append(f"{followed.name}: {refused}; fetched again later")
        except OSError as failure:
            outcome.broken.append((core, failure))
            if core.log.log_end_offset < asked[0]:
                # Truncated before the disk refused the rest.
                followed.resolving = True
                outcome.truncated.append(followed)
        except Exception as problem:
            # As in Kafka, the other partitions continue after any kind of error.
            followed.failed = True
            outcome.failed.append((followed, problem))
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.resolving = True
            outcome.out_of_range.append(followed)
            outcome.notes.append(f"{followed.name}: offset {asked[0]} is out of the leader's range")
        elif error == ErrorCode.FENCED_LEADER_EPOCH:
            followed.failed = True
            outcome.notes.append(f"{followed.name}: leader epoch {asked[3]} is over; the metadata will tell")
        elif error != ErrorCode.NONE:
            outcome.notes.append(f"{followed.name}: the leader answered error {error}")
        delay_ms = self._settings.backoff_ms
        if error in METADATA_ERRORS:
            delay_ms = min(delay_ms, FIRST_BACKOFF_MS << min(followed.refusals, 16))
            followed.refusals += 1
        self._delay_partition(key, followed, now_ms + delay_ms)

    def _diverges(self, followed: PartitionFetchState, answer: Any, outcome: Fetched) -> bool:
        """Whether the logs diverge below our end. If so, what the leader does not have is truncated."""
        diverging = answer.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            return False
        log = followed.core.log
        offset = divergence(log, diverging)
        if parts_below_start(log, offset):
            followed.begins_anew = True
            outcome.notes.append(
                f"{followed.name}: parts from the leader's log at {offset}, below its start {log.log_start_offset}"
            )
        else:
            outcome.notes.append(truncate_to_divergence(followed.core, diverging))
            outcome.batches = BATCHES_A_TRUNCATION
        return True

    def _take_records(
        self, key: Key, followed: PartitionFetchState, answer: Any, outcome: Fetched
    ) -> Steps[bool]:
        """Append the records. Returns False if the answer should have changed the log and did not; fetching at once
        would give the same answer."""
        core = followed.core
        size = len(answer.records) if answer.records is not None else 0
        if size:
            if self._throttle is not None:
                self._throttle.record(core, size)
            outcome.batches = yield from append_in_steps(
                core,
                answer.records,
                followed.current_leader_epoch,
                lambda: self.partitions.get(key) is followed,
            )
            if outcome.batches < 0:
                return False
            core.traffic.replication_bytes_in += size
            if self._is_being_added(core, self._node_id):
                core.traffic.reassignment_bytes_in += size
        followed.lag = max(answer.high_watermark - core.log.log_end_offset, 0)
        if take_watermarks(core, answer.high_watermark, answer.log_start_offset):
            outcome.advanced.append(core)
        return not size

    def _delay_partition(self, key: Key, followed: PartitionFetchState, due_ms: int) -> None:
        followed.due_ms = due_ms
        self._idle[key] = followed
        self._changed.pop(key, None)
        if followed.asked is not None:
            followed.asked = None
            self._forget[key] = None

    def resolved(self, followed: PartitionFetchState, delay_until_ms: int = 0) -> None:
        """Its wait is over, successfully or not. Fetch the partition again, at once or after the delay."""
        followed.resolving = False
        followed.due_ms = delay_until_ms
