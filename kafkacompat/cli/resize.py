"""`kafkacompat cluster resize`: more or fewer brokers of a machine, while its `kafkacompat start --brokers` runs.

That process starts and stops the brokers, because cluster.json asks for it. This module moves the partitions.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kafkacompat.cli import moves
from kafkacompat.cli.brokers_folder import RUNNING
from kafkacompat.cli.cluster_files import NODES_MAX, ClusterFiles, Layout, Node, replication_settings
from kafkacompat.cli.cluster_status import look
from kafkacompat.cli.elect import PREFERRED, elect
from kafkacompat.cli.node_process import NodeProcesses
from kafkacompat.cli.plan import Assignment, Plan, balanced_plan, changes_of
from kafkacompat.cli.reassign import show
from kafkacompat.cli.view import MIN_ISR, brokers_of
from kafkacompat.cli.voters import unregister_broker
from kafkacompat.client.blocking import Cluster
from kafkacompat.config import load_properties
from kafkacompat.failure import CommandFailed
from kafkacompat.ids import INTERNAL_TOPICS, OFFSETS_TOPIC
from kafkacompat.security.cluster_address import ClusterAddress
from kafkacompat.wire.config_resources import ConfigResourceType

REACTION_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 90.0
LOOK_INTERVAL_S = 0.2
TRIES = 3
"""A topic that is created meanwhile may get a replica on a broker that is leaving."""
METADATA_DIRECTORY = "__cluster_metadata-0"
DELETED = "-delete"
REMOVED = ".removed"


def resize(files: ClusterFiles, number: int, throttle: int | None) -> None:
    """Change the number of brokers, and return when their partitions are where they belong. Raises CommandFailed."""
    layout = files.load()
    if not layout.is_one_machine:
        raise CommandFailed(f"`kafkacompat node add` and `remove` change the cluster in {files.root}")
    if number > NODES_MAX:
        raise CommandFailed(f"a machine can have {NODES_MAX} brokers")
    if not files.is_locked(RUNNING):
        raise CommandFailed(f"no `kafkacompat start` runs the brokers in {files.root}")
    with files.locked("changing", f"another `kafkacompat cluster resize` changes {files.root}"):
        if number < len(layout.nodes):
            shrink(files, layout, number, throttle)
        else:
            grow(files, layout, number, throttle)


def grow(files: ClusterFiles, layout: Layout, number: int, throttle: int | None) -> None:
    """The number may be that of now: an earlier growth may have ended before the partitions had moved."""
    layout = ask_for(files, layout, number)
    wait_for(
        lambda: look(files.load(), NodeProcesses(files)).are_all_brokers_there,
        "not every broker has joined; the output of `kafkacompat start` says why",
        JOIN_TIMEOUT_S,
    )
    print(f"{number} brokers run at {layout.bootstrap}", flush=True)
    move(
        files.address(layout, layout.bootstrap),
        lambda current, brokers: (balanced_plan(current, *brokers), ()),
        throttle,
    )


def shrink(files: ClusterFiles, layout: Layout, number: int, throttle: int | None) -> None:
    staying, leaving = layout.nodes[:number], layout.nodes[number:]
    gone = {each.node_id for each in leaving}
    bootstrap = files.address(layout, ",".join(each.address for each in staying))
    for _ in range(TRIES):
        move(bootstrap, lambda current, brokers: shrink_plan(current, gone, *brokers), throttle)
        ask_for(files, layout, number)
        wait_for(
            lambda: not any(map(NodeProcesses(files).pid, leaving)),
            "not every broker has stopped",
            STOP_TIMEOUT_S,
        )
        found = moves.patiently(bootstrap, lambda cluster: moves.assignment_of(cluster.any(), None))
        if not any(gone & set(replicas) for replicas in found.values()):
            break
        ask_for(files, files.load(), len(layout.nodes))
    else:
        raise CommandFailed("topics are created all the time on the brokers that are to go; they stay")
    for node in leaving:
        node_id = node.node_id
        moves.patiently(bootstrap, lambda cluster, node_id=node_id: unregister_broker(cluster, node_id))  # type: ignore[misc]
        remove_files(files, node)
        print(f"broker {node_id} is removed", flush=True)


def shrink_plan(
    current: Assignment, leaving: Collection[int], brokers: Sequence[int], racks: Mapping[int, str | None]
) -> tuple[Plan, Collection[str]]:
    """Return a plan that uses the other brokers only, and the internal topics that lose replicas because there are too
    few brokers. Raises CommandFailed if another topic would."""
    remaining = [each for each in brokers if each not in leaving]
    crowded = {topic for (topic, _), replicas in current.items() if len(replicas) > len(remaining)}
    if others := sorted(crowded - INTERNAL_TOPICS):
        raise CommandFailed(
            f"{', '.join(others)}: more replicas than the {len(remaining)} brokers that stay; "
            f"`kafkacompat reassign --topics {','.join(others)} --replication-factor {len(remaining)}` changes that"
        )
    fewer = {where: replicas for where, replicas in current.items() if where[0] in crowded}
    same = {where: replicas for where, replicas in current.items() if where[0] not in crowded}
    plan = balanced_plan(same, remaining, racks)
    if fewer:
        plan |= balanced_plan(fewer, remaining, racks, len(remaining))
    return plan, crowded


def move(
    bootstrap: ClusterAddress,
    plan_for: Callable[
        [Assignment, tuple[Sequence[int], Mapping[int, str | None]]], tuple[Plan, Collection[str]]
    ],
    throttle: int | None,
) -> None:
    """Carry out the plan for the partitions of now and the brokers that are alive, and elect preferred leaders."""
    with Cluster(bootstrap, moves.ANSWER_TIMEOUT_S) as cluster:
        if moves.ongoing_of(cluster.any()):
            raise CommandFailed("a reassignment is in progress; `kafkacompat reassign --watch` waits for it")
        known = brokers_of(cluster.any())[1]
        current = moves.assignment_of(cluster.any(), None)
        alive = [each.node_id for each in known.values() if not each.is_fenced]
        plan, fewer = plan_for(current, (alive, {each.node_id: each.rack for each in known.values()}))
        changes = changes_of(current, plan)
        size = sum(moves.bytes_to_copy(cluster, current, changes).values())
        for topic in sorted(set(fewer) - {OFFSETS_TOPIC}):
            least = replication_settings(max(map(len, plan.values())))["transaction.state.log.min.isr"]
            moves.configure(cluster.any(), ConfigResourceType.TOPIC, topic, {MIN_ISR: least})
    show(current, changes, size)
    if changes:
        moves.execute(bootstrap, current, changes, throttle)
        moves.patiently(bootstrap, lambda cluster: elect(cluster.any(), PREFERRED, sorted(changes)))


def ask_for(files: ClusterFiles, layout: Layout, number: int) -> Layout:
    """Ask the process that runs the brokers for this number of them, and wait until it has taken that up."""
    if number != len(layout.nodes):
        files.save(replace(layout, wanted=number, refusal=""))
    wait_for(lambda: files.load().wanted == 0, "`kafkacompat start` does not react", REACTION_TIMEOUT_S)
    made = files.load()
    if made.refusal:
        raise CommandFailed(made.refusal)
    if len(made.nodes) != number:
        raise CommandFailed(
            f"`kafkacompat start` was started again meanwhile, with {len(made.nodes)} brokers; repeat the command"
        )
    return made


def remove_files(files: ClusterFiles, node: Node) -> None:
    """Delete the directories of a broker that has no partition any more, so that its id can be given again."""
    folder = files.folder(node.node_id)
    try:
        settings = load_properties(files.settings_path(node.node_id))
        directories = [*filter(None, [settings.get("metadata.log.dir")]), *settings["log.dirs"].split(",")]
        for directory in map(Path, directories):
            left = [each.name for each in directory.iterdir() if each.is_dir()]
            if kept := [each for each in left if each != METADATA_DIRECTORY and not each.endswith(DELETED)]:
                print(f"{directory} stays: it has {', '.join(sorted(kept))}", flush=True)
                return
        # That of the metadata log is the first: without it, the broker counts as new, and what is left as formatted in part.
        for directory in dict.fromkeys((*(Path(each).parent for each in directories), folder)):
            # In one step: no broker starts with a part of its metadata log.
            aside = directory.with_name(directory.name + REMOVED)
            for earlier in directory.parent.glob(f"node-*{REMOVED}"):
                shutil.rmtree(earlier)
            directory.rename(aside)
            shutil.rmtree(aside)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CommandFailed(f"cannot delete {error.filename}: {error.strerror}") from error


def wait_for(is_so: Callable[[], bool], refusal: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise CommandFailed(f"{refusal}, after {timeout_s:.0f} s")
        time.sleep(LOOK_INTERVAL_S)
