"""The pattern of ListTransactions: a whole transactional id against a regular expression (KIP-1152).

Duty: what RE2/J takes and nothing else that Python would: no look-around, no reference back. A repetition may not repeat
something that varies itself, since Python's matcher can take exponential time there where RE2/J cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable

PATTERN_LENGTH_MAX = 1_000
_NOT_RE2 = re.compile(r"\(\?[=!<(]|\(\?P=|\\[1-9]")
_REPEATED_GROUP = re.compile(r"\)[*+{?]")


class InvalidPattern(ValueError):
    """It is no regular expression, or one that is not taken."""


def id_matcher(pattern: str) -> Callable[[str], bool]:
    """Raises InvalidPattern."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(f"a pattern of {len(pattern)} characters")
    if _NOT_RE2.search(pattern):
        raise InvalidPattern(f"{pattern!r} looks around or back")
    if _REPEATED_GROUP.search(pattern) and _repeats_what_varies(pattern):
        raise InvalidPattern(f"{pattern!r} repeats what varies")
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidPattern(str(error)) from error
    return lambda text: compiled.fullmatch(text) is not None


def _repeats_what_varies(pattern: str) -> bool:
    """Whether a group with a repetition or an alternative in it is repeated itself."""
    varies = [False]
    escaped = in_class = False
    for at, character in enumerate(pattern):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character == "(":
            varies.append(False)
        elif character == ")" and len(varies) > 1:
            inner = varies.pop()
            if inner and pattern[at + 1 : at + 2] in ("*", "+", "{"):
                return True
            varies[-1] = varies[-1] or inner
        elif character in "*+{|" or (character == "?" and pattern[at - 1 : at] != "("):
            varies[-1] = True
    return False
