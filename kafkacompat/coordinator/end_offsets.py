"""The end offsets of partitions, wherever their leaders are. Follows Kafka's NetworkPartitionMetadataClient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.api.partition_services import OffsetLookup
from kafkacompat.coordinator.node_queues import NodeLost, NodeQueues, Requests
from kafkacompat.deferred import Deferred, gather
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.net.failures import ConnectionLost, RequestTimedOut
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from kafkacompat.api.partition_services import PartitionService
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.ports import Timers

CONSUMER = -1
LATEST_TIMESTAMP = -1
FIRST_BACKOFF_MS = 1_000
ATTEMPTS = 6
REQUEST_TIMEOUT_MS = 30_000

EndOffsets = Mapping[TopicPartition, "EndOffset"]


class EndOffset(NamedTuple):
    code: ErrorCode
    offset: int = -1


class _Question:
    __slots__ = ("answer", "attempts", "node_id", "partitions")

    def __init__(self, node_id: int, partitions: list[TopicPartition]) -> None:
        self.node_id = node_id
        self.partitions = partitions
        self.attempts = 0
        self.answer: Deferred[EndOffsets] = Deferred()


class EndOffsetReader:
    """Asks each leader for the end offsets that consumers see, without regard to transactions."""

    def __init__(
        self,
        node_id: int,
        partitions: PartitionService,
        image: Callable[[], MetadataImage],
        channel: Callable[[int], Requests | None],
        timers: Timers,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._image = image
        self._timers = timers
        self._closed = False
        self._queues: NodeQueues[_Question] = NodeQueues(
            channel, REQUEST_TIMEOUT_MS, _request, self._answered
        )

    def close(self) -> None:
        """Waiting questions are answered with NETWORK_EXCEPTION."""
        self._closed = True
        self._queues.close()

    def latest(self, partitions: Collection[TopicPartition]) -> Deferred[EndOffsets]:
        """An end offset or an error for each."""
        topics = self._image().topics
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            topic = topics.get(each.topic)
            registration = None if topic is None else topic.partitions.get(each.partition)
            leader = NO_LEADER if registration is None else registration.leader
            by_leader.setdefault(leader, []).append(each)
        answers = [self._ask(leader, asked) for leader, asked in by_leader.items()]
        return gather(answers).then(lambda found: {name: end for each in found for name, end in each.items()})

    def _ask(self, leader: int, partitions: list[TopicPartition]) -> Deferred[EndOffsets]:
        if leader == NO_LEADER:
            return Deferred.of(dict.fromkeys(partitions, EndOffset(ErrorCode.LEADER_NOT_AVAILABLE)))
        if leader == self._node_id:
            return gather([self._own(each) for each in partitions]).then(
                lambda ends: dict(zip(partitions, ends, strict=True))
            )
        question = _Question(leader, partitions)
        self._queues.put(leader, question)
        return question.answer

    def _own(self, partition: TopicPartition) -> Deferred[EndOffset]:
        found = self._partitions.list_offset(partition, LATEST_TIMESTAMP, False, -1, CONSUMER)
        lookup = Deferred.of(found) if isinstance(found, OffsetLookup) else found
        return lookup.then(lambda ended: EndOffset(ended.error, ended.offset))

    def _answered(self, questions: list[_Question], done: Deferred[Any]) -> None:
        try:
            ends = _ends_of(done.result())
        except Exception as error:
            for question in questions:
                self._lost(question, error)
            return
        unknown = EndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for question in questions:
            question.answer.resolve({each: ends.get(each, unknown) for each in question.partitions})

    def _lost(self, question: _Question, error: Exception) -> None:
        code = _code_of(error)
        question.attempts += 1
        may_repeat = code is not ErrorCode.UNKNOWN_SERVER_ERROR and question.attempts < ATTEMPTS
        if may_repeat and not self._closed:
            delay_ms = FIRST_BACKOFF_MS << (question.attempts - 1)
            self._timers.call_after(delay_ms, lambda: self._queues.put(question.node_id, question))
            return
        question.answer.resolve(dict.fromkeys(question.partitions, EndOffset(code)))


def _code_of(error: Exception) -> ErrorCode:
    if isinstance(error, RequestTimedOut):
        return ErrorCode.REQUEST_TIMED_OUT
    is_lost = isinstance(error, (ConnectionLost, NodeLost))
    return ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.UNKNOWN_SERVER_ERROR


def _ends_of(response: Any) -> EndOffsets:
    """Raises ValueError for an error code that does not exist."""
    return {
        TopicPartition(topic.name, each.partition_index): EndOffset(ErrorCode(each.error_code), each.offset)
        for topic in response.topics
        for each in topic.partitions
    }


def _request(questions: list[_Question]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    # A partition that is named twice would be refused.
    for each in dict.fromkeys(each for question in questions for each in question.partitions):
        topic = topics.setdefault(each.topic, ListOffsetsTopic(name=each.topic))
        topic.partitions.append(
            ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST_TIMESTAMP)
        )
    return ListOffsetsRequest(replica_id=CONSUMER, isolation_level=0, topics=list(topics.values()))
