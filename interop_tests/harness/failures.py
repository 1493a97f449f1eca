"""What a failed test leaves in .cache/interop/failures: its failure, what the nodes logged meanwhile, and whether it may
be run again.

A failure that speaks of records lost, doubled or out of order counts at once, and so does one in which a node halted or
reported a bug of its own. Any other may come from a busy machine or from another's client: `interop_tests.rerun` runs
that test once more, alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from interop_tests.harness.kafka_jars import CHECKOUT
from interop_tests.harness.notes import is_worker
from interop_tests.harness.stalls import STALLS

FOLDER = Path(os.environ.get("INTEROP_FAILURES") or CHECKOUT / ".cache" / "interop" / "failures")
LIST = "failed.json"
RUN = os.environ.get("INTEROP_RUN", "1")
"""Which run of the failed tests this is: 1, or 2 when they are run again."""

LOG_MAX = 1 << 20
"""Bytes of a node's log that are kept, from its end."""

# The checker of histories calls whatever it finds an Anomaly.
_RECORDS = re.compile(
    r"\b(lost|loss|losing|doubled?|duplicat\w*|disorder\w*|out of order|torn|twice|missing records?|not committed|"
    r"Anomaly\(kind)\b",
    re.IGNORECASE,
)
_NODES = re.compile(r"the node halts|which is a bug of kafkacompat|UNKNOWN_SERVER_ERROR")


@dataclass
class Failure:
    """Of one test, all its phases together."""

    nodeid: str
    final: str = ""
    """Why it may not be run again, or empty."""


def why_final(message: str, logged: str) -> str:
    """The text for which a failure counts at once, or an empty one. `logged` is what the nodes have written meanwhile."""
    found = _RECORDS.search(message)
    if found is None:
        found = _NODES.search(message) or _NODES.search(logged)
    return found[0] if found is not None else ""


class Collected:
    """The failures of a run. Workers tell them to the process that prints."""

    def __init__(self) -> None:
        self.failures: dict[str, Failure] = {}
        self._sizes: dict[Path, int] = {}

    def mark(self) -> None:
        """What the nodes log from now on belongs to the next test."""
        self._sizes = {log: log.stat().st_size for log in STALLS.logs if log.exists()}

    def logged(self) -> dict[Path, str]:
        found = {}
        for log in STALLS.logs:
            if log.exists():
                with open(log, "rb") as file:
                    start = self._sizes.get(log, 0)
                    file.seek(max(start, log.stat().st_size - LOG_MAX))
                    found[log] = file.read(LOG_MAX).decode(errors="replace")
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.mark()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[misc]
        if report.failed:
            logs = self.logged()
            vars(report)["final"] = why_final(message_of(report), "\n".join(logs.values()))
            self.keep(report, logs)
        return report  # type: ignore[return-value]

    def keep(self, report: pytest.TestReport, logs: dict[Path, str]) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "_", report.nodeid)[-150:]
        parts = [f"{report.nodeid}, {report.when}\n\n{report.longreprtext}"]
        parts += [f"--- {title} ---\n{text}" for title, text in report.sections]
        parts += [f"--- {log} ---\n{text}" for log, text in logs.items() if text]
        with open(FOLDER / f"{name}.run-{RUN}.txt", "a", encoding="utf-8") as file:
            file.write("\n".join(parts) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            failure = self.failures.setdefault(report.nodeid, Failure(report.nodeid))
            failure.final = failure.final or getattr(report, "final", "")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not is_worker(session.config) and self.failures:
            FOLDER.mkdir(parents=True, exist_ok=True)
            told = [asdict(failure) for failure in self.failures.values()]
            (FOLDER / LIST).write_text(json.dumps(told, indent=1))


def message_of(report: pytest.TestReport) -> str:
    """What the exception says, without the lines of the test's source."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)
