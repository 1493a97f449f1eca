"""Runs clients against three nodes with faults, keeps the history in a folder, and prints the findings.

python -m interop_tests.histories [--seed N] [--seconds S] [--workload queue,append,commits] [--nemesis
kill,kill-all,pause,cut,mute,deaf,disk] [--broker apache] [--folder FOLDER] [--planted "part of a name"]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

from interop_tests.harness.broker import APACHE, KAFKACOMPAT
from interop_tests.histories.nemesis import KINDS
from interop_tests.histories.planted import copy_with_bug, named
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
    parser.add_argument("--planted", metavar="NAME", help="part of the name of a bug to plant")
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
        product = folder / "product"
        shutil.rmtree(product, ignore_errors=True)
        copy_with_bug(named(arguments.planted), product)
        options = Options(options.seed, options.seconds, options.workloads, options.faults, product=product)
    began = time.monotonic()
    findings = run(options, folder)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s, {folder}")
    print(findings)
    return 0 if findings.is_well else 1


if __name__ == "__main__":
    sys.exit(main())
