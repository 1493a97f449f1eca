"""A cluster's state for a person: one row per node, one line for the whole, and the changes since the last report.

It reads the process table and asks a broker. It changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from kafkacompat.cli.cluster_files import Layout, Node
from kafkacompat.cli.node_process import NodeProcesses, how_it_ended
from kafkacompat.cli.view import Broker, Partition, Quorum, brokers_of, partitions_of, quorum_of
from kafkacompat.client.blocking import Connection
from kafkacompat.dataclass import dataclass
from kafkacompat.failure import CommandFailed
from kafkacompat.security.sasl_client import ClientSecurity

ANSWER_TIMEOUT_S = 3.0
TITLES = ("node", "roles", "pid", "address", "broker", "quorum", "leads", "replicas", "behind", "uptime")


@dataclass(frozen=True, slots=True)
class Answers:
    """One broker's answers about the cluster."""

    brokers: dict[int, Broker]
    quorum: Quorum | None
    partitions: list[Partition]


@dataclass(frozen=True, slots=True)
class Report:
    """One report. answers: None if no broker answers. pids: None for a node that does not run."""

    layout: Layout
    pids: dict[int, int | None]
    endings: dict[int, str]
    uptimes_s: dict[int, float]
    answers: Answers | None

    @property
    def active_controller(self) -> int | None:
        quorum = self.answers.quorum if self.answers else None
        return quorum.cluster_leader if quorum and quorum.cluster_leader >= 0 else None

    @property
    def down(self) -> list[int]:
        return [node_id for node_id, pid in self.pids.items() if pid is None]

    @property
    def under_replicated(self) -> list[Partition]:
        return [each for each in self.answers.partitions if each.is_under_replicated] if self.answers else []

    @property
    def without_leader(self) -> list[Partition]:
        return [each for each in self.answers.partitions if each.leader < 0] if self.answers else []

    @property
    def are_all_brokers_there(self) -> bool:
        return self.answers is not None and all(
            node.node_id in self.answers.brokers and not self.answers.brokers[node.node_id].is_fenced
            for node in self.layout.nodes
            if node.is_broker
        )

    @property
    def is_whole(self) -> bool:
        """Whether every node runs, every broker has joined, the quorum has a leader, and every replica is in sync."""
        return (
            not self.down
            and self.are_all_brokers_there
            and self.active_controller is not None
            and not self.under_replicated
            and not self.without_leader
        )


def look(layout: Layout, processes: NodeProcesses) -> Report:
    pids = {node.node_id: processes.pid(node) for node in layout.nodes}
    now_s = time.time()
    endings = {}
    for node in layout.nodes:
        if pids[node.node_id] is None:
            last = processes.last_pid(node)
            status = processes.statuses.get(last) if last is not None else None
            endings[node.node_id] = "was never started" if last is None else how_it_ended(status)
    return Report(
        layout,
        pids,
        endings,
        {node.node_id: now_s - processes.started_at_s(node) for node in layout.nodes},
        ask_any(
            (node for node in layout.nodes if node.is_broker and pids[node.node_id] is not None),
            processes.files.address(layout, layout.bootstrap).security(),
        ),
    )


def ask_any(nodes: Iterable[Node], security: ClientSecurity) -> Answers | None:
    """Return the answers of the first broker that knows a leader of the quorum, otherwise of any broker."""
    found = None
    for node in nodes:
        try:
            connection = Connection(node.host, node.port, ANSWER_TIMEOUT_S, security)
        except CommandFailed:
            continue
        try:
            brokers, partitions = brokers_of(connection)[1], partitions_of(connection)
            quorum = None
            # Without a majority of controllers this request fails.
            with contextlib.suppress(CommandFailed):
                quorum = quorum_of(connection)
            answers = Answers(brokers, quorum, partitions)
        except CommandFailed:
            continue
        finally:
            connection.close()
        if answers.quorum is not None:
            return answers
        found = answers
    return found


def rows_of(report: Report) -> list[tuple[object, ...]]:
    """Return the cells of each row, in the order of TITLES."""
    return [_row(report, node) for node in report.layout.nodes]


def _row(report: Report, node: Node) -> tuple[object, ...]:
    node_id, answers = node.node_id, report.answers
    pid = report.pids[node_id]
    leads = replicas = behind = broker = quorum = "-"
    if answers is not None and node.is_broker:
        mine = [each for each in answers.partitions if node_id in each.replicas]
        leads = str(sum(each.leader == node_id for each in mine))
        replicas = str(len(mine))
        behind = str(sum(node_id not in each.isr for each in mine))
        known = answers.brokers.get(node_id)
        broker = "unknown" if known is None else "fenced" if known.is_fenced else "alive"
    if answers is not None and answers.quorum is not None:
        found = answers.quorum
        if node_id == found.cluster_leader:
            quorum = "leader"
        elif node_id in found.voters:
            quorum = "voter"
        elif node_id in found.observers:
            quorum = "observer"
    return (
        node_id,
        node.roles,
        "down" if pid is None else pid,
        node.address,
        broker,
        quorum,
        leads,
        replicas,
        behind,
        "-" if pid is None else duration(report.uptimes_s[node_id]),
    )


def summary_of(report: Report) -> str:
    """Return one line about the whole cluster."""
    if report.answers is None:
        return "no broker answers"
    active = report.active_controller
    count = len(report.answers.partitions)
    parts = [
        "there is no active controller" if active is None else f"controller {active} is active",
        f"{count} partitions, {len(report.under_replicated)} under-replicated, "
        f"{len(report.without_leader)} without a leader",
    ]
    if report.down:
        parts.append("down: " + ", ".join(f"node {each} {report.endings[each]}" for each in report.down))
    return "; ".join(parts)


def changes_between(before: Report | None, now: Report) -> list[str]:
    """Return the lines about what has changed between two reports."""
    said = []
    old_pids = before.pids if before else {}
    for node_id, pid in now.pids.items():
        was = old_pids.get(node_id)
        if pid is None and was is not None:
            said.append(f"node {node_id} (pid {was}) {now.endings[node_id]}")
        elif pid is not None and pid != was:
            if was is not None:
                said.append(f"node {node_id} (pid {was}) has ended")
            said.append(f"node {node_id} is running with pid {pid}")
    said += [f"node {each} is no longer part of the cluster" for each in old_pids if each not in now.pids]
    if before is None or now.answers is None:
        if before is not None and before.answers is not None:
            said.append("no broker answers")
        return said
    if now.active_controller != before.active_controller:
        said.append(
            "there is no active controller"
            if now.active_controller is None
            else f"controller {now.active_controller} is active"
        )
    fenced = {each for each, broker in now.answers.brokers.items() if broker.is_fenced}
    was_fenced = (
        {each for each, broker in before.answers.brokers.items() if broker.is_fenced}
        if before.answers
        else fenced
    )
    said += [f"broker {each} is fenced" for each in sorted(fenced - was_fenced)]
    said += [f"broker {each} has joined again" for each in sorted(was_fenced - fenced) if each in now.pids]
    for what, of_then, of_now in (
        ("under-replicated", before.under_replicated, now.under_replicated),
        ("without a leader", before.without_leader, now.without_leader),
    ):
        if len(of_then) != len(of_now):
            said.append(f"{partitions_are(len(of_now))} {what}")
    return said


def partitions_are(count: int) -> str:
    return {0: "no partition is", 1: "1 partition is"}.get(count, f"{count} partitions are")


def duration(seconds: float) -> str:
    """Return a text such as 59s, 3m12s, 5h07m or 2d04h."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
