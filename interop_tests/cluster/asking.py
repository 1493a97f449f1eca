"""Raw requests about one partition, sent to the node that serves them."""

from __future__ import annotations

from typing import Any

from interop_tests.cluster.clusters import Cluster
from interop_tests.harness.raw_kafka import fetch, list_offset, produce
from interop_tests.harness.records import BatchPlan, decode_batches
from interop_tests.harness.wire import Connection

NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
OF_A_LEADER_TO_COME = (3, 5, 6, 56, 74, 75, 78)
"""The last code is a response of ListOffsets: the new leader's high watermark has not reached the start of its epoch.
"""


def write(
    cluster: Cluster, topic: str, *values: bytes, number: int = 0, acks: int = -1, timeout_ms: int = 5000
) -> dict[str, Any]:
    """Produce one batch to the leader. Returns the partition's part of the response. Retries while the leader changes."""

    def probe() -> dict[str, Any] | None:
        leader = cluster.nodes[cluster.leader(topic, number)]
        try:
            with Connection(leader.bootstrap, timeout_s=20) as connection:
                plan = BatchPlan(list(values))
                result = produce(connection, topic, plan, number, acks, timeout_ms=timeout_ms)
        except OSError:
            return None
        return None if result["ErrorCode"] in OF_A_LEADER_TO_COME else result

    return cluster.wait(probe, f"the leader of {topic}-{number} answers")


def values(cluster: Cluster, topic: str, number: int = 0) -> list[bytes | None]:
    """The records that the leader shows a consumer. Waits until the leader knows its high watermark."""

    def probe() -> list[list[bytes | None]] | None:
        leader = cluster.nodes[cluster.leader(topic, number)]
        found: list[bytes | None] = []
        with Connection(leader.bootstrap, timeout_s=20) as connection:
            code, end, _ = list_offset(connection, topic, number, -1)
            if code in OF_A_LEADER_TO_COME:
                return None
            assert code == 0, code
            while len(found) < end:
                result = fetch(connection, topic, len(found), number)
                if result["ErrorCode"] in OF_A_LEADER_TO_COME:
                    return None
                assert result["ErrorCode"] == 0, result
                batches = decode_batches(result["Records"])
                found += [each.value for batch in batches for each in batch.records]
        return [found]

    return cluster.wait(probe, f"{topic}-{number} can be read")[0]
