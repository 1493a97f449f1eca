"""Java's regular expressions in settings: patterns, and replacements with references to groups.

Pure. Patterns are compiled as Python's regular expressions; syntax that only Java has is refused. A mistake in a
replacement is refused where Java finds it when the replacement is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafkacompat.config import ConfigError

_REFERENCE = re.compile(r"\\(.)|\$([0-9])([0-9]*)|\$\{([A-Za-z][A-Za-z0-9]*)\}|[$\\]", re.DOTALL)


def compiled(setting: str, pattern: str) -> re.Pattern[str]:
    """Raises ConfigError."""
    try:
        # Java's (?<name>...) is (?P<name>...) in Python.
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(setting, pattern, f"the pattern is no regular expression: {error}") from None


class Replacement:
    """The text that replaces a match of a pattern. Raises ConfigError for a reference to a group that is not there."""

    def __init__(self, setting: str, text: str, pattern: re.Pattern[str]) -> None:
        self._pieces = tuple(_pieces(setting, text, pattern))

    def __call__(self, found: re.Match[str]) -> str:
        return "".join(piece if isinstance(piece, str) else found[piece] or "" for piece in self._pieces)


def _pieces(setting: str, replacement: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """Text and group numbers alternately. A reference has as many digits as form the number of an existing group. If
    the pattern has groups, a reference to a missing group is text."""
    position, groups = 0, pattern.groups
    for found in _REFERENCE.finditer(replacement):
        yield replacement[position : found.start()]
        position = found.end()
        escaped, digit, more, name = found.groups()
        if escaped is not None:
            yield escaped
        elif name in pattern.groupindex:
            yield pattern.groupindex[name]
        elif digit is None or (int(digit) and not groups):
            raise ConfigError(setting, replacement, f"{found[0]} of the replacement refers to no group")
        elif int(digit) > groups:
            yield found[0]
        else:
            number = int(digit)
            while more and number * 10 + int(more[0]) <= groups:
                number, more = number * 10 + int(more[0]), more[1:]
            yield number
            yield more
    yield replacement[position:]
