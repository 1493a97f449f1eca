"""`kafkacompat cluster`: create, start, watch and stop a cluster of real processes on one machine.

This module knows the directory, the processes and their requests. Nodes are started like `kafkacompat start` and asked
like by any client. A dead node is not restarted.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kafkacompat.cli.cluster_files import HOST, ClusterFiles, Layout, new_layout
from kafkacompat.cli.cluster_security import ClusterSecurity
from kafkacompat.cli.cluster_status import TITLES, Report, changes_between, look, rows_of, summary_of
from kafkacompat.cli.log_options import add_log_rotation, log_options
from kafkacompat.cli.node_making import make_node, new_id
from kafkacompat.cli.node_process import STOP_TIMEOUT_S, NodeProcesses, how_it_ended, is_stop
from kafkacompat.cli.output import Screen, failing_clearly, table_lines
from kafkacompat.cli.reassign import positive
from kafkacompat.cli.settings import parse_overrides
from kafkacompat.cli.start import print_line
from kafkacompat.config import ConfigError
from kafkacompat.failure import CommandFailed

DEFAULT_DATA = "kafkacompat-cluster"
DEFAULT_NODES = 3
DEFAULT_PORT = 9092
LOOK_INTERVAL_S = 1.0
START_INTERVAL_S = 0.1
START_TIMEOUT_S = 60.0
EVENTS_SHOWN_MAX = 6

ANY_ACTION = ("data", "command_config")
OF_ACTION = {
    None: ("nodes", "port", "racks", "secure", "override", "log_max_bytes", "log_backups", "log_format"),
    "status": (),
    "stop": (),
    "resize": ("brokers", "throttle"),
}
"""The options that each action takes, besides ANY_ACTION. It refuses the others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without an action: make the cluster if DIR has none, start its nodes, show their state until interrupted, then stop "
        "them all. Nodes 1 to 3 are brokers and controllers, further ones brokers. Settings are in DIR/node-N/server.properties, "
        "logs in DIR/node-N/node.log, which is rotated. `status` ends with 0 when every node runs and every replica is in "
        "sync, with 1 otherwise."
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=[action for action in OF_ACTION if action is not None],
        help="status: print the state once; stop: stop all nodes; resize: change the number of brokers of a "
        "`kafkacompat start --brokers` while it runs, and move partitions (default: run the cluster)",
    )
    parser.add_argument(
        "--brokers", type=positive, metavar="N", help="resize: how many brokers there will be"
    )
    add_data(parser)
    parser.add_argument(
        "--nodes", type=int, metavar="N", help=f"number of nodes of a new cluster (default {DEFAULT_NODES})"
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="PORT",
        help=f"node N's broker listens on PORT+N-1 of {HOST}, its controller 1000 above that (default {DEFAULT_PORT})",
    )
    parser.add_argument("--racks", metavar="A,B,...", help="broker.rack of nodes 1, 2, ..., in turn")
    parser.add_argument(
        "--secure",
        action="store_true",
        help="a new cluster with TLS, passwords (SCRAM) and access control lists; DIR/admin.properties is the file for "
        "--command-config",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting for the server.properties of every new node; may be repeated",
    )
    parser.add_argument(
        "--throttle",
        type=positive,
        metavar="BYTES_PER_S",
        help="resize: limit per broker for the traffic of the moves",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="status, resize: a file of Kafka's client properties that says how to connect",
    )
    add_log_rotation(parser)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option --data, which all commands for a cluster on this machine have."""
    parser.add_argument(
        "--data",
        default=DEFAULT_DATA,
        metavar="DIR",
        help=f"the cluster's directory (default ./{DEFAULT_DATA})",
    )


@failing_clearly
def run(arguments: argparse.Namespace) -> int:
    files = ClusterFiles(arguments.data, arguments.command_config)
    refuse_others(arguments)
    if arguments.action == "resize":
        if arguments.brokers is None:
            raise CommandFailed("`kafkacompat cluster resize` needs --brokers")
        from kafkacompat.cli.resize import resize

        resize(files, arguments.brokers, arguments.throttle)
        return 0
    if arguments.action == "status":
        return show_status(files)
    if arguments.action == "stop":
        layout = files.load()
        refuse_one_machine(files, layout)
        stop_all(layout, NodeProcesses(files))
        return 0
    with files.locked("running", f"`kafkacompat cluster` runs in {files.root} already"):
        return run_cluster(files, arguments)


def refuse_others(arguments: argparse.Namespace) -> None:
    """Raise CommandFailed for an option that the action would ignore."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    taken = ("action", *ANY_ACTION, *OF_ACTION[arguments.action])
    for name, default in vars(parser.parse_args([])).items():
        if name not in taken and getattr(arguments, name) != default:
            command = " ".join(filter(None, ("kafkacompat cluster", arguments.action)))
            raise CommandFailed(f"--{name.replace('_', '-')} is no option of `{command}`")


