"""View model of the cluster: nodes, topics with rates and sizes, partitions, groups with lag, and the cluster's
health.

Sizes are bytes on disk, summed over all replicas. This module knows snapshots and rates, but neither clients nor HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kafkacompat.addresses import host_and_port
from kafkacompat.console.core.connection import BrokerConnection
from kafkacompat.console.core.lag import group_lag
from kafkacompat.console.core.mirrors import mirrors_view
from kafkacompat.console.core.rates import Rates
from kafkacompat.console.core.share_view import share_partitions
from kafkacompat.console.core.snapshot import (
    SHARE,
    STREAMS,
    GroupEpochs,
    GroupSeen,
    MemberEpoch,
    MemberSeen,
    PartitionSeen,
    Places,
    ShareGroupSeen,
    ShareKey,
    ShareNumbers,
    Snapshot,
    StreamsGroupSeen,
    TopicSeen,
)

MAX_TROUBLED_SHOWN = 50
MAX_GROUP_PARTITIONS_SHOWN = 200
MAX_MEMBER_PARTITIONS_SHOWN = 200
MAX_MEMBER_TOPICS_SHOWN = 50

GOOD, WARNING, BAD = "good", "warning", "bad"

View = dict[str, Any]


def cluster_view(
    connection: BrokerConnection, snapshot: Snapshot | None, rates: Rates, queries: Sequence[View] = ()
) -> View:
    """Return everything that the page shows about the cluster. Without a snapshot, only the state of the connection.

    `queries` is the view of the pipeline's queries, which have a part in the health.
    """
    view: View = {
        "broker": broker_view(connection),
        "health": health_view(connection, snapshot, queries),
        "queries": list(queries),
        "cluster": None,
    }
    if snapshot is not None:
        view["cluster"] = {
            "taken_ms": snapshot.taken_ms,
            "cluster_id": snapshot.cluster_id,
            "controller": snapshot.controller_id,
            "nodes": nodes_view(snapshot),
            "topics": topics_view(snapshot, rates),
            "topics_hidden": snapshot.topics_hidden,
            "groups": groups_view(snapshot),
            "groups_hidden": snapshot.groups_hidden + snapshot.share_groups_hidden,
            "share_groups_error": snapshot.share_groups_error or None,
            "share_numbers": {
                "asked": snapshot.share_numbers is not None,
                "error": snapshot.share_numbers_error or None,
            },
            "mirrors": mirrors_view(snapshot.mirrors, {topic.name: topic for topic in snapshot.topics}),
            "sizes_error": snapshot.sizes_error or None,
            "troubled": troubled_view(snapshot),
            "rate_history": [{"at_ms": at_ms, "records_per_s": rate} for at_ms, rate in rates.history()],
        }
    return view


def broker_view(connection: BrokerConnection) -> View:
    """Return the broker's address and whether it answers."""
    return {
        "bootstrap": connection.bootstrap,
        "state": connection.state,
        "since_ms": connection.since_ms,
        "answered_ms": connection.answered_ms,
        "reason": connection.reason or None,
    }


def health_view(
    connection: BrokerConnection, snapshot: Snapshot | None, queries: Sequence[View] = ()
) -> View:
    """Return a level and a line of text: bad without a broker or a partition's leader, or if a query has failed. A
    warning if replicas are not in sync, or if a query does nothing useful."""
    if connection.reachable and snapshot is not None:
        partitions = [partition for topic in snapshot.topics for partition in topic.partitions]
        offline = sum(partition.offline for partition in partitions)
        behind = sum(partition.under_replicated for partition in partitions)
        away = len(missing_nodes(snapshot))
        if offline:
            return _health(BAD, f"{_count(offline, 'partition')} without a leader")
        if any(query["level"] == BAD for query in queries):
            return _troubled(BAD, queries)
        if behind:
            return _health(WARNING, f"{_count(behind, 'partition')} under-replicated")
        if away:
            return _health(WARNING, f"{_count(away, 'node')} away")
        if any(query["level"] == WARNING for query in queries):
            return _troubled(WARNING, queries)
        return _health(GOOD, "healthy")
    if connection.state == "connecting":
        return _health(WARNING, f"connecting to {connection.bootstrap}")
    return _health(BAD, f"broker at {connection.bootstrap} is not reachable")


