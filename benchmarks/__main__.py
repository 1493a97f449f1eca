"""`python -m benchmarks [--rounds N] [--only TEXT] [--resume]`: measures both brokers in turn; medians and ratios.

Prints progress, and writes results.json after each load, and a table and a plot at the end, to the output folder.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from benchmarks import tiers, warm
from benchmarks.measure import KINDS
from benchmarks.report import plot, rows, sections_of, update_document, update_first_table, written
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.user_share import is_sampled
from interop_tests.harness.kafka_jars import KAFKA_VERSION

Results = dict[str, dict[str, dict[str, list[float]]]]
Named = dict[str, dict[str, list[float]]]
"""By figure and kind, the values of the rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="runs of each scenario on each broker (default 3)"
    )
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--output", type=Path, default=Path(".cache/bench"), help="folder for results")
    parser.add_argument(
        "--resume", action="store_true", help="keep the results in the folder, and measure what is missing"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of the chosen scenarios, and stop"
    )
    parser.add_argument(
        "--document", type=Path, help="a page whose marked part takes the table; the plot lies beside it"
    )
    parser.add_argument(
        "--readme", type=Path, help="with --document: a page whose marked part takes the first table"
    )
    arguments = parser.parse_args()
    commit = measured_commit()
    known: tuple[warm.WarmLoad | Scenario, ...] = (*warm.LOADS, *tiers.LOADS, *SCENARIOS)
    chosen = [each for each in known if arguments.only in each.name]
    if arguments.list:
        print(*(each.name for each in chosen), sep="\n")
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    kept = arguments.output / "results.json"
    results: Results = json.loads(kept.read_text("utf-8")) if arguments.resume and kept.exists() else {}
    with closing(warm.WarmBrokers()) as brokers:
        for scenario in chosen:
            if scenario.name in results:
                continue
            say = partial(progress, scenario.name)
            if isinstance(scenario, warm.WarmLoad):
                try:
                    figures = warm.measured(scenario, *brokers.of(scenario), arguments.rounds, say)
                except Exception as error:
                    # The other loads follow, and --resume tries this one again.
                    say(f"failed: {error}")
                    continue
            else:
                brokers.close()  # nothing else runs beside a load
                figures = measured(scenario, arguments.rounds)
            results[scenario.name] = figures
            kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
            for name, by_kind in figures.items():
                medians = {kind: statistics.median(values) for kind, values in by_kind.items()}
                print(
                    f"  {name}: " + ", ".join(f"{kind} {value:.4g}" for kind, value in medians.items()),
                    flush=True,
                )
    found = rows({name: figures for name, figures in results.items() if arguments.only in name})
    print(written("", sections_of(found)))
    plot(found, arguments.output / "performance.png")
    if arguments.document:
        code = f", kafkacompat at {commit}" if commit else ""
        note = f"{datetime.date.today()}, {machine()}{code}; medians of {arguments.rounds} rounds, brokers in turn."
        if arguments.only:
            note = f'Loads with "{arguments.only}" in their name: {note}'
        standing = update_document(found, arguments.document, note, whole=not arguments.only)
        plot(standing, arguments.document.with_name("performance.png"))
        if arguments.readme:
            update_first_table(standing, arguments.readme)


def progress(name: str, what: str) -> None:
    print(f"{name}: {what}", file=sys.stderr, flush=True)


def measured(scenario: Scenario, rounds: int) -> Named:
    """Each round has new brokers. A broker that fails under the load has no figures of that round."""
    figures: Named = {}
    for turn in range(rounds):
        for kind in KINDS if turn % 2 == 0 else KINDS[::-1]:
            progress(scenario.name, f"round {turn + 1}/{rounds}, {kind}")
            try:
                found = scenario.run(kind)
            except Exception as error:
                print(f"  failed: {error}", file=sys.stderr, flush=True)
                continue
            for name, value in found.items():
                figures.setdefault(name, {}).setdefault(kind, []).append(value)
    return figures


def machine() -> str:
    """What the figures depend on besides kafkacompat."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=60).stderr
    java = said.splitlines()[0] if said else "no Java"
    split = "samples of perf" if is_sampled() else "Linux's ticks"
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()} "
        f"({interpreter()}), {java}, Apache Kafka {KAFKA_VERSION}, user and system CPU of warm loads by {split}"
    )


def measured_commit(folder: Path = Path(__file__).parent) -> str:
    """The commit of the code, which "-dirty" follows if files differ from it. Empty if there is no repository."""
    command = ["git", "describe", "--always", "--dirty"]
    with suppress(OSError):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def interpreter() -> str:
    """How the interpreter was built. One with profile-guided optimization needs a tenth less CPU. A distribution's own build
    does not tell."""
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "with --enable-optimizations"
    return "the system's" if sys.base_prefix == "/usr" else "configured without --enable-optimizations"


if __name__ == "__main__":
    main()