def show_status(files: ClusterFiles) -> int:
    report = look(files.load(), NodeProcesses(files))
    for line in (*table_lines(TITLES, rows_of(report)), summary_of(report)):
        print(line)
    return 0 if report.is_whole else 1


def run_cluster(files: ClusterFiles, arguments: argparse.Namespace) -> int:
    """Run until a signal comes or no node is left. Return 1 if a node ended without being stopped."""
    processes = NodeProcesses(files, log_options(arguments))
    is_new = not files.exists()
    layout = lay_out(arguments) if is_new else load_same(files, arguments)
    with until_signalled() as ended:
        if is_new:
            check_ports(layout)
            files.save(layout)
        if layout.is_secure:
            ClusterSecurity(files).make()
        is_first_start = not all(node.is_formatted for node in layout.nodes)
        for node in layout.nodes:
            if not node.is_formatted:
                # A `kafkacompat node add` that was killed leaves a node that the quorum does not know.
                layout = make_node(files, layout, node, is_first_set=node.node_id <= layout.initial_size)
        try:
            start_all(layout, processes, is_first_start=is_first_start)
            wait_until_up(layout, processes, ended, is_first_start=is_first_start)
        except (CommandFailed, BrokenPipeError):
            stop_all(layout, processes)
            raise
        try:
            return watch(files, processes, ended)
        except BrokenPipeError:
            # Nobody reads any more. Ctrl-C also ends the `| tee` behind this command.
            stop_all(_newest(files, layout), processes)
            raise


def lay_out(arguments: argparse.Namespace) -> Layout:
    size = DEFAULT_NODES if arguments.nodes is None else arguments.nodes
    try:
        overrides = parse_overrides(arguments.override)
    except ConfigError as error:
        raise CommandFailed(str(error)) from error
    return new_layout(
        size,
        DEFAULT_PORT if arguments.port is None else arguments.port,
        new_id(),
        [new_id() for _ in range(max(size, 0))],
        [rack.strip() for rack in arguments.racks.split(",")] if arguments.racks else [],
        overrides,
        is_secure=arguments.secure,
    )


def load_same(files: ClusterFiles, arguments: argparse.Namespace) -> Layout:
    """Load the existing cluster. Raises CommandFailed if the arguments describe a different one."""
    layout = files.load()
    refuse_one_machine(files, layout)
    if arguments.nodes not in (None, layout.initial_size, len(layout.nodes)):
        raise CommandFailed(
            f"{files.root} holds {len(layout.nodes)} nodes; `kafkacompat node add` and `remove` change that"
        )
    if arguments.port not in (None, layout.base_port):
        raise CommandFailed(f"{files.root} was created with --port {layout.base_port}")
    if arguments.secure and not layout.is_secure:
        raise CommandFailed(f"{files.root} was created without --secure")
    if arguments.racks or arguments.override:
        raise CommandFailed(
            f"--racks and --override are for a new cluster; edit server.properties below {files.root} instead"
        )
    return layout


def refuse_one_machine(files: ClusterFiles, layout: Layout) -> None:
    """Raise CommandFailed for brokers that a `kafkacompat start` runs."""
    if layout.is_one_machine:
        raise CommandFailed(
            f"`kafkacompat start` runs the brokers in {files.root}: they stop with it, and "
            f"`kafkacompat cluster resize` changes their number"
        )


