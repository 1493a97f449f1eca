"""Run simulations: `python -m kafkacompat.sim --seed 7 --trace` shows one, `--seeds 1000` runs many. Exit code 1 means
a breach.

By default only a metadata quorum is simulated; with --cluster, a whole cluster.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from kafkacompat.raft import effects as effect
from kafkacompat.raft import events
from kafkacompat.sim.cluster_options import (
    consumer_group_shape,
    draw_cluster_options,
    mirror_shape,
    share_group_shape,
    streams_group_shape,
    tier_shape,
)
from kafkacompat.sim.cluster_simulation import ClusterSimulation
from kafkacompat.sim.counters import (
    ClusterCounters,
    ConsumerGroupCounters,
    MirrorCounters,
    QuorumCounters,
    ShareGroupCounters,
    StreamsGroupCounters,
    TierCounters,
)
from kafkacompat.sim.mirrors import MirrorSimulation
from kafkacompat.sim.processes import Process
from kafkacompat.sim.quorum_node import SimulatedNode
from kafkacompat.sim.quorum_options import draw_options
from kafkacompat.sim.quorum_simulation import QuorumSimulation

GroupCounters = (
    ConsumerGroupCounters | ShareGroupCounters | StreamsGroupCounters | TierCounters | MirrorCounters | None
)


def print_short(line: str) -> None:
    """Print a line without parts that carry no information: addresses and directory ids follow from node ids."""
    line = re.sub(r"ReplicaKey\(id=(\d+), directory_id=b'[^']*'\)", r"\1", line)
    line = re.sub(
        r"(leader_)?endpoints=\(\(.*?\),\),? ?|cluster_id='[^']*'|top_level_error=<ErrorCode.NONE: 0>",
        "",
        line,
    )
    print(re.sub(r"<ErrorCode\.(\w+): -?\d+>", r"\1", line))


def show(node: SimulatedNode, event: events.Event, effects: list[effect.Effect]) -> None:
    core = node.core
    assert core is not None
    time_ms = node.environment.scheduler.now_us / 1000
    log = core.log
    print_short(
        f"{time_ms:11.3f} node {node.id} {core.role.value} epoch {core.epoch} hw {core.high_watermark} "
        f"log {log.start}..{log.end} durable {log.durable_end} | {event}"
    )
    for each in effects:
        print_short(f"{'':11}   -> {each}")


class ClusterTrace(logging.Handler):
    """Prints the events of a cluster together with its nodes' log lines."""

    def show(self, process: Process, what: str) -> None:
        if what != "timer":
            print(f"{process.env.scheduler.now_us / 1000:11.3f} node {process.id} {what}")

    def tell(self, what: str) -> None:
        print(f"{'':11}   => {what}")

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{'':11}   -> {record.getMessage()}")


def shape_for(seed: int, groups: GroupCounters) -> dict[str, Any]:
    if groups is None:
        return {}
    if isinstance(groups, MirrorCounters):
        return mirror_shape(seed)
    if isinstance(groups, TierCounters):
        return tier_shape(seed)
    if isinstance(groups, StreamsGroupCounters):
        return streams_group_shape(seed)
    return share_group_shape(seed) if isinstance(groups, ShareGroupCounters) else consumer_group_shape(seed)


def run_seed(seed: int, trace: bool, show_hash: bool) -> QuorumCounters:
    simulation = QuorumSimulation(seed, trace=show if trace else None)
    try:
        return simulation.run()
    finally:
        if show_hash:
            print(f"trace hash {simulation.trace_hash:08x} after {simulation.events} events")


def run_cluster_seed(
    seed: int, trace: bool, show_hash: bool, groups: GroupCounters = None
) -> ClusterCounters:
    """`groups`: run the shape with such a group, and add its counts."""
    is_of_mirrors = isinstance(groups, MirrorCounters)
    simulation = (
        MirrorSimulation(seed) if is_of_mirrors else ClusterSimulation(seed, **shape_for(seed, groups))
    )
    root = logging.getLogger("kafkacompat")
    if trace:
        shown = ClusterTrace()
        for each in simulation.clusters:
            each.env.trace, each.env.tell = shown.show, shown.tell
        root.addHandler(shown)
        root.setLevel(logging.INFO)
    else:
        root.setLevel(logging.CRITICAL)
    try:
        return simulation.run()
    finally:
        if isinstance(groups, ShareGroupCounters):
            groups.add(simulation.share_groups.counters)
        elif isinstance(groups, StreamsGroupCounters):
            groups.add(simulation.streams_groups.counters)
        elif isinstance(groups, TierCounters):
            assert simulation.store is not None
            groups.add(simulation.store.counters)
        elif isinstance(groups, MirrorCounters):
            assert simulation.oracles.mirrors is not None
            groups.add(simulation.oracles.mirrors.counters)
        elif groups is not None:
            groups.add(simulation.consumer_groups.counters)
        if trace:
            root.removeHandler(shown)
        root.setLevel(logging.NOTSET)
        if show_hash:
            env = simulation.env
            print(f"trace hash {env.trace_hash:08x} after {env.counters.events} events")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kafkacompat.sim", description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="whole clusters instead of quorums")
    parser.add_argument(
        "--consumer-groups", action="store_true", help="clusters with a group of both protocols (KIP-848)"
    )
    parser.add_argument("--share-groups", action="store_true", help="clusters with a share group (KIP-932)")
    parser.add_argument(
        "--streams-groups", action="store_true", help="clusters with a streams group (KIP-1071)"
    )
    parser.add_argument("--tiers", action="store_true", help="clusters with a remote store (KIP-405)")
    parser.add_argument("--mirrors", action="store_true", help="two clusters of which one mirrors the other")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, from the first on")
    parser.add_argument("--trace", action="store_true", help="print every event with its effects")
    parser.add_argument("--hash", action="store_true", help="print the hash of the run")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failed seed")
    options = parser.parse_args(arguments)
    groups: GroupCounters = None
    if options.consumer_groups:
        groups = ConsumerGroupCounters()
    elif options.share_groups:
        groups = ShareGroupCounters()
    elif options.streams_groups:
        groups = StreamsGroupCounters()
    elif options.tiers:
        groups = TierCounters()
    elif options.mirrors:
        groups = MirrorCounters()
    is_cluster = options.cluster or groups is not None
    total: Any = ClusterCounters() if is_cluster else QuorumCounters()
    run: Callable[[int, bool, bool], Any] = (
        partial(run_cluster_seed, groups=groups) if is_cluster else run_seed
    )
    failed = 0
    began = time.monotonic()
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            total.add(run(seed, options.trace, options.trace or options.hash))
        except Exception as error:
            failed += 1
            drawn: Any = draw_cluster_options(seed) if is_cluster else draw_options(seed)
            if groups is not None:
                drawn = replace(drawn, **shape_for(seed, groups))
            print(f"seed {seed}: {type(error).__name__}: {error}\n  options: {drawn}", flush=True)
            if not options.keep_going:
                traceback.print_exc()
                break
    seconds = time.monotonic() - began
    print(f"{options.seeds} seeds, {failed} failed, {seconds:.1f} s\n{total}")
    if groups is not None:
        print(groups)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
