"""`kafkacompat node`: add, remove, stop and start nodes of a cluster on this machine while the cluster works.

This module knows the cluster's directory and processes, and asks the cluster as a client. It decides the order of the
steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from kafkacompat.cli import moves
from kafkacompat.cli.cluster import add_data, refuse_one_machine
from kafkacompat.cli.cluster_files import BOTH, BROKER, HOST, ClusterFiles, Layout, Node, new_node
from kafkacompat.cli.cluster_status import Report, ask_any, look, summary_of
from kafkacompat.cli.elect import PREFERRED, elect
from kafkacompat.cli.log_options import add_log_rotation, log_options
from kafkacompat.cli.node_making import make_node, new_id
from kafkacompat.cli.node_process import STOP_TIMEOUT_S, NodeProcesses
from kafkacompat.cli.output import failing_clearly
from kafkacompat.cli.plan import changes_of, evacuation_plan
from kafkacompat.cli.reassign import positive, show
from kafkacompat.cli.settings import parse_overrides
from kafkacompat.cli.view import brokers_of
from kafkacompat.cli.voters import add_voter, quorum_now, remove_voter, unregister_broker
from kafkacompat.client.blocking import Cluster
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import uuid_to_text
from kafkacompat.security.cluster_address import ClusterAddress

START_TIMEOUT_S = 60.0
CATCH_UP_TIMEOUT_S = 600.0
LOOK_INTERVAL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="create a node, start it, and wait until it has joined")
    add.add_argument(
        "--controller",
        action="store_true",
        help="also a controller, and a voter (default: a broker only)",
    )
    add.add_argument("--rack", metavar="RACK", help="its broker.rack")
    add.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of its server.properties; may be repeated",
    )
    remove = actions.add_parser(
        "remove",
        help="move a node's partitions away, remove it from the voters, stop and unregister it; it may be dead",
    )
    remove.add_argument("node", type=int, help="its node.id")
    remove.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES_PER_S",
        help="limit per broker for the traffic of these moves",
    )
    start = actions.add_parser("start", help="start stopped nodes, and wait until they have joined")
    stop = actions.add_parser("stop", help="stop nodes; their leaderships move first")
    restart = actions.add_parser(
        "restart", help="restart nodes one at a time, each when every replica is in sync again"
    )
    for each in (start, stop, restart):
        each.add_argument(
            "node",
            type=int,
            nargs="*" if each is restart else "+",
            help="its node.id; all nodes without one"
            if each is restart
            else "its node.id; several may follow",
        )
    restart.add_argument("--all", action="store_true", help="every node, the active controller last")
    for each in (add, start, restart):
        add_log_rotation(each)
    for each in (add, remove, start, stop, restart):
        add_data(each)


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    files = ClusterFiles(arguments.data)
    refuse_one_machine(files, files.load())
    starts_nodes = arguments.action in ("add", "start", "restart")
    processes = NodeProcesses(files, log_options(arguments) if starts_nodes else None)
    with files.locked("changing", f"another `kafkacompat node` changes {files.root}"):
        {
            "add": add_node,
            "remove": remove_node,
            "start": start_nodes,
            "stop": stop_nodes,
            "restart": restart_nodes,
        }[arguments.action](files, processes, arguments)
    return 0


# Adding a node.


def add_node(files: ClusterFiles, processes: NodeProcesses, arguments: argparse.Namespace) -> None:
    try:
        overrides = parse_overrides(arguments.override)
    except ConfigError as error:
        raise CommandFailed(str(error)) from error
    layout = files.load()
    running_bootstrap(layout, processes)
    node = new_node(
        layout,
        layout.highest_node_id + 1,
        BOTH if arguments.controller else BROKER,
        new_id(),
        arguments.rack,
    )
    joined = layout.with_node(node)
    files.save(joined)
    try:
        joined = make_node(files, joined, node, is_first_set=False, overrides=overrides)
        processes.start(node)
        wait_until_there(files, processes, node.node_id)
        print(f"node {node.node_id} joined as a broker at {node.address}", flush=True)
    except BaseException:
        processes.stop([node])
        files.save(replace(layout, highest_node_id=node.node_id))
        raise
    if node.is_controller:
        let_vote(files, processes, joined, node)
    print(
        f"it has no partitions yet: kafkacompat reassign --bootstrap {node.address}{files.client_option(joined)}"
    )


def let_vote(files: ClusterFiles, processes: NodeProcesses, layout: Layout, node: Node) -> None:
    """Make the node a voter. If that is refused the node stays, because the quorum may already count its vote."""
    try:
        files.tell_of_controllers(layout)
        directory_id = add_voter(
            running_bootstrap(layout, processes), node.node_id, HOST, node.controller_port
        )
        files.save(
            layout.with_node(replace(layout.node(node.node_id), directory_id=uuid_to_text(directory_id)))
        )
    except CommandFailed as failure:
        raise CommandFailed(
            f"{failure}; node {node.node_id} stays, and votes by "
            f"`kafkacompat quorum add {node.node_id} {node.controller_address}`"
        ) from failure
    print(f"node {node.node_id} is a voter", flush=True)


def start_nodes(files: ClusterFiles, processes: NodeProcesses, arguments: argparse.Namespace) -> None:
    layout = files.load()
    nodes = [layout.node(node_id) for node_id in arguments.node]
    for node in nodes:
        print(f"node {node.node_id} is running with pid {processes.start(node)}", flush=True)
    for node in nodes:
        wait_until_there(files, processes, node.node_id)
        print(f"node {node.node_id} has joined", flush=True)


def wait_until_there(files: ClusterFiles, processes: NodeProcesses, node_id: int) -> None:
    """Wait for the node. Raises CommandFailed if it ends, or has not joined after START_TIMEOUT_S."""

    def takes_part(report: Report) -> bool:
        node = report.layout.node(node_id)
        if report.pids[node_id] is None:
            raise CommandFailed(f"node {node_id} {report.endings[node_id]}: {processes.last_words(node)}")
        # Ask the node itself: the other nodes may still have the registration of its killed process.
        answers = ask_any([node], files.address(report.layout, node.address).security())
        known = answers.brokers.get(node_id) if answers else None
        return known is not None and not known.is_fenced

    wait_for(files, processes, takes_part, f"node {node_id} has not joined", START_TIMEOUT_S)


# Removing a node.


def remove_node(files: ClusterFiles, processes: NodeProcesses, arguments: argparse.Namespace) -> None:
    layout, node_id = files.load(), arguments.node
    node = layout.node(node_id)
    bootstrap = running_bootstrap(layout, processes, without=node_id)
    is_voter = node_id in quorum_now(bootstrap).voters
    if is_voter and len(quorum_now(bootstrap).voters) == 1:
        raise CommandFailed(f"node {node_id} is the only voter of the quorum; add a controller first")
    move_away(bootstrap, node, arguments.throttle)
    if is_voter:
        remove_voter(bootstrap, node_id)
        left = len(quorum_now(bootstrap).voters)
        survives = (left - 1) // 2
        print(
            f"node {node_id} is no longer a voter; the {left} remaining voters survive the loss of {survives}",
            flush=True,
        )
    stop_one(processes, node)
    moves.patiently(bootstrap, lambda cluster: unregister_broker(cluster, node_id))
    layout = files.load().without_node(node_id)
    files.save(layout)
    files.tell_of_controllers(layout)
    print(f"node {node_id} is removed; its files are still in {files.folder(node_id)}")


def move_away(bootstrap: ClusterAddress, node: Node, throttle: int | None) -> None:
    with Cluster(bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
        if moves.ongoing_of(cluster.any()):
            raise CommandFailed("a reassignment is in progress; `kafkacompat reassign --watch` waits for it")
        known = brokers_of(cluster.any())[1]
        current = moves.assignment_of(cluster.any(), None)
        remaining = [
            each.node_id for each in known.values() if not each.is_fenced and each.node_id != node.node_id
        ]
        racks = {each.node_id: each.rack for each in known.values()}
        plan = changes_of(current, evacuation_plan(current, node.node_id, remaining, racks))
        size = sum(moves.bytes_to_copy(cluster, current, plan).values())
    show(current, plan, size)
    if plan:
        moves.execute(bootstrap, current, plan, throttle)
        moves.patiently(bootstrap, lambda cluster: elect(cluster.any(), PREFERRED, sorted(plan)))
        print(f"node {node.node_id} has no partitions left", flush=True)


def stop_nodes(files: ClusterFiles, processes: NodeProcesses, arguments: argparse.Namespace) -> None:
    layout = files.load()
    for node in [layout.node(node_id) for node_id in arguments.node]:
        stop_one(processes, node)


def stop_one(processes: NodeProcesses, node: Node) -> None:
    if processes.pid(node) is None:
        print(f"node {node.node_id} is not running", flush=True)
    elif processes.stop([node]):
        print(f"node {node.node_id} did not stop in {STOP_TIMEOUT_S:.0f} s and was killed", flush=True)
    else:
        print(f"node {node.node_id} is stopped", flush=True)


def restart_nodes(files: ClusterFiles, processes: NodeProcesses, arguments: argparse.Namespace) -> None:
    layout = files.load()
    if bool(arguments.node) == arguments.all:
        raise CommandFailed("node restart takes either nodes or --all")
    chosen = [layout.node(node_id) for node_id in arguments.node] or list(layout.nodes)
    active = quorum_now(running_bootstrap(layout, processes)).cluster_leader
    for node in sorted(chosen, key=lambda each: each.node_id == active):
        wait_for(
            files, processes, lambda report: report.is_whole, "the cluster is not whole", CATCH_UP_TIMEOUT_S
        )
        stop_one(processes, node)
        print(f"node {node.node_id} is running with pid {processes.start(node)}", flush=True)
        wait_until_there(files, processes, node.node_id)
    wait_for(files, processes, lambda report: report.is_whole, "the cluster is not whole", CATCH_UP_TIMEOUT_S)
    print("every replica is in sync")


# Status.


def wait_for(
    files: ClusterFiles,
    processes: NodeProcesses,
    is_so: Callable[[Report], bool],
    refusal: str,
    timeout_s: float,
) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        report = look(files.load(), processes)
        if is_so(report):
            return
        if time.monotonic() > deadline:
            raise CommandFailed(f"{refusal} after {timeout_s:.0f} s: {summary_of(report)}")
        time.sleep(LOOK_INTERVAL_S)


def running_bootstrap(layout: Layout, processes: NodeProcesses, without: int | None = None) -> ClusterAddress:
    """Return the addresses of the running brokers. Raises CommandFailed if there are none."""
    running = [
        node.address
        for node in layout.nodes
        if node.is_broker and node.node_id != without and processes.pid(node) is not None
    ]
    if not running:
        raise CommandFailed(
            "no broker of the cluster is running" + (" except this one" if without is not None else "")
        )
    return processes.files.address(layout, ",".join(running))
