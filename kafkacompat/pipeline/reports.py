"""Writes the state of each query to `pipeline.progress`, where the web console reads it. The last report of a query counts.

Reports are a service to people. If they cannot be written, the run says so once and goes on: the jobs must not depend
on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkacompat.pipeline.topics import PIPELINE_PROGRESS
from kafkacompat.security.cluster_address import ClusterAddress

QUEUED_MAX: Final = 1000
"""Reports that wait for the broker. Further ones are dropped: later reports replace them."""
FLUSH_TIMEOUT_S: Final = 5.0


class Reports:
    """A producer of reports. No call waits for the broker, except `close`."""

    def __init__(self, bootstrap: ClusterAddress, say: Callable[[str], None]) -> None:
        from confluent_kafka import Producer

        self._say = say
        self._failed = False
        self._producer = Producer(
            {
                **bootstrap.librdkafka(),
                "client.id": "kafkacompat-pipeline-progress",
                "enable.idempotence": True,
                "queue.buffering.max.messages": QUEUED_MAX,
                "log_level": 0,
            }
        )

    def tell(self, report: Mapping[str, Any]) -> None:
        """Send the report of a query."""
        from confluent_kafka import KafkaException

        value = json.dumps(report, separators=(",", ":"))
        try:
            self._producer.produce(
                PIPELINE_PROGRESS, value, str(report["query"]), on_delivery=self._delivered
            )
        except BufferError:
            self._fail("the broker does not accept them")
        except KafkaException as refusal:
            self._fail(refusal.args[0].str())
        self._producer.poll(0)

    def close(self) -> None:
        """Wait a moment for the last reports, which say that the queries were stopped."""
        self._producer.flush(FLUSH_TIMEOUT_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._fail(error.str())

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._say(
                f"reports for the console cannot be written to {PIPELINE_PROGRESS}: {reason}; the run goes on"
            )
