"""Numbers on the commands' lines: each within bounds, refused with what would do. Knows no option; argparse names it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

LEAST: Final = 0.001
MOST: Final = 1e9
MOST_WHOLE: Final = 10**12
# What the protocol has room for, and Java's int.
MOST_INT16: Final = 2**15 - 1
MOST_INT32: Final = 2**31 - 1


def positive(text: str) -> float:
    """Seconds, rates, factors: LEAST to MOST. argparse.ArgumentTypeError otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    # Not a number compares as neither.
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"must be a number from {LEAST:g} to {MOST:,.0f}, not {text!r}")
    return value


def whole(text: str) -> int:
    """Counts and sizes: 1 to MOST_WHOLE. argparse.ArgumentTypeError otherwise."""
    return whole_to(MOST_WHOLE)(text)


def whole_to(most: int) -> Callable[[str], int]:
    """Reads counts and sizes: 1 to `most`. It raises argparse.ArgumentTypeError otherwise."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most:,}, not {text!r}")
        return value

    return read