def check_ports(layout: Layout) -> None:
    """Raise CommandFailed if another process listens on a port of a node."""
    for node in layout.nodes:
        for port in filter(None, (node.port, node.controller_port)):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise CommandFailed(
                        f"node {node.node_id} cannot listen on {HOST}:{port}: {error.strerror}; choose another --port"
                    ) from error


def start_all(layout: Layout, processes: NodeProcesses, *, is_first_start: bool) -> None:
    """Start the nodes that do not run. If a node cannot be started, CommandFailed on the first start; later the others
    continue."""
    for node in layout.nodes:
        if processes.pid(node) is None:
            try:
                processes.start(node)
            except CommandFailed as failure:
                if is_first_start:
                    raise
                print(f"kafkacompat: {failure}", file=sys.stderr)


def wait_until_up(
    layout: Layout, processes: NodeProcesses, ended: threading.Event, *, is_first_start: bool
) -> None:
    """Wait until every broker has joined. If one cannot, CommandFailed on the first start; later the others continue."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ended.wait(START_INTERVAL_S):
        report = look(layout, processes)
        if report.down:
            node = layout.node(report.down[0])
            said = f"node {node.node_id} {report.endings[node.node_id]}: {processes.last_words(node)}"
            if is_first_start:
                raise CommandFailed(said)
            print(f"kafkacompat: {said}", file=sys.stderr)
            return
        if report.are_all_brokers_there and report.active_controller is not None:
            return
        if time.monotonic() > deadline:
            said = f"not every broker has joined after {START_TIMEOUT_S:.0f} s: {summary_of(report)}"
            if is_first_start:
                raise CommandFailed(said)
            print(f"kafkacompat: {said}", file=sys.stderr)
            return


def watch(files: ClusterFiles, processes: NodeProcesses, ended: threading.Event) -> int:
    """Show the state until a signal comes or no node runs any more."""
    screen = Screen()
    layout = files.load()
    before: Report | None = None
    events: list[str] = []
    while not ended.is_set():
        layout = _newest(files, layout)
        report = look(layout, processes)
        changes = [
            f"{time.strftime('%H:%M:%S', time.gmtime())} {line}" for line in changes_between(before, report)
        ]
        if before is None:
            head = (
                f"cluster {report.layout.cluster_id} bootstrap {report.layout.bootstrap} data in {files.root}"
            )
            changes.append(
                f"{time.strftime('%H:%M:%S', time.gmtime())} {head}{files.client_option(report.layout)}"
            )
            changes.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {summary_of(report)}")
        events = [*events, *changes][-EVENTS_SHOWN_MAX:]
        if screen.is_live:
            screen.show([*table_lines(TITLES, rows_of(report)), summary_of(report), "", *events])
        else:
            for line in changes:
                print(line, flush=True)
        before = report
        if len(report.down) == len(report.layout.nodes):
            print("no node is running any more", flush=True)
            return 0 if all(map(is_stop, processes.statuses.values())) else 1
        ended.wait(LOOK_INTERVAL_S)
    stop_all(_newest(files, layout), processes)
    return 0


def _newest(files: ClusterFiles, layout: Layout) -> Layout:
    """Return the layout of now. While it cannot be read the last one counts: its nodes run, and somebody must stop them."""
    try:
        return files.load()
    except CommandFailed:
        return layout


def stop_all(layout: Layout, processes: NodeProcesses) -> None:
    """Stop all nodes at the same time and report how each one ended."""
    pids = {node.node_id: pid for node in layout.nodes if (pid := processes.pid(node)) is not None}
    if not pids:
        print_line("no node is running")
        return
    print_line(f"stopping {len(pids)} nodes")
    started_s = time.monotonic()
    late = processes.stop(layout.nodes, is_whole_cluster=True)
    for node in late:
        print_line(f"node {node.node_id} did not stop in {STOP_TIMEOUT_S:.0f} s and was killed")
    for node_id, pid in pids.items():
        status = processes.statuses.get(pid, 0)
        if not is_stop(status) and node_id not in [node.node_id for node in late]:
            print_line(f"node {node_id} {how_it_ended(status)}")
    print_line(f"{len(pids)} nodes stopped in {time.monotonic() - started_s:.1f} s")


@contextmanager
def until_signalled() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    ended = threading.Event()
    former = {
        number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield ended
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
