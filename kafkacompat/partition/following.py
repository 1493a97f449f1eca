"""How a replica follows its leader: the requests of one fetcher, and what is done to the logs with the responses.

A pure core over the partitions' logs (a Protocol): it builds requests and takes responses, and replica_fetcher.py sends
them. Times are milliseconds of one monotonic clock. Sockets and other leaders are unknown here. Follows Kafka's
AbstractFetcherThread: truncation by diverging epoch in Fetch itself (KIP-595) at the end of the last common epoch
(KIP-101, KIP-279), sessions (KIP-227), broker epoch (KIP-903, so Fetch from version 15 on). A partition's fetch offset is
always its log end offset. An error delays only its own partition. Settings: replica.fetch.*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.dataclass import dataclass
from kafkacompat.partition.fetch_session_handler import FetchedPartition, FetchSessionHandler
from kafkacompat.ports import LogRefused
from kafkacompat.records.batch import (
    BatchCorrupt,
    end_of_some,
    is_one_batch,
    iterate_batches,
    parse_header,
)
from kafkacompat.tasks import Work, at_once
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.fetch_request import ReplicaState
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from kafkacompat.ids import TopicPartition
    from kafkacompat.partition.fetch_session_handler import FetchSettings, Key, Position
    from kafkacompat.partition.partition import Partition
    from kafkacompat.partition.replication_quota_manager import ReplicationQuotaManager
    from kafkacompat.ports import Buffer, Log
    from kafkacompat.wire.messages.fetch_request import FetchRequest
    from kafkacompat.wire.messages.fetch_response import EpochEndOffset, FetchResponse

BATCHES_AT_ONCE = 1024
"""Batches appended in one piece. One MiB can have 13,000 batches."""
BATCH_US = 4
PARTITION_US = 20
"""Of a partition in a response, with one batch."""
TRUNCATION_US = 2_000
"""What producers have written is read before, in pieces."""
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


class PartitionFetchState(FetchedPartition):
    """One partition in a fetcher. Its core's leader epoch may advance while `current_leader_epoch` keeps the assigned
    epoch."""

    __slots__ = ("begins_anew", "core", "current_leader_epoch", "failed", "lag", "refusals")

    def __init__(self, core: Partition) -> None:
        super().__init__(key_of(core))
        self.core = core
        self.current_leader_epoch = core.leader_epoch
        self.lag = 0
        """Offsets up to the leader's high watermark at its last answer."""
        self.failed = False
        """The partition is not fetched until the metadata gives it a new epoch."""
        self.begins_anew = False
        """No record of the log is the leader's. The log must start empty at the leader's log start, once that is
        known."""
        self.refusals = 0
        """Consecutive answers of a leader whose metadata is behind."""

    @property
    def name(self) -> TopicPartition:
        return self.core.topic_partition

    def position(self) -> Position:
        log = self.core.log
        return log.log_end_offset, log.log_start_offset, log.latest_epoch(), self.current_leader_epoch

    def is_ready_for_fetch(self, now_ms: int) -> bool:
        return not self.failed and not self.resolving and self.due_ms <= now_ms


def key_of(core: Partition) -> Key:
    return core.topic_id, core.topic_partition.partition


@dataclass(slots=True)
class Fetched:
    """The outcome of a response, for the fetcher to act on."""

    advanced: list[Partition]
    """Partitions whose high watermark moved."""
    out_of_range: list[PartitionFetchState]
    """Partitions that need the leader's offsets."""
    tiered: list[tuple[PartitionFetchState, int]]
    """Partitions of which the leader has the fetched offset in the remote storage only, with the leader's log start. They
    need the leader's local start."""
    truncated: list[PartitionFetchState]
    """Partitions not fetched before `resolved`, because a checkpoint offset may be too high for their logs."""
    broken: list[tuple[Partition, OSError]]
    """Partitions whose files failed."""
    notes: list[str]
    """Lines for the node's log."""
    failed: list[tuple[PartitionFetchState, Exception]]
    """Partitions not followed until their leader changes, because of a damaged log or a bug in kafkacompat."""

    @classmethod
    def nothing(cls) -> Fetched:
        return cls([], [], [], [], [], [], [])


