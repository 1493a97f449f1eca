"""Judges the transactions of a history: their visible records, the records that they consumed, and the cycles of their
graph.

A transaction of unknown outcome counts as committed if its writes are visible at the end, and as aborted otherwise.
Each transaction writes at least one record.

The graph has an edge from a transaction to each one that polled its records (wr), and one from a transaction to the
next one that wrote to the same partition (ww). Kafka does not isolate writes from each other: transactions write to
two partitions in any order. So a cycle with a ww edge is permitted and counted (G0 if all its edges are ww). A cycle
of wr edges (G1c) is a finding, because read_committed returns only records that were committed before the poll.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import networkx

from interop_tests.histories.findings import Findings
from interop_tests.histories.history import COMMITTED, FAIL, OK, Operation
from interop_tests.histories.logs import PartitionView, polled, views


@dataclass(frozen=True)
class Transaction:
    number: int
    operation: Operation
    is_committed: bool

    @property
    def detail(self) -> dict[str, Any]:
        return self.operation.value

    @property
    def writes(self) -> dict[int, str]:
        """The partition by value."""
        return {item[1]: item[0] for item in self.detail["sent"]}

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.operation.process}"


def check_transactions(history: list[Operation], findings: Findings) -> None:
    known = views(history)
    shown = {
        value: partition
        for partition, view in known.items()
        for value in view.final.get(COMMITTED, {}).values()
    }
    found = [
        Transaction(number, operation, _is_committed(operation, shown))
        for number, operation in enumerate(each for each in history if each.f == "txn" and each.value)
    ]
    findings.seen["transactions"] += len(found)
    findings.seen["transactions of unknown outcome"] += sum(
        each.operation.outcome not in (OK, FAIL) for each in found
    )
    writer = {value: each for each in found for value in each.writes}
    _check_outcomes(found, shown, findings)
    _check_reads(history, writer, findings)
    _check_consumed(found, known, findings)
    _check_cycles(found, known, writer, findings)


def _is_committed(operation: Operation, shown: dict[int, str]) -> bool:
    if operation.outcome in (OK, FAIL):
        return operation.outcome == OK
    return any(item[1] in shown for item in operation.value["sent"])


def _check_outcomes(found: list[Transaction], shown: dict[int, str], findings: Findings) -> None:
    for each in found:
        visible = sorted(each.writes.keys() & shown.keys())
        missing = sorted(each.writes.keys() - shown.keys())
        if each.is_committed and missing:
            kind = "torn transaction" if visible else "lost transaction"
            findings.add(kind, f"{each} shows {visible} and not {missing}")
        if not each.is_committed and visible:
            findings.add("aborted and shown (G1a)", f"{each}: {visible}")


def _check_reads(history: list[Operation], writer: dict[int, Transaction], findings: Findings) -> None:
    """No record of an aborted transaction is polled, and no record is polled before the end of its transaction was
    requested."""
    for operation in history:
        if operation.f == "poll" and operation.asked != COMMITTED:
            continue
        ended = (
            operation.value.get("polled_at") if operation.f == "txn" and operation.value else operation.end
        )
        for partition, offset, value in polled(operation):
            of = writer.get(value)
            if of is None:
                continue
            where = f"{operation.process} polled {partition} {offset}: {value} of {of}"
            committing = of.detail["committing"]
            if not of.is_committed:
                findings.add("aborted read (G1a)", where)
            elif ended is not None and committing is not None and ended < committing:
                findings.add("intermediate read (G1b)", f"{where}, which was not ended yet")


def _check_consumed(found: list[Transaction], known: dict[str, PartitionView], findings: Findings) -> None:
    """The committed transactions of a group have consumed each record once, and left out none before the last one of a
    partition."""
    consumed: dict[tuple[str, str], dict[int, Transaction]] = defaultdict(dict)
    for each in found:
        if not each.is_committed:
            continue
        for partition, offset, value in polled(each.operation):
            group = consumed[each.detail["group"], partition]
            findings.seen["records consumed in transactions"] += 1
            if offset in group:
                findings.add("consumed twice", f"{partition} {offset}: {value} by {group[offset]} and {each}")
            group[offset] = each
    for (group_name, partition), offsets in sorted(consumed.items()):
        last = max(offsets)
        visible = [offset for offset in known[partition].final.get(COMMITTED, {}) if offset < last]
        left_out = sorted(set(visible) - offsets.keys())
        if left_out:
            findings.add("not consumed", f"{group_name} left out {partition} {left_out[:5]}")


def _check_cycles(
    found: list[Transaction],
    known: dict[str, PartitionView],
    writer: dict[int, Transaction],
    findings: Findings,
) -> None:
    reads, writes = networkx.DiGraph(), networkx.DiGraph()
    for each in found:
        if not each.is_committed:
            continue
        for _, _, value in polled(each.operation):
            of = writer.get(value)
            if of is not None and of.number != each.number:
                reads.add_edge(of.number, each.number)
    for view in known.values():
        order = view.final.get(COMMITTED, {})
        owners = [writer[order[offset]] for offset in sorted(order) if order[offset] in writer]
        for one, other in itertools.pairwise(owners):
            if one.number != other.number:
                writes.add_edge(one.number, other.number)
    findings.seen["wr edges"] += reads.number_of_edges()
    findings.seen["ww edges"] += writes.number_of_edges()
    by_number = {each.number: each for each in found}
    for component in networkx.strongly_connected_components(reads):
        if len(component) > 1:
            cycle = networkx.find_cycle(reads.subgraph(component))
            findings.add("cycle of reads (G1c)", " -> ".join(str(by_number[edge[0]]) for edge in cycle))
    both = networkx.compose(reads, writes)
    for name, graph in (("cycles of writes (G0)", writes), ("cycles of reads and writes", both)):
        cycles = sum(len(each) > 1 for each in networkx.strongly_connected_components(graph))
        if cycles:
            findings.permitted[name] += cycles
