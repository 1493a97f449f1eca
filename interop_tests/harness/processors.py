"""How many workers a suite gets: one for each processor that this process may use, as far as the memory goes.

    python interop_tests/harness/processors.py [--extra N] [--gigabytes-each G]

Prints the number. It needs nothing but Python, because the Makefile asks before anything is installed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from kafkacompat.cli.machine import KIB, memory_bytes, processors


def workers(allowed: int, available: int | None, bytes_each: int) -> int:
    """At least 1."""
    if available is not None:
        allowed = min(allowed, available // bytes_each)
    return max(1, allowed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extra", type=int, default=0, help="workers beyond one for each processor")
    parser.add_argument("--gigabytes-each", type=float, default=1.0, help="memory of one worker")
    given = parser.parse_args()
    print(workers(processors() + given.extra, memory_bytes(), int(given.gigabytes_each * KIB**3)))
