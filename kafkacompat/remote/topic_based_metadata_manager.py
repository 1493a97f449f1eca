"""What is known of remote segments, kept in the topic `__remote_log_metadata` as in Apache Kafka (its
TopicBasedRemoteLogMetadataManager).

It creates the topic, writes records to the leaders of its partitions, and reads from them what this node's partitions need. A step
counts as recorded when it was read back, so that whoever asks next knows it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.config import ConfigError
from kafkacompat.config.topic import TIERED
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition, parse_int
from kafkacompat.net.failures import ChannelError
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import FileSlice, LogRefused, passes
from kafkacompat.records.batch import (
    HEADER_SIZE,
    BatchCorrupt,
    BatchHeader,
    build_batch,
    has_valid_crc,
    iterate_batches,
)
from kafkacompat.records.compression import UNPACKED_BYTES_MAX, DecompressedTooLarge, unpack
from kafkacompat.records.record import Record
from kafkacompat.records.scan import walk_records
from kafkacompat.remote.metadata import (
    RemoteLogMetadata,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from kafkacompat.remote.metadata_follower import MetadataFollower, Read, partition_of
from kafkacompat.remote.ports import (
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RetriableRemoteStorageException,
)
from kafkacompat.remote.records import encode_record, metadata_partition
from kafkacompat.tasks import Limit, WakeUp, pause
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.partition.service import PartitionService
    from kafkacompat.ports import Buffer, Clock, Workers
    from kafkacompat.remote.metadata_cache import Piece, RemoteLogMetadataCache
    from kafkacompat.tasks import Started, Tasks

logger = logging.getLogger(__name__)

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
PREFIX = "remote.log.metadata."
CONSUMER = -1
ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
EARLIEST, LATEST = -2, -1
REQUEST_TIMEOUT_MS = 30_000
FETCH_WAIT_MS = 500
"""How long another leader waits for something new."""
LOOK_MS = 100
"""How often this node looks into the partitions of the topic that it leads itself."""
READ_BYTES = 1 << 20
"""In one read of one partition. A larger batch is read whole."""
FLAWS_TOLD = 5
"""Records of one batch that are passed over with a line in the log for each."""
RETRY_MIN_MS, RETRY_MAX_MS = 100, 5_000
RECORD_COST = 30
RECORDS_AT_ONCE = 100
GIVEN_UP = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Answers that no repetition changes."""


@dataclass(frozen=True)
class MetadataTopicSettings:
    """Kafka's settings of its manager, and their defaults there."""

    replication_factor: int = 3
    partition_count: int = 50
    retention_ms: int = -1
    min_isr: int = 2
    consume_wait_ms: int = 120_000
    """How long a step may take to be recorded and read back."""
    retry_interval_ms: int = 100

    @classmethod
    def from_originals(cls, originals: Mapping[str, str], prefix: str) -> MetadataTopicSettings:
        """`prefix`: remote.log.metadata.manager.impl.prefix. Raises ConfigError."""

        def number(name: str, default: int, least: int) -> int:
            setting = f"{prefix}{PREFIX}{name}"
            text = originals.get(setting)
            if text is None:
                return default
            try:
                value = parse_int(text.strip(), 63)
            except ValueError as error:
                raise ConfigError(setting, text, "Not a number") from error
            if value < least:
                raise ConfigError(setting, text, f"Value must be at least {least}")
            return value

        return cls(
            number("topic.replication.factor", cls.replication_factor, 1),
            number("topic.num.partitions", cls.partition_count, 1),
            number("topic.retention.ms", cls.retention_ms, -1),
            number("topic.min.isr", cls.min_isr, 1),
            number("consume.wait.ms", cls.consume_wait_ms, 0),
            number("initialization.retry.interval.ms", cls.retry_interval_ms, 0),
        )

    def topic(self) -> CreatableTopic:
        """The topic to be created."""
        configs = {
            "retention.ms": str(self.retention_ms),
            "cleanup.policy": "delete",
            TIERED: "false",
            "min.insync.replicas": str(self.min_isr),
        }
        return CreatableTopic(
            name=REMOTE_LOG_METADATA_TOPIC,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )


class Requests(Protocol):
    """The part of net.Channel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class _Limits(NamedTuple):
    code: ErrorCode
    earliest: int = -1
    latest: int = -1


class _Piece(NamedTuple):
    """What a read of one partition has given."""

    code: ErrorCode
    records: Buffer | FileSlice = b""


def _report_unexpected(error: Exception) -> None:
    """Another node that does not answer, or a disk that refuses a read, is asked again."""
    if not (isinstance(error, (ChannelError, RemoteStorageException, LogRefused, OSError)) or passes(error)):
        report(f"using {REMOTE_LOG_METADATA_TOPIC}", error)


class TopicBasedRemoteLogMetadataManager:
    """A RemoteLogMetadataManager. Call `start` when the node serves, `on_image` after its partitions have applied an image, and
    `close` once. Before `start` partitions may be named already."""

    def __init__(
        self,
        node_id: int,
        settings: MetadataTopicSettings,
        image: Callable[[], MetadataImage],
        partitions: PartitionService,
        channel: Callable[[int], Requests | None],
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
        clock: Clock,
        tasks: Tasks,
        workers: Workers | None,
    ) -> None:
        """`channel`: to another broker. With `workers` None, reads of the disk block."""
        self._node_id = node_id
        self._settings = settings
        self._image = image
        self._partitions = partitions
        self._channel = channel
        self._create_topics = create_topics
        self._clock = clock
        self._tasks = tasks
        self._workers = workers
        self._one_at_a_time = Limit(1)
        """Whose batch is open. Its records may take much memory."""
        self._follower = MetadataFollower(settings.partition_count)
        self._readers: dict[int, Started] = {}
        """By leader: who reads from it."""
        self._news = WakeUp(tasks)
        self._making: Started | None = None
        self.deletion_is_begun: Callable[[RemotePartitionDeleteMetadata], None] = lambda metadata: None
        """Called with each deletion that was begun and is not finished, if this node leads the partition of the topic that
        says so."""
        self._closed = False
        self._told = ""
        """What was said last of the topic's state."""

    # --- life

    def start(self) -> None:
        """Create the topic if necessary, and read it."""
        self._making = self._tasks.start(f"creating {REMOTE_LOG_METADATA_TOPIC}", self._make_topic())
        self._arrange()

    def on_image(self) -> None:
        """Leaders may have changed."""
        self._arrange()

    def close(self) -> None:
        """Nothing is read or written any more. Steps that wait to be read back fail."""
        self._closed = True
        for task in (*self._readers.values(), *([] if self._making is None else [self._making])):
            task.cancel()
        self._readers.clear()
        self._follower.remove(
            [each for index in self._follower.offsets() for each in self._follower.users_of(index)]
        )

    # --- what is known

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch_for_offset: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._known(partition).remote_log_segment_metadata(epoch_for_offset, offset)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._known(partition).highest_offset_for_epoch(leader_epoch)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        known = self._known(partition)
        if leader_epoch is None:
            return known.list_all_remote_log_segments()
        return known.list_remote_log_segments(leader_epoch)

    def pieces(self, partition: TopicIdPartition) -> Sequence[Piece]:
        return self._known(partition).pieces()

    def piece_at(self, partition: TopicIdPartition, offset: int) -> Piece | None:
        return self._known(partition).piece_at(offset)

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._known(partition).next_segment_with_txn_index(leader_epoch, offset)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        return self._known(partition).remote_log_size(leader_epoch)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._follower.is_ready(partition)

    def is_deletion_unfinished(self, partition: TopicIdPartition) -> bool:
        return self._follower.is_unfinished(partition)

    def _known(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        return self._follower.cache_of(partition)

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self._follower.add((*leaders, *followers))
        self._arrange()

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self._follower.remove(partitions)

    # --- writing

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Deferred[None]:
        if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a segment is added in state {metadata.state.name}")
        return self._record(metadata)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Deferred[None]:
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a segment is updated to state {update.state.name}")
        return self._record(update)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Deferred[None]:
        return self._record(metadata)

    def _record(self, metadata: RemoteLogMetadata) -> Deferred[None]:
        return self._tasks.run("recording a step of a remote segment", self._recorded(metadata))

    async def _recorded(self, metadata: RemoteLogMetadata) -> None:
        """Write a record, again if that fails, and wait until it is read."""
        partition = partition_of(metadata)
        index = metadata_partition(partition, self._settings.partition_count)
        value = encode_record(metadata)
        until_ms = self._clock.monotonic_ms() + self._settings.consume_wait_ms
        delay_ms = RETRY_MIN_MS
        while True:
            if self._closed or not self._follower.is_followed(partition):
                raise RemoteResourceNotFoundException(f"{partition} is not followed")
            try:
                code, offset = await self._append(index, value)
                reason = code.name
            except Exception as error:
                _report_unexpected(error)
                code, offset, reason = ErrorCode.NETWORK_EXCEPTION, -1, str(error) or type(error).__name__
            if code is ErrorCode.NONE:
                break
            what = f"{REMOTE_LOG_METADATA_TOPIC}-{index} does not take a record: {reason}"
            if code in GIVEN_UP:
                raise RemoteStorageException(what)
            if self._clock.monotonic_ms() + delay_ms > until_ms:
                raise RetriableRemoteStorageException(what)
            await self._tasks.sleep(delay_ms)
            delay_ms = min(2 * delay_ms, RETRY_MAX_MS)
        self._news.call()
        read = self._follower.when_read(partition, offset)
        timer = self._tasks.sleep(max(0, until_ms - self._clock.monotonic_ms()))

        def over(_: Deferred[None]) -> None:
            if not read.done:
                read.fail(
                    RetriableRemoteStorageException(
                        f"{REMOTE_LOG_METADATA_TOPIC}-{index} was not read up to offset {offset} in time"
                    )
                )

        timer.on_done(over)
        try:
            await read
        finally:
            timer.forget(over)

    async def _append(self, index: int, value: bytes) -> tuple[ErrorCode, int]:
        """The error, and the offset of the record."""
        topic = self._topic()
        leader = NO_LEADER if topic is None else topic.partitions[index].leader
        if topic is None or leader == NO_LEADER:
            return ErrorCode.LEADER_NOT_AVAILABLE, -1
        batch = build_batch([Record(0, self._clock.now_ms(), None, value)])
        if leader == self._node_id:
            name = TopicPartition(topic.name, index)
            result = self._partitions.append(name, batch, ALL_REPLICAS, BATCH_FORMAT_VERSION, False)
            if result.error is not ErrorCode.NONE:
                return result.error, -1
            replicated = self._partitions.when_replicated({name: result.last_offset + 1}, REQUEST_TIMEOUT_MS)
            codes = {} if replicated is None else await replicated
            return codes.get(name, ErrorCode.NONE), result.last_offset
        data = PartitionProduceData(index=index, records=bytes(batch))
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
        )
        response = await self._ask(leader, request)
        answer = response.responses[0].partition_responses[0]
        return code_of(answer.error_code), answer.base_offset

    # --- the topic

    def _topic(self) -> TopicImage | None:
        """The topic, if it has as many partitions as the settings say: otherwise records would be looked for where they are
        not."""
        topic = self._image().topics.get(REMOTE_LOG_METADATA_TOPIC)
        if topic is None:
            return None
        if len(topic.partitions) != self._settings.partition_count:
            self._tell(
                f"{REMOTE_LOG_METADATA_TOPIC} has {len(topic.partitions)} partitions, and"
                f" {PREFIX}topic.num.partitions is {self._settings.partition_count}: nothing is tiered"
            )
            return None
        return topic

    def _tell(self, what: str) -> None:
        """Once, however often it is so."""
        if what != self._told:
            self._told = what
            logger.error("%s", what)

    async def _make_topic(self) -> None:
        delay_ms = max(1, self._settings.retry_interval_ms)
        while REMOTE_LOG_METADATA_TOPIC not in self._image().topics:
            request = CreateTopicsRequest(topics=[self._settings.topic()], timeout_ms=REQUEST_TIMEOUT_MS)
            try:
                (created,) = (await self._create_topics(request)).topics
            except Exception as error:
                self._tell(f"{REMOTE_LOG_METADATA_TOPIC} cannot be created: {error}")
            else:
                if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._tell(f"{REMOTE_LOG_METADATA_TOPIC} cannot be created: {created.error_message}")
            await self._tasks.sleep(delay_ms)
            delay_ms = min(2 * delay_ms, RETRY_MAX_MS)
        self._arrange()

    # --- reading

    def _arrange(self) -> None:
        """A reader for each leader of a partition that is to be read."""
        if self._closed or self._making is None:
            return
        self._news.call()
        self._look_for_deletions()
        for leader in sorted(set(self._leaders().values())):
            reader = self._readers.get(leader)
            if reader is None or reader.done:
                self._readers[leader] = self._tasks.start(
                    f"reading {REMOTE_LOG_METADATA_TOPIC} from node {leader}", self._read_from(leader)
                )

    def _look_for_deletions(self) -> None:
        """In partitions that this node leads: whoever has begun a deletion may end."""
        topic = self._topic()
        if topic is not None:
            self._follower.look_for_deletions(
                [index for index, each in topic.partitions.items() if each.leader == self._node_id]
            )

    def _leaders(self) -> dict[int, int]:
        """Of the partitions that are to be read, as far as they have one."""
        topic = self._topic()
        if topic is None:
            return {}
        leaders = {index: topic.partitions[index].leader for index in self._follower.offsets()}
        return {index: leader for index, leader in leaders.items() if leader != NO_LEADER}

    async def _read_from(self, leader: int) -> None:
        """While the node leads a partition that is to be read."""
        delay_ms = RETRY_MIN_MS
        while mine := [index for index, node in self._leaders().items() if node == leader]:
            try:
                is_well, has_read = await self._read_once(leader, mine)
                for each in self._follower.unfinished_deletions():
                    self.deletion_is_begun(each)
            except Exception as error:
                _report_unexpected(error)
                is_well, has_read = False, False
            if not is_well:
                await self._tasks.sleep(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MAX_MS)
            else:
                delay_ms = RETRY_MIN_MS
                if not has_read and leader == self._node_id:
                    await self._news.wait(LOOK_MS)
                else:
                    await pause()

    async def _read_once(self, leader: int, indexes: Sequence[int]) -> tuple[bool, bool]:
        """Whether all answers were good, and whether something was read."""
        offsets = self._follower.offsets()
        is_well, has_read = True, False
        unknown = [index for index in indexes if offsets.get(index, 0) is None]
        if unknown:
            among = {index: self._follower.users_of(index) for index in unknown}
            for index, limits in (await self._limits(leader, unknown)).items():
                if limits.code is ErrorCode.NONE:
                    self._follower.limits_are(index, limits.earliest, limits.latest, among[index])
                else:
                    is_well = False
            offsets = self._follower.offsets()
        wanted = {index: offset for index in indexes if (offset := offsets.get(index)) is not None}
        if not wanted:
            return is_well, False
        for index, piece in (await self._fetch(leader, wanted)).items():
            if piece.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._follower.is_out_of_range(index, wanted[index])
            elif piece.code is not ErrorCode.NONE:
                is_well = False
            else:
                try:
                    has_read |= await self._take(index, wanted[index], piece.records)
                except (BatchCorrupt, ValueError, OSError) as error:
                    self._tell(f"{REMOTE_LOG_METADATA_TOPIC}-{index} cannot be read: {error}")
                    is_well = False
        return is_well, has_read

    async def _take(self, index: int, offset: int, records: Buffer | FileSlice) -> bool:
        """Whether there is something."""
        if not len(records):
            return False
        data = await self._bytes_of(records)
        has_read = False
        for header in iterate_batches(data):
            if header.last_offset < offset:
                continue
            batch = memoryview(data)[header.position : header.position + header.size]
            if header.magic != 2 or not has_valid_crc(batch, header):
                raise BatchCorrupt(
                    f"the batch at offset {header.base_offset} of partition {index} is damaged"
                )
            offset = await self._take_batch(index, offset, batch, header)
            has_read = True
        return has_read

    async def _take_batch(self, index: int, offset: int, batch: memoryview, header: BatchHeader) -> int:
        """The offset after the batch. Brokers write batches of one record. One of another writer may have millions, or expand
        to a thousand times its size."""
        end = header.last_offset + 1
        async with self._one_at_a_time:
            records: Iterator[Record] = iter(())
            if not header.is_control:
                try:
                    body = await self._body_of(batch, header)
                except DecompressedTooLarge as error:
                    logger.error(
                        "the batch at offset %d of %s-%d is passed over: %s",
                        header.base_offset, REMOTE_LOG_METADATA_TOPIC, index, error,
                    )  # fmt: skip
                else:
                    records = walk_records(body, header.record_count, header.base_timestamp_ms, 0)
            flaw_count = 0
            while offset < end:
                piece = [
                    Read(header.base_offset + each.offset_delta, each.value)
                    for each in islice(records, RECORDS_AT_ONCE)
                ]
                is_last = len(piece) < RECORDS_AT_ONCE
                # The partition's log may begin within the batch, and what lies before that is not read again.
                after = end if is_last else max(offset, piece[-1].offset + 1)
                flaws = self._follower.take(index, offset, piece, after)
                for flaw in flaws[: max(0, FLAWS_TOLD - flaw_count)]:
                    logger.warning("a record of %s is passed over: %s", REMOTE_LOG_METADATA_TOPIC, flaw)
                flaw_count += len(flaws)
                offset = after
                await pause(RECORD_COST * max(1, len(piece)))
            if flaw_count > FLAWS_TOLD:
                logger.warning(
                    "%d more records of the same batch of %s-%d are passed over",
                    flaw_count - FLAWS_TOLD, REMOTE_LOG_METADATA_TOPIC, index,
                )  # fmt: skip
        return end

    async def _body_of(self, batch: memoryview, header: BatchHeader) -> bytes | bytearray:
        opening = partial(unpack, header.codec, batch[HEADER_SIZE:], UNPACKED_BYTES_MAX)
        if self._workers is None or (not header.codec and header.size <= READ_BYTES):
            return opening()
        return await self._workers.submit(opening)

    async def _bytes_of(self, records: Buffer | FileSlice) -> Buffer:
        if not isinstance(records, FileSlice):
            return records
        cached = records.file.try_read(records.position, records.length)
        if cached is not None:
            return cached
        return records.read() if self._workers is None else await self._workers.submit(records.read)

    async def _limits(self, leader: int, indexes: Sequence[int]) -> Mapping[int, _Limits]:
        """The first offset and the end of each."""
        earliest = await self._offsets_at(leader, indexes, EARLIEST)
        latest = await self._offsets_at(leader, indexes, LATEST)
        found: dict[int, _Limits] = {}
        for index in indexes:
            first, last = earliest.get(index), latest.get(index)
            if first is None or last is None:
                found[index] = _Limits(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif first.error is not ErrorCode.NONE or last.error is not ErrorCode.NONE:
                found[index] = _Limits(last.error if first.error is ErrorCode.NONE else first.error)
            else:
                found[index] = _Limits(ErrorCode.NONE, first.offset, last.offset)
        return found

    async def _offsets_at(
        self, leader: int, indexes: Sequence[int], timestamp: int
    ) -> Mapping[int, OffsetLookup]:
        if leader == self._node_id:
            asked = [
                self._partitions.list_offset(
                    TopicPartition(REMOTE_LOG_METADATA_TOPIC, index), timestamp, False, -1, CONSUMER
                )
                for index in indexes
            ]
            found = await gather([Deferred.of(e) if isinstance(e, OffsetLookup) else e for e in asked])
            return dict(zip(indexes, found, strict=True))
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
        topic = ListOffsetsTopic(name=REMOTE_LOG_METADATA_TOPIC, partitions=wanted)
        response = await self._ask(
            leader, ListOffsetsRequest(replica_id=CONSUMER, topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        )
        return {
            each.partition_index: OffsetLookup(code_of(each.error_code), each.timestamp, each.offset)
            for topic in response.topics
            for each in topic.partitions
        }

    async def _fetch(self, leader: int, offsets: Mapping[int, int]) -> Mapping[int, _Piece]:
        if leader == self._node_id:
            return {index: self._own(index, offset) for index, offset in offsets.items()}
        topic = self._topic()
        if topic is None:
            return {}
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=READ_BYTES)
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=READ_BYTES,
            topics=[FetchTopic(topic=topic.name, topic_id=topic.id, partitions=wanted)],
        )
        response = await self._ask(leader, request)
        if response.error_code:
            return dict.fromkeys(offsets, _Piece(code_of(response.error_code)))
        return {
            each.partition_index: _Piece(code_of(each.error_code), bytes(each.records or b""))
            for answer in response.responses
            for each in answer.partitions
            if each.partition_index in offsets
        }

    def _own(self, index: int, offset: int) -> _Piece:
        """What this node has of a partition that it leads."""
        log = self._partitions.log(TopicPartition(REMOTE_LOG_METADATA_TOPIC, index))
        if log is None:
            return _Piece(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not log.log_start_offset <= offset <= log.high_watermark:
            return _Piece(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset == log.high_watermark:
            return _Piece(ErrorCode.NONE)
        try:
            return _Piece(ErrorCode.NONE, log.read(offset, READ_BYTES, log.high_watermark, True).records)
        except LogRefused as error:
            return _Piece(error.code)
        except BatchCorrupt:
            return _Piece(ErrorCode.CORRUPT_MESSAGE)
        except OSError:
            return _Piece(ErrorCode.KAFKA_STORAGE_ERROR)

    async def _ask(self, leader: int, request: Any) -> Any:
        channel = self._channel(leader)
        if channel is None:
            raise RetriableRemoteStorageException(f"node {leader} has no address")
        return await channel.request(request, REQUEST_TIMEOUT_MS)
