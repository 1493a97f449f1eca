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
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.ports import FileSlice, LogRefused, passes
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.share.dead_letter_deliveries import GIVEN_UP_AT_ONCE, TIMEOUT_MS, Deliveries, Delivery
from kafkacompat.share.dead_letter_losses import Losses
from kafkacompat.share.dead_letters import (
    DeadLetterPolicy,
    DeadLetters,
    Sources,
    build,
    flaw_of_topic,
    sources_in,
)
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import PartitionService
    from kafkacompat.api.share_services import SharePartitionKey
    from kafkacompat.config import LogConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Buffer, Clock, Timers, Workers

logger = logging.getLogger(__name__)

ALL_REPLICAS = -1
BATCH_FORMAT_VERSION = 13
"""The Produce version that the batches conform to."""
READ_BYTES = 1 << 20
"""Read of the source at a time."""
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
GIVEN_UP = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
"""Errors that another attempt does not mend."""


class Requests(Protocol):
    """The part of net.Channel that is used here."""

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]: ...


class DeadLetterQueue:
    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        policy: Callable[[str], DeadLetterPolicy],
        topic_config: Callable[[str], LogConfig],
        partitions: PartitionService,
        channel: Callable[[int], Requests | None],
        create_topics: Callable[[CreateTopicsRequest], Deferred[Any]],
        clock: Clock,
        timers: Timers,
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
        self._timers = timers
        self._workers = workers
        self._queues: dict[SharePartitionKey, Deliveries] = {}
        self._closed = False
        self._losses = Losses(timers)
        self.written = 0
        """Dead letters since the start."""
        self.given_up = 0

    def wants(self, group_id: str) -> bool:
        return self._policy(group_id).topic != ""

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
        delivery = Delivery(key, source, letters, is_wanted, queue.failures, self._clock.monotonic_ms())
        queue.waiting.append(delivery)
        if not queue.is_busy:
            queue.is_busy = True
            # Not at once: one request may reject a thousand ranges.
            self._timers.call_after(0, partial(self._begin, delivery))
        return delivery.answer

    def close(self) -> None:
        """Write nothing more. Those on their way stay unanswered: their share-partitions are closed too."""
        self._closed = True
        self._queues.clear()
        self._losses.close()

    # --- one step after the other

    def _begin(self, delivery: Delivery) -> None:
        if not self._closed and not delivery.is_wanted():
            self._go_on(delivery.key)
            return
        self._step(delivery, lambda: self._find_topic(delivery))

    def _step(self, delivery: Delivery, act: Callable[[], None]) -> None:
        """A bug of ours gives up the range, and the next one goes on."""
        if self._closed:
            return
        try:
            act()
        except Exception as error:
            report(f"a dead letter of group {delivery.key.group_id!r}", error)
            self._give_up(delivery, f"a bug of kafkacompat: {error!r}")

    def _find_topic(self, delivery: Delivery) -> None:
        policy = self._policy(delivery.key.group_id)
        if not policy.topic:
            self._give_up(delivery, "errors.deadletterqueue.topic.name of the group is empty")
            return
        image = self._image()
        topic = image.topics.get(policy.topic)
        exists = topic is not None
        text = image.config(ConfigResourceType.TOPIC, policy.topic).get(GROUP_ENABLE, "false")
        flaw = flaw_of_topic(policy, exists, text.strip().lower() == "true")
        if flaw is not None:
            self._give_up(delivery, flaw)
        elif topic is None:
            self._create(delivery, policy.topic)
        else:
            delivery.topic_id = topic.id
            self._read(delivery, policy)

    def _create(self, delivery: Delivery, name: str) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name=GROUP_ENABLE, value="true")],
        )

        def created(done: Deferred[Any]) -> None:
            try:
                (told,) = done.result().topics
            except Exception as error:
                self._again(delivery, f"topic {name} cannot be created: {error}")
                return
            if told.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self._again(delivery, f"topic {name} is not known yet")
            else:
                self._again(delivery, f"topic {name} cannot be created: {told.error_message}")

        self._create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).on_done(created)

    def _read(self, delivery: Delivery, policy: DeadLetterPolicy) -> None:
        """Read the records to be copied, as far as this node still has them."""
        first, last = delivery.next_offset, delivery.letters.last_offset
        log = self._partitions.log(delivery.source) if policy.copies_records else None
        if log is None:
            self._write(delivery, policy, Sources({}, last))
            return
        if first < log.log_start_offset:
            # Of these there is nothing to copy. The others follow with the next read.
            self._write(delivery, policy, Sources({}, min(log.log_start_offset - 1, last)))
            return
        try:
            records = log.read(first, READ_BYTES, log.log_end_offset, True).records
        except (BatchCorrupt, LogRefused, OSError) as error:
            self._not_read(delivery, policy, error)
            return

        def opened() -> Sources:
            data: Buffer = records.read() if isinstance(records, FileSlice) else records
            return sources_in(data, first, last)

        if self._workers is not None:
            self._workers.submit(opened).on_done(partial(self._was_read, delivery, policy))
            return
        try:
            sources = opened()
        except OSError as error:
            self._not_read(delivery, policy, error)
        else:
            self._write(delivery, policy, sources)

    def _was_read(self, delivery: Delivery, policy: DeadLetterPolicy, done: Deferred[Sources]) -> None:
        try:
            sources = done.result()
        except (BatchCorrupt, OSError) as error:
            problem = error
            self._step(delivery, lambda: self._not_read(delivery, policy, problem))
        except Exception as error:
            if not passes(error):
                report("reading records for dead letters", error)
            self._again(delivery, f"the records cannot be read: {error!r}")
        else:
            self._step(delivery, lambda: self._write(delivery, policy, sources))

    def _not_read(self, delivery: Delivery, policy: DeadLetterPolicy, error: Exception) -> None:
        """What may pass takes an attempt. The last attempt, and one that meets damage, writes the dead letters without
        their records: they tell where those were."""
        is_last = self._queues[delivery.key].is_at_last_attempt(delivery, self._clock.monotonic_ms())
        if not is_last and (passes(error) or isinstance(error, OSError)):
            self._again(delivery, f"the records cannot be read: {error}")
            return
        logger.warning("%s: dead letters are written without their records: %s", delivery.source, error)
        self._write(delivery, policy, Sources({}, delivery.letters.last_offset))

    def _write(self, delivery: Delivery, policy: DeadLetterPolicy, sources: Sources) -> None:
        topic = self._image().topics.get(policy.topic)
        if topic is None or topic.id != delivery.topic_id:
            self._again(delivery, f"topic {policy.topic} was deleted meanwhile")
            return
        index = delivery.source.partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        written = build(
            delivery.key.group_id,
            delivery.source,
            delivery.letters,
            delivery.next_offset,
            sources,
            self._topic_config(policy.topic).max_message_bytes,
            self._clock.now_ms(),
        )
        done = partial(self._was_written, delivery, written.next_offset, leader)
        if leader == self._node_id:
            self._append(TopicPartition(policy.topic, index), written.batch).on_done(done)
            return
        channel = None if leader == NO_LEADER else self._channel(leader)
        if channel is None:
            self._again(delivery, f"{policy.topic}-{index} has no leader that can be reached")
            return
        data = PartitionProduceData(index=index, records=bytes(written.batch))
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=policy.topic, topic_id=topic.id, partition_data=[data])],
        )
        channel.request(request, TIMEOUT_MS).then(_code_of).on_done(done)

    def _append(self, target: TopicPartition, batch: bytearray) -> Deferred[ErrorCode]:
        result = self._partitions.append(target, batch, ALL_REPLICAS, BATCH_FORMAT_VERSION, False)
        if result.error is not ErrorCode.NONE:
            return Deferred.of(result.error)
        replicated = self._partitions.when_replicated({target: result.last_offset + 1}, TIMEOUT_MS)
        if replicated is None:
            return Deferred.of(ErrorCode.NONE)
        return replicated.then(lambda codes: codes.get(target, ErrorCode.NONE))

    def _was_written(
        self, delivery: Delivery, next_offset: int, leader: int, done: Deferred[ErrorCode]
    ) -> None:
        if self._closed:
            return
        try:
            code = done.result()
        except Exception as error:
            self._again(delivery, f"node {leader} did not answer: {error or type(error).__name__}")
            return
        if code in GIVEN_UP:
            self._give_up(delivery, f"node {leader} answered {code.name}")
        elif code is not ErrorCode.NONE:
            self._again(delivery, f"node {leader} answered {code.name}")
        else:
            self.written += next_offset - delivery.next_offset
            delivery.next_offset = next_offset
            queue = self._queues[delivery.key]
            queue.succeeded(self._clock.monotonic_ms())
            if next_offset > delivery.letters.last_offset:
                queue.waiting.popleft()
                delivery.answer.resolve(True)
                self._go_on(delivery.key)
            else:
                # The loop turns in between: a range may have thousands of records.
                self._timers.call_after(0, partial(self._begin, delivery))

    def _again(self, delivery: Delivery, reason: str) -> None:
        """The attempt has failed, for all that wait."""
        if self._closed:
            return
        self._queues[delivery.key].failed(reason)
        self._go_on(delivery.key)

    def _give_up(self, delivery: Delivery, reason: str) -> None:
        """Give up this range alone."""
        queue = self._queues.get(delivery.key)
        if queue is None or not queue.waiting or queue.waiting[0] is not delivery:
            return
        queue.waiting.popleft()
        self._lose(delivery, reason)
        self._go_on(delivery.key)

    def _go_on(self, key: SharePartitionKey) -> None:
        """Give up what has had its attempts or is not wanted, a few in each turn of the loop, and begin with the next."""
        if self._closed:
            return
        queue = self._queues[key]
        now_ms = self._clock.monotonic_ms()
        left = GIVEN_UP_AT_ONCE
        while queue.waiting:
            first = queue.waiting[0]
            is_wanted = first.is_wanted()
            if is_wanted and not queue.is_over(first, now_ms):
                break
            if not left:
                self._timers.call_after(0, partial(self._go_on, key))
                return
            left -= 1
            queue.waiting.popleft()
            if is_wanted:
                self._lose(first, queue.last_reason)
            else:
                first.answer.resolve(False)
        if not queue.waiting:
            del self._queues[key]
            return
        self._timers.call_after(queue.delay_ms(), partial(self._begin, queue.waiting[0]))

    def _lose(self, delivery: Delivery, reason: str) -> None:
        last_offset = delivery.letters.last_offset
        self.given_up += last_offset - delivery.next_offset + 1
        self._losses.lost(delivery.key.group_id, delivery.source, delivery.next_offset, last_offset, reason)
        delivery.answer.resolve(False)


def _code_of(response: Any) -> ErrorCode:
    """The error of the only partition in a Produce response."""
    number = response.responses[0].partition_responses[0].error_code
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
