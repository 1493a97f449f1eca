"""Says which careless changes of a module its tests would not notice.

    python -m kafkacompat._tests.mutants MODULE [--tests PATH ...] [--sample N] [--seed N]

Cosmic Ray changes one operator, number, condition or decorator at a time, in a copy of the package, and runs the tests of the
module's package (or those that are named). A survivor is a change that all of them passed. It is a missing test, or code that
nothing depends on.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = Path(__file__).resolve().parents[1]
TIMEOUT_S = 120.0

# Unions of types are no operations, and every one of them would survive.
LEFT_OUT = ("core/ReplaceBinaryOperator_BitOr_.*",)

CONFIG = """
[cosmic-ray]
module-path = {module!r}
timeout = {timeout}
excluded-modules = []
test-command = {command!r}

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = {left_out}
"""


def tests_of(module: Path) -> list[str]:
    """The tests beside a module, below the folder of the package: the file of its name if there is one, or all."""
    folder = module.parent / "_tests"
    named = folder / f"test_{module.name}"
    found = named if named.exists() else folder
    return [str(found.relative_to(PACKAGE.parent))]


def sampled(session: Path, size: int, seed: int) -> int:
    """Leave so many changes in the session. Returns how many there are."""
    with closing(sqlite3.connect(session)) as database, database:
        done = database.execute("select job_id from work_results")
        skipped = {job for (job,) in done}
        jobs = sorted(
            job for (job,) in database.execute("select job_id from work_items") if job not in skipped
        )
        chosen = jobs if size >= len(jobs) else random.Random(seed).sample(jobs, size)
        for job in set(jobs) - set(chosen):
            for table in ("mutation_specs", "work_items"):
                database.execute(f"delete from {table} where job_id = ?", (job,))
        return len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("module", type=Path, help="such as kafkacompat/log/flush.py")
    parser.add_argument(
        "--tests", nargs="+", metavar="PATH", help="files or folders; those beside the module without"
    )
    parser.add_argument("--sample", type=int, default=sys.maxsize, metavar="N", help="only so many changes")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    given = parser.parse_args()
    module = given.module.resolve()
    if PACKAGE not in module.parents or not module.is_file():
        parser.error(f"{given.module} is no module of {PACKAGE.name}")
    tests = given.tests or tests_of(module)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"]
    command = " ".join([sys.executable, "-m", "pytest", *options, *tests])
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        shutil.copytree(PACKAGE, copy / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(PACKAGE.parent / name, copy / name)
        environment = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}

        def run(*arguments: str) -> None:
            subprocess.run(arguments, cwd=copy, env=environment, check=True)

        run(*command.split())
        config, session = copy / "cosmic-ray.toml", copy / "session.sqlite"
        config.write_text(
            CONFIG.format(
                module=str(module.relative_to(PACKAGE.parent)),
                timeout=TIMEOUT_S,
                command=command,
                left_out=list(LEFT_OUT),
            )
        )
        tools = Path(sys.executable).parent
        run(str(tools / "cosmic-ray"), "init", str(config), str(session))
        run(str(tools / "cr-filter-operators"), str(session), str(config))
        print(
            f"{sampled(session, given.sample, given.seed)} changes, each with {' '.join(tests)}", flush=True
        )
        run(str(tools / "cosmic-ray"), "exec", str(config), str(session))
        run(str(tools / "cr-report"), "--surviving-only", "--show-diff", str(session))
    return 0


if __name__ == "__main__":
    sys.exit(main())
