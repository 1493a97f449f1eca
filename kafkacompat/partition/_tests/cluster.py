"""Several partition managers in one thread: real logs on memory disks. Channels and the controller are queues of
events.

Nothing happens by itself. `step` delivers one event of a queue: each link keeps its order, the order between links is
free. `settle` delivers everything and advances time. A killed node's disk keeps what was written, like the page cache
of a killed process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import CoroutineType, SimpleNamespace
from typing import Any

from kafkacompat._tests.doubles import HandTime
from kafkacompat.api import fetch as fetch_api
from kafkacompat.api import offset_for_leader_epoch
from kafkacompat.api.request_context import RequestContext
from kafkacompat.config import LogConfig
from kafkacompat.controller.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from kafkacompat.deferred import Deferred
from kafkacompat.ids import TopicPartition
from kafkacompat.log._tests.memory_disk import MemoryDisk
from kafkacompat.log.log_manager import LogManager
from kafkacompat.net.failures import ConnectionLost
from kafkacompat.partition._tests.kit import LISTENER, batch_of, broker_image, partition_image, topic_image
from kafkacompat.partition._tests.services import SETTINGS, partition_services
from kafkacompat.partition.fetch import FetchEngine
from kafkacompat.partition.fetch_session import FetchSessionCache
from kafkacompat.partition.replica_fetcher_manager import ReplicaFetcherManager
from kafkacompat.partition.replica_manager import ReplicaManager
from kafkacompat.partition.service import OffsetLookup
from kafkacompat.ports import Log
from kafkacompat.records.batch import iterate_batches
from kafkacompat.records.read import records_of
from kafkacompat.tasks import at_once
from kafkacompat.wire.codec import decode, encoder
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.message import Message
from kafkacompat.wire.messages.alter_partition_response import (
    AlterPartitionResponse,
    PartitionData,
    TopicData,
)
from kafkacompat.wire.messages.fetch_request import FetchRequest
from kafkacompat.wire.messages.fetch_response import FetchResponse
from kafkacompat.wire.messages.list_offsets_request import ListOffsetsRequest
from kafkacompat.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkacompat.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from kafkacompat.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

T0 = TopicPartition("t", 0)
SETTING_NAMES = {name.replace(".", "_"): name for name in SETTINGS}


VERSIONS: dict[type[Message], int] = {
    FetchRequest: 18,
    FetchResponse: 18,
    ListOffsetsRequest: 10,
    ListOffsetsResponse: 10,
    OffsetForLeaderEpochRequest: 4,
    OffsetForLeaderEpochResponse: 4,
}


def carried(message: Any, version: int) -> Any:
    """The message after encoding and decoding."""
    out = bytearray()
    encoder(type(message), version)(message, out)
    return decode(type(message), version, out)


class Lost(ConnectionLost):
    pass


class FakeChannel:
    """A channel that encodes and decodes messages, like a socket."""

    def __init__(self, cluster: Cluster, source: ClusterNode, target_id: int, purpose: str) -> None:
        self.cluster = cluster
        self.source = source
        self.target_id = target_id
        self.link = f"{source.id}/{source.epoch}>{target_id} {purpose}"
        self.closed = False

    def request(self, message: Any, timeout_ms: int) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        sent = carried(message, VERSIONS[type(message)])
        self.cluster.put(self.link, lambda: self._arrive(sent, reply))
        return reply

    def close(self) -> None:
        self.closed = True

    def _arrive(self, message: Any, reply: Deferred[Any]) -> None:
        target = self.cluster.nodes[self.target_id]
        if not self.cluster.are_connected(self.source, target):
            self._answer(reply, None)
            return
        target.unanswered.append(lambda: self._answer(reply, None))
        target.handle(message).on_done(lambda done: self._answer(reply, done.result()))

    def _answer(self, reply: Deferred[Any], response: Any) -> None:
        self.cluster.put(f"{self.link} reply", lambda: self._deliver(reply, response))

    def _deliver(self, reply: Deferred[Any], response: Any) -> None:
        if reply.done or not self.source.alive:
            return
        target = self.cluster.nodes[self.target_id]
        if response is None or not self.cluster.are_connected(self.source, target):
            reply.fail(Lost("the connection was lost"))
        else:
            reply.resolve(carried(response, VERSIONS[type(response)]))


class ClusterNode:
    """One process of a broker."""

    authorizer = None

    def __init__(self, cluster: Cluster, node_id: int, epoch: int, disk: MemoryDisk) -> None:
        self.cluster = cluster
        self.id = node_id
        self.epoch = epoch
        self.disk = disk
        self.alive = True
        self.unanswered: list[Callable[[], None]] = []
        self.logs = LogManager(disk, [("/data", bytes(15) + bytes([node_id]))], LogConfig(), cluster.time)
        self.logs.load_all()
        self.image = MetadataImage()
        self.halted: list[BaseException] = []
        services = partition_services(
            node_id,
            self.logs,
            cluster.time,
            SimpleNamespace(submit=self._work),
            lambda topic: replace(cluster.log_config, min_insync_replicas=cluster.min_isr),
            numbers=cluster.settings,
            halt=lambda problem: self.halted.append(problem),
        )
        self.tasks = services.tasks
        self.replication = ReplicaFetcherManager(
            services,
            LISTENER,
            SimpleNamespace(get=self._channel),
            broker_epoch=lambda: self.epoch,
            alter=lambda request: cluster.alter(self, request),
        )
        self.manager = ReplicaManager(services, self.replication)
        self.fetches = FetchEngine(
            services,
            self.manager,
            FetchSessionCache(1000, cluster.next_session_id, lambda held: None),
            1 << 26,
            selects_by_rack=True,
            throttle=self.replication.leader_throttle,
        )
        self.by_address = {f"host-{each}": each for each in cluster.ids}

    def _channel(self, host: str, port: int, purpose: str) -> FakeChannel:
        return FakeChannel(self.cluster, self, self.by_address[host], purpose)

    def _work(self, function: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.cluster.put(f"{self.id}/{self.epoch} worker", lambda: done.resolve(function()))
        return done

    def take_image(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.manager.on_image(old, image)

    def handle(self, message: Any) -> Deferred[Any]:
        if isinstance(message, FetchRequest):
            self.cluster.fetches += 1
            context = RequestContext(1, 18, 0, None, 0, LISTENER, "127.0.0.1")
            # it has as much of a Node as the handler uses
            answer = fetch_api.handle(self, context, message)  # type: ignore[arg-type]
            if isinstance(answer, CoroutineType):
                answer = self.tasks.run("a fetch of many partitions", answer)
            if not isinstance(answer, Deferred):
                answer = Deferred.of(answer)
            return answer.then(with_bytes)
        if isinstance(message, OffsetForLeaderEpochRequest):
            return Deferred.of(at_once(offset_for_leader_epoch.handle(self, None, message)))  # type: ignore[arg-type]
        return Deferred.of(
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[self._offset_of(topic.name, one, message) for one in topic.partitions],
                    )
                    for topic in message.topics
                ]
            )
        )

    def _offset_of(self, topic: str, asked: Any, message: Any) -> ListOffsetsPartitionResponse:
        found = self.manager.list_offset(
            TopicPartition(topic, asked.partition_index),
            asked.timestamp,
            False,
            asked.current_leader_epoch,
            message.replica_id,
        )
        assert isinstance(found, OffsetLookup)  # followers request the ends only
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index,
            error_code=found.error,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    @property
    def partitions(self) -> ReplicaManager:
        return self.manager

    def log(self, partition: TopicPartition = T0) -> Log:
        return self.manager.by_name[partition].log

    def append(self, value: bytes, partition: TopicPartition = T0, acks: int = -1) -> Any:
        return self.manager.append(
            partition, batch_of(value, now_ms=self.cluster.time.now_ms()), acks, 13, False
        )

    def produce(self, value: bytes, partition: TopicPartition = T0) -> Deferred[ErrorCode]:
        """Produce with acks=all and the default request timeout."""
        result = self.append(value, partition)
        if result.error is not ErrorCode.NONE:
            return Deferred.of(result.error)
        waiting = self.manager.when_replicated({partition: result.last_offset + 1}, 30_000)
        if waiting is None:
            return Deferred.of(ErrorCode.NONE)
        return waiting.then(lambda errors: errors[partition])


def with_bytes(response: Any) -> Any:
    """The records read from the files now, as they leave through the socket."""
    for topic in response.responses:
        for partition in topic.partitions:
            if not isinstance(partition.records, bytes):
                partition.records = partition.records.read()
    return response


class Cluster:
    def __init__(
        self, ids: Iterable[int] = (1, 2, 3), *, partitions: int = 1, min_isr: int = 1, **settings: int
    ) -> None:
        self.ids = tuple(ids)
        self.min_isr = min_isr
        self.log_config = LogConfig()
        self.settings = {**SETTINGS, **{SETTING_NAMES[name]: value for name, value in settings.items()}}
        self.time = HandTime()
        self.queues: dict[str, deque[Callable[[], None]]] = {}
        self.cut: set[frozenset[int]] = set()
        self.fetches = 0
        self._sessions = 0
        self._epochs = 10
        self._offset = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.nodes: dict[int, ClusterNode] = {}
        self.topic = topic_image(
            "t",
            {index: partition_image(replicas=self.ids, leader=self.ids[0]) for index in range(partitions)},
        )
        for node_id in self.ids:
            self._boot(node_id, MemoryDisk())
        self.publish()

    def next_session_id(self) -> int:
        self._sessions += 1
        return self._sessions

    # Events

    def put(self, link: str, event: Callable[[], None]) -> None:
        self.queues.setdefault(link, deque()).append(event)

    def step(self, choice: int = 0) -> bool:
        """Deliver the next event of one link. Returns False if there is none."""
        links = sorted(self.queues)
        if not links:
            return False
        link = links[choice % len(links)]
        event = self.queues[link].popleft()
        if not self.queues[link]:
            del self.queues[link]
        event()
        return True

    def drain(self) -> None:
        for _ in range(100_000):
            if not self.step():
                return
        raise AssertionError("events beget events without end")

    def tick(self) -> None:
        """Run the next timer."""
        pending = self.time.pending()
        if pending:
            first = min(timer.at_ms for timer in pending)
            self.time.advance(max(0, first - self.time.ms))

    def settle(self, ms: int = 3000) -> None:
        """Deliver everything while `ms` pass."""
        end = self.time.ms + ms
        self.drain()
        while True:
            due = [timer.at_ms for timer in self.time.pending() if timer.at_ms <= end]
            if not due:
                break
            self.time.advance(max(0, min(due) - self.time.ms))
            self.drain()
        self.time.ms = end

    def are_connected(self, one: ClusterNode, other: ClusterNode) -> bool:
        return one.alive and other.alive and frozenset((one.id, other.id)) not in self.cut

    # Starts and stops of nodes.

    def _boot(self, node_id: int, disk: MemoryDisk) -> None:
        disk.make_directory("/data")
        self._epochs += 1
        self.nodes[node_id] = ClusterNode(self, node_id, self._epochs, disk)
        self.brokers[node_id] = replace(broker_image(node_id), epoch=self._epochs, rack=f"rack-{node_id}")

    def kill(self, node_id: int) -> None:
        """End the process. The controller learns of it soon."""
        node = self.nodes[node_id]
        node.alive = False
        node.replication.close()
        for answer in node.unanswered:
            answer()
        self.fence(node_id)

    def restart(self, node_id: int, *, empty: bool = False) -> None:
        disk = self.nodes[node_id].disk
        self._boot(node_id, MemoryDisk() if empty else disk.copy())
        self._elect()
        self.publish()

    # The controller

    def partition(self, index: int = 0) -> PartitionRegistration:
        return self.topic.partitions[index]

    def leader(self, index: int = 0) -> ClusterNode:
        return self.nodes[self.partition(index).leader]

    def change(self, index: int = 0, **fields: Any) -> None:
        """Write a partition's change. A change of leader or replicas begins a new leader epoch."""
        before = self.partition(index)
        after = replace(before, partition_epoch=before.partition_epoch + 1, **fields)
        if after.leader != before.leader or set(before.replicas) - set(after.replicas):
            after = replace(after, leader_epoch=before.leader_epoch + 1)
        self.topic = TopicImage("t", self.topic.id, {**self.topic.partitions, index: after})

    def fence(self, node_id: int) -> None:
        self.brokers[node_id] = replace(self.brokers[node_id], fenced=True)
        for index, partition in self.topic.partitions.items():
            isr = tuple(member for member in partition.isr if member != node_id) or partition.isr
            leader = -1 if partition.leader == node_id else partition.leader
            if (isr, leader) != (partition.isr, partition.leader):
                self.change(index, isr=isr, leader=leader)
        self._elect()
        self.publish()

    def unfence(self, node_id: int) -> None:
        """A broker that lost contact to the controller is back with the same epoch."""
        self.brokers[node_id] = replace(self.brokers[node_id], fenced=False)
        self._elect()
        self.publish()

    def _elect(self) -> None:
        """Elect the first live replica of the ISR, and no other."""
        for index, partition in self.topic.partitions.items():
            if partition.leader == -1:
                live = [
                    replica
                    for replica in partition.replicas
                    if replica in partition.isr and not self.brokers[replica].fenced
                ]
                if live:
                    self.change(index, leader=live[0])

    def publish(self) -> None:
        self._offset += 1
        image = MetadataImage(
            offset=self._offset,
            epoch=1,
            brokers=dict(self.brokers),
            topics={"t": self.topic},
            topics_by_id={self.topic.id: self.topic},
        )
        for node in self.nodes.values():
            if node.alive:
                self.put(f"image {node.id}/{node.epoch}", lambda node=node: self._inform(node, image))

    def _inform(self, node: ClusterNode, image: MetadataImage) -> None:
        if node.alive:
            node.take_image(image)

    def alter(self, node: ClusterNode, request: Any) -> Deferred[Any]:
        reply: Deferred[Any] = Deferred()
        request = carried(request, 3)

        def answer(response: Any) -> None:
            if node.alive:
                reply.resolve(response)

        def arrive() -> None:
            response = carried(self._altered(request), 3)
            self.put(f"{node.id}/{node.epoch} altered", lambda: answer(response))

        self.put(f"{node.id}/{node.epoch} alters", arrive)
        return reply

    def _altered(self, request: Any) -> AlterPartitionResponse:
        if self.brokers[request.broker_id].epoch != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        topics = []
        changed = False
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                index = wanted.partition_index
                answer = PartitionData(partition_index=index, error_code=self._refusal(request, wanted))
                if answer.error_code == ErrorCode.NONE:
                    self.change(index, isr=tuple(state.broker_id for state in wanted.new_isr_with_epochs))
                    now = self.partition(index)
                    answer.leader_id, answer.leader_epoch = now.leader, now.leader_epoch
                    answer.isr, answer.partition_epoch = list(now.isr), now.partition_epoch
                    changed = True
                answers.append(answer)
            topics.append(TopicData(topic_id=topic.topic_id, partitions=answers))
        if changed:
            self.publish()
        return AlterPartitionResponse(topics=topics)

    def _refusal(self, request: Any, wanted: Any) -> ErrorCode:
        now = self.partition(wanted.partition_index)
        if wanted.leader_epoch < now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.broker_id != now.leader:
            return ErrorCode.INVALID_REQUEST
        if wanted.partition_epoch < now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in wanted.new_isr_with_epochs:
            broker = self.brokers[member.broker_id]
            if broker.fenced or member.broker_epoch not in (-1, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE


def values_of(log: Log, end: int) -> dict[int, bytes]:
    """Offset -> value of every record below `end`, read segment by segment."""
    values: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < end:
        read = log.read(offset, 1 << 26, end, True).records
        data = read if isinstance(read, bytes) else read.read()
        if not data:
            break
        for header in iterate_batches(data):
            batch = data[header.position : header.position + header.size]
            for at, record in records_of(batch, header):
                values[at] = record.value or b""
            offset = header.last_offset + 1
    return values
