"""Creates a node of a local cluster: its server.properties and its formatted directories.

It knows the files and uses the code of `kafkacompat format`. It starts no process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafkacompat.cli.cluster_files import HOST, ClusterFiles, Layout, Node
from kafkacompat.cli.cluster_security import ClusterSecurity
from kafkacompat.cli.settings import load_settings, warn, warn_of_settings
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_from_text, uuid_to_text

CONTROLLER_LISTENER = "CONTROLLER"


def new_id() -> str:
    """Return a random id for a cluster or a directory. It does not begin with a dash, so it can be a command-line argument."""
    from kafkacompat.net.runtime import SystemRandom

    random = SystemRandom()
    while True:
        text = uuid_to_text(random.uuid())
        if not text.startswith("-"):
            return text


def make_node(
    files: ClusterFiles,
    layout: Layout,
    node: Node,
    *,
    is_first_set: bool,
    overrides: Mapping[str, str] | None = None,
) -> Layout:
    """Write the settings and format the directories. Return the saved layout, in which the node is marked as
    formatted.

    is_first_set: the quorum starts with the controllers of this layout. Otherwise the node joins a quorum. overrides:
    settings of this node only. Raises CommandFailed if the settings are refused or the disk fails.
    """
    from kafkacompat.log.disk import RealDisk
    from kafkacompat.net.runtime import SystemClock, SystemRandom
    from kafkacompat.raft.storage import StorageProblem
    from kafkacompat.raft.voter_node import VoterNode
    from kafkacompat.server.data_directories import format_node

    security = ClusterSecurity(files) if layout.is_secure else None
    files.write_settings(layout, node, overrides or {}, security.secure_node(node) if security else None)
    voters = tuple(
        VoterNode(
            each.node_id,
            uuid_from_text(each.directory_id),
            ((CONTROLLER_LISTENER, HOST, each.controller_port),),
        )
        for each in layout.nodes
        if each.is_controller
    )
    try:
        config = load_settings(str(files.settings_path(node.node_id)), [])
        if node.node_id == 1:
            warn_of_settings(config, warn)
        format_node(
            config,
            RealDisk(),
            SystemRandom(),
            SystemClock().now_ms(),
            cluster_id=layout.cluster_id,
            standalone=False,
            initial_voters=voters if is_first_set else (),
            users=security.users() if security and is_first_set else (),
            ignore_formatted=True,
        )
    except (StorageProblem, ConfigError) as problem:
        raise CommandFailed(f"node {node.node_id}: {problem}") from problem
    except OSError as error:
        raise CommandFailed(
            f"node {node.node_id}: cannot format {error.filename}: {error.strerror}"
        ) from error
    made = layout.with_node(replace(node, is_formatted=True))
    files.save(made)
    return made
