"""How many records each topic of the pipeline has taken. A client of the broker; knows nothing of their content."""

from __future__ import annotations

from typing import Any

from kafkacompat.pipeline.topics import CONFIGS, DEFAULT_PARTITIONS

TIMEOUT_S = 5.0


class TopicSizes:
    """Asks for the end of every partition."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "client.id": "kafkacompat-demo", "log_level": 0}
        )

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
