"""Simple clients of a simulated cluster, their connections to coordinators, and its idempotent producers.

Like real clients they know brokers by address and leaders by Metadata. They never give up. If a client itself finds an
error (a sequence out of order, a record missed or seen twice), that is a breach. Only the end of a node closes their
connections. For the coordinator of a transactional id or a group any broker is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkacompat.deferred import Deferred
from kafkacompat.ids import NO_LEADER, Uuid
from kafkacompat.net.channels import ChannelError
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.sim.breach import Breach
from kafkacompat.sim.chance import Chance
from kafkacompat.sim.cluster_options import COMPACTED, UNCLEAN, is_for_producers
from kafkacompat.sim.committed_metadata import Key
from kafkacompat.sim.links import BROKER_PORT, Links, SimulatedChannels, host_name
from kafkacompat.sim.processes import Process, Timer
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.find_coordinator_request import FindCoordinatorRequest
from kafkacompat.wire.messages.init_producer_id_request import InitProducerIdRequest
from kafkacompat.wire.messages.metadata_request import MetadataRequest
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

TIMEOUT_MS = 1_500
PRODUCE_TIMEOUT_MS = 800
RETRY_MS = 60
METADATA_AGE_MS = 700
KEYS = 20
"""The number of keys of a producer in a compacted topic."""
FENCED_FOR_GOOD = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""A producer has one batch in flight to a partition. A broker returns these errors only if it has lost acknowledged records."""


class Place(NamedTuple):
    """A partition as the latest Metadata response described it."""

    topic: str
    topic_id: Uuid
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition


class Client(Process):
    def __init__(self, links: Links, client_id: int) -> None:
        super().__init__(links.env, client_id)
        self.chance = Chance(links.env.seed, f"client {client_id}")
        self.channels = SimulatedChannels(self, links)
        self.places: dict[Key, Place] = {}
        self._is_asking = False
        self._next_refresh: Timer | None = None

    def start(self) -> None:
        self.refresh()

    def ask(self, node_id: int, message: Any, purpose: str = "client") -> Deferred[Any]:
        return self.channels.get(host_name(node_id), BROKER_PORT, purpose).request(message, TIMEOUT_MS)

    def any_broker(self) -> int:
        brokers = self.env.options.brokers
        return brokers[self.chance.randrange(len(brokers))]

    def later(self, call: Callable[[], None], most_ms: int = RETRY_MS) -> None:
        self.call_after(1 + self.chance.randrange(most_ms), call)

    def refresh(self) -> None:
        """Ask any broker for the leaders: now, and again until a broker answers."""
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
        """Called for each partition that was not known before."""


class Producer(Client):
    """Sends one batch at a time to each partition, and repeats it until it is acknowledged."""

    def __init__(self, links: Links, client_id: int) -> None:
        super().__init__(links, client_id)
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
        if self.producer_id in self.env.producer_ids:
            raise Breach("a producer id is given once", f"{self.producer_id} again, to {self.id}")
        self.env.producer_ids.add(self.producer_id)
        self.refresh()

    def found(self, key: Key) -> None:
        topic = self.places[key].topic
        if not is_for_producers(topic):
            return
        self.lanes[key] = LANES.get(topic, Lane)(self, key)
        self.lanes[key].next()


