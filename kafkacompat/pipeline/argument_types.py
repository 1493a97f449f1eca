"""Parses numbers on the command line, with bounds. A refusal names the bounds; argparse adds the option's name."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

LEAST: Final = 0.001
MOST: Final = 1e9
MOST_WHOLE: Final = 10**12
# The largest int16 of the protocol, and Java's largest int.
MOST_INT16: Final = 2**15 - 1
MOST_INT32: Final = 2**31 - 1


def positive(text: str) -> float:
    """Parse seconds, rates and factors: LEAST to MOST. argparse.ArgumentTypeError otherwise."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    # A NaN fails this comparison too.
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"must be a number from {LEAST:g} to {MOST:,.0f}, not {text!r}")
    return value


def whole(text: str) -> int:
    """Parse counts and sizes: 1 to MOST_WHOLE. argparse.ArgumentTypeError otherwise."""
    return whole_to(MOST_WHOLE)(text)


def whole_to(most: int) -> Callable[[str], int]:
    """Return a parser of counts and sizes: 1 to `most`. It raises argparse.ArgumentTypeError otherwise."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most:,}, not {text!r}")
        return value

    return read
