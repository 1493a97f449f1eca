"""Whether librdkafka took a new producer epoch in the middle of its work.

A record that was appended and answered with NOT_LEADER_OR_FOLLOWER is sent again. The leader knows it by its sequence number, but
librdkafka numbers what it sends again anew where a later batch reached the new leader first and was refused there: the record is
then twice in the log, on Apache Kafka too (librdkafka's issue 4953). A test that counts records asks here before it blames a node.
"""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from interop_tests.harness.waiting import wait_until

INTERVAL_MS = 200
TOLD_WITHIN_S = 20.0


class Epochs:
    """How often a producer was given an id or took a new epoch, from librdkafka's statistics (`eos.epoch_cnt`)."""

    def __init__(self) -> None:
        self._told = 0
        self._assigned = 0

    def settings(self) -> dict[str, Any]:
        """For the producer that is to be looked at."""
        return {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._take}

    def _take(self, text: str) -> None:
        self._told += 1
        self._assigned = json.loads(text).get("eos", {}).get("epoch_cnt", 0)

    def renumbered(self, producer: Producer) -> bool:
        """Whether it has numbered records anew; once its work has ended. Waits for the next statistics, which tell of all of it."""
        # The statistics that are on their way may be from before the end.
        wanted = self._told + 2

        def told() -> bool:
            producer.poll(0.05)
            return self._told >= wanted

        wait_until(told, "librdkafka tells its statistics", TOLD_WITHIN_S)
        return self._assigned > 1
