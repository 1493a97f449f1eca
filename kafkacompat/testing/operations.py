"""What a test asks one node, carried out in the node's own loop: through its handlers, and for records from its logs.

No connection is involved, so these requests meet no fault, and are no exchange.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.api.request_context import NO_CONNECTION, RequestContext
from kafkacompat.group.consumer_protocol import version_of
from kafkacompat.ids import OFFSETS_TOPIC, TRANSACTION_TOPIC, ZERO_UUID, TopicPartition
from kafkacompat.node.auto_topic_creation_manager import creatable_topic
from kafkacompat.ports.dispatcher import Principal
from kafkacompat.records.batch import BatchHeader, build_batch, iterate_batches
from kafkacompat.records.control import ControlType, parse_control_key
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record as LogRecord
from kafkacompat.testing.values import Committed, Ends, Group, Member, Record, Transaction
from kafkacompat.wire.codec import decode
from kafkacompat.wire.errors import ErrorCode, WireError
from kafkacompat.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkacompat.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkacompat.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkacompat.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkacompat.wire.messages.describe_groups_request import DescribeGroupsRequest
from kafkacompat.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkacompat.wire.messages.list_groups_request import ListGroupsRequest
from kafkacompat.wire.messages.list_transactions_request import ListTransactionsRequest
from kafkacompat.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkacompat.wire.messages.streams_group_describe_request import StreamsGroupDescribeRequest

if TYPE_CHECKING:
    from kafkacompat.config import ServerConfig
    from kafkacompat.controller.image import MetadataImage
    from kafkacompat.log.unified_log import UnifiedLog
    from kafkacompat.server.broker_server import BrokerServer
    from kafkacompat.server.raft_server import KafkaRaftServer

TESTER = Principal("User", "kafkacompat.testing")
"""Who asks. Where an authorizer is set, this is a super user."""
TIMEOUT_MS = 30_000
READ_BYTES = 1 << 20
DESCRIBES: Mapping[str, Any] = {
    "classic": lambda group: DescribeGroupsRequest(groups=[group]),
    "consumer": lambda group: ConsumerGroupDescribeRequest(group_ids=[group]),
    "share": lambda group: ShareGroupDescribeRequest(group_ids=[group]),
    "streams": lambda group: StreamsGroupDescribeRequest(group_ids=[group]),
}


class Refused(Exception):
    """The broker refused what a test asked. `code` is Kafka's error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = ErrorCode(code)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (int(self.code), str(self))


def check(code: int, what: str, message: str | None = None) -> None:
    """Raises Refused for an error."""
    if code != ErrorCode.NONE:
        raise Refused(code, f"{what}: {ErrorCode(code).name}{': ' + message if message else ''}")


