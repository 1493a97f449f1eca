"""The end offsets of partitions, wherever their leaders are. Follows Kafka's NetworkPartitionMetadataClient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.coordinator.inter_broker_sender import InterBrokerSender, NodeLost, Requests
from kafkacompat.dataclass import dataclass
from kafkacompat.deferred import Deferred, gather
from kafkacompat.faults import report
from kafkacompat.ids import NO_LEADER, TopicPartition
from kafkacompat.net.failures import ChannelError, ConnectionLost, RequestTimedOut
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.tasks import Tasks
from kafkacompat.wire.errors import ErrorCode, code_of
from kafkacompat.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.partition.service import PartitionService


CONSUMER = -1
LATEST_TIMESTAMP = -1
FIRST_BACKOFF_MS = 1_000
ATTEMPTS = 6
REQUEST_TIMEOUT_MS = 30_000

EndOffsets = Mapping[TopicPartition, "EndOffset"]


class EndOffset(NamedTuple):
    code: ErrorCode
    offset: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    partitions: list[TopicPartition]


class NetworkPartitionMetadataClient:
    """Asks each leader for the end offsets that consumers see, without regard to transactions."""

    def __init__(
        self,
        node_id: int,
        partitions: PartitionService,
        image: Callable[[], MetadataImage],
        channel: Callable[[int], Requests | None],
        tasks: Tasks,
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._image = image
        self._tasks = tasks
        self._closed = False
        self._sender: InterBrokerSender[_Question, EndOffsets] = InterBrokerSender(
            tasks, channel, REQUEST_TIMEOUT_MS, _request, _ends_of
        )

    def close(self) -> None:
        """Waiting questions are answered with NETWORK_EXCEPTION."""
        self._closed = True
        self._sender.close()

    def latest(self, partitions: Collection[TopicPartition]) -> Deferred[EndOffsets]:
        """An end offset or an error for each."""
        return self._tasks.run("reading end offsets", self._latest(partitions))

    async def _latest(self, partitions: Collection[TopicPartition]) -> EndOffsets:
        topics = self._image().topics
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            topic = topics.get(each.topic)
            registration = None if topic is None else topic.partitions.get(each.partition)
            leader = NO_LEADER if registration is None else registration.leader
            by_leader.setdefault(leader, []).append(each)
        asked = [self._ask(leader, part) for leader, part in by_leader.items()]
        found = await self._tasks.all("reading end offsets", asked)
        return {name: end for each in found for name, end in each.items()}

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> EndOffsets:
        if leader == NO_LEADER:
            return dict.fromkeys(partitions, EndOffset(ErrorCode.LEADER_NOT_AVAILABLE))
        if leader == self._node_id:
            lookups = await gather([self._own(each) for each in partitions])
            ends = [EndOffset(each.error, each.offset) for each in lookups]
            return dict(zip(partitions, ends, strict=True))
        for attempt in range(ATTEMPTS):
            try:
                found = await self._sender.ask(leader, _Question(partitions))
            except Exception as error:
                code = _code_of(error)
                if code is ErrorCode.UNKNOWN_SERVER_ERROR or self._closed or attempt == ATTEMPTS - 1:
                    break
                await self._tasks.sleep(FIRST_BACKOFF_MS << attempt)
            else:
                unknown = EndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return {each: found.get(each, unknown) for each in partitions}
        return dict.fromkeys(partitions, EndOffset(code))

    def _own(self, partition: TopicPartition) -> Deferred[OffsetLookup]:
        found = self._partitions.list_offset(partition, LATEST_TIMESTAMP, False, -1, CONSUMER)
        return Deferred.of(found) if isinstance(found, OffsetLookup) else found


def _code_of(error: Exception) -> ErrorCode:
    if isinstance(error, RequestTimedOut):
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, (ConnectionLost, NodeLost)):
        return ErrorCode.NETWORK_EXCEPTION
    if not isinstance(error, ChannelError):
        report("asking another node for the ends of partitions", error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _ends_of(response: Any) -> EndOffsets:
    return {
        TopicPartition(topic.name, each.partition_index): EndOffset(code_of(each.error_code), each.offset)
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