class FollowerFetches:
    """The partitions of one fetcher, and its session with the leader."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        settings: FetchSettings,
        throttle: ReplicationQuotaManager | None = None,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._throttle = throttle
        self._session = FetchSessionHandler[PartitionFetchState](settings)
        self.partitions = self._session.partitions

    # Partitions

    def add(self, core: Partition) -> None:
        """Follow a partition in its core's present epoch. A partition that is already followed starts again."""
        self._session.add(PartitionFetchState(core))

    def remove(self, core: Partition) -> None:
        followed = self.partitions.get(key_of(core))
        if followed is not None:
            self._session.remove(followed)

    def current(self, followed: PartitionFetchState) -> PartitionFetchState | None:
        """The present state of the same partition: `followed` itself, unless it was removed or started again."""
        return self.partitions.get(followed.key)

    def next_due_ms(self) -> int | None:
        """When the next delay ends. None if there is none."""
        return self._session.next_due_ms()

    # Requests

    def build(self, now_ms: int) -> FetchRequest | None:
        """The next request. None if there is nothing to fetch now."""
        self._session.resume(now_ms)
        if self._throttle is not None and self._throttle.is_limited():
            for followed in self._session.in_turn().values():
                if self._throttle.should_throttle(followed.core, self._node_id):
                    self._session.delay(followed, now_ms + self._settings.max_wait_ms)
        return self._session.build(ReplicaState(replica_id=self._node_id, replica_epoch=self._broker_epoch()))

    # Responses

    def lost(self, now_ms: int) -> None:
        """A request got no answer: delay all partitions, and start a new session."""
        self._session.lost(now_ms)

    def take(self, response: FetchResponse, now_ms: int) -> Fetched:
        """Run `take_in_turns` without pauses."""
        outcome = Fetched.nothing()
        at_once(self.take_in_turns(response, now_ms, outcome))
        return outcome

    def take_in_turns(self, response: FetchResponse, now_ms: int, outcome: Fetched) -> Work[None]:
        """Append, truncate, move watermarks. What must be done elsewhere is in the outcome. No request is built
        meanwhile."""
        if response.error_code != ErrorCode.NONE:
            if not self._session.is_over(code_of(response.error_code)):
                self.lost(now_ms)
            outcome.notes.append(f"Error in response for fetch request: error {response.error_code}")
            return
        self._session.handle_response(response)
        for topic in response.responses:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                followed = self.partitions.get(key)
                if (
                    followed is not None
                    and followed.asked is not None
                    and followed.is_ready_for_fetch(now_ms)
                ):
                    yield from self._take_partition(followed, answer, outcome, now_ms)
                    yield PARTITION_US

    def _take_partition(
        self, followed: PartitionFetchState, answer: Any, outcome: Fetched, now_ms: int
    ) -> Work[None]:
        core = followed.core
        asked = followed.asked
        assert asked is not None  # the caller has checked it
        if asked[0] != core.log.log_end_offset or asked[3] != followed.current_leader_epoch:
            self._session.changed(followed)  # the answer belongs to an outdated request
            return
        error = answer.error_code
        try:
            if error == ErrorCode.NONE and (yield from self._diverges(followed, answer, outcome)):
                if self.partitions.get(followed.key) is not followed:
                    return  # taken out meanwhile, or begun afresh
                if followed.begins_anew or followed.position() != asked:
                    followed.resolving = True
                    followed.refusals = 0
                    (outcome.out_of_range if followed.begins_anew else outcome.truncated).append(followed)
                    self._session.delay(followed, now_ms)
                    yield TRUNCATION_US
                    return
            elif error == ErrorCode.NONE:
                is_settled = yield from self._take_records(followed, answer, outcome)
                if self.partitions.get(followed.key) is not followed:
                    return  # taken out meanwhile, or begun afresh
                if is_settled or core.log.log_end_offset != asked[0] or followed.position() != asked:
                    self._session.changed(followed)
                    followed.refusals = 0
                    return
        except LogRefused as refused:
            outcome.notes.append(
                f"Error while processing data for partition {followed.name} at offset {asked[0]}: {refused}"
            )
        except OSError as failure:
            outcome.broken.append((core, failure))
        except MemoryError:
            # It passes, and the metadata may give no new epoch for months.
            outcome.notes.append(f"No memory for the data of partition {followed.name} at offset {asked[0]}")
        except Exception as problem:
            # As in Kafka, the other partitions continue after any kind of error.
            followed.failed = True
            outcome.failed.append((followed, problem))
        if core.log.log_end_offset < asked[0]:
            # Truncated before the rest failed.
            followed.resolving = True
            outcome.truncated.append(followed)
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            followed.resolving = True
            outcome.out_of_range.append(followed)
            outcome.notes.append(
                f"Current offset {asked[0]} for partition {followed.name} is out of range, "
                "which typically implies a leader change"
            )
        elif error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE and core.log.is_tiered:
            followed.resolving = True
            outcome.tiered.append((followed, answer.log_start_offset))
        elif error == ErrorCode.FENCED_LEADER_EPOCH:
            followed.failed = True
            outcome.notes.append(
                f"Partition {followed.name} has an older epoch ({asked[3]}) than the current leader. "
                "Will await the new metadata before resuming fetching"
            )
        elif error != ErrorCode.NONE:
            outcome.notes.append(f"Error for partition {followed.name} at offset {asked[0]}: error {error}")
        delay_ms = self._settings.backoff_ms
        if error in METADATA_ERRORS:
            delay_ms = min(delay_ms, FIRST_BACKOFF_MS << min(followed.refusals, 16))
            followed.refusals += 1
        self._session.delay(followed, now_ms + delay_ms)

    def _diverges(self, followed: PartitionFetchState, answer: Any, outcome: Fetched) -> Work[bool]:
        """Whether the logs diverge below our end. If so, what the leader does not have is truncated, unless the partition is
        taken out meanwhile."""
        diverging = answer.diverging_epoch
        if diverging is None or diverging.epoch < 0:
            return False
        log = followed.core.log
        producers = yield from log.producers_as_of(divergence(log, diverging))
        if self.partitions.get(followed.key) is not followed:
            return True
        offset = divergence(log, diverging)
        if parts_below_start(log, offset):
            followed.begins_anew = True
            outcome.notes.append(
                f"Partition {followed.name} diverges from the leader at offset {offset}, "
                f"below its log start offset {log.log_start_offset}"
            )
        else:
            outcome.notes.append(truncate_to_divergence(followed.core, diverging, producers))
        return True

    def _take_records(self, followed: PartitionFetchState, answer: Any, outcome: Fetched) -> Work[bool]:
        """Append the records. Returns False if the answer should have changed the log and did not; fetching at once
        would give the same answer."""
        core = followed.core
        size = len(answer.records) if answer.records is not None else 0
        if size:
            if self._throttle is not None:
                self._throttle.record(core, size)
            if is_one_batch(answer.records, size):
                append_fetched(core, answer.records, followed.current_leader_epoch)
            elif not (
                yield from append_in_turns(
                    core,
                    answer.records,
                    followed.current_leader_epoch,
                    lambda: self.partitions.get(followed.key) is followed,
                )
            ):
                return False
            # Without a session only the request's order says who comes first in a response that has no room for all.
            self._session.move_to_end(followed)
            core.traffic.replication_bytes_in += size
            if self._node_id in core.adding_replicas:
                core.traffic.reassignment_bytes_in += size
        followed.lag = max(answer.high_watermark - core.log.log_end_offset, 0)
        if take_watermarks(core, answer.high_watermark, answer.log_start_offset):
            outcome.advanced.append(core)
        return not size

    def resolved(self, followed: PartitionFetchState, delay_until_ms: int = 0) -> None:
        """Its wait is over, successfully or not. Fetch the partition again, at once or after the delay."""
        followed.resolving = False
        followed.due_ms = delay_until_ms


