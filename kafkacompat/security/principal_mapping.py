"""ssl.principal.mapping.rules: the name of a principal from a certificate's subject.

Pure. A rule is `DEFAULT`, which takes the subject unchanged, or `RULE:pattern/replacement/`, optionally followed by L
or U for lower or upper case. The first rule whose pattern matches the whole subject applies. Patterns are Python
regular expressions; Java-only syntax is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kafkacompat.config import ConfigError
from kafkacompat.security.java_patterns import Replacement, compiled

MAPPING_RULES = "ssl.principal.mapping.rules"
DEFAULT = "DEFAULT"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_NEXT = re.compile(r"\s*(?:,\s*|$)")


class NoMatchingRule(Exception):
    """No rule matches the subject, so the client is refused."""


class SslPrincipalMapper:
    """The rules of one listener. Raises ConfigError for an invalid text, or a pattern that is not a regular
    expression."""

    def __init__(self, rules: str = DEFAULT) -> None:
        self._rules = tuple(_parsed(rules))

    def name(self, subject: str) -> str:
        """Raises NoMatchingRule."""
        for rule in self._rules:
            if rule is None:
                return subject
            if (name := rule.apply(subject)) is not None:
                return name
        raise NoMatchingRule(f"No rules apply to {subject}")


class _Rule:
    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = compiled(MAPPING_RULES, pattern)
        self._case = case
        self._replacement = Replacement(MAPPING_RULES, replacement, self._pattern)

    def apply(self, subject: str) -> str | None:
        if not self._pattern.fullmatch(subject):
            return None
        name = self._pattern.sub(self._replacement, subject)
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name


def _parsed(text: str) -> Iterator[_Rule | None]:
    """None for DEFAULT. As in Kafka, empty rules are skipped."""
    text = text.strip()
    position = 0
    while position < len(text):
        if text.startswith(DEFAULT, position):
            end, rule = position + len(DEFAULT), None
        elif found := _RULE.match(text, position):
            end, rule = found.end(), _Rule(found[1], found[2], found[3])
        elif text[position] == ",":
            position = _NEXT.match(text, position).end()  # type: ignore[union-attr]  # a comma is there
            continue
        else:
            raise ConfigError(
                MAPPING_RULES, text[position:], "expected DEFAULT or RULE:pattern/replacement/[LU]"
            )
        separator = _NEXT.match(text, end)
        if separator is None:
            raise ConfigError(MAPPING_RULES, text[position:], "expected a comma behind a rule")
        yield rule
        position = separator.end()
