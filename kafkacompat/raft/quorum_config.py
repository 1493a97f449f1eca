"""A node's settings in the form that the quorum uses: controller.quorum.*, controller.listener.names, node.id,
process.roles.

Pure. Roles of a member are unknown here.
"""

from __future__ import annotations

from kafkacompat.addresses import split_host_and_port
from kafkacompat.config import ServerConfig, parse_voters
from kafkacompat.config.server import CONTROLLER_BOOTSTRAP_SERVERS
from kafkacompat.ids import ZERO_UUID, Uuid
from kafkacompat.raft.quorum_state import Member, QuorumSettings
from kafkacompat.raft.voter_node import VoterNode
from kafkacompat.raft.voter_set import Endpoints

FIRST_BOOTSTRAP_ID = -2
"""Bootstrap servers get this pseudo id and lower ones until their node ids are known."""


def quorum_settings(config: ServerConfig) -> QuorumSettings:
    # Kafka's range allows a timeout of 0, which would leave no range for a random election timeout.
    return QuorumSettings(
        election_timeout_ms=max(config.get_int("controller.quorum.election.timeout.ms"), 1),
        fetch_timeout_ms=max(config.get_int("controller.quorum.fetch.timeout.ms"), 2),
        election_backoff_max_ms=config.get_int("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.get_int("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.get_int("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
    )


def default_listener(config: ServerConfig) -> str:
    """The controller listener over which members reach each other."""
    return config.controller_listener_names[0]


def static_voters(config: ServerConfig) -> tuple[VoterNode, ...]:
    """controller.quorum.voters. Their directory ids are unknown."""
    name = default_listener(config)
    return tuple(
        VoterNode(node_id, ZERO_UUID, ((name, host, port),))
        for node_id, (host, port) in parse_voters(config).items()
    )


def bootstrap_servers(config: ServerConfig) -> tuple[tuple[int, Endpoints], ...]:
    """controller.quorum.bootstrap.servers. If it is not set, the static voters."""
    name = default_listener(config)
    entries = config.get_list(CONTROLLER_BOOTSTRAP_SERVERS)
    addresses = [found for entry in entries if (found := split_host_and_port(entry)) is not None]
    if not addresses:
        addresses = list(parse_voters(config).values())
    return tuple(
        (FIRST_BOOTSTRAP_ID - place, ((name, host, port),)) for place, (host, port) in enumerate(addresses)
    )


def quorum_member(
    config: ServerConfig, directory_id: Uuid, cluster_id: str, own_endpoints: Endpoints
) -> Member:
    """`directory_id` is that of the metadata directory. `own_endpoints` has this node's advertised controller
    listeners, the default one first; () without the controller role. This node is left out of the bootstrap servers."""
    own = {(host, port) for _, host, port in own_endpoints}
    return Member(
        node_id=config.node_id,
        directory_id=directory_id,
        endpoints=own_endpoints,
        can_vote="controller" in config.roles,
        cluster_id=cluster_id,
        joins=config.get_boolean("controller.quorum.auto.join.enable"),
        bootstrap=tuple(each for each in bootstrap_servers(config) if each[1][0][1:] not in own),
    )
