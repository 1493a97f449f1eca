"""Runs clients against three nodes with faults, keeps the history in a folder, and prints the findings.

python -m interop_tests.histories [--seed N] [--seconds S] [--workload queue,append,commits] [--nemesis
kill,kill-all,pause,cut,mute,deaf,disk] [--broker apache] [--folder FOLDER] [--planted NAME]
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.histories.nemesis import KINDS
from interop_tests.histories.planted import NAMES, python_path_with
from interop_tests.histories.run import WORKLOADS, Options, default_folder, run


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workload", default=",".join(WORKLOADS))
    parser.add_argument("--nemesis", default=",".join(KINDS))
    parser.add_argument("--broker", choices=(KAFKACOMPAT, APACHE), default=KAFKACOMPAT)
    parser.add_argument(
        "--folder", type=Path, help="for the history; one of its own below the working directory without"
    )
    parser.add_argument("--planted", choices=NAMES, metavar="NAME", help="a bug to plant in all nodes")
    arguments = parser.parse_args()
    options = Options(
        arguments.seed,
        arguments.seconds,
        arguments.workload.split(","),
        arguments.nemesis.split(","),
        arguments.broker,
    )
    unknown = {*options.workloads} - WORKLOADS.keys() | {*options.faults} - {*KINDS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folder = (arguments.folder or default_folder(options)).resolve()
    if arguments.planted:
        options = replace(options, python_path=python_path_with(arguments.planted, folder / "planted"))
    began = time.monotonic()
    findings = run(options, folder)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s, {folder}")
    print(findings)
    return 0 if findings.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
