"""How far the pipeline's topics are: records taken, and the newest one's time. A client of the broker; looks into no record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.topics import CONFIGS, DEFAULT_PARTITIONS

TIMEOUT_S = 5.0


class TopicSizes:
    """Asks for the end of every partition."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "client.id": "kafkacompat-demo", "log_level": 0}
        )

    def newest_ms(self, topics: Iterable[str]) -> int | None:
        """The latest record timestamp in these topics, ms; None where there is none. PipelineFailed when the broker is silent."""
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
                f"the broker does not tell how new its events are: {error.args[0].str()}"
            ) from error
        return max((each.timestamp for each in found if each.offset >= 0), default=None)

    def ask(self) -> dict[str, int] | None:
        """Records by topic, ever written (compaction takes none away); None when the broker does not answer."""
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
