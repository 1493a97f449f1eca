"""Judges a whole history.

python -m interop_tests.histories.check FILE [apache]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.harness.programs import registers_program
from interop_tests.histories.commits import OF_APACHE, Staleness, check_commits
from interop_tests.histories.findings import Findings
from interop_tests.histories.history import Operation, load
from interop_tests.histories.logs import check_logs
from interop_tests.histories.serialization import check_transactions

REGISTERS_TIMEOUT_S = 300


def ask_porcupine(asked: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Whether each register is linearizable: Ok, Illegal or Unknown."""
    done = subprocess.run(
        registers_program(),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=REGISTERS_TIMEOUT_S,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def check(history: list[Operation], staleness: Staleness = Staleness()) -> Findings:
    """`staleness` depends on the kind of broker of the history."""
    findings = Findings()
    findings.seen["faults"] += sum(each.f == "fault" for each in history)
    check_logs(history, findings)
    check_transactions(history, findings)
    check_commits(history, findings, ask_porcupine, staleness)
    return findings


def staleness_of(kind: str = KAFKACOMPAT) -> Staleness:
    return OF_APACHE if kind == APACHE else Staleness()


def main() -> int:
    findings = check(load(Path(sys.argv[1])), staleness_of(*sys.argv[2:]))
    print(findings)
    return 0 if findings.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
