"""Writes results as Markdown tables to docs/reference/measurements.md, between its markers, and as a plot of ratios."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.kafka_jars import KAFKA_VERSION

Results = dict[str, dict[str, dict[str, list[float]]]]
FAILED = "failed"
NO_RATIO = "-"
"""Of a broker's figure to nothing: Kafka's programs tell whole milliseconds."""
WARM = "warm"
"""The family of `benchmarks.warm`."""
TIERED = "tiered storage"
"""The family of `benchmarks.tiers`."""
BASE = "Java producer, 1 kB, 12 partitions, acks=all"
"""Its base load."""
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

Spread = tuple[float, float]
"""The least and the greatest value of the rounds."""


class Row(NamedTuple):
    """The medians of both brokers, and for some loads their spreads."""

    scenario: str
    figure: str
    ours: float
    theirs: float
    ratio: float
    our_spread: Spread | None = None
    their_spread: Spread | None = None


def rows(results: Results) -> list[Row]:
    found = []
    for scenario, figures in results.items():
        for figure, by_kind in figures.items():
            ours, theirs = (
                statistics.median(by_kind[kind]) if kind in by_kind else math.nan
                for kind in (KAFKACOMPAT, APACHE)
            )
            spreads = (
                (min(by_kind[kind]), max(by_kind[kind]))
                if kind in by_kind and is_spread_told(scenario)
                else None
                for kind in (KAFKACOMPAT, APACHE)
            )
            found.append(Row(scenario, figure, ours, theirs, ours / theirs if theirs else math.nan, *spreads))
    return found


def is_spread_told(scenario: str) -> bool:
    """Of the loads that stand for what a user gets."""
    return family(scenario) in (WARM, TIERED)


def table(measured: list[Row]) -> str:
    """The rows of one family. The common beginning of their names is the heading and is not repeated."""
    lines = [
        "| load | figure | kafkacompat | Apache Kafka | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in measured:
        load = row.scenario.removeprefix(f"{family(row.scenario)}: ")
        ours, theirs = cell(row.ours, ".4g", row.our_spread), cell(row.theirs, ".4g", row.their_spread)
        ratio = NO_RATIO if row.theirs == 0 else cell(row.ratio, ".2f")
        figures = f"{ours} | {theirs} | {ratio}"
        lines.append(f"| {load} | {row.figure} | {figures} |")
    return "\n".join(lines)


def cell(value: float, form: str, spread: Spread | None = None) -> str:
    """The text of a figure. A broker that failed under the load has none."""
    if math.isnan(value):
        return FAILED
    return format(value, form) + (f" ({spread[0]:{form}} to {spread[1]:{form}})" if spread else "")


def number(cell: str) -> float:
    """The figure in a cell."""
    return math.nan if cell in (FAILED, NO_RATIO) else float(cell.partition(" ")[0])


def spread_in(cell: str) -> Spread | None:
    """The spread in a cell that tells one."""
    found = re.search(r"\((\S+) to (\S+)\)", cell)
    return (float(found[1]), float(found[2])) if found else None


def rows_in(heading: str, text: str) -> list[Row]:
    """The rows of a table that `table` wrote below this heading."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 5 and cells[0] not in ("load", "---"):
            scenario = cells[0] if family(cells[0]) == heading else f"{heading}: {cells[0]}"
            ours, theirs, ratio = map(number, cells[2:])
            # The ratio is that of the exact figures. That of the rounded ones may differ in its last digit.
            found.append(
                Row(scenario, cells[1], ours, theirs, ratio, spread_in(cells[2]), spread_in(cells[3]))
            )
    return found


class Section(NamedTuple):
    """The loads of one family: a note on when and how they were measured, if it differs from the others, and their
    rows."""

    family: str
    note: str
    rows: list[Row]


def sections_of(measured: list[Row]) -> list[Section]:
    """A section for each family, in the order in which the families first appear."""
    by_family: dict[str, list[Row]] = {}
    for row in measured:
        by_family.setdefault(family(row.scenario), []).append(row)
    return [Section(name, "", rows) for name, rows in by_family.items()]


def sections_in(text: str) -> tuple[str, list[Section]]:
    """The note and the sections of a text that `written` created."""
    note, *parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
    found = []
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        said, _, _ = body.partition("| load")
        found.append(Section(name, said.strip(), rows_in(name, body)))
    return note.strip(), found


def written(note: str, sections: list[Section]) -> str:
    """A table for each family, below its heading and its note."""
    parts = [note]
    for section in sections:
        parts += [f"### {section.family}", *([section.note] if section.note else []), table(section.rows)]
    return "\n\n".join(parts)


