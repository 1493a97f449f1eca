"""Judges committed offsets: each (group, partition) is a register, which commits write and fetches read.

A coordinator that was paused, or cut off, answers what it knows until it learns that it is none any more: Kafka's OffsetFetch
asks no replica. So a fetch during such a fault, or shortly after it, may show any state since the fault began, unless it is known
that another node answered; every other fetch shows a state between its invocation and its completion. A commit without a known
end may take effect at any time.

Apache Kafka's coordinator answers what was committed up to its high watermark. A new one knows that as of a fetch or, after every
node was killed, as of a checkpoint up to five seconds old, until its followers have fetched. kafkacompat's waits for that.

A register forgets what was lost as soon as the next commit overwrites it, and excuses what is stale. The log of commits does
neither: at the end it holds every commit that was acknowledged, and every one that a fetch has shown.
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
    """Which faults make fetches stale, from how long before they begin and until how long after they were mended."""

    faults: tuple[str, ...] = ("pause", "cut", "mute", "deaf")
    """After these a node may not know that it was replaced."""
    before_ns: int = 0
    after_ns: int = 5 * SECOND_NS
    of_anybody: bool = False
    """Not of the victims alone."""


OF_APACHE = Staleness(
    ("pause", "cut", "mute", "deaf", "kill", "kill-all", "disk"), 6 * SECOND_NS, 60 * SECOND_NS, True
)


class Window(NamedTuple):
    """A time in which a fetch may be stale."""

    begin: int
    end: int | None
    """None: to the end of the history."""
    since: int
    """As of when."""
    nodes: frozenset[int] | None
    """Who may answer so; None: anybody."""


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
    """The earliest moment whose state the fetch may show. At the end every node knows what it is. Where it is known who answered,
    only a victim is excused.
    """
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
    """`ask_linearizable` takes operations by register and says Ok, Illegal or Unknown of each."""
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
    # Whatever was committed, and known to be, after the one shown had ended and before the fetch could begin.
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
    """The log of commits, read at the end, has what anybody was told of, and the last fetch shows its last record."""
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
    """As registers/main.go takes them, without what does not matter: commits of unknown end that nobody has seen, which may never
    take effect, and fetches that may show as early a state as another that shows the same and ended sooner.
    """
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
