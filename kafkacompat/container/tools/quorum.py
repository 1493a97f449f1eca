"""kafka-metadata-quorum: describe the metadata quorum, which health checks call."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence

from kafkacompat.addresses import host_and_port
from kafkacompat.cli.view import QUORUM_TOPIC, brokers_of
from kafkacompat.client.blocking import Cluster
from kafkacompat.client.brokers import check
from kafkacompat.container.tools.options import Options, address_of
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import ZERO_UUID, uuid_to_text
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest, TopicData
from kafkacompat.wire.messages.describe_quorum_request import PartitionData as AskedPartition
from kafkacompat.wire.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
)

COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
LABEL_WIDTH = 24


def options() -> Options:
    parser = Options("kafka-metadata-quorum", "Describe the metadata quorum.")
    parser.add_argument("action", choices=("describe",))
    parser.add_server("command-config")
    parser.add_flags("status", "replication")
    return parser


def run(arguments: argparse.Namespace) -> int:
    if arguments.status == arguments.replication:
        raise CommandFailed("describe takes one of these options: --status, --replication")
    with Cluster(address_of(arguments)) as cluster:
        remote = cluster.any()
        asked = TopicData(topic_name=QUORUM_TOPIC, partitions=[AskedPartition(partition_index=0)])
        answer = remote.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
        check(answer.error_code, "the metadata quorum", answer.error_message)
        (quorum,) = answer.topics[0].partitions
        check(quorum.error_code, "the metadata quorum", quorum.error_message)
        if arguments.status:
            lines = status_lines(brokers_of(remote)[0], quorum, answer.nodes)
        else:
            lines = replication_lines(quorum)
    print("\n".join(lines))
    return 0


def status_lines(cluster_id: str, quorum: PartitionData, nodes: Iterable[Node]) -> list[str]:
    leader = _leader(quorum)
    last = min(quorum.current_voters, key=lambda each: each.log_end_offset)
    times = leader.last_caught_up_timestamp, last.last_caught_up_timestamp
    late_ms = 0 if last is leader else times[0] - times[1] if min(times) >= 0 else -1
    told = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - last.log_end_offset,
        "MaxFollowerLagTimeMs": late_ms,
        "CurrentVoters": _replicas(quorum.current_voters, nodes),
        "CurrentObservers": _replicas(quorum.observers, nodes),
    }
    return [f"{name}:".ljust(LABEL_WIDTH) + str(value) for name, value in told.items()]


def replication_lines(quorum: PartitionData) -> list[str]:
    leader = _leader(quorum)
    followers = [each for each in quorum.current_voters if each is not leader]
    rows: list[tuple[str, ...]] = [COLUMNS]
    for status, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", quorum.observers)):
        rows += [
            (
                str(each.replica_id),
                uuid_to_text(bytes(each.replica_directory_id)),
                str(each.log_end_offset),
                str(leader.log_end_offset - each.log_end_offset),
                str(each.last_fetch_timestamp),
                str(each.last_caught_up_timestamp),
                status,
            )
            for each in replicas
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _leader(quorum: PartitionData) -> ReplicaState:
    for each in quorum.current_voters:
        if each.replica_id == quorum.leader_id:
            return each
    raise CommandFailed("the metadata quorum has no leader")


def _replicas(replicas: Sequence[ReplicaState], nodes: Iterable[Node]) -> str:
    listeners = {each.node_id: each.listeners for each in nodes}
    found = []
    for each in replicas:
        told: dict[str, object] = {"id": each.replica_id}
        if bytes(each.replica_directory_id) != ZERO_UUID:
            told["directoryId"] = uuid_to_text(bytes(each.replica_directory_id))
        if listeners.get(each.replica_id):
            told["endpoints"] = [
                f"{at.name}://{host_and_port(at.host, at.port)}" for at in listeners[each.replica_id]
            ]
        found.append(json.dumps(told))
    return f"[{', '.join(found)}]"