# What is done to the log. These functions raise LogRefused and OSError.


class Copy(Protocol):
    """A log that follows another: a Partition follows its leader, a future log follows the current one."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def log(self) -> Log: ...


def append_in_turns(
    core: Copy, records: Buffer, leader_epoch: int, is_wanted: Callable[[], bool]
) -> Work[bool]:
    """`append_fetched` in pieces. Returns False if the records are not wanted any more, or the log has changed meanwhile."""
    view = memoryview(records)
    start = 0
    while True:
        end, last, count = end_of_some(view, start, BATCHES_AT_ONCE)
        append_fetched(core, view[start:end], leader_epoch)
        log_end = core.log.log_end_offset
        is_last = end >= len(view) or parse_header(view, last).last_offset + 1 != log_end
        yield BATCH_US * count
        if not is_wanted() or core.log.log_end_offset != log_end:
            return False
        if is_last:
            return True  # what is left is of a later epoch
        start = end


def append_fetched(core: Copy, records: Buffer, leader_epoch: int) -> None:
    """Append whole batches unchanged. The first batch in an empty log may begin before the log's local start, because
    the leader sends whole batches."""
    log = core.log
    try:
        log.append_as_follower(records, leader_epoch)
    except LogRefused as refused:
        if (
            refused.code is not ErrorCode.OFFSET_OUT_OF_RANGE
            or log.log_end_offset != log.local_log_start_offset
        ):
            raise
        first = _first_batch(records)
        if first is None or not first[0] < log.log_end_offset <= first[1]:
            raise
        log.truncate_fully_and_start_at(first[0])
        log.append_as_follower(records, leader_epoch)


def _first_batch(records: Buffer) -> tuple[int, int] | None:
    """The first and last offset of the first batch. None if there is no complete batch."""
    try:
        for header in iterate_batches(records):
            return header.base_offset, header.last_offset
    except BatchCorrupt:
        pass
    return None


def take_watermarks(core: Copy, high_watermark: int, log_start_offset: int) -> bool:
    """Take over the leader's high watermark, as far as the log reaches, and its log start. Returns whether the high
    watermark moved."""
    log = core.log
    before = log.high_watermark
    log.set_high_watermark(min(high_watermark, log.log_end_offset))
    start = min(log_start_offset, log.high_watermark)
    if start > log.log_start_offset:
        log.increment_log_start_offset(start)
    return log.high_watermark > before


def divergence(log: Log, diverging: EpochEndOffset) -> int:
    """The offset up to which the log equals the leader's.

    `diverging` is the leader's largest epoch that is not above our last one, with its end offset there. If we do not
    have that epoch, we truncate to the end of our largest smaller one and fetch again with that.
    """
    ours = log.end_offset_for_epoch(diverging.epoch)
    if ours.epoch < 0:
        offset = diverging.end_offset
    elif ours.epoch == diverging.epoch:
        offset = min(ours.offset, diverging.end_offset)
    else:
        offset = ours.offset
    return min(offset, log.log_end_offset)


def truncate_to_divergence(core: Copy, diverging: EpochEndOffset, producers: Any = None) -> str:
    """Truncate what the leader does not have. Returns a line for the node's log. `producers`: see `Log.producers_as_of`."""
    log = core.log
    end, high_watermark = log.log_end_offset, log.high_watermark
    offset = divergence(log, diverging)
    log.truncate_to(offset, producers=producers)
    below = "" if offset >= high_watermark else f", below its high watermark {high_watermark}"
    return (
        f"Truncating partition {core.topic_partition} from {end} to offset {log.log_end_offset}{below} "
        f"due to leader epoch {diverging.epoch} and its end offset {diverging.end_offset}"
    )


