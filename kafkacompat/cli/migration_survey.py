"""Gathers the facts of `kafkacompat migrate`: what a client of the cluster, and of its controllers, is told.

What a node does not tell is left out and named.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from kafkacompat.addresses import host_and_port, split_host_and_port
from kafkacompat.cli.examination import SOFTWARE
from kafkacompat.cli.groups import groups_at
from kafkacompat.cli.migration import MoveFacts, NodeFacts, known_controllers
from kafkacompat.cli.moves import ongoing_of
from kafkacompat.cli.view import Quorum, brokers_of, partitions_of
from kafkacompat.cli.voters import LOOK_TIMEOUT_S, RETRY_PAUSE_S, quorum_told
from kafkacompat.client.blocking import Cluster, Connection, Remote
from kafkacompat.client.brokers import check
from kafkacompat.config import own_table
from kafkacompat.config.describe import ConfigSource
from kafkacompat.failure import CommandFailed
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.config_resources import ConfigResourceType
from kafkacompat.wire.errors import ErrorCode
from kafkacompat.wire.messages.api_versions_request import ApiVersionsRequest
from kafkacompat.wire.messages.api_versions_response import ApiVersionsResponse
from kafkacompat.wire.messages.describe_cluster_request import DescribeClusterRequest
from kafkacompat.wire.messages.describe_cluster_response import DescribeClusterResponse
from kafkacompat.wire.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkacompat.wire.messages.describe_configs_response import DescribeConfigsResponse, DescribeConfigsResult

CONTROLLERS = 2
"""The type of endpoints that a controller tells."""
TOPICS_TOGETHER = 500
SILENT_S = 3.0
"""An observer that runs fetches every half a second."""
UNSTEADY_MS = 100
"""How much the time of one fetch may differ between two answers. A leader converts it from a clock that never turns back."""
GIVEN = (
    ConfigSource.TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
)


def survey(address: ClusterAddress) -> MoveFacts:
    """Raises CommandFailed if no bootstrap server answers, or if it refuses what a move needs to know."""
    with Cluster(address, LOOK_TIMEOUT_S) as cluster:
        remote = cluster.any()
        cluster_id, brokers = brokers_of(remote)
        untold: list[str] = []
        nodes: dict[int, NodeFacts] = {}
        groups: dict[str, str] = {}
        for node_id, broker in sorted(brokers.items()):
            nodes[node_id] = NodeFacts(node_id, is_fenced=broker.is_fenced)
            if not broker.is_fenced:
                try:
                    nodes[node_id] = _node(cluster.node(node_id), node_id)
                    listed = groups_at(cluster.node(node_id), node_id, LOOK_TIMEOUT_S)
                    groups.update({each.group_id: each.group_type for each in listed})
                except CommandFailed as failure:
                    untold.append(f"broker {node_id} does not tell all about itself: {failure}")
        quorum = quorum_told(cluster)
        partitions = partitions_of(remote)
        controllers = _controllers(nodes.values(), address)
        if quorum is not None and not controllers:
            untold.append(
                "no controller answers a client, so it is not known which controllers are registered"
            )
        return MoveFacts(
            cluster_id,
            nodes,
            None if quorum is None else list(quorum.voters),
            [] if quorum is None else _running(cluster, quorum, nodes),
            -1 if quorum is None else quorum.cluster_leader,
            controllers,
            _finalized(remote),
            partitions,
            len(ongoing_of(remote)),
            _topic_settings(remote, sorted({each.topic for each in partitions})),
            groups,
            untold,
        )


def _running(cluster: Cluster, quorum: Quorum, brokers: Mapping[int, NodeFacts]) -> list[int]:
    """The observers that run. One that has stopped is told for minutes. Of a broker it is known, of others a fetch is waited
    for."""
    silent = quorum.observers.keys() - brokers.keys()
    deadline = time.monotonic() + SILENT_S
    before = quorum.last_fetches_ms
    while silent and time.monotonic() < deadline:
        time.sleep(RETRY_PAUSE_S)
        now = quorum_told(cluster)
        if now is not None:
            silent = {
                each
                for each in silent
                if now.last_fetches_ms.get(each, -1) <= before.get(each, -1) + UNSTEADY_MS
                and each not in now.voters
            }
    return [each for each in quorum.observers if each not in silent]


def _versions(remote: Remote) -> ApiVersionsResponse:
    asked = ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1])
    return remote.call(asked, ApiVersionsResponse)


def _finalized(remote: Remote) -> dict[str, int]:
    return {each.name: each.max_version_level for each in _versions(remote).finalized_features}


def _node(remote: Remote, node_id: int) -> NodeFacts:
    asked = DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(node_id), configuration_keys=None
    )
    (result,) = remote.call(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse).results
    check(result.error_code, f"the settings of broker {node_id}", result.error_message)
    own = {name for kind, name, *_ in own_table() if kind == "broker"}
    return NodeFacts(
        node_id,
        is_kafkacompat=any(each.name in own for each in result.configs),
        settings=_given(result),
        supported={
            each.name: (each.min_version, each.max_version) for each in _versions(remote).supported_features
        },
    )


def _given(result: DescribeConfigsResult) -> dict[str, str]:
    return {each.name: each.value or "" for each in result.configs if each.config_source in GIVEN}


def _topic_settings(remote: Remote, topics: Sequence[str]) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for begin in range(0, len(topics), TOPICS_TOGETHER):
        resources = [
            DescribeConfigsResource(
                resource_type=ConfigResourceType.TOPIC, resource_name=topic, configuration_keys=None
            )
            for topic in topics[begin : begin + TOPICS_TOGETHER]
        ]
        for result in remote.call(
            DescribeConfigsRequest(resources=resources), DescribeConfigsResponse
        ).results:
            check(result.error_code, f"settings of {result.resource_name}", result.error_message)
            found[result.resource_name] = {
                each.name: each.value or ""
                for each in result.configs
                if each.config_source == ConfigSource.TOPIC_CONFIG
            }
    return found


def _controllers(nodes: Iterable[NodeFacts], address: ClusterAddress) -> dict[int, str]:
    """HOST:PORT of all registered controllers, from the first one that answers. Empty if none does, because a client
    need not be able to reach them."""
    for text in known_controllers(nodes):
        place = split_host_and_port(text)
        if place is None:
            continue
        try:
            connection = Connection(*place, LOOK_TIMEOUT_S, address.security())
        except CommandFailed:
            continue
        try:
            asked = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            answer = connection.call(asked, DescribeClusterResponse)
        except CommandFailed:
            continue
        finally:
            connection.close()
        if answer.error_code == ErrorCode.NONE:
            return {each.broker_id: host_and_port(each.host, each.port) for each in answer.brokers}
    return {}
