"""Sends batches to the partitions of one topic, each exactly once: brokers recognize a batch that is sent again (KIP-98)."""

from __future__ import annotations

from collections.abc import Sequence

from kafkacompat.cli.reader import FETCH_RETRIABLE
from kafkacompat.client.blocking import Backoff, Cluster
from kafkacompat.client.brokers import check, error_name
from kafkacompat.client.exchange import BrokerAway
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import ZERO_UUID
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.init_producer_id_response import InitProducerIdResponse
from kafkacompat.wire.messages.metadata_response import MetadataResponseTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkacompat.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

ACKS_ALL = -1
TIMEOUT_MS = 30_000
"""request.timeout.ms of Kafka's producers."""
DELIVERY_TIMEOUT_S = 120.0
"""delivery.timeout.ms of Kafka's producers."""
TOPIC_TIMEOUT_S = 10.0
NAMES_VERSION_MAX = 12
"""The newest version of Produce that has topic names instead of ids."""
SEQUENCES = 1 << 31
PRODUCE_RETRIABLE = (
    *FETCH_RETRIABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
)
TOPIC_COMES = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
PRODUCER_ID_RETRIABLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Sender:
    """Sends one batch at a time."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Wait for the topic, which the broker may create automatically, and for a leader of each partition."""
        self._cluster = cluster
        self._name = topic
        self._topic = self._wait_for_topic()
        self._producer = self._init_producer_id()
        self._sequences: dict[int, int] = {}
        """The sequence number of the next record of each partition."""

    @property
    def partition_count(self) -> int:
        return len(self._topic.partitions)

    def send(self, partition: int, records: Sequence[Record], codec: int) -> None:
        """Send until all in-sync replicas have the batch. Raises CommandFailed after DELIVERY_TIMEOUT_S."""
        sequence = self._sequences.get(partition, 0)
        producer_id, producer_epoch = self._producer
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence if producer_id >= 0 else -1,
            compression=codec,
        )
        backoff = Backoff(DELIVERY_TIMEOUT_S)
        while True:
            try:
                result = self._send_once(partition, bytes(batch))
                problem = f"{self._name}-{partition}: {error_name(result.error_code)}"
                if result.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    break
                if result.error_code not in PRODUCE_RETRIABLE:
                    check(result.error_code, f"{self._name}-{partition}", result.error_message)
                    break
            except BrokerAway as away:
                problem = str(away)
            if backoff.is_over:
                raise CommandFailed(f"not acknowledged within {DELIVERY_TIMEOUT_S:.0f} s: {problem}")
            backoff.wait()
            self._refresh()
        self._sequences[partition] = (sequence + len(records)) % SEQUENCES

    def _send_once(self, partition: int, batch: bytes) -> PartitionProduceResponse:
        leader = next(each.leader_id for each in self._topic.partitions if each.partition_index == partition)
        data = TopicProduceData(
            name=self._name,
            topic_id=self._topic.topic_id,
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[data])
        connection = self._cluster.leader(leader, f"{self._name}-{partition}")
        answer = connection.call(
            request, ProduceResponse, max_version=NAMES_VERSION_MAX, timeout_s=TIMEOUT_MS / 1000 + 5
        )
        return answer.responses[0].partition_responses[0]

    def _refresh(self) -> None:
        try:
            (found,) = self._cluster.ask_metadata([self._name]).topics
        except BrokerAway:
            return  # the next try may find a leader
        if found.error_code == ErrorCode.LEADER_NOT_AVAILABLE:
            return
        check(found.error_code, f"topic {self._name}")
        if ZERO_UUID not in (found.topic_id, self._topic.topic_id) and found.topic_id != self._topic.topic_id:
            raise CommandFailed(f"topic {self._name} was deleted and created again")
        if len(found.partitions) >= self.partition_count:
            self._topic = found

    def _wait_for_topic(self) -> MetadataResponseTopic:
        backoff = Backoff(TOPIC_TIMEOUT_S)
        while True:
            (topic,) = self._cluster.metadata([self._name], create=True).topics
            if topic.error_code == ErrorCode.NONE and all(each.leader_id >= 0 for each in topic.partitions):
                return topic
            if topic.error_code not in TOPIC_COMES or backoff.is_over:
                break
            backoff.wait()
        check(topic.error_code, f"topic {self._name}")
        raise CommandFailed(f"topic {self._name} has partitions without a leader")

    def _init_producer_id(self) -> tuple[int, int]:
        """Return (id, epoch). Return -1 if the broker does not support producer ids. Batches that are sent again may
        then be duplicated."""
        remote = self._cluster.any()
        if not remote.serves(ApiKey.INIT_PRODUCER_ID, 0):
            return -1, -1
        backoff = Backoff(DELIVERY_TIMEOUT_S)
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            answer = remote.call(request, InitProducerIdResponse)
            if answer.error_code not in PRODUCER_ID_RETRIABLE or backoff.is_over:
                check(answer.error_code, "a producer id")
                return answer.producer_id, answer.producer_epoch
            backoff.wait()
