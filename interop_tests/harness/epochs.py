"""Whether librdkafka took a new producer epoch during its work.

A record that was appended but answered with NOT_LEADER_OR_FOLLOWER is sent again. The leader recognizes it by its
sequence number. But if a later batch reached the new leader first and was refused, librdkafka assigns new sequence
numbers to everything that it sends again. The record is then in the log twice, with Apache Kafka too (librdkafka's
issue 4953). A test that counts records checks this before it blames a node.
"""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from interop_tests.harness.waiting import wait_until

INTERVAL_MS = 200
TOLD_WITHIN_S = 20.0


class Epochs:
    """The ids and epochs that a producer has had, from librdkafka's statistics.

    `eos.epoch_cnt` counts only responses to InitProducerId. An idempotent producer also raises its epoch by itself,
    and only `eos.producer_epoch` shows that.
    """

    def __init__(self) -> None:
        self._told = 0
        self._assigned = 0
        self._epoch = 0

    def settings(self) -> dict[str, Any]:
        """Settings for the producer to observe."""
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._take}

    def _take(self, text: str) -> None:
        self._told += 1
        eos = json.loads(text).get("eos", {})
        self._assigned = eos.get("epoch_cnt", 0)
        self._epoch = eos.get("producer_epoch", 0)

    def renumbered(self, producer: Producer) -> bool:
        """Whether the producer has assigned new sequence numbers. Call it after the producer's work has ended. It
        waits for the next statistics, which cover all of the work."""
        # Statistics that arrive first may be from before the end of the work.
        wanted = self._told + 2

        def told() -> bool:
            producer.poll(0.05)
            return self._told >= wanted

        wait_until(told, "librdkafka tells its statistics", TOLD_WITHIN_S)
        return self._assigned > 1 or self._epoch > 0