def with_rows(standing: Section, measured: list[Row], note: str) -> Section:
    """The section after some or all of its loads were measured again. A note without remaining rows is removed."""
    again = {row.scenario for row in measured}
    kept = [row for row in standing.rows if row.scenario not in again]
    notes = [standing.note] if kept and standing.note else []
    if not notes or note not in notes[0].split("\n\n"):
        notes.append(note)
    merged: list[Row] = []
    placed: set[str] = set()
    for row in standing.rows:
        if row.scenario not in again:
            merged.append(row)
        elif row.scenario not in placed:
            placed.add(row.scenario)
            merged += [one for one in measured if one.scenario == row.scenario]
    merged += [row for row in measured if row.scenario not in placed]
    return Section(standing.family, "\n\n".join(notes), merged)


def update_document(measured: list[Row], document: Path, note: str, whole: bool) -> list[Row]:
    """Write the rows of a run and its note between the markers. Returns all rows that are there afterwards.

    A complete run replaces all rows. A run of a few loads replaces only their rows, and its note is written to their
    sections.
    """
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    sections = sections_of(measured)
    if not whole:
        general, standing = sections_in(inside)
        new = {section.family: section.rows for section in sections}
        sections = [
            with_rows(each, new.pop(each.family), note) if each.family in new else each for each in standing
        ]
        sections += [Section(name, note, rows) for name, rows in new.items()]
        note = general
    document.write_text(f"{before}{BEGIN}\n{written(note, sections)}\n{END}{after}", encoding="utf-8")
    return [row for section in sections for row in section.rows]


FIRST_TABLE = (
    ("start to the first answer", "start and idle", "start to first answer s", "{:.2f} s"),
    ("memory, idle", "start and idle", "idle memory MB", "{:.0f} MB"),
    ("Java producer, 1 kB records to 12 partitions", f"{WARM}: {BASE}", "MB/s", "{:.0f} MB/s"),
    ("the brokers' CPU for it, user", f"{WARM}: {BASE}", "user CPU us/record", "{:.1f} us a record"),
    ("the brokers' CPU for it, system", f"{WARM}: {BASE}", "system CPU us/record", "{:.1f} us a record"),
    (
        "5,000 of them a second, 99 % acknowledged within",
        f"{WARM}: {BASE}, 5,000 records/s",
        "p99 ms",
        "{:.0f} ms",
    ),
    ("Java consumer, 1 kB records", f"{WARM}: Java consumer, 1 kB", "MB/s", "{:.0f} MB/s"),
    ("memory after these loads", f"{WARM}: Java consumer, 1 kB", "resident memory MB", "{:.0f} MB"),
)
"""What the README tells first: its words, load, figure and form."""


def update_first_table(standing: list[Row], readme: Path) -> None:
    """Write the README's table between its markers. It stays as it is until all of its loads are measured."""
    by_name = {(row.scenario, row.figure): row for row in standing}
    if any((scenario, figure) not in by_name for _, scenario, figure, _ in FIRST_TABLE):
        return
    lines = [
        f"| on the same two cores, both warm | kafkacompat | Apache Kafka {KAFKA_VERSION} |",
        "| --- | ---: | ---: |",
    ]
    for words, scenario, figure, form in FIRST_TABLE:
        row = by_name[scenario, figure]
        lines.append(f"| {words} | {form.format(row.ours)} | {form.format(row.theirs)} |")
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text("\n".join((before + BEGIN, *lines, END + after)), encoding="utf-8")


def is_less_better(figure: str) -> bool:
    """Of all figures but rates and shares of a quota: times, memory, and CPU, also at a rate."""
    return "CPU" in figure or not ("/s" in figure or figure.startswith("%"))


def family(scenario: str) -> str:
    """The family of a scenario and its variations: for example "throughput" for "throughput: 100 B, acks=1"."""
    return re.split(r": | of |, | while | at ", scenario)[0]


def plot(measured: list[Row], path: Path) -> None:
    """A line for each figure of a family and a dot for each load: how many times better than Apache Kafka, on a log
    scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines: dict[str, list[float]] = {}
    for row in measured:
        if row.ratio > 0:
            better = 1 / row.ratio if is_less_better(row.figure) else row.ratio
            lines.setdefault(f"{family(row.scenario)} · {row.figure}", []).append(better)
    if not lines:
        return
    figure, axes = pyplot.subplots(figsize=(9, 0.19 * len(lines) + 1.2))
    for height, values in enumerate(lines.values()):
        axes.plot([min(values), max(values)], [height, height], color="#c9c9c9", linewidth=3, zorder=1)
        colours = ["#2a7f62" if value >= 1 else "#b5473c" for value in values]
        axes.scatter(values, [height] * len(values), c=colours, s=22, zorder=2)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_yticks(range(len(lines)), list(lines), fontsize=7)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x", color="#e8e8e8", zorder=0)
    axes.set_xlabel("times better than Apache Kafka (a dot is a load)")
    figure.tight_layout()
    figure.savefig(path, dpi=90, bbox_inches="tight")
