"""Writes dead letters to the topic of their share group (KIP-1191): finds or creates the topic, reads what is to be
copied, and appends on this node or sends a Produce to the leader.

Each share-partition writes one range after the other. What cannot be written within some attempts is given up, as in
Kafka: the record is archived without a dead letter, and the log says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kafkacompat.controller.image import ConfigResourceType
from kafkacompat.deferred import Deferred
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.ports import FileSlice, LogRefused
from kafkacompat.records.batch import BatchCorrupt
from kafkacompat.share.dead_letters import (
    DeadLetterPolicy,
    DeadLetters,
    Source,
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
ATTEMPTS = 5
BACKOFF_MS, BACKOFF_MAX_MS = 1_000, 30_000
TIMEOUT_MS = 30_000
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


class _Delivery:
    """A range of dead letters on its way."""

    __slots__ = ("answer", "attempts", "key", "letters", "next_offset", "source")

    def __init__(self, key: SharePartitionKey, source: TopicPartition, letters: DeadLetters) -> None:
        self.key = key
        self.source = source
        self.letters = letters
        self.next_offset = letters.first_offset
        self.attempts = 0
        self.answer: Deferred[bool] = Deferred()


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
        self._waiting: dict[SharePartitionKey, deque[_Delivery]] = {}
        """The first of each is on its way. Bounded by the records in flight of the share-partition."""
        self._closed = False
        self.written = 0
        """Dead letters since the start."""
        self.given_up = 0

    def wants(self, group_id: str) -> bool:
        return self._policy(group_id).topic != ""

    def enqueue(self, key: SharePartitionKey, source: TopicPartition, letters: DeadLetters) -> Deferred[bool]:
        """True once all replicas in sync have the dead letters, False if they are given up. It does not fail."""
        delivery = _Delivery(key, source, letters)
        if self._closed:
            return Deferred.of(False)
        waiting = self._waiting.setdefault(key, deque())
        waiting.append(delivery)
        if len(waiting) == 1:
            self._begin(delivery)
        return delivery.answer

    def close(self) -> None:
        """Write nothing more. Those on their way stay unanswered: their share-partitions are closed too."""
        self._closed = True
        self._waiting.clear()

    # --- one step after the other

    def _begin(self, delivery: _Delivery) -> None:
        if self._closed:
            return
        try:
            self._find_topic(delivery)
        except Exception as error:
            report(f"a dead letter of group {delivery.key.group_id!r}", error)
            self._give_up(delivery, str(error))

    def _find_topic(self, delivery: _Delivery) -> None:
        policy = self._policy(delivery.key.group_id)
        if not policy.topic:
            self._give_up(delivery, "errors.deadletterqueue.topic.name of the group is empty")
            return
        image = self._image()
        exists = policy.topic in image.topics
        text = image.config(ConfigResourceType.TOPIC, policy.topic).get(GROUP_ENABLE, "false")
        flaw = flaw_of_topic(policy, exists, text.strip().lower() == "true")
        if flaw is not None:
            self._give_up(delivery, flaw)
        elif not exists:
            self._create(delivery, policy.topic)
        else:
            self._read(delivery, policy)

    def _create(self, delivery: _Delivery, name: str) -> None:
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

    def _read(self, delivery: _Delivery, policy: DeadLetterPolicy) -> None:
        """Read the records to be copied, as far as this node still has them."""
        log = self._partitions.log(delivery.source) if policy.copies_records else None
        if log is None:
            self._write(delivery, policy, {})
            return
        first, last = delivery.next_offset, delivery.letters.last_offset
        try:
            records = log.read(first, READ_BYTES, log.log_end_offset, True).records
        except (BatchCorrupt, LogRefused, OSError) as error:
            # The log may have been cut meanwhile. The dead letter then tells only where the record was.
            logger.info("%s: dead letters are written without their records: %s", delivery.source, error)
            self._write(delivery, policy, {})
            return

        def opened() -> dict[int, Source]:
            data: Buffer = records.read() if isinstance(records, FileSlice) else records
            return sources_in(data, first, last)

        if self._workers is None:
            self._write(delivery, policy, opened())
        else:
            self._workers.submit(opened).on_done(partial(self._was_read, delivery, policy))

    def _was_read(
        self, delivery: _Delivery, policy: DeadLetterPolicy, done: Deferred[dict[int, Source]]
    ) -> None:
        try:
            sources = done.result()
        except Exception as error:  # too many jobs, or a disk that fails
            self._again(delivery, f"the records cannot be read: {error}")
            return
        if not self._closed:
            self._write(delivery, policy, sources)

    def _write(self, delivery: _Delivery, policy: DeadLetterPolicy, sources: dict[int, Source]) -> None:
        topic = self._image().topics.get(policy.topic)
        if topic is None or not topic.partitions:
            self._again(delivery, f"topic {policy.topic} is being deleted")
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
        done = partial(self._was_written, delivery, written.next_offset)
        if leader == self._node_id:
            self._append(TopicPartition(policy.topic, index), written.batch).on_done(done)
            return
        channel = None if leader == NO_LEADER else self._channel(leader)
        if channel is None:
            self._again(delivery, f"{policy.topic}-{index} has no leader")
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

    def _was_written(self, delivery: _Delivery, next_offset: int, done: Deferred[ErrorCode]) -> None:
        try:
            code = done.result()
        except Exception as error:
            self._again(delivery, str(error))
            return
        if code in GIVEN_UP:
            self._give_up(delivery, code.name)
        elif code is not ErrorCode.NONE:
            self._again(delivery, code.name)
        else:
            self.written += next_offset - delivery.next_offset
            delivery.next_offset = next_offset
            delivery.attempts = 0
            if next_offset > delivery.letters.last_offset:
                self._finish(delivery, True)
            else:
                # The loop turns in between: a range may have thousands of records.
                self._timers.call_after(0, partial(self._begin, delivery))

    def _again(self, delivery: _Delivery, reason: str) -> None:
        delivery.attempts += 1
        if delivery.attempts >= ATTEMPTS:
            self._give_up(delivery, reason)
            return
        delay_ms = min(BACKOFF_MS << delivery.attempts - 1, BACKOFF_MAX_MS)
        self._timers.call_after(delay_ms, partial(self._begin, delivery))

    def _give_up(self, delivery: _Delivery, reason: str) -> None:
        letters = delivery.letters
        self.given_up += letters.last_offset - delivery.next_offset + 1
        logger.error(
            "group %r: no dead letters of %s, offsets %d to %d: %s",
            delivery.key.group_id, delivery.source, delivery.next_offset, letters.last_offset, reason,
        )  # fmt: skip
        self._finish(delivery, False)

    def _finish(self, delivery: _Delivery, is_written: bool) -> None:
        waiting = self._waiting.get(delivery.key)
        if waiting is None or waiting[0] is not delivery:
            return
        waiting.popleft()
        if waiting:
            self._timers.call_after(0, partial(self._begin, waiting[0]))
        else:
            del self._waiting[delivery.key]
        delivery.answer.resolve(is_written)


def _code_of(response: Any) -> ErrorCode:
    """The error of the only partition in a Produce response."""
    number = response.responses[0].partition_responses[0].error_code
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
