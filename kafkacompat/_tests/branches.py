"""Which branches of the packages that decide over data are taken, by layer of tests.

    python -m kafkacompat._tests.branches [--folder FOLDER] [--minutes N] [--document PAGE] [--list]

Runs the unit tests of these packages, then a quarter of the simulation's seeds, and prints a table. A branch is one of two or more
ways on from a line, as coverage.py counts them. What a child process does is not seen.

It goes in pieces, the tests of a package or a share of the seeds each. With a folder what a piece took is kept there, so that a run
which was ended goes on behind it, as long as the packages are the same; with `--minutes` a run begins no piece after that time, and
its exit status is 3 while pieces are left.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("raft", "partition", "log", "coordinator", "group", "txn", "share")
UNIT, SIMULATION, EITHER = "unit tests", "simulation", "either"
SEEDS = {
    "clusters": "test_cluster_simulation.py::test_no_seed_fails[{share}]",
    "quorums": "test_quorum_simulation.py::test_no_seed_fails[{share}]",
    "consumer-groups": "test_shaped_simulations.py::test_no_seed_fails[consumer-groups-{share}]",
    "share-groups": "test_shaped_simulations.py::test_no_seed_fails[share-groups-{share}]",
    "streams-groups": "test_shaped_simulations.py::test_no_seed_fails[streams-groups-{share}]",
}
SHARES = (0, 1)
"""Of the eight that share the seeds of a simulation."""
PIECES: Mapping[tuple[str, str], Sequence[str]] = {
    **{(UNIT, package): [f"kafkacompat/{package}"] for package in PACKAGES},
    **{
        (SIMULATION, f"{name}-{share}"): [f"kafkacompat/sim/_tests/{test.format(share=share)}"]
        for name, test in SEEDS.items()
        for share in SHARES
    },
}
"""By layer and name: what pytest is given."""
PIECES_LEFT = 3
BEGIN, END = "<!-- branches: begin -->", "<!-- branches: end -->"

Report = dict[str, Any]
"""coverage.py's own, of JSON: by file what was taken and what not."""


def measure(tests: Sequence[str], workers: int, data: Path) -> None:
    """Run tests and leave what they took in `data`. CalledProcessError when one fails: the table would not be whole."""
    options = ["-q", "-p", "no:cacheprovider", "--cov-branch", "--cov-report="]
    if workers > 1:
        options += ["-n", str(workers), "--dist", "worksteal"]
    options += [f"--cov=kafkacompat/{package}" for package in PACKAGES]
    aside = data.with_suffix(".under-way")
    command = [sys.executable, "-m", "pytest", *tests, *options]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(aside)}, check=True)
    aside.rename(data)


def measure_all(folder: Path, workers: int, until_s: float) -> dict[tuple[str, str], Path]:
    """The pieces that are measured; whatever is left was not begun in time."""
    stamp = folder / "measured-of"
    if not stamp.exists() or stamp.read_text() != digest():
        for file in folder.iterdir():
            file.unlink()
        stamp.write_text(digest())
    found: dict[tuple[str, str], Path] = {}
    for (layer, name), tests in PIECES.items():
        data = folder / f"{layer.replace(' ', '-')}-{name}.coverage"
        if not data.exists():
            if time.monotonic() >= until_s:
                continue
            began = time.monotonic()
            measure(tests, workers, data)
            print(f"{layer}, {name}: {time.monotonic() - began:.0f} s", flush=True)
        found[layer, name] = data
    return found


def digest() -> str:
    """Of the packages' code, whose lines the branches are named by."""
    found = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / "kafkacompat" / package).rglob("*.py")):
            if "_tests" not in path.parts:
                found.update(path.read_bytes())
    return found.hexdigest()


def report(data: Path) -> Report:
    counted = coverage.Coverage(data_file=str(data))
    counted.load()
    written = data.with_suffix(".json")
    counted.json_report(outfile=str(written))
    return json.loads(written.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def combined(data: Sequence[Path], into: Path) -> Report:
    both = coverage.Coverage(data_file=str(into))
    both.combine([str(each) for each in data], keep=True)
    both.save()
    return report(into)


def of_package(counted: Report, package: str) -> tuple[int, int]:
    """(taken, all) branches."""
    found = [
        entry["summary"]
        for path, entry in counted["files"].items()
        if Path(path).parts[:2] == ("kafkacompat", package)
    ]
    return sum(each["covered_branches"] for each in found), sum(each["num_branches"] for each in found)


def table(reports: Mapping[str, Report]) -> str:
    """A line a package: its branches, and the share of them that each layer takes."""
    lines = [f"| package | branches | {' | '.join(reports)} |", f"|{' --- |' * (len(reports) + 2)}"]
    for package in PACKAGES:
        _, everything = of_package(reports[EITHER], package)
        # A file that a layer never imports is not in its report.
        shares = [100 * of_package(each, package)[0] / everything for each in reports.values()]
        lines.append(f"| {package} | {everything} | {' | '.join(f'{share:.1f} %' for share in shares)} |")
    return "\n".join(lines)


def not_taken(counted: Report) -> str:
    """A line a branch: file, line, and the line that it would lead to; a negative one is the end of what began there."""
    return "\n".join(
        f"{path}:{source} -> {target}"
        for path, entry in sorted(counted["files"].items())
        for source, target in entry["missing_branches"]
    )


def put_into(document: Path, text: str) -> None:
    """Between the marks."""
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{document} has no place for the table")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--document", type=Path, help="a page whose marked part takes the table")
    parser.add_argument("--folder", type=Path, help="keeps what was measured, for a run that goes on")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no piece after so long")
    parser.add_argument("--list", action="store_true", help="print the branches that neither layer takes")
    options = parser.parse_args()
    until_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="branches-") as working:
        folder: Path = options.folder or Path(working) / "measured"
        folder.mkdir(parents=True, exist_ok=True)
        data = measure_all(folder, options.workers, until_s)
        if len(data) < len(PIECES):
            print(f"{len(PIECES) - len(data)} pieces are left")
            return PIECES_LEFT
        reports = {
            layer: combined(
                [file for piece, file in data.items() if piece[0] == layer], Path(working) / layer
            )
            for layer in (UNIT, SIMULATION)
        }
        reports[EITHER] = combined(list(data.values()), Path(working) / EITHER)
    print(table(reports))
    if options.list:
        print(not_taken(reports[EITHER]))
    if options.document is not None:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        put_into(options.document, f"Measured on {today}.\n\n{table(reports)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