def parts_below_start(log: Log, offset: int) -> bool:
    """Whether the log diverges from the leader's below its own start.

    It must then start empty at the leader's log start, because otherwise it would lack what the leader has below. A
    log that diverges exactly at its start is truncated as usual: everything below was committed and deleted, and those
    offsets may not be reused.
    """
    return offset < log.log_start_offset


def take_latest(core: Copy, leader_end: int, producers: Any = None) -> bool:
    """Handle an out-of-range fetch with the leader's log end. Returns True if that settles it, False if the leader's
    log start is needed. `producers`: see `Log.producers_as_of`."""
    log = core.log
    if leader_end >= log.log_end_offset:
        return False
    log.truncate_to(leader_end, producers=producers)
    return True


def take_earliest(core: Copy, leader_start: int, *, anew: bool = False) -> None:
    """Handle an out-of-range fetch with the leader's log start. If that is beyond our end, the log starts empty there.
    The same if `anew`: nothing in our log is the leader's."""
    if anew or leader_start > core.log.log_end_offset:
        core.log.truncate_fully_and_start_at(leader_start, anew=True)


def list_offsets_request(
    replica_id: int, asked: Iterable[tuple[TopicPartition, int]], timestamp: int
) -> ListOffsetsRequest:
    """`asked`: each partition with the leader epoch that is known of it."""
    topics: dict[str, ListOffsetsTopic] = {}
    for name, epoch in asked:
        topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=name.partition, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))
