"""Results of runs of the suite, and the part of docs/reference/compatibility.md that shows them.

Reads and counts pytest's JUnit files, and writes Markdown between the markers of the page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from interop_tests.harness.kafka_jars import KAFKA_VERSION

T = TypeVar("T")
KINDS = PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
BEGIN = "<!-- begin results: written by python -m interop_tests.report -->\n"
END = "<!-- end results -->"
OURS, APACHES = "kafkacompat", f"Apache Kafka {KAFKA_VERSION}"
ANY_APACHES = r"Apache Kafka [0-9.]*[0-9]"
"""The title of a run on Apache Kafka, which may be of an earlier release."""
NO_RESULT = "-"
BOTH_THEMSELVES = "run once; both brokers take part"
COUNTED = re.compile(rf"(\d+) ({'|'.join(KINDS)})")
ROW = re.compile(r"^\| (.*) \| (.*) \| (.*) \|$", re.M)


@dataclass(frozen=True)
class Run:
    """One run of the suite. `outcomes` is by module, such as raw/test_fetch, and then by the name of the test."""

    outcomes: Mapping[str, Mapping[str, str]]
    seconds: Mapping[str, float]
    """Seconds that the tests of a module took, including their fixtures."""
    reasons: Mapping[str, Counter[str]] = field(default_factory=dict)
    """The reasons for skipped tests with their counts, by module."""

    alone: frozenset[str] = frozenset()
    """Groups whose results come from a separate run."""

    def with_group(self, group: str, run: Run) -> Run:
        """This run, with the results of one group replaced by those of another run."""

        def replaced(mine: Mapping[str, T], theirs: Mapping[str, T]) -> dict[str, T]:
            kept = {module: each for module, each in mine.items() if module.split("/")[0] != group}
            return kept | dict(theirs)

        return Run(
            replaced(self.outcomes, run.outcomes),
            replaced(self.seconds, run.seconds),
            replaced(self.reasons, run.reasons),
            self.alone | {group},
        )

    def counts(self, module: str) -> Counter[str]:
        return Counter(self.outcomes.get(module, {}).values())

    def failures(self) -> list[str]:
        return sorted(
            f"{module}::{name}"
            for module, tests in self.outcomes.items()
            for name, outcome in tests.items()
            if outcome == FAILED
        )


def module_of(classname: str) -> str:
    """The module of a class name: raw/test_fetch for interop_tests.raw.test_fetch."""
    return "/".join(classname.split(".")[1:])


def read_run(path: Path) -> Run:
    """The run in a JUnit file of pytest. A test that also fails in its teardown counts as failed once."""
    outcomes: dict[str, dict[str, str]] = {}
    reasons: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = {}
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            # A module that cannot be imported appears as a case without a class.
            module = module_of(case.get("classname") or "") or module_of(case.get("name") or "")
            tests = outcomes.setdefault(module, {})
            seconds[module] = seconds.get(module, 0.0) + float(case.get("time") or "0")
            name = case.get("name") or ""
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                tests[name] = FAILED
            elif skipped is not None:
                tests.setdefault(name, SKIPPED)
                reasons.setdefault(module, Counter())[skipped.get("message") or "no reason"] += 1
            else:
                tests.setdefault(name, PASSED)
    return Run(outcomes, seconds, reasons)


@dataclass(frozen=True)
class Column:
    """What the page shows of the runs on one broker."""

    title: str
    when: str
    """The date of the newest run, as YYYY-MM-DD."""
    minutes: int
    """What all tests took together. Some of them ran at the same time."""
    cells: Mapping[str, str]
    """By module. A module without results has none."""
    notes: tuple[str, ...]
    """Groups that ran by themselves, and skipped tests with their reasons."""
    failures: tuple[str, ...]

    def without_others(self, modules: Set[str]) -> Column:
        """This column, with these modules only."""
        return replace(self, cells={name: cell for name, cell in self.cells.items() if name in modules})

    def total(self) -> str:
        counts: Counter[str] = Counter()
        for cell in self.cells.values():
            for count, kind in COUNTED.findall(cell):
                counts[kind] += int(count)
        return _counted(counts)


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or NO_RESULT


def column_of(title: str, run: Run, when: str) -> Column:
    notes = []
    if run.alone:
        notes.append(f"run by themselves on {title}, after the rest: {', '.join(sorted(run.alone))}")
    reasons: Counter[str] = Counter()
    for counted in run.reasons.values():
        reasons += counted
    notes += [f"skipped on {title}, {count}: {reason}" for reason, count in sorted(reasons.items())]
    cells = {module: _counted(run.counts(module)) for module in run.outcomes}
    return Column(
        title, when, round(sum(run.seconds.values()) / 60), cells, tuple(notes), tuple(run.failures())
    )


def columns_in(page: str) -> tuple[Column, Column]:
    """The columns that a page shows: kafkacompat's, and Apache Kafka's. ValueError if it is not such a page."""
    part = page.partition(BEGIN)[2].partition(END)[0]
    rows = [tuple(row) for row in ROW.findall(part) if row[0] not in {"tests", "---", "**all**"}]
    columns = []
    for number, wanted in enumerate((OURS, ANY_APACHES), 1):
        head = re.search(rf"({wanted}) \((\d{{4}}-\d\d-\d\d), (\d+) minutes of tests\)", part)
        if head is None:
            raise ValueError(f"the page does not say when the suite ran on {wanted}")
        title = head[1]
        failed = part.partition(f"Failed on {title}:")[2].partition("Failed on ")[0]
        columns.append(
            Column(
                title,
                head[2],
                int(head[3]),
                {row[0]: row[number] for row in rows if row[number] not in {NO_RESULT, BOTH_THEMSELVES}},
                tuple(
                    re.findall(rf"^- ((?:skipped|run by themselves) on {re.escape(title)},.*)$", part, re.M)
                ),
                tuple(re.findall(r"^- `(.*)`$", failed, re.M)),
            )
        )
    return columns[0], columns[1]


def _failures(column: Column) -> list[str]:
    if not column.failures:
        return [f"Failed on {column.title}: none."]
    return [f"Failed on {column.title}:", "", *(f"- `{name}`" for name in column.failures)]


def results_part(ours: Column, apaches: Column, both_themselves: frozenset[str]) -> str:
    """Markdown: a table by module, skipped tests with their reasons, and the failures by name."""
    dated = [f"{each.title} ({each.when}, {each.minutes} minutes of tests)" for each in (ours, apaches)]
    lines = [
        "The same unmodified clients and the same assertions,",
        f"on {dated[0]} and on {dated[1]}.",
        "",
        f"| tests | {ours.title} | {apaches.title} |",
        "| --- | --- | --- |",
    ]
    for module in sorted(ours.cells.keys() | apaches.cells.keys()):
        once = module.split("/")[0] in both_themselves
        theirs = BOTH_THEMSELVES if once else apaches.cells.get(module, NO_RESULT)
        lines.append(f"| {module} | {ours.cells.get(module, NO_RESULT)} | {theirs} |")
    lines += [f"| **all** | **{ours.total()}** | **{apaches.total()}** |", ""]
    lines += [f"- {note}" for note in (*ours.notes, *apaches.notes)]
    if lines[-1]:
        lines.append("")
    lines += [*_failures(ours), "", *_failures(apaches)]
    return "\n".join(lines) + "\n"


def rewritten(page: str, part: str) -> str:
    """The page with this part between its markers. ValueError if the markers do not appear exactly once."""
    marked = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    page, count = marked.subn(lambda _: f"{BEGIN}\n{part}\n{END}", page)
    if count != 1:
        raise ValueError(f"the page must have {BEGIN.strip()} and {END} once")
    return page
