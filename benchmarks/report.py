"""Results as a Markdown table, in docs/performance.md between its marks, and as a plot of ratios."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import NamedTuple

from interop_tests.harness.broker import APACHE, KAFKACOMPAT

Results = dict[str, dict[str, dict[str, list[float]]]]
FAILED = "failed"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LESS_IS_BETTER = ("CPU", "memory", "ms", "start", "kill", "create", "sync s", "replicated s", "growth")


class Row(NamedTuple):
    """Medians of both brokers."""

    scenario: str
    figure: str
    ours: float
    theirs: float
    ratio: float


def rows(results: Results) -> list[Row]:
    found = []
    for scenario, figures in results.items():
        for figure, by_kind in figures.items():
            ours, theirs = (
                statistics.median(by_kind[kind]) if kind in by_kind else math.nan
                for kind in (KAFKACOMPAT, APACHE)
            )
            found.append(Row(scenario, figure, ours, theirs, ours / theirs if theirs else math.nan))
    return found


def table(measured: list[Row]) -> str:
    lines = [
        "| load | figure | kafkacompat | Apache Kafka 4.3.0 | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.scenario} | {row.figure} | {cell(row.ours, '.4g')} | {cell(row.theirs, '.4g')} | {cell(row.ratio, '.2f')} |"
        for row in measured
    ]
    return "\n".join(lines)


def cell(value: float, form: str) -> str:
    """A figure; a broker that failed under the load has none."""
    return FAILED if math.isnan(value) else format(value, form)


def number(cell: str) -> float:
    """The figure of a cell."""
    return math.nan if cell == FAILED else float(cell)


def rows_in(text: str) -> list[Row]:
    """The rows of a table that `table` made."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 5 and cells[0] not in ("load", "---"):
            ours, theirs = number(cells[2]), number(cells[3])
            found.append(Row(cells[0], cells[1], ours, theirs, ours / theirs if theirs else math.nan))
    return found


def update_document(measured: list[Row], document: Path, note: str, whole: bool) -> list[Row]:
    """Put a run's rows between the marks and its note above them; all rows that stand there afterwards.

    A whole run replaces what was there. One of a few scenarios takes the place of their rows, leaves the others and adds its note.
    """
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    inside, _, after = rest.partition(END)
    standing = [] if whole else rows_in(inside)
    notes = "" if whole else inside.partition("\n| load")[0].strip() + "\n\n"
    again = {row.scenario for row in measured}
    placed: set[str] = set()
    merged = []
    for row in standing:
        if row.scenario not in again:
            merged.append(row)
        elif row.scenario not in placed:
            placed.add(row.scenario)
            merged += [one for one in measured if one.scenario == row.scenario]
    merged += [row for row in measured if row.scenario not in placed]
    document.write_text(f"{before}{BEGIN}\n{notes}{note}\n\n{table(merged)}\n{END}{after}", encoding="utf-8")
    return merged


def is_less_better(figure: str) -> bool:
    return "/s" not in figure and any(word in figure for word in LESS_IS_BETTER)


def family(scenario: str) -> str:
    """What a scenario has in common with its variations: "throughput" of "throughput: 100 B, acks=1", say."""
    return re.split(r": | of |, | while | at ", scenario)[0]


def plot(measured: list[Row], path: Path) -> None:
    """A line for each figure of a family of loads, a dot for each load: how many times better than Apache Kafka, log scale."""
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
    axes.set_xlabel("times better than Apache Kafka 4.3.0 (a dot is a load)")
    figure.tight_layout()
    figure.savefig(path, dpi=90, bbox_inches="tight")
