"""The number of records in the pipeline's topics, and the newest timestamp. A client of the broker that reads no records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import CONFIGS, DEFAULT_PARTITIONS
from kafkacompat.security.cluster_address import ClusterAddress

TIMEOUT_S = 5.0


class TopicSizes:
    """Asks for the end offset of every partition."""

    def __init__(self, bootstrap: ClusterAddress) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({**bootstrap.librdkafka(), "client.id": "kafkacompat-demo", "log_level": 0})

    def newest_ms(self, topics: Iterable[str]) -> int | None:
        """Return the latest record timestamp in these topics in ms, or None. Raises PipelineFailed if the broker does
        not answer."""
        from confluent_kafka import KafkaException, TopicPartition, admin

        latest: Any = admin
        wanted = {
            TopicPartition(topic, number): latest.OffsetSpec.max_timestamp()
            for topic in topics
            for number in range(DEFAULT_PARTITIONS)
        }
        try:
            found = [
                each.result() for each in self._admin.list_offsets(wanted, request_timeout=TIMEOUT_S).values()
            ]
        except KafkaException as error:
            raise PipelineFailed(
                f"the newest timestamp cannot be read from the broker: {error.args[0].str()}"
            ) from error
        return max((each.timestamp for each in found if each.offset >= 0), default=None)

    def ask(self) -> dict[str, int] | None:
        """Return the number of records ever written, by topic (compaction does not reduce it). None if the broker does
        not answer."""
        from confluent_kafka import KafkaException, TopicPartition, admin

        latest: Any = admin
        wanted = {
            TopicPartition(topic, number): latest.OffsetSpec.latest()
            for topic in CONFIGS
            for number in range(DEFAULT_PARTITIONS)
        }
        sizes = dict.fromkeys(CONFIGS, 0)
        try:
            answers = self._admin.list_offsets(wanted, request_timeout=TIMEOUT_S)
            for partition, answer in answers.items():
                sizes[partition.topic] += answer.result().offset
        except KafkaException:
            return None
        return sizes
