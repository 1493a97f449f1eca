"""Judges committed offsets. Each (group, partition) is a register: commits write it, and fetches read it.

A coordinator that was paused or disconnected answers with its own state until it learns that it was replaced, because
Kafka's OffsetFetch asks no replica. So a fetch during such a fault, or shortly after it, may return any state since
the start of the fault, unless another node is known to have answered. Every other fetch returns a state between its
invocation and its completion. A commit without a known end may take effect at any time.

Apache Kafka's coordinator answers up to its high watermark. Until its followers have fetched, a new coordinator knows
the high watermark only as of its last fetch. After every node was killed, it knows it as of a checkpoint that is up to
five seconds old. kafkacompat's coordinator waits for the followers.

A register forgets a lost commit as soon as the next commit overwrites it, and excuses stale fetches. The log of
commits does neither: at the end it contains every acknowledged commit, and every commit that a fetch has returned.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from interop_tests.histories.findings import Findings
from interop_tests.histories.history import AT_THE_END, FAIL, OK, Operation

SECOND_NS = 1_000_000_000
NONE = -1


@dataclass(frozen=True)
class Staleness:
    """The faults that make fetches stale: how long before their start and how long after their end."""

    faults: tuple[str, ...] = ("pause", "cut", "mute", "deaf")
    """After these faults a node may not know that it was replaced."""
    before_ns: int = 0
    after_ns: int = 5 * SECOND_NS
    of_anybody: bool = False
    """These faults affect all nodes, and not only the victims."""


OF_APACHE = Staleness(
    ("pause", "cut", "mute", "deaf", "kill", "kill-all", "disk"), 6 * SECOND_NS, 60 * SECOND_NS, True
)


class Window(NamedTuple):
    """A time in which a fetch may be stale."""

    begin: int
    end: int | None
    """The end of the time. None: the end of the history."""
    since: int
    """The earliest moment whose state may be returned."""
    nodes: frozenset[int] | None
    """The nodes that may be stale. None: any node."""


Ask = Callable[[dict[str, list[dict[str, Any]]]], dict[str, str]]


def registers(history: list[Operation]) -> dict[str, list[Operation]]:
    """The commits and answered fetches of each register."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        is_commit = operation.f == "commit" and operation.outcome != FAIL
        if is_commit or (operation.f == "fetch" and operation.outcome == OK):
            group, partition = operation.value[:2]
            found[f"{group} {partition}"].append(operation)
    return found


def stale_windows(history: list[Operation], staleness: Staleness) -> list[Window]:
    return [
        Window(
            each.start,
            None if each.end is None else each.end + staleness.after_ns,
            each.start - staleness.before_ns,
            None if staleness.of_anybody else frozenset(each.value[1]),
        )
        for each in history
        if each.f == "fault" and each.value[0] in staleness.faults
    ]


def call_of_fetch(fetch: Operation, windows: list[Window]) -> int:
    """The earliest moment whose state the fetch may return. At the end of the run no node is stale. If the answering
    node is known, it is excused only if it is a victim."""
    if fetch.process.startswith(AT_THE_END):
        return fetch.start
    nodes = set(fetch.value[3:])
    as_of = [
        each.since
        for each in windows
        if each.begin < (fetch.end or 0)
        and (each.end is None or fetch.start <= each.end)
        and (each.nodes is None or nodes <= each.nodes)
    ]
    return min([fetch.start, *as_of])


def check_commits(
    history: list[Operation], findings: Findings, ask_linearizable: Ask, staleness: Staleness
) -> None:
    """`ask_linearizable` takes operations by register and returns Ok, Illegal or Unknown for each."""
    found = registers(history)
    windows = stale_windows(history, staleness)
    for name, operations in sorted(found.items()):
        commits = {each.value[2]: each for each in operations if each.f == "commit"}
        fetches = [each for each in operations if each.f == "fetch"]
        findings.seen["commits"] += len(commits)
        findings.seen["fetches of commits"] += len(fetches)
        for fetch in fetches:
            _check_fetch(name, fetch, call_of_fetch(fetch, windows), commits, findings)
    _check_log(history, found, findings)
    asked = {name: as_register(operations, windows) for name, operations in found.items()}
    for name, answer in sorted(ask_linearizable(asked).items() if asked else ()):
        findings.seen[f"registers: {answer}"] += 1
        if answer == "Illegal":
            findings.add("commits not linearizable", name)


def _check_fetch(
    name: str, fetch: Operation, since: int, commits: dict[int, Operation], findings: Findings
) -> None:
    offset = fetch.value[2]
    where = f"{name}: {fetch.process} fetched {offset}"
    shown = commits.get(offset)
    if shown is None and offset != NONE:
        findings.add("never committed", where)
        return
    if shown is not None and fetch.end is not None and shown.start > fetch.end:
        findings.add("fetched before its commit", where)
    # Every commit that succeeded after the returned one had ended and before the fetch could begin.
    ended = -1 if shown is None else shown.end if shown.outcome == OK else None
    if ended is None:
        return
    later = [
        each.value[2]
        for each in commits.values()
        if each.outcome == OK and ended is not None and each.start > ended and (each.end or 0) < since
    ]
    if later:
        findings.add("committed offset lost", f"{where} after {max(later)} was committed")


def _check_log(history: list[Operation], found: dict[str, list[Operation]], findings: Findings) -> None:
    """The log of commits, read at the end, contains every commit that a client was told of. The last fetch returns its
    last record."""
    for log in (each for each in history if each.f == "committed" and each.outcome == OK):
        for name, operations in sorted(found.items()):
            written = log.value.get(name.rpartition(" ")[2], [])
            findings.seen["commits in their log"] += len(written)
            there, last = {NONE, *written}, written[-1] if written else NONE
            for each in operations:
                offset = each.value[2]
                if each.outcome == OK and offset not in there:
                    kind = "acknowledged commit lost" if each.f == "commit" else "fetched commit lost"
                    findings.add(kind, f"{name}: {offset}, told to {each.process}, is not in the log")
                if each.f == "fetch" and each.process.startswith(AT_THE_END) and offset != last:
                    findings.add("not the last commit", f"{name}: {offset} is fetched, {last} lies last")


def as_register(operations: list[Operation], windows: list[Window]) -> list[dict[str, Any]]:
    """The operations in the form for registers/main.go, without those that do not matter: commits of unknown outcome
    that no fetch returned, which may never take effect; and fetches that may return as early a state as another fetch
    with the same result that ended sooner."""
    fetched = {each.value[2] for each in operations if each.f == "fetch"}
    numbers: dict[str, int] = {}
    found = []
    excused: set[tuple[int, int]] = set()
    for each in sorted(operations, key=lambda each: each.end or 0):
        is_write = each.f == "commit"
        is_known = each.outcome == OK and each.end is not None
        if is_write and not is_known and each.value[2] not in fetched:
            continue
        call = each.start if is_write else call_of_fetch(each, windows)
        if call < each.start:
            if (call, each.value[2]) in excused:
                continue
            excused.add((call, each.value[2]))
        found.append(
            {
                "process": numbers.setdefault(each.process, len(numbers)),
                "call": call,
                "return": each.end if is_known else 0,
                "write": is_write,
                "value": each.value[2],
            }
        )
    return found
