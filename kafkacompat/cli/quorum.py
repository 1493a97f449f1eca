"""`kafkacompat quorum`: manage the metadata quorum of any cluster, and the brokers and controllers registered with it.

It is an ordinary client. The controllers decide what a voter is (KIP-853).
"""

from __future__ import annotations

import argparse

from kafkacompat.addresses import split_host_and_port
from kafkacompat.cli.cluster_address import add_bootstrap, add_bootstrap_to, address_of
from kafkacompat.cli.output import failing_clearly, print_table
from kafkacompat.cli.view import brokers_of
from kafkacompat.cli.voters import (
    ANSWER_TIMEOUT_S,
    add_voter,
    quorum_now,
    remove_voter,
    unregister_broker,
    unregister_controller,
)
from kafkacompat.client.blocking import Cluster
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_to_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("describe", help="voters and observers, and how far each has replicated")
    add = actions.add_parser("add", help="make a controller that follows the quorum a voter")
    add.add_argument("node", type=int, help="its node.id")
    add.add_argument("address", metavar="HOST:PORT", help="where its controller listens")
    remove = actions.add_parser("remove", help="remove a controller from the voters; it may be dead")
    remove.add_argument("node", type=int, help="its node.id")
    remove.add_argument("--unregister", action="store_true", help="also unregister the controller")
    unregister = actions.add_parser("unregister", help="unregister a broker that is stopped for good")
    unregister.add_argument("node", type=int, help="its node.id")
    controller = actions.add_parser(
        "unregister-controller", help="unregister a controller that is stopped for good"
    )
    controller.add_argument("node", type=int, help="its node.id")
    add_bootstrap_to(actions)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    actions = {
        "describe": describe,
        "add": add,
        "remove": remove,
        "unregister": unregister,
        "unregister-controller": unregister_a_controller,
    }
    actions[arguments.action](arguments)
    return 0


def describe(arguments: argparse.Namespace) -> None:
    quorum = quorum_now(address_of(arguments))
    end = quorum.ends[quorum.cluster_leader]
    rows = [
        (node_id, role, uuid_to_text(directory_id), quorum.ends[node_id], end - quorum.ends[node_id])
        for found, role in ((quorum.voters, "voter"), (quorum.observers, "observer"))
        for node_id, directory_id in sorted(found.items())
    ]
    print(f"leader {quorum.cluster_leader} epoch {quorum.epoch}")
    print_table(("node", "role", "directory", "end", "lag"), rows)


def add(arguments: argparse.Namespace) -> None:
    found = split_host_and_port(arguments.address)
    if found is None:
        raise CommandFailed(f"the address must be HOST:PORT, not {arguments.address!r}")
    add_voter(address_of(arguments), arguments.node, *found)
    print(f"node {arguments.node} is a voter")


def remove(arguments: argparse.Namespace) -> None:
    if not remove_voter(address_of(arguments), arguments.node):
        raise CommandFailed(f"node {arguments.node} is not a voter")
    print(f"node {arguments.node} is no longer a voter")
    if arguments.unregister:
        unregister_a_controller(arguments)


def unregister_a_controller(arguments: argparse.Namespace) -> None:
    """A controller that runs registers again."""
    with Cluster(address_of(arguments), ANSWER_TIMEOUT_S) as cluster:
        if not unregister_controller(cluster, arguments.node):
            raise CommandFailed(f"there is no controller {arguments.node}")
    print(f"controller {arguments.node} is unregistered")


def unregister(arguments: argparse.Namespace) -> None:
    with Cluster(address_of(arguments), ANSWER_TIMEOUT_S) as cluster:
        known = brokers_of(cluster.any())[1]
        if arguments.node in known and not known[arguments.node].is_fenced:
            raise CommandFailed(f"broker {arguments.node} is alive; stop it first")
        if not unregister_broker(cluster, arguments.node):
            raise CommandFailed(f"there is no broker {arguments.node}")
    print(f"broker {arguments.node} is unregistered")
