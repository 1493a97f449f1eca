"""Producer quotas in a cluster of two kinds of brokers: the same load is throttled alike by both.

A quota holds on each broker by itself. With S bytes in the measured time W, a client is told to pause for S / quota - W
(ClientQuotaManager). W is exactly ten windows for a client's first request. For a later one it is ten to eleven
windows, depending on when the request comes. So the first throttle times are equal, and later ones differ by a window
at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interop_tests.cluster.clusters import Cluster
from interop_tests.cluster.node import ClusterNode
from interop_tests.harness.raw_kafka import produce_body
from interop_tests.harness.records import BatchPlan
from interop_tests.harness.wire import Connection

QUOTA = 10_000.0
FIRST_BYTES, SECOND_BYTES = 115_000, 15_000
"""They make a client pause for 1.5 s, and then for 2 to 3 s."""
WINDOW_MS = 1000
"""quota.window.size.seconds. There are eleven windows (quota.window.num)."""
MUTATION_RATE = 1.0
PARTITIONS = (8, 8, 1)
"""Eleven may be created at once. The second topic uses five that are missing then, and the third one is refused."""
MISSING_MS = 5_000
REFUSED = 89
"""THROTTLING_QUOTA_EXCEEDED"""
SILENT_S = 0.5
TIMEOUT_S = 60.0
"""A muted connection is not read until its throttle time is over."""


def throttle_ms(node: ClusterNode, client_id: str, topic: str, number: int, *sizes: int) -> list[int]:
    """The throttle times of produces of so many bytes, one after the other on one connection."""
    found = []
    with Connection(node.bootstrap, timeout_s=TIMEOUT_S, client_id=client_id) as connection:
        for size in sizes:
            body = produce_body(topic, BatchPlan([b"x" * size]), number, acks=1)
            reply = connection.call("Produce", 9, body)
            (result,) = reply["Responses"][0]["PartitionResponses"]
            assert result["ErrorCode"] == 0, result
            found.append(int(reply["ThrottleTimeMs"]))
    return found


def set_rates(node: ClusterNode, rates: dict[str, float | None], key: str = "producer_byte_rate") -> None:
    """Set a quota of these client ids, in this order. None removes it. A broker passes it on to the controller."""
    entries = [
        {
            "Entity": [{"EntityType": "client-id", "EntityName": client_id}],
            "Ops": [{"Key": key, "Value": rate or 0.0, "Remove": rate is None}],
        }
        for client_id, rate in rates.items()
    ]
    with Connection(node.bootstrap, timeout_s=20) as connection:
        for entry in entries:
            body = {"Entries": [entry], "ValidateOnly": False}
            (answer,) = connection.call("AlterClientQuotas", 1, body)["Entries"]
            assert answer["ErrorCode"] == 0, answer


def throttled_alike(cluster: Cluster, asked: ClusterNode, topic: str, unique: Callable[[str], str]) -> None:
    """`asked` is told the quotas. Partition 0 of the topic is led by the first broker, partition 1 by the second one."""
    led = [(node, number) for number, node in enumerate(cluster.brokers)]
    limited, marker, free = unique("limited"), unique("marker"), unique("free")
    # Quotas apply in the order in which they were set: where the marker is throttled, the client is limited.
    set_rates(asked, {limited: QUOTA, marker: 1.0})
    for node, number in led:
        cluster.wait(
            lambda node=node, number=number: throttle_ms(node, marker, topic, number, 1) != [0],
            f"the quotas apply on {node.kind}",
        )
    told = {
        node.kind: throttle_ms(node, limited, topic, number, FIRST_BYTES, SECOND_BYTES)
        for node, number in led
    }
    (first, second), (also_first, also_second) = told.values()
    assert first == also_first, told
    assert first >= 1000 * FIRST_BYTES / QUOTA - 10 * WINDOW_MS > 0, told
    least_ms = 1000 * (FIRST_BYTES + SECOND_BYTES) / QUOTA - 11 * WINDOW_MS
    assert min(second, also_second) >= least_ms > 0, told
    assert abs(second - also_second) <= WINDOW_MS, told
    for node, number in led:
        assert throttle_ms(node, free, topic, number, FIRST_BYTES, SECOND_BYTES) == [0, 0], node.kind
    set_rates(asked, {limited: None, marker: None})
    for node, number in led:
        cluster.wait(
            lambda node=node, number=number: throttle_ms(node, limited, topic, number, 1) == [0],
            f"the quota is gone on {node.kind}",
        )


def mutations_refused_alike(cluster: Cluster, asked: ClusterNode, unique: Callable[[str], str]) -> None:
    """`asked` is told the quotas, and the controller keeps them. Each broker passes on a client's request and mutes the
    client for the time that the controller tells."""
    clients = [(node, unique("mutating")) for node in cluster.brokers]
    set_rates(asked, {client_id: MUTATION_RATE for _, client_id in clients}, "controller_mutation_rate")
    for node, client_id in clients:
        is_refused(cluster, node, client_id)
    set_rates(asked, {client_id: None for _, client_id in clients}, "controller_mutation_rate")


def is_refused(cluster: Cluster, node: ClusterNode, client_id: str) -> None:
    topics = [
        {"Name": f"{client_id}-{number}", "NumPartitions": count, "ReplicationFactor": 1}
        | {"Assignments": [], "Configs": []}
        for number, count in enumerate(PARTITIONS)
    ]
    body = {"Topics": topics, "timeoutMs": 30_000, "validateOnly": True}
    with Connection(node.bootstrap, timeout_s=TIMEOUT_S, client_id=client_id) as connection:
        told = cluster.wait(
            lambda: refused(connection, body), f"the quota applies to a client of {node.kind}"
        )
        assert told == ([0, 0, REFUSED], MISSING_MS), node.kind
        connection.send("ApiVersions", 3, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"})
        assert connection.is_silent(SILENT_S), f"{node.kind} mutes the client"


def refused(connection: Connection, body: dict[str, Any]) -> tuple[list[int], int] | None:
    """The codes and the throttle time in whole seconds. None if the quota does not apply yet: then nothing is used."""
    reply = connection.call("CreateTopics", 7, body)
    throttle_ms = round(reply["ThrottleTimeMs"], -3)
    return ([each["ErrorCode"] for each in reply["Topics"]], throttle_ms) if throttle_ms else None