class Lane:
    """The part of a producer that writes to one partition."""

    def __init__(self, producer: Producer, key: Key) -> None:
        self._producer = producer
        self._key = key
        self.acknowledged = 0
        """The number of acknowledged records, which is also the next sequence number."""
        self._count = 0
        self._timestamp_ms = 0
        self._asked = producer.places[key]
        self.is_idle = False

    def next(self) -> None:
        producer = self._producer
        if producer.env.metadata.is_deleted(self._key):
            del producer.lanes[self._key]
            return
        if producer.env.is_over_for_producers:
            self.is_idle = True
            return
        self._count = producer.chance.between(1, 3)
        self._timestamp_ms = producer.now_ms()
        self._send()

    def _send(self) -> None:
        producer, key = self._producer, self._key
        if producer.env.metadata.is_deleted(key):
            del producer.lanes[key]
            return
        self._asked = producer.places[key]
        leader = self._asked.leader
        if leader == NO_LEADER:
            producer.refresh()
            producer.later(self._send)
            return
        producer_id, producer_epoch, base_sequence = self._identity()
        records = build_batch(
            [Record(index, self._timestamp_ms, *self._content(index), ()) for index in range(self._count)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
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

    def _identity(self) -> tuple[int, int, int]:
        """Return producer id, epoch and sequence number."""
        return self._producer.producer_id, 0, self.acknowledged

    def _content(self, index: int) -> tuple[bytes | None, bytes | None]:
        """Return key and value of the record `index` places after the next one."""
        return None, b"%d" % (self.acknowledged + index)

    def _leads(self, place: Place) -> bool:
        """Whether the place's leader is current. A deposed leader may lack records that its successor acknowledged."""
        image = self._producer.env.metadata.partition(place.key)
        return image is not None and image.leader_epoch == place.leader_epoch

    def _settle(self) -> None:
        """The batch in flight is acknowledged."""

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
            self._settle()
            self.acknowledged += self._count
            producer.env.counters.acknowledged += self._count
            producer.later(self.next, producer.env.options.think_ms)
        else:
            producer.env.counters.produce_retries += 1
            producer.refresh()
            producer.later(self._send)


class KeyedLane(Lane):
    """For a compacted topic: few keys, which only this producer uses. One record in seven is a tombstone."""

    def __init__(self, producer: Producer, key: Key) -> None:
        super().__init__(producer, key)
        self.latest: dict[bytes, bytes | None] = {}
        """The last acknowledged value of each key."""

    def _content(self, index: int) -> tuple[bytes | None, bytes | None]:
        number = self.acknowledged + index
        key = b"%d of %d" % (number * 7 % KEYS, self._producer.id)
        return key, None if number % 7 == 3 else b"%d" % number

    def _settle(self) -> None:
        for index in range(self._count):
            key, value = self._content(index)
            assert key is not None
            self.latest[key] = value


class CarelessLane(Lane):
    """For a topic that may lose acknowledged records, and with them a producer's sequence numbers: not idempotent."""

    def _identity(self) -> tuple[int, int, int]:
        return -1, -1, -1


LANES = {COMPACTED: KeyedLane, UNCLEAN: CarelessLane}


GROUP, TRANSACTIONAL_ID = 0, 1
"""Key types of FindCoordinator."""
FIND_AGAIN_MS = 200


class CoordinatorConnection:
    """`node_id` is the last known coordinator, or None before the first answer. `purpose` names the connection."""

    def __init__(self, client: Client, key_type: int, key: str, purpose: str) -> None:
        self._client = client
        self._key_type = key_type
        self._key = key
        self._purpose = purpose
        self.node_id: int | None = None

    def forget(self) -> None:
        self.node_id = None

    def send(self, request: Any, still: Callable[[], bool], then: Callable[[Deferred[Any]], None]) -> None:
        """Send the request when the coordinator is known. `then` is not called if `still` returns False in the meantime."""
        client = self._client

        def found(done: Deferred[Any]) -> None:
            if not still():
                return
            try:
                answer = done.result().coordinators[0]
            except ChannelError:
                answer = None
            if answer is None or answer.error_code:
                client.later(find, FIND_AGAIN_MS)
                return
            self.node_id = answer.node_id
            ask()

        def find() -> None:
            if still():
                asked = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
                client.ask(client.any_broker(), asked, "metadata").on_done(found)

        def ask() -> None:
            assert self.node_id is not None
            client.ask(self.node_id, request, self._purpose).on_done(answered)

        def answered(done: Deferred[Any]) -> None:
            if still():
                then(done)

        if self.node_id is None:
            find()
        else:
            ask()


def outcome_of(done: Deferred[Any]) -> tuple[ErrorCode, Any]:
    """Return the top-level error (REQUEST_TIMED_OUT without an answer) and the answer."""
    try:
        answer = done.result()
    except ChannelError:
        return ErrorCode.REQUEST_TIMED_OUT, None
    return ErrorCode(answer.error_code), answer
