"""`python -m benchmarks [--rounds N] [--only TEXT] [--output DIR]`: measures both brokers in turn; medians and ratios.

Prints progress, and writes results.json, a table and a plot to the output folder.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
from pathlib import Path

from benchmarks.measure import KINDS
from benchmarks.report import plot, rows, sections_of, update_document, written
from benchmarks.scenarios import SCENARIOS

Results = dict[str, dict[str, dict[str, list[float]]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="runs of each scenario on each broker (default 3)"
    )
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--output", type=Path, default=Path(".cache/bench"), help="folder for results")
    parser.add_argument(
        "--document", type=Path, help="a page whose marked part takes the table; the plot lies beside it"
    )
    arguments = parser.parse_args()
    chosen = [scenario for scenario in SCENARIOS if arguments.only in scenario.name]
    results: Results = {}
    for scenario in chosen:
        figures: dict[str, dict[str, list[float]]] = {}
        for turn in range(arguments.rounds):
            for kind in KINDS if turn % 2 == 0 else KINDS[::-1]:
                print(
                    f"{scenario.name}: round {turn + 1}/{arguments.rounds}, {kind}",
                    file=sys.stderr,
                    flush=True,
                )
                try:
                    measured = scenario.run(kind)
                except Exception as error:
                    print(f"  failed: {error}", file=sys.stderr, flush=True)
                    continue
                for name, value in measured.items():
                    figures.setdefault(name, {}).setdefault(kind, []).append(value)
        results[scenario.name] = figures
        for name, by_kind in figures.items():
            medians = {kind: statistics.median(values) for kind, values in by_kind.items()}
            print(
                f"  {name}: " + ", ".join(f"{kind} {value:.4g}" for kind, value in medians.items()),
                flush=True,
            )
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    measured = rows(results)
    print(written("", sections_of(measured)))
    plot(measured, arguments.output / "performance.png")
    if arguments.document:
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        note = f"{datetime.date.today()}, {machine}; medians of {arguments.rounds} rounds, brokers in turn."
        if arguments.only:
            note = f'Loads with "{arguments.only}" in their name: {note}'
        standing = update_document(measured, arguments.document, note, whole=not arguments.only)
        plot(standing, arguments.document.with_name("performance.png"))


if __name__ == "__main__":
    main()
