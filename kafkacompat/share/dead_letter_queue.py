"""Writes dead letters to the topic of their share group (KIP-1191): finds or creates the topic, reads what is to be
copied, and appends on this node or sends a Produce to the leader.

Each share-partition writes one range after the other, to one partition of the topic. So an attempt that fails is one of
all ranges that wait. What cannot be written within some attempts is given up, as in Kafka: the record is archived without
a dead letter, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.partition.service import RemoteFetch
from kafkacompat.ports import FileSlice, LogRefused, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.share.dead_letters import (
    GIVEN_UP_AT_ONCE,
    TIMEOUT_MS,
    DeadLetterPolicy,
    DeadLetters,
    Deliveries,
    Delivery,
    Sources,
    build,
    flaw_of_topic,
    sources_in,
)
from kafkacompat.tasks import Started, Tasks, pause
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import MetadataImage, TopicImage
    from kafkacompat.ids import Uuid
    from kafkacompat.partition.replica_manager import ReplicaManager
    from kafkacompat.ports import Buffer, Clock, Log, Workers
    from kafkacompat.share.service import SharePartitionKey

logger = logging.getLogger(__name__)

ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
"""The Produce version that the batches conform to."""
READ_BYTES = 1 << 20
"""Read of the source at a time."""
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
CREATED_WITH = ((GROUP_ENABLE, "true"), ("message.timestamp.type", "CreateTime"))
"""Settings of a dead-letter topic that a node creates."""
GIVEN_UP = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""Errors that another attempt does not mend."""


SAID_EVERY_MS = 60_000
REASONS_MAX = 10
"""Of one group, between two summaries. Further ones are only counted."""
SOURCES_SAID = 10
GROUPS_COUNTED = 1_000
"""Groups whose dead letters are counted. Clients choose the ids of groups, so that their number needs a bound."""
NAME_MAX = 300
"""Characters of a group's id, beyond which its dead letters are not counted by group: clients may choose one of 32 KiB."""


class Requests(Protocol):
    """The part of net.Channel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class AttemptFailed(Exception):
    """Another attempt may succeed. The message is the reason."""


class NotTaken(AttemptFailed):
    """A Produce request has failed."""


class Undeliverable(Exception):
    """No attempt would succeed. The message is the reason."""


class Refused(Undeliverable):
    """A Produce request was refused."""


class GroupLetterMeter:
    """Counts the dead letters of a group as Kafka's ShareGroupMetrics does."""

    __slots__ = ("failed", "requests", "written")

    def __init__(self) -> None:
        self.written = 0
        self.requests = 0
        """Produce requests, with those that were sent again."""
        self.failed = 0
        """Ranges that were given up because their Produce request failed."""