def _troubled(level: str, queries: Sequence[View]) -> View:
    """Return what is wrong with the query of this level, or how many there are."""
    found = [query for query in queries if query["level"] == level]
    if len(found) == 1:
        return _health(level, f"{found[0]['query']} {found[0]['said']}")
    return _health(level, f"{len(found)} queries {'failed' if level == BAD else 'need a look'}")


def _health(level: str, text: str) -> View:
    return {"level": level, "text": text}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def missing_nodes(snapshot: Snapshot) -> list[int]:
    """Return the nodes that hold replicas but are not alive."""
    holding = {
        node for topic in snapshot.topics for partition in topic.partitions for node in partition.replicas
    }
    return sorted(holding - {node.node_id for node in snapshot.nodes})


def nodes_view(snapshot: Snapshot) -> list[View]:
    """Return every node that is alive or holds replicas, with the partitions it leads and the replicas it holds."""
    alive = {node.node_id: node for node in snapshot.nodes}
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    for topic in snapshot.topics:
        for partition in topic.partitions:
            leads[partition.leader] += 1
            replicas.update(set(partition.replicas))
            in_sync.update(set(partition.in_sync).intersection(partition.replicas))
    stored: Counter[int] = Counter()
    for size in snapshot.sizes or ():
        stored[size.node_id] += size.size_bytes
    views = []
    for node_id in sorted({*alive, *missing_nodes(snapshot)}):
        node = alive.get(node_id)
        views.append(
            {
                "node": node_id,
                "address": host_and_port(node.host, node.port) if node else None,
                "rack": node.rack if node else None,
                "alive": node is not None,
                "controller": node_id == snapshot.controller_id,
                "leads": leads[node_id],
                "replicas": replicas[node_id],
                "behind": replicas[node_id] - in_sync[node_id],
                "size_bytes": None if snapshot.sizes is None or node is None else stored[node_id],
            }
        )
    return views


def topics_view(snapshot: Snapshot, rates: Rates) -> list[View]:
    """Return all topics with their partitions."""
    if snapshot.sizes is None:
        return [topic_view(topic, None, rates) for topic in snapshot.topics]
    sizes: dict[str, dict[int, int]] = {}
    for size in snapshot.sizes:
        of_topic = sizes.setdefault(size.topic, {})
        of_topic[size.partition] = of_topic.get(size.partition, 0) + size.size_bytes
    return [topic_view(topic, sizes.get(topic.name, {}), rates) for topic in snapshot.topics]


def topic_view(topic: TopicSeen, sizes: Mapping[int, int] | None, rates: Rates) -> View:
    """Return one topic with its partitions and their sizes. `records` counts offsets, so it includes gaps of
    compaction and markers."""
    spans = [
        partition.latest - partition.earliest
        for partition in topic.partitions
        if partition.latest is not None and partition.earliest is not None
    ]
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "records": sum(spans) if len(spans) == len(topic.partitions) else None,
        "records_per_s": rates.per_second(topic.topic_id),
        "size_bytes": None if sizes is None else sum(sizes.values()),
        "under_replicated": sum(partition.under_replicated for partition in topic.partitions),
        "offline": sum(partition.offline for partition in topic.partitions),
        "partitions": [
            {
                "partition": partition.partition,
                "leader": None if partition.offline else partition.leader,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "under_replicated": partition.under_replicated,
                "earliest": partition.earliest,
                "latest": partition.latest,
                "size_bytes": None if sizes is None else sizes.get(partition.partition),
            }
            for partition in topic.partitions
        ],
    }


def groups_view(snapshot: Snapshot) -> list[View]:
    """Return all groups of all kinds."""
    partitions = {
        (topic.name, partition.partition): partition
        for topic in snapshot.topics
        for partition in topic.partitions
    }
    views = [group_view(group, partitions, snapshot.epochs.get(group.group_id)) for group in snapshot.groups]
    numbers = snapshot.share_numbers or {}
    views += [share_group_view(group, partitions, numbers) for group in snapshot.share_groups]
    views += [streams_group_view(group) for group in snapshot.streams_groups]
    is_ordered = not snapshot.share_groups and not snapshot.streams_groups
    return views if is_ordered else sorted(views, key=lambda view: str(view["group"]))


