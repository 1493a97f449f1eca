"""The series of partitions and of a broker's replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkacompat.ids import TopicPartition
from kafkacompat.metrics.families import COUNTED_A_STEP, Families
from kafkacompat.metrics.partitions import (
    PARTITION,
    REPLICAS,
    log_families,
    partition_families,
    replica_families,
)
from kafkacompat.partition._tests.cluster import Cluster


def values(*families: Families) -> dict[str, float]:
    """Of a node with one partition."""
    return {
        family.name: value
        for each in families
        for family in each
        if family is not None
        for sample in family.samples
        if sample is not None
        for _, value in [sample]
    }


def of_leader(cluster: Cluster) -> dict[str, float]:
    hosted = cluster.leader().manager.hosted
    return values(replica_families(hosted, 0), partition_families(hosted))


def test_replicas_that_a_reassignment_adds_are_not_missed() -> None:
    """They come as fast as they are copied, which may take hours, and nothing is wrong meanwhile."""
    cluster = Cluster((1, 2, 3, 4))
    cluster.change(replicas=(1, 2, 3), isr=(1, 2, 3))
    cluster.publish()
    cluster.settle()
    cluster.kill(4)
    cluster.change(replicas=(4, 1, 2, 3), adding_replicas=(4,), removing_replicas=(3,))
    cluster.publish()
    cluster.drain()
    shown = of_leader(cluster)
    assert shown[f"{REPLICAS}reassigningpartitions"] == 1
    assert shown[f"{REPLICAS}underreplicatedpartitions"] == shown[f"{PARTITION}underreplicated"] == 0
    assert shown[f"{PARTITION}replicascount"] == shown[f"{PARTITION}insyncreplicascount"] == 3
    cluster.kill(3)
    cluster.change(isr=(1, 2))
    cluster.publish()
    cluster.drain()
    shown = of_leader(cluster)
    assert shown[f"{REPLICAS}underreplicatedpartitions"] == shown[f"{PARTITION}underreplicated"] == 1


def test_very_many_logs_are_listed_in_steps() -> None:
    logs = {TopicPartition("t", index): None for index in range(5 * COUNTED_A_STEP)}
    manager: Any = SimpleNamespace(logs=logs, directories=[], cordoned=())
    families = log_families(manager)
    assert sum(next(families) is None for _ in range(6)) == 6
