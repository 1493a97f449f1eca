"""A well-behaved client beside the hostile ones: it produces, reads, commits and takes part in a group, and is served as ever.

What it was told is acknowledged stays, with every byte; also after the node was killed and came back.
"""

from __future__ import annotations

from typing import Any

from kafkacompat.api.registry import BROKER_APIS
from kafkacompat.records.batch import build_batch, parse_header
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.wire.apis import message_class
from kafkacompat.wire.codec import encode, message_classes
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.message import Message

from .author import Request
from .judge import read_answer
from .node import Finding, FuzzedConnection, FuzzedNode
from .values import TOPICS, WITNESS_GROUP, WITNESSED_TOPIC

ANSWERED_WITHIN_MS = 40_000
"""Whoever rules the metadata may have to be elected anew."""
FETCHED_BYTES = 50_000_000
OWN_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "local.retention.ms": "-2",
    "max.message.bytes": "2000000",
    "min.insync.replicas": "1",
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
}
"""So that no change of the broker's settings takes anything away."""
UNKNOWN_TOPIC, TOPIC_EXISTS = 3, 36
RETRIED = (5, 6, 7, 14, 15, 16, 41)
"""Leaders, coordinators and controllers that are not there yet."""
RETRY_MS = 100


def of(name: str, **fields: Any) -> Any:
    return message_class(name)(**fields)


def part(message_name: str, struct_name: str, **fields: Any) -> Any:
    return message_classes(message_class(message_name))[struct_name](**fields)


