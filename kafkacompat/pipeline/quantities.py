"""Numbers on the commands' lines: each within bounds, refused with what would do. Knows no option; argparse names it."""

from __future__ import annotations

import argparse
from typing import Final

LEAST: Final = 0.001
MOST: Final = 1e9
MOST_WHOLE: Final = 10**12


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
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_WHOLE:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MOST_WHOLE:,}, not {text!r}")
    return value