class DeadLetterQueue:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        policy: Callable[[str], DeadLetterPolicy],
        topic_config: Callable[[str], LogConfig],
        partitions: ReplicaManager,
        channel: Callable[[int], Requests | None],
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
        clock: Clock,
        tasks: Tasks,
        workers: Workers | None,
    ) -> None:
        """`policy` returns the settings of a group, `channel` the channel to another broker. With `workers` None, reads
        block."""
        self._node_id = node_id
        self._image = image
        self._policy = policy
        self._topic_config = topic_config
        self._partitions = partitions
        self._channel = channel
        self._create_topics = create_topics
        self._clock = clock
        self._tasks = tasks
        self._workers = workers
        self._queues: dict[SharePartitionKey, Deliveries] = {}
        self._writers: dict[SharePartitionKey, Started] = {}
        """Of each queue."""
        self._closed = False
        self._losses = Losses(tasks)
        self.given_up = 0
        """Records since the start that were archived without a dead letter."""
        self.meters: dict[str, GroupLetterMeter] = {}
        """By group: at most GROUPS_COUNTED, those whose letters were sent last."""

    def enqueue(
        self,
        key: SharePartitionKey,
        source: TopicPartition,
        letters: DeadLetters,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Deferred[bool]:
        """True once all replicas in sync have the dead letters, False if they are given up. It does not fail.

        `is_wanted`: asked before each attempt. False if another leader will write them. After `close` there is no
        answer, so that the next leader writes them.
        """
        if self._closed:
            return Deferred()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Deliveries()
            self._writers[key] = self._tasks.start("writing dead letters", self._empty(key, queue))
        delivery = Delivery(key, source, letters, is_wanted, queue.failures, self._clock.monotonic_ms())
        queue.waiting.append(delivery)
        return delivery.answer

    def close(self) -> None:
        """Write nothing more. Those on their way stay unanswered: their share-partitions are closed too."""
        self._closed = True
        for writer in list(self._writers.values()):
            writer.cancel()
        self._writers.clear()
        self._queues.clear()
        self._losses.close()

    async def _empty(self, key: SharePartitionKey, queue: Deliveries) -> None:
        """Write one range after the other, until none waits."""
        await pause()  # one request may reject a thousand ranges
        while queue.waiting:
            delivery = queue.waiting[0]
            if delivery.is_wanted():
                await self._attempt(queue, delivery)
            await self._drop(queue)
            if queue.waiting:
                # The loop turns in any case: a range may have thousands of records.
                await self._tasks.sleep(queue.delay_ms())
        self._queues.pop(key, None)
        self._writers.pop(key, None)

    async def _attempt(self, queue: Deliveries, delivery: Delivery) -> None:
        """Write the range, or the next part of it. A bug of ours gives it up, and the next one goes on."""
        try:
            next_offset = await self._write(queue, delivery)
        except AttemptFailed as failure:
            queue.failed(str(failure), isinstance(failure, NotTaken))
        except Undeliverable as undeliverable:
            queue.waiting.popleft()
            self._lose(delivery, str(undeliverable), isinstance(undeliverable, Refused))
        except Exception as error:
            if passes(error):  # there is no memory for the batch, here or in the log
                queue.failed(f"the dead letters cannot be written: {error!r}", False)
            else:
                report(f"a dead letter of group {delivery.key.group_id!r}", error)
                queue.waiting.popleft()
                self._lose(delivery, f"a bug of kafkacompat: {error!r}", False)
        else:
            self._meter(delivery).written += next_offset - delivery.next_offset
            delivery.next_offset = next_offset
            queue.succeeded(self._clock.monotonic_ms())
            if next_offset > delivery.letters.last_offset:
                queue.waiting.popleft()
                delivery.answer.resolve(True)

    async def _drop(self, queue: Deliveries) -> None:
        """Give up what has had its attempts or is not wanted, a few in each turn of the loop."""
        now_ms = self._clock.monotonic_ms()
        left = GIVEN_UP_AT_ONCE
        while queue.waiting:
            first = queue.waiting[0]
            is_wanted = first.is_wanted()
            if is_wanted and not queue.is_over(first, now_ms):
                return
            if not left:
                await pause()
                now_ms, left = self._clock.monotonic_ms(), GIVEN_UP_AT_ONCE
                continue
            left -= 1
            queue.waiting.popleft()
            if is_wanted:
                self._lose(first, queue.last_reason, queue.is_request_failing)
            else:
                first.answer.resolve(False)

    def _meter(self, delivery: Delivery) -> GroupLetterMeter:
        group_id = delivery.key.group_id
        meter = self.meters.pop(group_id, None) or GroupLetterMeter()
        if len(group_id) <= NAME_MAX:
            self.meters[group_id] = meter
            if len(self.meters) > GROUPS_COUNTED:
                del self.meters[next(iter(self.meters))]
        return meter

    def _lose(self, delivery: Delivery, reason: str, has_request_failed: bool) -> None:
        if has_request_failed:
            self._meter(delivery).failed += 1
        last_offset = delivery.letters.last_offset
        self.given_up += last_offset - delivery.next_offset + 1
        self._losses.lost(delivery.key.group_id, delivery.source, delivery.next_offset, last_offset, reason)
        delivery.answer.resolve(False)

    # --- one attempt

    async def _write(self, queue: Deliveries, delivery: Delivery) -> int:
        """The offset after the last record whose dead letter is written. Raises AttemptFailed or Undeliverable."""
        policy = self._policy(delivery.key.group_id)
        topic_id = await self._find_topic(policy)
        sources = await self._read(queue, delivery, policy)
        topic = self._image().topics.get(policy.topic)
        if topic is None or topic.id != topic_id:
            raise AttemptFailed(f"topic {policy.topic} was deleted meanwhile")
        written = build(
            delivery.key.group_id,
            delivery.source,
            delivery.letters,
            delivery.next_offset,
            sources,
            self._max_bytes(policy),
            self._clock.now_ms(),
        )
        index = delivery.source.partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        answer = self._send(topic, index, leader, written.batch)
        self._meter(delivery).requests += 1
        try:
            code = await answer
        except Exception as error:
            raise NotTaken(f"node {leader} did not answer: {str(error) or type(error).__name__}") from error
        if code in GIVEN_UP:
            raise Refused(f"node {leader} answered {code.name}")
        if code is not ErrorCode.NONE:
            raise NotTaken(f"node {leader} answered {code.name}")
        return written.next_offset

    async def _find_topic(self, policy: DeadLetterPolicy) -> Uuid:
        """The id of the topic that takes the letters. Another one may get its name meanwhile. A topic that does not exist is
        created for the next attempt."""
        name = policy.topic
        if not name:
            raise Undeliverable("errors.deadletterqueue.topic.name of the group is empty")
        image = self._image()
        topic = image.topics.get(name)
        text = image.config(ConfigResourceType.TOPIC, name).get(GROUP_ENABLE, "false")
        flaw = flaw_of_topic(policy, topic is not None, text.strip().lower() == "true")
        if flaw is not None:
            raise Undeliverable(flaw)
        if topic is not None:
            return topic.id
        to_create = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in CREATED_WITH],
        )
        creation = self._create_topics(CreateTopicsRequest(topics=[to_create], timeout_ms=TIMEOUT_MS))
        try:
            (created,) = (await creation).topics
        except Exception as error:
            raise AttemptFailed(f"topic {name} cannot be created: {error}") from error
        if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise AttemptFailed(f"topic {name} is not known yet")
        raise AttemptFailed(f"topic {name} cannot be created: {created.error_message}")

    def _max_bytes(self, policy: DeadLetterPolicy) -> int:
        """Of a batch in the topic."""
        return self._topic_config(policy.topic).max_message_bytes

    async def _read(self, queue: Deliveries, delivery: Delivery, policy: DeadLetterPolicy) -> Sources:
        """The records to be copied, as far as this node still has them."""
        first, last = delivery.next_offset, delivery.letters.last_offset
        log = self._partitions.log(delivery.source) if policy.copies_records else None
        if log is None:
            return Sources({}, last)
        if first < log.log_start_offset:
            # Of these there is nothing to copy. The others follow with the next read.
            return Sources({}, min(log.log_start_offset - 1, last))
        try:
            records = await self._records_from(delivery.source, log, first)
            find = partial(self._sources_in, records, first, last, self._max_bytes(policy))
            return find() if self._workers is None else await self._workers.submit(find)
        except (BatchCorrupt, LogRefused, OSError) as error:
            # What may pass takes an attempt. The last attempt, and one that meets damage, writes the dead letters without
            # their records: they tell where those were.
            is_last = queue.is_at_last_attempt(delivery, self._clock.monotonic_ms())
            if not is_last and (passes(error) or isinstance(error, OSError)):
                raise AttemptFailed(f"the records cannot be read: {error}") from error
            logger.warning("%s: dead letters are written without their records: %s", delivery.source, error)
            return Sources({}, last)
        except Exception as error:
            if not passes(error):
                report("reading records for dead letters", error)
            raise AttemptFailed(f"the records cannot be read: {error!r}") from error

    async def _records_from(self, source: TopicPartition, log: Log, offset: int) -> Buffer | FileSlice:
        """Raises LogRefused, OSError, and what else a read does."""
        remote, core = self._partitions.remote, self._partitions.core(source)
        try:
            return log.read(offset, READ_BYTES, log.log_end_offset, True).records
        except LogRefused as refused:
            if refused.code is not ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE or remote is None or core is None:
                raise
        wanted = RemoteFetch(core, offset, READ_BYTES, True)
        (found,) = await remote.read([wanted], READ_BYTES, TIMEOUT_MS, read_committed=False)
        if found is None or isinstance(found, ErrorCode):
            raise TimeoutError("the remote storage does not give them")
        return found.records

    @staticmethod
    def _sources_in(records: Buffer | FileSlice, first: int, last: int, max_bytes: int) -> Sources:
        data = records.read() if isinstance(records, FileSlice) else records
        return sources_in(data, first, last, max_bytes)

    def _send(self, topic: TopicImage, index: int, leader: int, batch: bytearray) -> Deferred[ErrorCode]:
        if leader == self._node_id:
            return self._append(TopicPartition(topic.name, index), batch)
        channel = None if leader == NO_LEADER else self._channel(leader)
        if channel is None:
            raise AttemptFailed(f"{topic.name}-{index} has no leader that can be reached")
        data = PartitionProduceData(index=index, records=bytes(batch))
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])],
        )
        return channel.request(request, TIMEOUT_MS).then(_code_of)

    def _append(self, target: TopicPartition, batch: bytearray) -> Deferred[ErrorCode]:
        result = self._partitions.append(target, batch, ALL_REPLICAS, BATCH_FORMAT_VERSION, False)
        if result.error is not ErrorCode.NONE:
            return Deferred.of(result.error)
        replicated = self._partitions.when_replicated({target: result.last_offset + 1}, TIMEOUT_MS)
        if replicated is None:
            return Deferred.of(ErrorCode.NONE)
        return replicated.then(lambda codes: codes.get(target, ErrorCode.NONE))


