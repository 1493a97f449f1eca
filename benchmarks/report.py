"""Results as a Markdown table, in docs/performance.md between its marks, and as a plot of ratios."""

from __future__ import annotations

import statistics
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT

Results = dict[str, dict[str, dict[str, list[float]]]]
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LESS_IS_BETTER = ("CPU", "memory", "ms", "start", "kill", "create")


def rows(results: Results) -> list[tuple[str, str, float, float, float]]:
    """(scenario, figure, kafkacompat, Apache Kafka, ratio), medians."""
    found = []
    for scenario, figures in results.items():
        for figure, by_kind in figures.items():
            if KAFKACOMPAT in by_kind and APACHE in by_kind:
                ours, theirs = (statistics.median(by_kind[kind]) for kind in (KAFKACOMPAT, APACHE))
                found.append((scenario, figure, ours, theirs, ours / theirs if theirs else float("nan")))
    return found


def table(results: Results) -> str:
    lines = [
        "| load | figure | kafkacompat | Apache Kafka 4.3.0 | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {scenario} | {figure} | {ours:.4g} | {theirs:.4g} | {ratio:.2f} |"
        for scenario, figure, ours, theirs, ratio in rows(results)
    ]
    return "\n".join(lines)


def update_document(results: Results, document: Path, machine: str) -> None:
    """Replace what stands between the marks by a run's machine and table."""
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{machine}\n\n{table(results)}\n{END}{after}", encoding="utf-8")


def plot(results: Results, path: Path) -> None:
    """Bars of how many times better than Apache Kafka each figure is, log scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = [
        (f"{scenario} · {figure}", 1 / ratio if any(word in figure for word in LESS_IS_BETTER) else ratio)
        for scenario, figure, _, _, ratio in rows(results)
        if ratio > 0
    ]
    if not bars:
        return
    figure, axes = pyplot.subplots(figsize=(11, 0.26 * len(bars) + 1.2))
    names = [name for name, _ in reversed(bars)]
    values = [value for _, value in reversed(bars)]
    axes.barh(names, values, color=["#2a7f62" if value >= 1 else "#b5473c" for value in values])
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("times better than Apache Kafka 4.3.0 (medians of one run)")
    axes.tick_params(axis="y", labelsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
