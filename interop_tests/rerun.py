"""Runs the interop tests, and those that failed once more, alone.

    python -m interop_tests.rerun [ARGUMENT OF PYTEST ...]

The run passes if all of them pass the second time. A test is not run again if its failure is one that may not pass
(`harness/failures`). At most three are: if more fail, something is broken. The last lines name each test that needed a second
run, and where both failures lie.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from interop_tests.harness.failures import FOLDER, LIST, Failure

RERUNS_MAX = 3
TESTS_FAILED = 1
ALONE_OPTIONS = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider")


def may_run_again(failures: Sequence[Failure]) -> bool:
    return 0 < len(failures) <= RERUNS_MAX and not any(failure.final for failure in failures)


def told(failures: Sequence[Failure], passed: bool | None) -> list[str]:
    """The last lines. `passed` is the result of the second run, None without one."""
    lines = [f"{failure.nodeid}: not run again: {failure.final!r}" for failure in failures if failure.final]
    if passed is None:
        if len(failures) > RERUNS_MAX:
            lines.append(f"{len(failures)} tests failed, more than the {RERUNS_MAX} that are run again")
        return lines
    needed = "passed when run again, alone" if passed else "failed again, or another of these did"
    lines += [f"{failure.nodeid}: {needed}" for failure in failures]
    return [*lines, f"their failures and logs are in {os.path.relpath(FOLDER)}"]


def run(arguments: Sequence[str], number: int) -> int:
    environment = os.environ | {"INTEROP_RUN": str(number)}
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment).returncode


def failures_of_last_run() -> list[Failure]:
    path = FOLDER / LIST
    if not path.exists():
        return []
    found = [Failure(**each) for each in json.loads(path.read_text())]
    path.unlink()
    return found


def main(arguments: Sequence[str]) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    status = run(arguments, 1)
    if status != TESTS_FAILED:
        return status
    failures = failures_of_last_run()
    passed = None
    if may_run_again(failures):
        chosen = [argument for argument in arguments if argument.startswith("--bootstrap")]
        names = [failure.nodeid for failure in failures]
        status = run([*ALONE_OPTIONS, *chosen, *names], 2)
        passed = status == 0
        failures_of_last_run()
    print("\n".join(told(failures, passed)), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