def _code_of(response: Any) -> ErrorCode:
    """The error of the only partition in a Produce response."""
    return code_of(response.responses[0].partition_responses[0].error_code)


class _More(NamedTuple):
    """Records of one partition that no line has told yet."""

    records: int
    first_offset: int
    last_offset: int


class _Told:
    """What was said of a group, and what is still to be said."""

    __slots__ = ("last_reason", "more", "reasons", "summaries")

    def __init__(self) -> None:
        self.reasons: set[str] = set()
        self.more: dict[TopicPartition, _More] = {}
        self.last_reason = ""
        self.summaries: Started | None = None


class Losses:
    """A reason is forgotten after SAID_EVERY_MS without a loss. Then the next loss is said at once again."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._groups: dict[str, _Told] = {}

    def lost(
        self, group_id: str, source: TopicPartition, first_offset: int, last_offset: int, reason: str
    ) -> None:
        told = self._groups.get(group_id)
        if told is None:
            told = self._groups[group_id] = _Told()
            told.summaries = self._tasks.start("telling of lost dead letters", self._tell(group_id, told))
        if reason not in told.reasons and len(told.reasons) < REASONS_MAX:
            told.reasons.add(reason)
            logger.error(
                "group %r: no dead letters of %s, offsets %d to %d: %s. The records are archived all the same",
                group_id, source, first_offset, last_offset, reason,
            )  # fmt: skip
            return
        told.last_reason = reason
        count, first, last = told.more.get(source, _More(0, first_offset, last_offset))
        told.more[source] = _More(
            count + last_offset - first_offset + 1, min(first, first_offset), max(last, last_offset)
        )

    def close(self) -> None:
        """Say what was not said yet."""
        for group_id, told in self._groups.items():
            if told.summaries is not None:
                told.summaries.cancel()
            self._summarize(group_id, told)
        self._groups.clear()

    async def _tell(self, group_id: str, told: _Told) -> None:
        while True:
            await self._tasks.sleep(SAID_EVERY_MS)
            if not told.more:
                del self._groups[group_id]
                return
            self._summarize(group_id, told)

    @staticmethod
    def _summarize(group_id: str, told: _Told) -> None:
        if not told.more:
            return
        said = [
            f"{source}: {each.records} between {each.first_offset} and {each.last_offset}"
            for source, each in list(told.more.items())[:SOURCES_SAID]
        ]
        if len(told.more) > SOURCES_SAID:
            said.append(f"and {len(told.more) - SOURCES_SAID} more partitions")
        count = sum(each.records for each in told.more.values())
        logger.error(
            "group %r: %d more records have no dead letters (%s). The last reason: %s",
            group_id, count, ", ".join(said), told.last_reason,
        )  # fmt: skip
        told.more.clear()
