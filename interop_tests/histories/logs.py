"""Judges each partition's log: one value for each offset, one offset for each value, nothing lost, nothing skipped.

The log of a partition is assembled from everything that clients were told: acknowledged sends, polls, and the reads at
the end. A value is written at most once, so two offsets of a value are a duplicate.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from interop_tests.histories.findings import Findings
from interop_tests.histories.history import COMMITTED, OK, UNCOMMITTED, Operation


@dataclass
class PartitionView:
    """Everything that is known about one partition."""

    values: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By offset: the values that clients were told."""
    offsets: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By value: the offsets that clients were told."""
    final: dict[str, dict[int, int]] = field(default_factory=dict)
    """By isolation level: value by offset, from the reads at the end."""
    at_end: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """By isolation level: offset by value."""

    def told(self, offset: int, value: int) -> None:
        self.values[offset].add(value)
        self.offsets[value].add(offset)


@dataclass(frozen=True)
class Sent:
    """One record that a process sent, alone or in a transaction."""

    process: str
    partition: str
    value: int
    offset: int | None
    """None if the write is not known to have happened."""
    operation: Operation


def entries(operation: Operation) -> list[list[Any]]:
    """The records of a poll, or of the polls of a transaction."""
    if operation.f == "poll":
        return operation.value if operation.outcome == OK else []
    return (operation.value or {}).get("polled", []) if operation.f == "txn" else []


def polled(operation: Operation) -> Iterator[tuple[str, int, int]]:
    """(partition, offset, value) of every record."""
    for entry in entries(operation):
        if len(entry) == 3:
            yield entry[0], entry[1], entry[2]


def sends(history: Iterable[Operation]) -> Iterator[Sent]:
    for operation in history:
        if operation.f == "send":
            items = operation.value
        elif operation.f == "txn":
            items = (operation.value or {}).get("sent", [])
        else:
            continue
        for partition, value, *offset in items:
            yield Sent(operation.process, partition, value, offset[0] if offset else None, operation)


def renumbered(history: Iterable[Operation]) -> set[str]:
    """The processes whose client took a new producer epoch and may have written records twice."""
    return {operation.process for operation in history if operation.f == "renumbered"}


def views(history: Iterable[Operation]) -> dict[str, PartitionView]:
    """Every partition of a history."""
    found: dict[str, PartitionView] = defaultdict(PartitionView)
    for operation in history:
        for partition, offset, value in polled(operation):
            found[partition].told(offset, value)
        if operation.f == "final" and operation.outcome == OK:
            for partition, records in operation.value.items():
                found[partition].final[operation.asked] = dict(records)
                for offset, value in records:
                    found[partition].told(offset, value)
                    found[partition].at_end[operation.asked][value] = offset
    for sent in sends(history):
        if sent.offset is not None:
            found[sent.partition].told(sent.offset, sent.value)
    return found


def check_logs(history: list[Operation], findings: Findings) -> None:
    """All checks of logs that do not depend on the outcomes of transactions."""
    known = views(history)
    all_sent = list(sends(history))
    findings.seen["records sent"] += len(all_sent)
    if not any(operation.f == "final" and operation.outcome == OK for operation in history):
        findings.add("no end", "the topics were not read at the end")
        return
    may_repeat = renumbered(history)
    _check_places(known, {sent.value for sent in all_sent if sent.process in may_repeat}, findings)
    _check_written(known, {sent.value for sent in all_sent}, findings)
    _check_lost(history, known, all_sent, findings)
    _check_order_of_sends(known, all_sent, findings)
    _check_polls(history, known, findings)
    _check_replicas(history, findings)


def _check_places(known: dict[str, PartitionView], may_repeat: set[int], findings: Findings) -> None:
    by_value: dict[int, list[str]] = defaultdict(list)
    for partition, view in sorted(known.items()):
        for offset, values in sorted(view.values.items()):
            if len(values) > 1:
                findings.add("inconsistent offset", f"{partition} {offset} holds {sorted(values)}")
        for value, offsets in view.offsets.items():
            by_value[value] += [f"{partition} {offset}" for offset in sorted(offsets)]
    for value, places in sorted(by_value.items()):
        if len(places) > 1 and value in may_repeat:
            findings.seen["records that a client wrote twice"] += 1
        elif len(places) > 1:
            findings.add("duplicate", f"{value} is at {places}")


def _check_written(known: dict[str, PartitionView], written: set[int], findings: Findings) -> None:
    for partition, view in sorted(known.items()):
        for value in sorted(view.offsets.keys() - written):
            findings.add("never written", f"{partition} shows {value}")


def _check_lost(
    history: list[Operation], known: dict[str, PartitionView], all_sent: list[Sent], findings: Findings
) -> None:
    """Acknowledged sends and polled records are there at the end. A separate check looks for the records of
    transactions."""
    for sent in all_sent:
        if sent.operation.f == "send" and sent.offset is not None:
            findings.seen["records acknowledged"] += 1
            if sent.value not in known[sent.partition].at_end[UNCOMMITTED]:
                findings.add(
                    "lost write",
                    f"{sent.partition} {sent.offset}: {sent.value}, acknowledged to {sent.process}",
                )
    for operation in history:
        for partition, offset, value in polled(operation):
            findings.seen["records polled"] += 1
            if value not in known[partition].at_end[UNCOMMITTED]:
                findings.add("read and lost", f"{partition} {offset}: {value}, polled by {operation.process}")


def _check_order_of_sends(known: dict[str, PartitionView], all_sent: list[Sent], findings: Findings) -> None:
    """The records of one process in one partition are there in the order of sending, which idempotence guarantees."""
    by_sender: dict[tuple[str, str], list[int]] = defaultdict(list)
    for sent in all_sent:
        by_sender[sent.process, sent.partition].append(sent.value)
    for (process, partition), values in sorted(by_sender.items()):
        place = known[partition].at_end[UNCOMMITTED]
        there = [value for value in values if value in place]
        for one, other in itertools.pairwise(there):
            if place[one] > place[other]:
                findings.add(
                    "reordered",
                    f"{partition}: {process} sent {one} before {other}, "
                    f"which are at {place[one]} and {place[other]}",
                )


def _check_polls(history: list[Operation], known: dict[str, PartitionView], findings: Findings) -> None:
    """Each poll of a partition by a process continues where the previous one ended: no record again, and none left
    out."""
    sorted_offsets = {
        (partition, isolation): sorted(offsets)
        for partition, view in known.items()
        for isolation, offsets in view.final.items()
    }
    positions: dict[tuple[str, str], int | None] = {}
    for operation in history:
        if operation.f == "assign":
            for partition, position in operation.value.items():
                positions[operation.process, partition] = position
        isolation = operation.asked if operation.f == "poll" else COMMITTED
        for entry in entries(operation):
            key = operation.process, entry[0]
            if len(entry) == 2:
                positions[key] = entry[1]
                continue
            partition, offset, value = entry
            position = positions.get(key)
            where = f"{operation.process} polled {partition} {offset}: {value}"
            if position is not None and offset < position:
                findings.add("polled again", f"{where} where {position} was next")
            elif position is not None:
                there = sorted_offsets.get((partition, isolation), [])
                skipped = there[bisect.bisect_left(there, position) : bisect.bisect_left(there, offset)]
                if skipped:
                    findings.add("skipped", f"{where} and left out {skipped[:5]}")
            positions[key] = offset + 1


def _check_replicas(history: list[Operation], findings: Findings) -> None:
    for operation in history:
        if operation.f == "replicas" and operation.outcome == OK:
            for partition, digests in sorted(operation.value.items()):
                findings.seen["replicas"] += len(digests)
                if len(set(digests.values())) > 1:
                    findings.add("replicas differ", f"{partition}: {digests}")
