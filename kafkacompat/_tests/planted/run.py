"""Plants bugs one after another in a copy of the product and runs the unit tests that must notice.

    python -m kafkacompat._tests.planted.run [NAME ...]

Says for each how long it took until a test failed; the exit status is 1 when one went unnoticed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkacompat._tests.planted.bugs import BUGS, PlantedBug

PACKAGE = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300.0
NO_TEST_FAILED, TESTS_FAILED = 0, 1


@dataclass(frozen=True)
class Outcome:
    """Of one planted bug."""

    bug: PlantedBug
    is_noticed: bool
    seconds: float
    test: str
    """The first that failed."""

    def __str__(self) -> str:
        return f"{self.seconds:6.1f} s  {self.bug.name}: {self.test if self.is_noticed else 'NOT NOTICED'}"


class Copy:
    """The product and its tests in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=ignored)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(PACKAGE.parent / name, folder / name)

    @contextlib.contextmanager
    def planted(self, bug: PlantedBug) -> Iterator[None]:
        path = self._root / PACKAGE.name / bug.module
        text, status = path.read_text(), path.stat()
        path.write_text(with_bug(text, bug))
        try:
            yield
        finally:
            path.write_text(text)
            # The time tells compiled code of the one from that of the other.
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def outcome(self, bug: PlantedBug) -> Outcome:
        """Run the bug's tests until the first that fails, and that one again without the bug, where it must pass."""
        began = time.monotonic()
        with self.planted(bug):
            failed = self._first_failure(bug.tests)
        seconds = time.monotonic() - began
        if failed is not None and self._first_failure((failed.removeprefix(f"{PACKAGE.name}/"),)) is not None:
            raise AssertionError(f"{bug.name}: {failed} fails without the bug as well")
        return Outcome(bug, failed is not None, seconds, failed or "")

    def _first_failure(self, tests: Sequence[str]) -> str | None:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += [f"{PACKAGE.name}/{test}" for test in tests]
        # As `make test` runs them, and whatever is imported is compiled once for all bugs.
        environment = {name: value for name, value in os.environ.items() if name != "KAFKACOMPAT_SOAK"}
        environment |= {"PYTHONPYCACHEPREFIX": str(self._root / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(
            command,
            cwd=self._root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if done.returncode == NO_TEST_FAILED:
            return None
        if done.returncode == TESTS_FAILED and failed is not None:
            return failed[1]
        raise AssertionError(f"the tests could not be run:\n{done.stdout[-2000:]}{done.stderr[-500:]}")


def with_bug(text: str, bug: PlantedBug) -> str:
    """AssertionError when the bug's place is not in the text, or not once."""
    found = text.count(bug.right)
    assert found == 1, f"{bug.name}: what is to be changed occurs {found} times in {bug.module}"
    return text.replace(bug.right, bug.wrong)


def run(bugs: list[PlantedBug]) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Copy(Path(folder))
        for bug in bugs:
            yield copy.outcome(bug)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a planted bug's name; all without")
    names = parser.parse_args().names
    chosen = [bug for bug in BUGS if not names or any(name in bug.name for name in names)]
    unnoticed = 0
    for outcome in run(chosen):
        print(outcome, flush=True)
        unnoticed += not outcome.is_noticed
    print(f"{len(chosen) - unnoticed} of {len(chosen)} noticed")
    return 1 if unnoticed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
