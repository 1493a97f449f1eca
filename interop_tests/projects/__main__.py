"""Runs the tests of projects that test against a Kafka: python -m interop_tests.projects [NAME...] [--broker apache] [--quick]

Prints how many tests pass, and each that fails, with the reason if it fails on Apache Kafka too. All tests of all projects
take some minutes. Ends with 1 if one fails for which no reason is known."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT, BrokerProcess
from interop_tests.projects.projects import FAILED, PASSED, PROJECTS, SKIPPED, Outcomes, Project


def outcomes(project: Project, kind: str, names: tuple[str, ...], root: Path) -> Outcomes:
    """Run a project's tests on a broker of its own."""
    if project.starts_its_own:
        root.mkdir(parents=True)
        return project.run("", names, root)
    node = BrokerProcess(kind, root, {"group.initial.rebalance.delay.ms": "0", **project.settings})
    own_id = node.settings["node.id"]
    node.settings["controller.quorum.voters"] = f"{own_id}@127.0.0.1:{node.controller_port}"
    written = root / "written"
    written.mkdir(parents=True)
    node.start()
    try:
        return project.run(node.bootstrap, names, written)
    finally:
        node.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m interop_tests.projects", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROJECTS)}; all by default")
    parser.add_argument("--broker", choices=(KAFKACOMPAT, APACHE), default=KAFKACOMPAT)
    parser.add_argument("--quick", action="store_true", help="only the tests that run with ours")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in PROJECTS]
    if unknown:
        parser.error(f"no project {', '.join(unknown)}")
    status = 0
    for name in arguments.names or PROJECTS:
        project = PROJECTS[name]
        if project.starts_its_own and arguments.broker == APACHE:
            continue
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = outcomes(
                project, arguments.broker, project.quick if arguments.quick else (), Path(folder) / "node"
            )
        counts = Counter(found.values())
        told = ", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED))
        print(f"{name} on {arguments.broker}: {told}, {time.monotonic() - began_s:.0f} s", flush=True)
        for test in sorted(test for test, outcome in found.items() if outcome == FAILED):
            print(f"  {test}: {project.fails.get(test, 'no reason is known')}", flush=True)
            status |= test not in project.fails
    return status


if __name__ == "__main__":
    sys.exit(main())
