"""Simple clients of a simulated cluster: idempotent producers and consumers.

They know brokers by address and leaders by Metadata, as real ones do, and never give up. Their own findings (a sequence out of
order, a record missed or seen twice) are breaches. Nothing cuts them off but the nodes' own ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import BatchHeader, build_batch, iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.records.record import Record
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import rack_of
from kafkacompat.sim.hosts import Host, Timer
from kafkacompat.sim.links import BROKER_PORT, SimulatedChannels, host_name
from kafkacompat.sim.quorum_oracles import Breach
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from kafkacompat.ports import Buffer
    from kafkacompat.sim.cluster_simulation import ClusterSimulation

TIMEOUT_MS = 1_500
PRODUCE_TIMEOUT_MS = 800
RETRY_MS = 60
METADATA_AGE_MS = 700
FETCH_WAIT_MS = 250
SESSIONLESS = -1
FENCED_FOR_GOOD = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""One batch of a producer is in flight to a partition: the broker says so only when it has lost what it acknowledged."""
Key = tuple[Uuid, int]


class Place(NamedTuple):
    """A partition as Metadata last told of it."""

    topic: str
    topic_id: Uuid
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition


class Client(Host):
    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.chance = Chance(simulation.seed, f"client {client_id}")
        self.channels = SimulatedChannels(self)
        self.places: dict[Key, Place] = {}
        self._is_asking = False
        self._next_refresh: Timer | None = None

    def start(self) -> None:
        self.refresh()

    def ask(self, node_id: int, message: Any, purpose: str = "client") -> Deferred[Any]:
        return self.channels.get(host_name(node_id), BROKER_PORT, purpose).request(message, TIMEOUT_MS)

    def any_broker(self) -> int:
        brokers = self.simulation.options.brokers
        return brokers[self.chance.randrange(len(brokers))]

    def later(self, call: Callable[[], None], most_ms: int = RETRY_MS) -> None:
        self.call_after(1 + self.chance.randrange(most_ms), call)

    def refresh(self) -> None:
        """Ask any broker who leads; at once or, while nobody answers, again and again."""
        if self._is_asking:
            return
        self._is_asking = True
        self.ask(self.any_broker(), MetadataRequest(topics=None), "metadata").on_done(self._told)

    def _told(self, done: Deferred[Any]) -> None:
        self._is_asking = False
        try:
            response = done.result()
        except ChannelError:
            self.later(self.refresh)
            return
        if self._next_refresh is not None:
            self._next_refresh.cancel()
        self._next_refresh = self.call_after(METADATA_AGE_MS, self.refresh)
        for topic in response.topics:
            for one in topic.partitions:
                key = topic.topic_id, one.partition_index
                known = self.places.get(key)
                if known is None or one.leader_epoch >= known.leader_epoch:
                    self.places[key] = Place(
                        topic.name,
                        topic.topic_id,
                        one.partition_index,
                        one.leader_id,
                        one.leader_epoch,
                        tuple(one.replica_nodes),
                    )
                if known is None:
                    self.found(key)

    def found(self, key: Key) -> None:
        """A partition that was not known before."""


class Producer(Client):
    """One batch at a time to each partition, again until it is acknowledged."""

    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.producer_id = -1
        self.lanes: dict[Key, Lane] = {}

    def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=None)
        self.ask(self.any_broker(), request).on_done(self._identified)

    def _identified(self, done: Deferred[Any]) -> None:
        try:
            response = done.result()
        except ChannelError:
            self.later(self.start)
            return
        if response.error_code:
            self.later(self.start)
            return
        self.producer_id = response.producer_id
        self.simulation.producer_identified(self, self.producer_id)
        self.refresh()

    def found(self, key: Key) -> None:
        if not self.simulation.is_for_producers(self.places[key].topic):
            return
        self.lanes[key] = Lane(self, key)
        self.lanes[key].next()


class Lane:
    """A producer's way to one partition."""

    def __init__(self, producer: Producer, key: Key) -> None:
        self._producer = producer
        self._key = key
        self.acknowledged = 0
        """Records, and so the next sequence."""
        self._count = 0
        self._timestamp_ms = 0
        self._asked = producer.places[key]
        self.is_idle = False

    def next(self) -> None:
        producer = self._producer
        if producer.simulation.is_deleted(self._key):
            del producer.lanes[self._key]
            return
        if producer.simulation.is_over_for_producers:
            self.is_idle = True
            return
        self._count = producer.chance.between(1, 3)
        self._timestamp_ms = producer.now_ms()
        self._send()

    def _send(self) -> None:
        producer, key = self._producer, self._key
        if producer.simulation.is_deleted(key):
            del producer.lanes[key]
            return
        self._asked = producer.places[key]
        leader = self._asked.leader
        if leader == NO_LEADER:
            producer.refresh()
            producer.later(self._send)
            return
        values = [b"%d" % (self.acknowledged + index) for index in range(self._count)]
        records = build_batch(
            [Record(index, self._timestamp_ms, None, value, ()) for index, value in enumerate(values)],
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=self.acknowledged,
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=producer.places[key].topic,
                    topic_id=key[0],
                    partition_data=[PartitionProduceData(index=key[1], records=records)],
                )
            ],
        )
        producer.ask(leader, request, f"produce {key[0].hex()} {key[1]}").on_done(self._answered)

    def _leads(self, place: Place) -> bool:
        """A former leader that does not know it yet may have missed what its successor acknowledged."""
        image = self._producer.simulation.image_oracles.partition(place.key)
        return image is not None and image.leader_epoch == place.leader_epoch

    def _answered(self, done: Deferred[Any]) -> None:
        producer = self._producer
        try:
            error = done.result().responses[0].partition_responses[0].error_code
        except ChannelError:
            error = ErrorCode.REQUEST_TIMED_OUT
        if error in FENCED_FOR_GOOD and self._leads(self._asked):
            raise Breach(
                "an acknowledged record stays",
                f"{producer.places[self._key]} answers sequence "
                f"{self.acknowledged} of producer {producer.producer_id} with {ErrorCode(error).name}",
            )
        if error == ErrorCode.NONE:
            self.acknowledged += self._count
            producer.simulation.counters.acknowledged += self._count
            producer.later(self.next, producer.simulation.options.think_ms)
        else:
            producer.simulation.counters.produce_retries += 1
            producer.refresh()
            producer.later(self._send)


