"""Run the interop suite on kafkacompat and on Apache Kafka 4.4, and show both results in docs/reference/compatibility.md.

python -m interop_tests.report [--only kafkacompat|apache] [--group G] [--write-only] [--minutes N] [PYTEST_ARGUMENT
...]

Each run writes its JUnit file to .cache/interop/, and so does `make interop`: after it, --write-only shows its results.
The page keeps what it shows of a broker without such a file. If a group (a folder of the suite, such as raw) is run by
itself, its results replace those of the last whole run.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import subprocess
import sys
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.report.results import (
    APACHES,
    OURS,
    Column,
    column_of,
    columns_in,
    read_run,
    results_part,
    rewritten,
)

CHECKOUT = Path(__file__).resolve().parents[2]
SUITE = CHECKOUT / "interop_tests"
PAGE = CHECKOUT / "docs" / "reference" / "compatibility.md"
FILES = CHECKOUT / ".cache" / "interop"
BOTH_THEMSELVES = frozenset({"storage"})
"""Groups whose tests start both brokers, whatever INTEROP_BROKER is. They run once, in kafkacompat's half."""
OWN_TESTS = SUITE / "report"
SETTLE_S = 30


def run_suite(kind: str, group: str | None, minutes: float, extra: list[str]) -> None:
    """Run one half, or one group of it, with its output on the terminal. SystemExit if there are no results or it
    takes too long."""
    FILES.mkdir(parents=True, exist_ok=True)
    target = result_file(kind, group)
    for old in [target] if group else [target, *group_files(kind).values()]:
        old.unlink(missing_ok=True)
    ignored = [OWN_TESTS]
    if kind == APACHE:
        ignored += [SUITE / group for group in sorted(BOTH_THEMSELVES)]
    command = [sys.executable, "-m", "pytest", str(SUITE / (group or "")), "-q", f"--junitxml={target}"]
    command += [f"--ignore={path}" for path in ignored]
    # A missing tool is a failure here and not a skip, so that the page does not hide it.
    environment = {**os.environ, "INTEROP_BROKER": kind, "CI": "true"}
    environment.pop("BOOTSTRAP", None)
    print(f"== {group or 'the interop suite'} on {kind}", flush=True)
    process = subprocess.Popen([*command, *extra], cwd=CHECKOUT, env=environment, start_new_session=True)
    try:
        process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SETTLE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # The results of an interrupted run do not count.
        target.unlink(missing_ok=True)
        raise SystemExit(f"the suite on {kind} took more than {minutes:g} minutes") from None
    if not target.exists():
        raise SystemExit(f"the suite on {kind} brought no results (status {process.returncode})")


def result_file(kind: str, group: str | None = None) -> Path:
    return FILES / (f"{kind}-{group}.xml" if group else f"{kind}.xml")


def group_files(kind: str) -> dict[str, Path]:
    """The results of groups that were run by themselves after the whole run."""
    return {path.stem.removeprefix(f"{kind}-"): path for path in sorted(FILES.glob(f"{kind}-*.xml"))}


def column(kind: str, shown: Column) -> Column:
    """What the stored results of a kind say. Without any, what the page shows of the tests that there still are."""
    if not result_file(kind).exists():
        if group_files(kind):
            raise SystemExit(
                f"there is no whole run to put the group into: python -m interop_tests.report --only {kind}"
            )
        modules = {path.relative_to(SUITE).with_suffix("").as_posix() for path in SUITE.glob("*/test_*.py")}
        return shown.without_others(modules)
    run = read_run(result_file(kind))
    newest = whole = result_file(kind).stat().st_mtime
    for group, path in group_files(kind).items():
        # `make interop` leaves the files of groups that ran before it.
        if path.stat().st_mtime > whole:
            run = run.with_group(group, read_run(path))
            newest = max(newest, path.stat().st_mtime)
    title = OURS if kind == KAFKACOMPAT else APACHES
    return column_of(title, run, datetime.datetime.fromtimestamp(newest, datetime.UTC).date().isoformat())


def write_page() -> bool:
    """Write the stored results to the page. Returns whether nothing failed on kafkacompat."""
    page = PAGE.read_text("utf-8")
    ours, apaches = map(column, (KAFKACOMPAT, APACHE), columns_in(page))
    PAGE.write_text(rewritten(page, results_part(ours, apaches, BOTH_THEMSELVES)), "utf-8")
    print(f"{PAGE} written", flush=True)
    return not ours.failures


def groups() -> list[str]:
    return sorted({path.parent.name for path in SUITE.glob("*/test_*.py")} - {OWN_TESTS.name})


def main() -> int:
    parser = argparse.ArgumentParser(prog="interop_tests.report", description=__doc__)
    parser.add_argument(
        "--only", choices=(KAFKACOMPAT, APACHE), help="run this half, keep the other's results"
    )
    parser.add_argument(
        "--group", choices=groups(), help="run this folder of the suite, keep the others' results"
    )
    parser.add_argument("--write-only", action="store_true", help="run nothing, write what is stored")
    parser.add_argument("--minutes", type=float, default=30, help="bound of each half (30)")
    arguments, extra = parser.parse_known_args()
    if not arguments.write_only:
        for kind in (arguments.only,) if arguments.only else (KAFKACOMPAT, APACHE):
            run_suite(kind, arguments.group, arguments.minutes, extra)
    return 0 if write_page() else 1


if __name__ == "__main__":
    sys.exit(main())
