"""Results of runs of the suite, and the part of docs/compatibility.md that shows them.

Reads and counts pytest's JUnit files, and writes Markdown between the markers of the page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

T = TypeVar("T")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
BEGIN = "<!-- begin results: written by python -m interop_tests.report -->\n"
END = "<!-- end results -->"
BOTH_THEMSELVES = "run once; both brokers take part"


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


def _minutes(run: Run) -> str:
    return f"{sum(run.seconds.values()) / 60:.0f}"


def _cell(run: Run, module: str) -> str:
    counts = run.counts(module)
    return ", ".join(f"{counts[kind]} {kind}" for kind in (PASSED, FAILED, SKIPPED) if counts[kind]) or "-"


def _total(run: Run) -> str:
    counts: Counter[str] = Counter()
    for module in run.outcomes:
        counts += run.counts(module)
    return ", ".join(f"{counts[kind]} {kind}" for kind in (PASSED, FAILED, SKIPPED) if counts[kind]) or "-"


def _failures(title: str, run: Run) -> list[str]:
    names = run.failures()
    if not names:
        return [f"Failed on {title}: none."]
    return [f"Failed on {title}:", "", *(f"- `{name}`" for name in names)]


def results_part(ours: Run, apache: Run, both_themselves: frozenset[str], when: str) -> str:
    """Markdown: a table by module, skipped tests with their reasons, and the failures by name."""
    lines = [
        f"Run on {when} with the same unmodified clients and the same assertions, first on kafkacompat "
        f"({_minutes(ours)} minutes), then on Apache Kafka 4.3.0 ({_minutes(apache)} minutes).",
        "",
        "| tests | kafkacompat | Apache Kafka 4.3.0 |",
        "| --- | --- | --- |",
    ]
    for module in sorted(ours.outcomes.keys() | apache.outcomes.keys()):
        once = module.split("/")[0] in both_themselves
        lines.append(
            f"| {module} | {_cell(ours, module)} | {BOTH_THEMSELVES if once else _cell(apache, module)} |"
        )
    lines += [f"| **all** | **{_total(ours)}** | **{_total(apache)}** |", ""]
    for title, run in (("kafkacompat", ours), ("Apache Kafka", apache)):
        if run.alone:
            lines.append(f"- run by themselves on {title}, after the rest: {', '.join(sorted(run.alone))}")
        reasons: Counter[str] = Counter()
        for counted in run.reasons.values():
            reasons += counted
        lines += [f"- skipped on {title}, {count}: {reason}" for reason, count in sorted(reasons.items())]
    if lines[-1]:
        lines.append("")
    lines += [*_failures("kafkacompat", ours), "", *_failures("Apache Kafka", apache)]
    return "\n".join(lines) + "\n"


def rewritten(page: str, part: str) -> str:
    """The page with this part between its markers. ValueError if the markers do not appear exactly once."""
    marked = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    page, count = marked.subn(lambda _: f"{BEGIN}\n{part}\n{END}", page)
    if count != 1:
        raise ValueError(f"the page must have {BEGIN.strip()} and {END} once")
    return page
