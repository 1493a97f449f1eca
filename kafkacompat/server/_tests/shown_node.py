"""A whole node and what a scrape of it shows, and requests that change that."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from kafkacompat._tests.fuzz.node import FuzzedNode
from kafkacompat._tests.kit import AskedNode
from kafkacompat.metrics.endpoint import rendered
from kafkacompat.records.batch import build_batch
from kafkacompat.records.record import Record
from kafkacompat.server.node_metrics import NodeMetrics
from kafkacompat.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkacompat.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkacompat.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class ShownNode(AskedNode):
    def __init__(self, node: FuzzedNode) -> None:
        super().__init__(node)
        self.metrics = NodeMetrics(node.server._services, node.server, lambda: [("reads", 1, 2)])

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


def produced(node: ShownNode, topic: str, *values: bytes, version: int = 9) -> None:
    one = PartitionProduceData(index=0, records=batch_of(*values))
    data = TopicProduceData(name=topic, partition_data=[one])
    node.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), version)


def fetched(node: ShownNode, topic: str) -> None:
    asked = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    node.ask(FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 11)