class Reader(Client, ABC):
    """Reads every partition from its start, for ever. What it does with an answer is its kind's."""

    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.positions: dict[Key, int] = {}

    def found(self, key: Key) -> None:
        self.positions[key] = 0
        self._fetch(key)

    def _source(self, place: Place) -> int:
        """The node to read from."""
        return place.leader

    def _request(self, partition: FetchPartition, place: Place) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=100_000,
            session_epoch=SESSIONLESS,
            topics=[FetchTopic(topic=place.topic, topic_id=place.topic_id, partitions=[partition])],
        )

    def _fetch(self, key: Key) -> None:
        if self.simulation.is_deleted(key):
            del self.positions[key]
            return
        place = self.places[key]
        if place.leader == NO_LEADER:
            self._again(key)
            return
        partition = FetchPartition(
            partition=place.partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=self.positions[key],
            partition_max_bytes=self.simulation.options.fetch_bytes,
        )
        request = self._request(partition, place)
        purpose = f"consume {key[0].hex()} {key[1]}"
        self.ask(self._source(place), request, purpose).on_done(lambda done: self._fetched(key, done))

    def _fetched(self, key: Key, done: Deferred[Any]) -> None:
        try:
            response = done.result()
        except ChannelError:
            response = None
        if response is None or response.error_code or not response.responses:
            self._again(key)
            return
        answer = response.responses[0].partitions[0]
        self._check(key, answer)
        if answer.error_code:
            self._again(key)
            return
        self._read(key, answer)
        self.later(lambda: self._fetch(key), 20)

    def _check(self, key: Key, answer: Any) -> None:
        """Look at any answer, errors too."""

    @abstractmethod
    def _read(self, key: Key, answer: Any) -> None:
        """Take the records of an answer without an error."""

    def _again(self, key: Key) -> None:
        self.refresh()
        self.later(lambda: self._fetch(key))

    def _advance(self, key: Key, offset: int) -> None:
        if offset != self.positions[key]:
            raise Breach(
                "consumers miss nothing", f"{self.places[key]} went from {self.positions[key]} to {offset}"
            )
        self.positions[key] = offset + 1


class Consumer(Reader):
    """Reads to the high watermark, from the leader or a replica nearby."""

    def __init__(self, simulation: ClusterSimulation, client_id: int) -> None:
        super().__init__(simulation, client_id)
        self.next_sequences: dict[tuple[Key, int], int] = {}
        """By partition and producer."""
        self._rack = rack_of(self.chance.randrange(3))
        self._nearby: dict[Key, int] = {}
        """Partition -> the replica that its leader has pointed to; forgotten at the first trouble."""

    def _source(self, place: Place) -> int:
        return self._nearby.get(place.key, place.leader)

    def _request(self, partition: FetchPartition, place: Place) -> FetchRequest:
        request = super()._request(partition, place)
        request.rack_id = self._rack
        return request

    def _check(self, key: Key, answer: Any) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and key not in self._nearby:
            raise Breach(
                "consumers go on",
                f"{self.places[key]} has no offset {self.positions[key]} any more, "
                f"high watermark {answer.high_watermark}",
            )

    def _read(self, key: Key, answer: Any) -> None:
        if answer.preferred_read_replica >= 0:
            self._nearby[key] = answer.preferred_read_replica
        records = answer.records or b""
        if key in self._nearby and records:
            self.simulation.counters.reads_from_followers += 1
        self.simulation.partition_oracles.consumed(key, records, answer.high_watermark)
        for header in iterate_batches(records):
            batch = memoryview(records)[header.position : header.position + header.size]
            for offset, record in records_of(batch, header):
                if offset >= self.positions[key]:
                    self._take(key, header, offset, record.value or b"")

    def _take(self, key: Key, header: BatchHeader, offset: int, value: Buffer) -> None:
        self._advance(key, offset)
        producer_id = header.producer_id
        if header.is_transactional or producer_id not in self.simulation.producer_ids:
            return
        expected = self.next_sequences.get((key, producer_id), 0)
        if bytes(value) != b"%d" % expected:
            raise Breach(
                "each record once and in order",
                f"{self.places[key]} at {offset} has {value!r} of producer "
                f"{producer_id}, expected is {expected}",
            )
        self.next_sequences[key, producer_id] = expected + 1
        self.simulation.counters.consumed += 1

    def _again(self, key: Key) -> None:
        self._nearby.pop(key, None)
        super()._again(key)
