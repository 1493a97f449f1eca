"""The settings of a client metrics subscription (KIP-714): which clients send which metrics, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkacompat.config.keys import ConfigError
from kafkacompat.dataclass import dataclass
from kafkacompat.expressions import ExpressionRefused, Expressions
from kafkacompat.ids import parse_int

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
NAMES = (INTERVAL_MS, MATCH, METRICS)
INTERVAL_DEFAULT_MS, INTERVAL_MIN_MS, INTERVAL_MAX_MS = 300_000, 100, 3_600_000
EVERYTHING = "*"
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

SIZE_MAX = 2_000
"""Instructions of all expressions of a subscription: a client is matched in one step, and may tell a thousand characters
of itself."""


class IllegalPattern(ConfigError):
    """A match pattern that is not NAME=REGEX."""


@dataclass(frozen=True, slots=True)
class Subscription:
    metrics: tuple[str, ...]
    """Prefixes of metrics' names, or `*`."""
    interval_ms: int
    patterns: Mapping[str, Any]
    """A compiled expression by attribute. All must match the whole value."""

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.patterns.items()
        )


def parse_subscription(settings: Mapping[str, str]) -> Subscription:
    """Raises ConfigError for an invalid value, IllegalPattern for an invalid pattern."""
    text = settings.get(INTERVAL_MS, str(INTERVAL_DEFAULT_MS)).strip()
    try:
        interval_ms = parse_int(text)
    except ValueError:
        raise ConfigError(INTERVAL_MS, text, "Not a number of type INT") from None
    return Subscription(
        tuple(_listed(METRICS, settings)), interval_ms, parse_patterns(_listed(MATCH, settings))
    )


def _listed(name: str, settings: Mapping[str, str]) -> list[str]:
    text = settings.get(name, "").strip()
    found = [each.strip() for each in text.split(",")] if text else []
    if "" in found:
        raise ConfigError(name, text, f"Configuration '{name}' values must not be empty.", whole=True)
    return found


def parse_patterns(texts: list[str]) -> dict[str, Any]:
    patterns = {}
    expressions = Expressions(SIZE_MAX)
    for text in texts:
        parts = text.split("=")
        while parts and not parts[-1]:
            parts.pop()
        name = parts[0].strip() if parts else ""
        illegal = IllegalPattern(MATCH, text, f"Illegal client matching pattern: {text}", whole=True)
        if len(parts) != 2 or name not in ATTRIBUTES:
            raise illegal
        try:
            patterns[name] = expressions.compiled(parts[1].strip())
        except ExpressionRefused:
            raise illegal from None
    return patterns
