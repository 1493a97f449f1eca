"""The gate for regular expressions that clients and administrators give: RE2's language, as in Kafka (RE2/J), within
bounds.

RE2 takes time in proportion to the text, whatever the expression is. But compiling takes up to a second for a few
kilobytes. The bounds keep that, and the match of a name, within one step of the loop. Nothing is cached: RE2's own cache
keeps 128 expressions, each with its full memory.
"""

from __future__ import annotations

import re
from typing import Any

LENGTH_MAX = 4_000
"""Characters."""
SIZE_MAX = 4_000
"""Instructions. A character of a name takes up to 6 ns for each, and consecutive optional parts compile in their square:
9 ms for so many. `a{100}` has about a hundred, `.{100}` a thousand."""
MEMORY_MAX = 96 << 10
"""Bytes for one expression: RE2 stops at 4,096 instructions, and need not write the others out."""
PARSE_US_MAX = 4_000
CLASS_US = 300
"""A class of Unicode characters has hundreds of ranges. They are written out before the memory is compared."""
REPEATS_A_US = 3
"""Repetitions that a repeat with numbers demands or allows. They are written out too."""
REPEATS_MAX = 1_000
"""RE2 refuses more."""
TOO_LARGE = "pattern too large - compile failed"
"""RE2's words."""
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")


class ExpressionRefused(ValueError):
    """Not a regular expression, or beyond a bound."""


class Expressions:
    """Compiles the expressions of one setting or request. The bounds are for all of them together."""

    __slots__ = ("_length", "_parse_us", "_size", "_size_max")

    def __init__(self, size_max: int = SIZE_MAX) -> None:
        self._size_max = size_max
        self._length = self._parse_us = self._size = 0

    def compiled(self, pattern: str) -> Any:
        """Raises ExpressionRefused."""
        self._length += len(pattern)
        if self._length > LENGTH_MAX:
            raise ExpressionRefused(TOO_LARGE)
        self._parse_us += _parse_us(pattern)
        if self._parse_us > PARSE_US_MAX:
            raise ExpressionRefused(TOO_LARGE)
        import re2  # few nodes need it

        options = re2.Options()
        options.log_errors = False
        options.max_mem = MEMORY_MAX
        try:
            found = re2.compile(pattern, options=options)
        except (re2.error, UnicodeEncodeError) as error:
            reason = error.args[0] if error.args else "bad expression"
            text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise ExpressionRefused(text) from None
        finally:
            re2.purge()
        self._size += found.programsize
        if self._size > self._size_max:
            raise ExpressionRefused(TOO_LARGE)
        return found


def compiled(pattern: str) -> Any:
    """An expression that stands alone. Raises ExpressionRefused."""
    return Expressions().compiled(pattern)


def _parse_us(pattern: str) -> int:
    classes = pattern.count("\\p") + pattern.count("\\P")
    # Without a greatest number, the least one is written out.
    repeats = sum(min(int((most or least)[-5:]), REPEATS_MAX) for least, most in _REPEAT.findall(pattern))
    return classes * CLASS_US + repeats // REPEATS_A_US
