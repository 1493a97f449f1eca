"""CPU time of validating the records of one batch, by the C scanner and by the one in Python.

    python -m benchmarks.scanning

Prints the table of docs/explanation/performance.md: medians of rounds that take the scanners in turn. Run it on a quiet machine.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from unittest.mock import patch

from kafkacompat.records import scan
from kafkacompat.records.record import Record, encode_records
from kafkacompat.records.validate import check_records

ROUNDS = 3
ROUND_S = 0.5
HEADERS = (("trace", b"0123456789abcdef"), ("source", b"bench"))
BODIES: tuple[tuple[str, int, int, bool, bool], ...] = (
    ("100 records of 1 kB, of one size", 100, 1000, False, False),
    ("100 records of 1 kB, of mixed sizes", 100, 1000, True, False),
    ("1,000 records of 100 B, of one size", 1000, 100, False, False),
    ("1,000 records of 100 B, of mixed sizes", 1000, 100, True, False),
    ("1,000 records of 100 B with two headers each", 1000, 100, True, True),
)
"""Description, records, bytes of a value, whether the sizes vary by half, whether records have headers."""


def body_of(count: int, size: int, mixed: bool, with_headers: bool) -> bytes:
    chance = random.Random(1)
    headers = HEADERS if with_headers else ()
    sizes = [size + (chance.randrange(-size // 2, size // 2) if mixed else 0) for _ in range(count)]
    return bytes(
        encode_records(
            [Record(each, 0, None, bytes(length), headers) for each, length in enumerate(sizes)], 0
        )
    )


def microseconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    calls, start = 0, time.process_time()
    while (taken := time.process_time() - start) < ROUND_S:
        call()
        calls += 1
    return taken / calls * 1e6


def measured(body: bytes, count: int) -> tuple[float, float]:
    """Medians in microseconds of a batch: the C scanner, the one in Python."""
    compiled = scan._scan
    assert compiled is not None, "the extension module is not built"
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for module, found in zip((compiled, None), taken, strict=True):
            with patch.object(scan, "_scan", module):
                found.append(microseconds(lambda: check_records(body, count)))
    return statistics.median(taken[0]), statistics.median(taken[1])


def main() -> None:
    print("| validating | `_scan.c` | plain Python |\n| --- | --- | --- |")
    for name, count, size, mixed, with_headers in BODIES:
        in_c, in_python = measured(body_of(count, size, mixed, with_headers), count)
        print(f"| {name} | {in_c:.0f} us | {in_python:.0f} us |")


if __name__ == "__main__":
    main()
