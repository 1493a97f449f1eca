"""Waits until the transactions of a topic have ended. A commit is answered before its markers are written. So a read
with read_committed directly after the commit may miss the last records."""

from __future__ import annotations

import contextlib

from confluent_kafka import Consumer, KafkaException, TopicPartition

from interop_tests.harness.waiting import wait_until

ASK_TIMEOUT_S = 10.0


def wait_until_stable(bootstrap: str, topic: str, partitions: int = 1, timeout_s: float = 60.0) -> None:
    """Wait until every partition's last stable offset equals its high watermark. No client may write meanwhile."""
    with contextlib.ExitStack() as stack:
        readers = []
        # The order matters: the second response is never below the first one.
        for isolation in ("read_committed", "read_uncommitted"):
            settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation}
            readers.append(Consumer(settings | {"log_level": 0}))
            stack.callback(readers[-1].close)

        def end(reader: Consumer, number: int) -> int:
            return int(reader.get_watermark_offsets(TopicPartition(topic, number), ASK_TIMEOUT_S)[1])

        def is_stable() -> bool:
            try:
                return all(end(readers[0], number) == end(readers[1], number) for number in range(partitions))
            except KafkaException:
                # The partition's leader is changing or not known yet.
                return False

        wait_until(is_stable, f"the transactions of {topic} have ended", timeout_s, 0.1)
