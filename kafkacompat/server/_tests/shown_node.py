"""A whole node and what a scrape of it shows, and requests that change that."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kafkacompat._tests.fuzz.node import FuzzedNode
from kafkacompat.metrics.rendering import rendered
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.server.node_metrics import NodeMetrics
from kafkacompat.wire.codec import encode
from kafkacompat.wire.headers import request_header_bytes
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class World:
    def __init__(self, node: FuzzedNode) -> None:
        self.node = node
        self.connection = node.connect()
        self.metrics = NodeMetrics(node.server._doors, node.server, lambda: [("reads", 1, 2)])

    def ask(self, request: object, version: int, client_id: str = "tester") -> bytes:
        key = request.API_KEY  # type: ignore[attr-defined]
        before = len(self.connection.answers)
        self.connection.send(
            request_header_bytes(key, version, 7, client_id) + encode(request, version)  # type: ignore[arg-type]
        )
        for _ in range(200):
            if len(self.connection.answers) > before:
                return self.connection.answers[-1]
            self.node.pass_time(10)
        raise AssertionError("no answer")

    def create(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)

    def scrape(self) -> Series:
        text = b"".join(rendered(self.metrics.families())).decode()
        series: Series = {}
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                key = each.name, frozenset(each.labels.items())
                assert key not in series, f"{key} is there twice"
                series[key] = each.value
        return series

    def value(self, name: str, **labels: str) -> float | None:
        return self.scrape().get((name, frozenset(labels.items())))


def batch_of(*values: bytes) -> bytes:
    return bytes(build_batch([Record(at, 0, None, value) for at, value in enumerate(values)]))


def produced(world: World, topic: str, *values: bytes, version: int = 9) -> None:
    one = PartitionProduceData(index=0, records=batch_of(*values))
    data = TopicProduceData(name=topic, partition_data=[one])
    world.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), version)


def fetched(world: World, topic: str) -> None:
    asked = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    world.ask(
        FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 11
    )