def share_group_view(
    group: ShareGroupSeen,
    partitions: Mapping[tuple[str, int], PartitionSeen],
    numbers: Mapping[ShareKey, ShareNumbers],
) -> View:
    """Return one share group in the form of group_view. A partition has a start instead of a committed offset."""
    rows, lag = share_partitions(group, partitions, numbers)
    return {
        "group": group.group_id,
        "kind": SHARE,
        "state": group.state,
        "members": group.members,
        "coordinator": group.coordinator,
        "topics": sorted({topic for topic, _ in group.stands or ()}),
        "lag": lag,
        "partitions": rows[:MAX_GROUP_PARTITIONS_SHOWN],
        "assignor": group.assignor or None,
        "group_epoch": group.epochs.group_epoch,
        "assignment_epoch": group.epochs.assignment_epoch,
        "member_list": [
            member_view(member, group.epochs.members.get(member.member_id)) for member in group.member_list
        ],
    }


def streams_group_view(group: StreamsGroupSeen) -> View:
    """Return one streams group in the form of group_view. Its lag is not asked for."""
    return {
        "group": group.group_id,
        "kind": STREAMS,
        "state": group.state,
        "members": group.members,
        "coordinator": group.coordinator,
        "topics": list(group.sources[:MAX_MEMBER_TOPICS_SHOWN]),
        "lag": None,
        "partitions": [],
        "assignor": None,
        "group_epoch": group.epochs.group_epoch,
        "assignment_epoch": group.epochs.assignment_epoch,
        "member_list": [
            member_view(member, group.epochs.members.get(member.member_id)) for member in group.member_list
        ],
    }


def group_view(
    group: GroupSeen,
    partitions: Mapping[tuple[str, int], PartitionSeen],
    epochs: GroupEpochs | None = None,
) -> View:
    """Return one group with its members and the lag of each partition. Without `epochs` they are null."""
    lag = group_lag(group, partitions)
    return {
        "group": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "members": group.members,
        "coordinator": group.coordinator,
        "topics": sorted({row.topic for row in lag.partitions}),
        "lag": lag.lag,
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "committed": row.committed,
                "latest": row.latest,
                "lag": row.lag,
            }
            for row in lag.partitions[:MAX_GROUP_PARTITIONS_SHOWN]
        ],
        "assignor": group.assignor or None,
        "group_epoch": epochs.group_epoch if epochs else None,
        "assignment_epoch": epochs.assignment_epoch if epochs else None,
        "member_list": [
            member_view(member, epochs.members.get(member.member_id) if epochs else None)
            for member in group.member_list
        ],
    }


def member_view(member: MemberSeen, epoch: MemberEpoch | None) -> View:
    """Return one member with its current and its target assignment."""
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "instance": member.instance_id,
        "epoch": epoch.epoch if epoch else None,
        "kind": (epoch.kind if epoch else "") or None,
        "subscribed": list(epoch.topics[:MAX_MEMBER_TOPICS_SHOWN]) if epoch else None,
        "regex": (epoch.regex if epoch else "") or None,
        "assigned": assignment_view(member.assigned),
        "target": None if member.target is None else assignment_view(member.target),
    }


def assignment_view(places: Places) -> View:
    """Return the number of partitions, and the first of them by topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in places[:MAX_MEMBER_PARTITIONS_SHOWN]:
        topics.setdefault(topic, []).append(number)
    listed = [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
    return {"count": len(places), "topics": listed}


def troubled_view(snapshot: Snapshot) -> list[View]:
    """Return partitions without a leader or with replicas that are not in sync, the worst first."""
    rows: list[View] = [
        {
            "topic": topic.name,
            "partition": partition.partition,
            "leader": None if partition.offline else partition.leader,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.in_sync),
        }
        for topic in snapshot.topics
        for partition in topic.partitions
        if partition.offline or partition.under_replicated
    ]
    rows.sort(key=lambda row: (row["leader"] is not None, row["topic"], row["partition"]))
    return rows[:MAX_TROUBLED_SHOWN]
