"""Which branches of the packages that decide over data are taken, by layer of tests.

    python -m kafkacompat._tests.branches [--document PAGE] [--list]

Runs the unit tests of these packages, then the simulation without its planted bugs, and prints a table. A branch is one of
two or more ways on from a line, as coverage.py counts them. What a child process does is not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("raft", "partition", "log", "coordinator", "group", "txn")
UNIT, SIMULATION, EITHER = "unit tests", "simulation", "either"
LAYERS: Mapping[str, Sequence[str]] = {
    UNIT: [f"kafkacompat/{package}" for package in PACKAGES],
    SIMULATION: ["kafkacompat/sim", "-k", "test_no_seed_fails or test_every_danger_occurs"],
}
BEGIN, END = "<!-- branches: begin -->", "<!-- branches: end -->"

Report = dict[str, Any]
"""coverage.py's own, of JSON: by file what was taken and what not."""


def measure(layer: str, workers: int, data: Path) -> None:
    """Run a layer's tests and leave what they took in `data`. CalledProcessError when one fails: the table would not be whole."""
    options = ["-q", "-n", str(workers), "--dist", "worksteal", "--cov-branch", "--cov-report="]
    options += [f"--cov=kafkacompat/{package}" for package in PACKAGES]
    command = [sys.executable, "-m", "pytest", *LAYERS[layer], *options]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=True)


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
    parser.add_argument("--list", action="store_true", help="print the branches that neither layer takes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="branches-") as folder:
        data = {layer: Path(folder) / f"{number}.coverage" for number, layer in enumerate(LAYERS)}
        for layer, file in data.items():
            measure(layer, options.workers, file)
        reports = {layer: report(file) for layer, file in data.items()}
        reports[EITHER] = combined(list(data.values()), Path(folder) / "both.coverage")
    print(table(reports))
    if options.list:
        print(not_taken(reports[EITHER]))
    if options.document is not None:
        put_into(options.document, table(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
