"""A client's view of a cluster: its brokers, its quorum, its partitions. Each call asks again.

This module knows the protocol, and neither processes nor directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from kafkacompat.client.blocking import Remote
from kafkacompat.client.brokers import check, error_name
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.wire.apis import ApiKey
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse
from kafkacompat.wire.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkacompat.wire.messages.describe_quorum_response import DescribeQuorumResponse
from kafkacompat.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkacompat.wire.messages.metadata_response import MetadataResponse

QUORUM_TOPIC = "__cluster_metadata"
CONTROLLER_LISTENER = "CONTROLLER"
"""The usual name of the listener of controllers."""
MIN_ISR = "min.insync.replicas"
FENCED_SINCE_VERSION = 2
"""The version of DescribeCluster that can list fenced brokers."""


@dataclass(frozen=True, slots=True)
class Partition:
    """leader is -1 if there is none. offline: replicas on brokers or directories that are down."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class Quorum:
    """The directory ids of voters and observers by node id, and the log end offset of each. `listener`: the name of the
    leader's first controller listener, if it is told. `last_fetches_ms`: when each has last fetched, by the leader's clock."""

    cluster_leader: int
    epoch: int
    voters: dict[int, bytes]
    observers: dict[int, bytes]
    ends: dict[int, int]
    listener: str = CONTROLLER_LISTENER
    last_fetches_ms: Mapping[int, int] = field(default_factory=dict)


class QuorumRefused(CommandFailed):
    """The user may not describe the cluster. Neither another broker nor a later try helps."""


def quorum_of(remote: Remote) -> Quorum | None:
    """Return the quorum, or None while no active controller is known. Raises QuorumRefused."""
    asked = TopicData(topic_name=QUORUM_TOPIC, partitions=[PartitionData(partition_index=0)])
    answer = remote.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise QuorumRefused(f"the metadata quorum: {error_name(answer.error_code)}")
    if answer.error_code != ErrorCode.NONE or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
        return None
    found = answer.topics[0].partitions[0]
    listeners = [
        each.name for node in answer.nodes if node.node_id == found.leader_id for each in node.listeners
    ]
    everyone = (*found.current_voters, *found.observers)
    return Quorum(
        found.leader_id,
        found.leader_epoch,
        {each.replica_id: bytes(each.replica_directory_id) for each in found.current_voters},
        {each.replica_id: bytes(each.replica_directory_id) for each in found.observers},
        {each.replica_id: each.log_end_offset for each in everyone},
        next(iter(listeners), CONTROLLER_LISTENER),
        {each.replica_id: each.last_fetch_timestamp for each in everyone},
    )


def brokers_of(remote: Remote) -> tuple[str, dict[int, Broker]]:
    """Return the cluster id and every registered broker by node id."""
    include = remote.serves(ApiKey.DESCRIBE_CLUSTER, FENCED_SINCE_VERSION)
    answer = remote.call(DescribeClusterRequest(include_fenced_brokers=include), DescribeClusterResponse)
    check(answer.error_code, "the cluster's brokers", answer.error_message)
    return answer.cluster_id, {
        each.broker_id: Broker(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
        for each in answer.brokers
    }


def partitions_of(remote: Remote, topics: Sequence[str] | None = None) -> list[Partition]:
    """Return all partitions of these topics, or of all topics, in order. Raises CommandFailed for an unknown topic."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    answer = remote.call(MetadataRequest(topics=named, allow_auto_topic_creation=False), MetadataResponse)
    found = []
    for topic in answer.topics:
        check(topic.error_code, f"topic {topic.name}")
        found += [
            Partition(
                topic.name or "",
                each.partition_index,
                each.leader_id,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in topic.partitions
        ]
    return sorted(found, key=lambda each: (each.topic, each.number))


def min_isr_of(remote: Remote, topics: Iterable[str]) -> dict[str, int]:
    """Return the effective min.insync.replicas of these topics: the topic's, or the broker's default."""
    found = settings_of_topics(remote, topics, (MIN_ISR,))
    return {topic: int(values[MIN_ISR] or 1) for topic, values in found.items()}


def settings_of_topics(
    remote: Remote, topics: Iterable[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """Return the effective values of these settings, by topic and setting."""
    resources = [
        DescribeConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=list(names)
        )
        for topic in topics
    ]
    if not resources:
        return {}
    answer = remote.call(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    found = {}
    for result in answer.results:
        check(result.error_code, f"settings of {result.resource_name}", result.error_message)
        found[result.resource_name] = {entry.name: entry.value for entry in result.configs}
    return found