class Witness:
    def __init__(self, node: FuzzedNode) -> None:
        self.topic_id = bytes(16)
        self.needed_ids: set[bytes] = set()
        """Of the topics that it cannot do without: its own, and those of the coordinators."""
        self.acknowledged: dict[int, bytes] = {}
        """Values by offset."""
        self.committed = -1
        self._node = node
        self._connection: FuzzedConnection | None = None
        self._correlation_id = 0
        self._member_id = ""
        self._produced = 0

    def forget_connection(self) -> None:
        self._connection = None

    def ask(self, message: Message, version: int | None = None) -> Any:
        """The answer; Finding where none comes in time, or the connection is closed."""
        entry = BROKER_APIS.by_key[message.API_KEY or 0]
        version = entry.max_version if version is None else version
        self._correlation_id += 1
        frame = request_header_bytes(entry.key, version, self._correlation_id, "witness")
        frame += encode(message, version)
        request = Request(entry, version, self._correlation_id, message, bytes(frame), False, ())
        node = self._node
        if self._connection is None:
            self._connection = node.connect()
        connection = self._connection
        connection.send(request.frame)
        waited = 0
        while not connection.answers and waited < ANSWERED_WITHIN_MS and connection.closed_for is None:
            node.pass_time(5)
            waited += 5
        if not connection.answers:
            raise Finding(f"the well-behaved client is not answered: {connection.closed_for!r} {request}")
        return read_answer(request, connection.answers.popleft())

    def ask_until_ready(self, message: Message, code_of: Any) -> Any:
        """Again while whoever answers is not ready; Finding for any other error."""
        for _ in range(ANSWERED_WITHIN_MS // RETRY_MS):
            response = self.ask(message)
            code = code_of(response)
            if code not in RETRIED:
                if code:
                    raise Finding(f"the well-behaved client is refused with {code}: {message} {response}")
                return response
            self._node.pass_time(RETRY_MS)
        raise Finding(f"the well-behaved client is refused for long: {message} {response}")

    def prepare(self) -> None:
        """Topics for everybody, one of its own, and both coordinators."""
        configs = [
            part("CreateTopicsRequest", "CreatableTopicConfig", name=name, value=value)
            for name, value in OWN_CONFIGS.items()
        ]
        compacted = part(
            "CreateTopicsRequest", "CreatableTopicConfig", name="cleanup.policy", value="compact"
        )
        topics = [
            part(
                "CreateTopicsRequest",
                "CreatableTopic",
                name=name,
                num_partitions=1 if name == WITNESSED_TOPIC else 2,
                replication_factor=1,
                configs=configs if name == WITNESSED_TOPIC else [compacted] if name == "compacted" else [],
            )
            for name in (WITNESSED_TOPIC, *TOPICS[:3])
        ]
        request = of("CreateTopicsRequest", topics=topics, timeout_ms=10_000)
        response = self.ask_until_ready(request, lambda each: max(topic.error_code for topic in each.topics))
        self.topic_id = next(topic.topic_id for topic in response.topics if topic.name == WITNESSED_TOPIC)
        for key_type in (0, 1):
            find = of("FindCoordinatorRequest", key_type=key_type, coordinator_keys=[WITNESS_GROUP])
            self.ask_until_ready(find, lambda each: each.coordinators[0].error_code)
        every = self.ask(of("MetadataRequest", topics=None)).topics
        self.needed_ids = {
            each.topic_id for each in every if each.name == WITNESSED_TOPIC or each.name.startswith("__")
        }

    def look(self) -> None:
        """Everything that it does, and everything that it was promised."""
        self._produce()
        self._read()
        self._join()
        self._commit()

    def _produce(self) -> None:
        self._produced += 1
        value = b"witness %d" % self._produced
        now_ms = 1_700_000_000_000
        batch = bytes(build_batch([Record(0, now_ms, None, value)]))
        data = part("ProduceRequest", "PartitionProduceData", index=0, records=batch)
        topic = part("ProduceRequest", "TopicProduceData", topic_id=self.topic_id, partition_data=[data])
        request = of("ProduceRequest", acks=-1, timeout_ms=10_000, topic_data=[topic])
        response = self.ask_until_ready(
            request, lambda each: each.responses[0].partition_responses[0].error_code
        )
        self.acknowledged[response.responses[0].partition_responses[0].base_offset] = value

    def _read(self) -> None:
        """All of it, from the beginning."""
        found: dict[int, bytes | None] = {}
        offset, last = 0, max(self.acknowledged)
        while offset <= last:
            data = part(
                "FetchRequest", "FetchPartition", fetch_offset=offset, partition_max_bytes=FETCHED_BYTES
            )
            topic = part("FetchRequest", "FetchTopic", topic_id=self.topic_id, partitions=[data])
            request = of("FetchRequest", max_wait_ms=500, min_bytes=1, topics=[topic])
            response = self.ask_until_ready(request, lambda each: each.responses[0].partitions[0].error_code)
            (partition,) = response.responses[0].partitions
            records, offset = values_by_offset(bytes(partition.records or b""), offset)
            if not records:
                raise Finding(f"nothing is read at {offset}, of {last} acknowledged: {partition}")
            found.update(records)
        for at, value in self.acknowledged.items():
            if found.get(at) != value:
                raise Finding(f"acknowledged at {at} was {value!r}, read is {found.get(at)!r}")

    def _join(self) -> None:
        protocol = part(
            "JoinGroupRequest", "JoinGroupRequestProtocol", name="range", metadata=b"\0\0\0\0\0\0"
        )
        request = of(
            "JoinGroupRequest",
            group_id=WITNESS_GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=10_000,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response = self.ask(request)
        if response.error_code in (79, 25):  # MEMBER_ID_REQUIRED, or it was thrown out long ago
            request.member_id = response.member_id if response.error_code == 79 else ""
            response = self.ask(request)
            if response.error_code == 79:
                request.member_id = response.member_id
        response = self.ask_until_ready(request, lambda each: each.error_code)
        self._member_id, self._generation = response.member_id, response.generation_id
        assignment = part(
            "SyncGroupRequest", "SyncGroupRequestAssignment", member_id=self._member_id, assignment=b"mine"
        )
        sync = of(
            "SyncGroupRequest",
            group_id=WITNESS_GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
        response = self.ask_until_ready(sync, lambda each: each.error_code)
        if bytes(response.assignment) != b"mine":
            raise Finding(f"the well-behaved client is assigned {response.assignment!r}")

    def _commit(self) -> None:
        last = max(self.acknowledged)
        fetched = self._fetched()
        if self.committed >= 0 and fetched != self.committed:
            raise Finding(f"committed was {self.committed}, fetched is {fetched}")
        partition = part("OffsetCommitRequest", "OffsetCommitRequestPartition", committed_offset=last)
        topic = part(
            "OffsetCommitRequest", "OffsetCommitRequestTopic", topic_id=self.topic_id, partitions=[partition]
        )
        request = of(
            "OffsetCommitRequest",
            group_id=WITNESS_GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[topic],
        )
        self.ask_until_ready(request, lambda each: each.topics[0].partitions[0].error_code)
        self.committed = last
        if self._fetched() != last:
            raise Finding(f"committed was {last}, fetched is {self._fetched()}")

    def _fetched(self) -> int:
        topic = part(
            "OffsetFetchRequest", "OffsetFetchRequestTopics", topic_id=self.topic_id, partition_indexes=[0]
        )
        group = part("OffsetFetchRequest", "OffsetFetchRequestGroup", group_id=WITNESS_GROUP, topics=[topic])
        response = self.ask_until_ready(
            of("OffsetFetchRequest", groups=[group]), lambda each: each.groups[0].error_code
        )
        return int(response.groups[0].topics[0].partitions[0].committed_offset)


def values_by_offset(records: bytes, offset: int) -> tuple[dict[int, bytes | None], int]:
    """Of whole batches; and the offset after the last."""
    found: dict[int, bytes | None] = {}
    position = 0
    while position + 61 <= len(records):
        header = parse_header(records, position)
        if position + header.size > len(records):
            break
        batch = records[position : position + header.size]
        # Of what others wrote only what can be opened is looked at; what the witness wrote is uncompressed.
        if not header.codec:
            for at, record in records_of(batch, parse_header(batch)):
                found[at] = record.value
        else:
            found.setdefault(header.last_offset, None)
        offset = header.last_offset + 1
        position += header.size
    return found, offset
