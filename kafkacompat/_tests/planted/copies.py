"""Copies of the product and its tests, in which bugs are planted and tests run."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafkacompat._tests.planted.bug import PlantedBug, SimulatedBug

PACKAGE = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
NO_TEST_FAILED, TESTS_FAILED = 0, 1


@dataclass(frozen=True)
class Outcome:
    """Of one planted bug."""

    bug: PlantedBug | SimulatedBug
    is_noticed: bool
    seconds: float
    test: str
    """The first that failed; of the simulation, the one that looks for the bug."""
    problem: str = ""
    """Why it could not be told."""

    @property
    def layer(self) -> str:
        """Of docs/testing.md."""
        file = self.test.partition("::")[0]
        if "/sim/" in file:
            return "simulation"
        return "models" if re.search("model|properties", file) else "unit"

    def __str__(self) -> str:
        told = f"{self.layer:12}{self.test}" if self.is_noticed else f"NOT NOTICED {self.problem}"
        return f"{self.seconds:6.1f} s  {self.bug.name}: {told}"


class Copy:
    """The product and its tests in a folder of their own, with a server that runs tests there."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._plantings = itertools.count(1)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=ignored)
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(PACKAGE.parent / name, folder / name)
        # As `make test` runs them, and whatever is imported is compiled once for all bugs.
        environment = {name: value for name, value in os.environ.items() if name != "KAFKACOMPAT_SOAK"}
        environment |= {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        self._server = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE.name}._tests.planted.server"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    @contextlib.contextmanager
    def planted(self, bug: PlantedBug) -> Iterator[None]:
        path = self._root / PACKAGE.name / bug.module
        text, status = path.read_text(), path.stat()
        path.write_text(with_bug(text, bug))
        # The seconds of its time tell compiled code of one planting from that of another.
        os.utime(path, (status.st_atime, int(status.st_mtime) - next(self._plantings)))
        try:
            yield
        finally:
            path.write_text(text)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def outcome(self, bug: PlantedBug | SimulatedBug) -> Outcome:
        """Run the bug's tests until the first that fails, and that one again without the bug, where it must pass."""
        began = time.monotonic()
        if isinstance(bug, SimulatedBug):
            is_noticed = self._first_failure((bug.test,)) is None
            return Outcome(bug, is_noticed, time.monotonic() - began, f"{PACKAGE.name}/{bug.test}")
        with self.planted(bug):
            failed = self._first_failure(bug.tests)
        seconds = time.monotonic() - began
        if failed is not None and self._first_failure((failed.removeprefix(f"{PACKAGE.name}/"),)) is not None:
            raise AssertionError(f"{bug.name}: {failed} fails without the bug as well")
        return Outcome(bug, failed is not None, seconds, failed or "")

    def _first_failure(self, tests: Sequence[str]) -> str | None:
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "--no-header"]
        status, written = self._ask([*arguments, *(f"{PACKAGE.name}/{test}" for test in tests)])
        # Without its parameters, whose text may hold anything.
        failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", written, re.MULTILINE)
        if status == NO_TEST_FAILED:
            return None
        if status == TESTS_FAILED and failed is not None:
            return failed[1]
        raise AssertionError(f"the tests could not be run: {status}\n{written[-2000:]}")

    def _ask(self, arguments: Sequence[str]) -> tuple[int, str]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([TIMEOUT_S, arguments]) + "\n")
        self._server.stdin.flush()
        status, written = json.loads(self._server.stdout.readline())
        return status, written


class Copies:
    """One for each bug that is looked for at the same time, made when it is needed."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._made: list[Copy] = []
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        for copy in self._made:
            copy.close()

    def outcome(self, bug: PlantedBug | SimulatedBug) -> Outcome:
        copy = self._take()
        try:
            return copy.outcome(bug)
        finally:
            self._free.put(copy)

    def _take(self) -> Copy:
        with self._lock:
            try:
                return self._free.get_nowait()
            except queue.Empty:
                made = Copy(self._folder / str(len(self._made)))
                self._made.append(made)
                return made


def with_bug(text: str, bug: PlantedBug) -> str:
    """AssertionError when the bug's place is not in the text, or not once."""
    found = text.count(bug.right)
    assert found == 1, f"{bug.name}: what is to be changed occurs {found} times in {bug.module}"
    return text.replace(bug.right, bug.wrong)
