"""Sends events to their topics: acks=all, idempotent producer, the event's arrival as the record's timestamp.

Independent of the kind of traffic. A line goes to `logs.raw` with the headers that the collector would set, so that it
has the same event id when it is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kafkacompat.pipeline.failure import PipelineFailed
from kafkacompat.pipeline.generator.events import ACCESS_LINES, Event
from kafkacompat.pipeline.topics import FILE_HEADER, LOGS_RAW, POSITION_HEADER, SOURCE_HEADER
from kafkacompat.security.cluster_address import ClusterAddress

CLIENT_ID: Final = "kafkacompat-generator"
QUEUE_BYTES: Final = 32 * 1024 * 1024
FLUSH_TIMEOUT_S: Final = 30.0
RECONNECT_MAX_MS: Final = 1000
"""librdkafka's default would wait up to ten seconds before it reconnects."""


class Sender:
    """One producer. `sent` counts the acknowledged events, `failed` those that were finally refused."""

    def __init__(self, bootstrap: ClusterAddress, name: str) -> None:
        """name: the `file` header of lines."""
        from confluent_kafka import Producer

        self._name = name.encode()
        self._position = 0
        self.sent = 0
        self.failed = 0
        self.last_error: str | None = None
        self._producer = Producer(
            {
                **bootstrap.librdkafka(),
                "client.id": CLIENT_ID,
                "acks": "all",
                "enable.idempotence": True,
                "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.kbytes": QUEUE_BYTES // 1024,
                "log_level": 0,
                "error_cb": self._heard,
            }
        )

    def send(self, events: Iterable[Event], stopping: Callable[[], bool]) -> None:
        """Send the events. Waits while the queue is full, unless stopping."""
        from confluent_kafka import KafkaException

        for arrival_ms, stream, key, value in events:
            headers: list[tuple[str, str | bytes | None]] = []
            topic = stream
            if stream == ACCESS_LINES:
                topic = LOGS_RAW
                headers = [
                    (SOURCE_HEADER, key.encode()),
                    (FILE_HEADER, self._name),
                    (POSITION_HEADER, b"%d" % self._position),
                ]
                self._position += len(value) + 1
            while not stopping():
                try:
                    self._producer.produce(
                        topic,
                        value=value,
                        key=key,
                        timestamp=arrival_ms,
                        headers=headers,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as refusal:
                    # The client refuses at once, for example if the topic is gone.
                    self.failed += 1
                    self.last_error = refusal.args[0].str()
                    break
        self._producer.poll(0)

    def wait(self, timeout_s: float) -> None:
        """Process acknowledgements for at most timeout_s."""
        self._producer.poll(timeout_s)

    def close(self) -> None:
        """Wait for the events in flight. Raises PipelineFailed if the broker does not accept them."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        if left or self.failed:
            raise PipelineFailed(
                f"{left + self.failed} events were not taken by the broker: {self.last_error or 'no answer'}"
            )

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.sent += 1
        else:
            self.failed += 1
            self.last_error = error.str()

    def _heard(self, error: Any) -> None:
        self.last_error = error.str()