class NodeOperations:
    """Everything is called in the node's loop."""

    def __init__(self, server: KafkaRaftServer) -> None:
        assert server.broker is not None
        self._broker: BrokerServer = server.broker
        self._listener = server.broker.bound[0].listener_name

    @property
    def _image(self) -> MetadataImage:
        return self._broker.partitions.image

    async def ask(self, message: Any) -> Any:
        """The answer to a request of any API of brokers."""
        version = min(message.MAX_VERSION, BROKER_APIS.by_key[message.API_KEY].max_version)
        context = RequestContext(
            message.API_KEY, version, 0, "kafkacompat.testing", NO_CONNECTION, self._listener, "127.0.0.1"
        )
        context.principal = TESTER
        return await self._broker.carry_out(context, message)

    def serving(self) -> set[int]:
        """The brokers that serve, as this one knows it."""
        return {node_id for node_id, broker in self._image.brokers.items() if not broker.fenced}

    # Topics.

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Return when this broker knows it. Raises Refused."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=each, value=text) for each, text in configs.items()],
        )
        (made,) = (await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))).topics
        check(made.error_code, f"topic {name}", made.error_message)

    async def create_coordinators_topics(self, config: ServerConfig) -> None:
        """The topics of groups and of transactions, as their first use would create them. Raises Refused."""
        topics = [creatable_topic(config, name) for name in (OFFSETS_TOPIC, TRANSACTION_TOPIC)]
        answer = await self.ask(CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS))
        for made in answer.topics:
            if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                check(made.error_code, f"topic {made.name}", made.error_message)

    async def delete_topic(self, name: str) -> None:
        """Raises Refused."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)
        (gone,) = (await self.ask(request)).responses
        check(gone.error_code, f"topic {name}", gone.error_message)

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(topic.partitions) for name, topic in self._image.topics.items()}

    def led(self, topic: str) -> list[int]:
        """The partitions that this broker leads."""
        partitions = self._image.topics[topic].partitions if topic in self._image.topics else {}
        return [index for index in partitions if self._broker.partitions.leads(TopicPartition(topic, index))]

    # Records.

    def ends(self, topic: str) -> dict[int, Ends]:
        found: dict[int, Ends] = {}
        for index in self.led(topic):
            log = self._log(topic, index)
            found[index] = Ends(log.log_start_offset, log.last_stable_offset, log.high_watermark)
        return found

    def records(self, topic: str) -> list[Record]:
        """All records of the partitions that this broker leads, in the order of partitions and offsets."""
        return [each for index in self.led(topic) for each in _records(topic, index, self._log(topic, index))]

    def _log(self, topic: str, index: int) -> UnifiedLog:
        log = self._broker.logs.get(TopicPartition(topic, index))
        assert log is not None
        return log

    async def produce(self, topic: str, index: int, records: Sequence[LogRecord]) -> int:
        """Append a batch, and return the offset of the first record when it is committed. Raises Refused."""
        topic_id = self._image.topics[topic].id if topic in self._image.topics else ZERO_UUID
        data = PartitionProduceData(index=index, records=build_batch(records))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
        )
        (answered,) = (await self.ask(request)).responses[0].partition_responses
        check(answered.error_code, f"{topic}-{index}", answered.error_message)
        return int(answered.base_offset)

    # Groups and transactions.

    async def groups(self) -> dict[str, Group]:
        """Those that this broker coordinates."""
        if not self._coordinates():
            return {}
        found: dict[str, Group] = {}
        for listed in (await self.ask(ListGroupsRequest())).groups:
            describe = DESCRIBES.get(listed.group_type.lower())
            members: tuple[Member, ...] = ()
            if describe is not None:
                (described,) = (await self.ask(describe(listed.group_id))).groups
                members = tuple(map(_member, described.members))
            found[listed.group_id] = Group(listed.group_id, listed.group_type, listed.group_state, members)
        return found

    async def committed(self, group: str) -> dict[tuple[str, int], Committed] | None:
        """By topic and partition. None if this broker does not coordinate the group."""
        if not self._coordinates():
            return {}
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        (answer,) = (await self.ask(request)).groups
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            return None
        check(answer.error_code, f"group {group}")
        names = {topic.id: topic.name for topic in self._image.topics.values()}
        return {
            (topic.name or names.get(topic.topic_id, ""), each.partition_index): Committed(
                each.committed_offset, each.metadata, each.committed_leader_epoch
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    async def transactions(self) -> dict[str, Transaction]:
        """Those that this broker coordinates."""
        if not self._coordinates():
            return {}
        listed = (await self.ask(ListTransactionsRequest())).transaction_states
        request = DescribeTransactionsRequest(transactional_ids=[each.transactional_id for each in listed])
        return {
            each.transactional_id: Transaction(
                each.transactional_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                {topic.topic: tuple(topic.partitions) for topic in each.topics},
            )
            for each in (await self.ask(request)).transaction_states
            if each.error_code == ErrorCode.NONE
        }

    def _coordinates(self) -> bool:
        """False while nobody has asked for a coordinator: then there is no group and no transaction."""
        return self._broker.has_coordinators


def _member(described: Any) -> Member:
    partitions: dict[str, tuple[int, ...]] = {}
    if hasattr(described, "member_assignment"):
        partitions = _assigned(described.member_assignment)
    elif hasattr(described.assignment, "topic_partitions"):
        assigned = described.assignment.topic_partitions
        partitions = {each.topic_name: tuple(each.partitions) for each in assigned}
    instance_id = getattr(described, "group_instance_id", getattr(described, "instance_id", None))
    return Member(described.member_id, described.client_id, described.client_host, instance_id, partitions)


def _assigned(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Empty for what is no assignment of a consumer: a group of the classic protocol may be of anything, such as Connect."""
    try:
        decoded = decode(ConsumerProtocolAssignment, version_of(assignment), assignment[2:])
    except WireError:
        return {}
    return {each.topic: tuple(each.partitions) for each in decoded.assigned_partitions}


def _batches(log: UnifiedLog) -> Iterator[tuple[bytes, BatchHeader]]:
    offset = log.log_start_offset
    while offset < log.high_watermark:
        read = log.read(offset, READ_BYTES, log.high_watermark, True).records
        data = read if isinstance(read, bytes) else bytes(read.read())
        before = offset
        for header in iterate_batches(data):
            yield data[header.position : header.position + header.size], header
            offset = header.last_offset + 1
        if offset == before:
            return


def _records(topic: str, index: int, log: UnifiedLog) -> list[Record]:
    """Committed by the replicas. The outcome of a transaction is told by the marker that follows its records."""
    found: list[Record] = []
    open_at: dict[int, list[int]] = {}
    """Where in `found` the records lie of each producer's open transaction."""
    for batch, header in _batches(log):
        for offset, record in records_of(batch, header):
            if header.is_control:
                kind = parse_control_key(record.key)
                for at in open_at.pop(header.producer_id, ()):
                    found[at] = _ended(found[at], kind == ControlType.COMMIT)
                continue
            if offset < log.log_start_offset:
                continue
            if header.is_transactional:
                open_at.setdefault(header.producer_id, []).append(len(found))
            found.append(
                Record(
                    topic,
                    index,
                    offset,
                    record.timestamp_ms,
                    record.key,
                    record.value,
                    record.headers,
                    header.producer_id,
                    "open" if header.is_transactional else None,
                )
            )
    return found


def _ended(record: Record, is_committed: bool) -> Record:
    return replace(record, transaction="committed" if is_committed else "aborted")
