"""Bounds of a setting's value, from the `valid` column of the tables in settings/.

The column's text becomes a check. Follows the notation of Kafka's ConfigDef: `[low,...]`, `[low,...,high]`, `[a, b]`,
`(case insensitive) [a, b]`; for lists our own `distinct [non-empty] [nullable] [[a, b]]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kafkacompat.config.errors import ConfigError

ConfigValue = bool | int | float | str | tuple[str, ...] | None
Validator = Callable[[str, ConfigValue], None]

_RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]( or -1)?")
_VOTER = re.compile(r"[0-9]{1,10}@(?:\[[0-9A-Fa-f:.%]+\]|[^:@\s\[\]]+):[0-9]{1,5}")
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:@\s\[\]]+):[0-9]{1,5}")
_THROTTLED = re.compile(r"\*|\d+:\d+")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_DURATION = re.compile(
    r"by_duration:(?i:P(?=\d|T\d)(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:[.,]\d{0,9})?S)?)?)"
)


def _in_range(low: float, high: float | None, low_text: str, high_text: str | None) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        if not isinstance(value, int | float):
            raise ConfigError(setting, value, "a value is required")
        if value < low:
            raise ConfigError(setting, value, f"expected at least {low_text}")
        if high is not None and value > high:
            raise ConfigError(setting, value, f"expected at most {high_text}")

    return check


def _in_range_or_minus_one(low: float, high: float, low_text: str, high_text: str) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        if not isinstance(value, int | float) or (value != -1 and not low <= value <= high):
            raise ConfigError(setting, value, f"expected {low_text} to {high_text}, or -1")

    return check


def _one_of(names: tuple[str, ...], ignore_case: bool) -> Validator:
    allowed = frozenset(name.upper() for name in names) if ignore_case else frozenset(names)

    def check(setting: str, value: ConfigValue) -> None:
        if not isinstance(value, str) or (value.upper() if ignore_case else value) not in allowed:
            raise ConfigError(setting, value, f"expected one of: {', '.join(names)}")

    return check


def _reset_strategy(setting: str, value: ConfigValue) -> None:
    if isinstance(value, str) and (value in ("latest", "earliest") or _DURATION.fullmatch(value)):
        return
    raise ConfigError(setting, value, "expected latest, earliest or by_duration: and an ISO-8601 duration")


def _list(empty_allowed: bool, null_allowed: bool, names: tuple[str, ...]) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        if value is None:
            if not null_allowed:
                raise ConfigError(setting, None, f"{setting} must have a value", whole=True)
            return
        assert isinstance(value, tuple)
        if not value and not empty_allowed:
            wanted = f"one or more of {', '.join(names)}" if names else "at least one entry"
            raise ConfigError(setting, "", f"{setting} must not be empty: expected {wanted}", whole=True)
        for entry in value:
            if not entry:
                raise ConfigError(setting, ",".join(value), "an entry of the list is empty")
            if names and entry not in names:
                raise ConfigError(setting, entry, f"expected one of: {', '.join(names)}")

    return check


def _entries(pattern: re.Pattern[str], form: str) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        assert isinstance(value, tuple)
        for entry in value:
            numbers = entry.partition("@")[0], entry.rpartition(":")[2]
            if (
                not pattern.fullmatch(entry)
                or int(numbers[1]) > 65535
                or ("@" in entry and int(numbers[0]) >= 1 << 31)
            ):
                raise ConfigError(setting, entry, f"expected entries of the form {form}")

    return check


def _throttled_replicas(setting: str, value: ConfigValue) -> None:
    assert isinstance(value, tuple)
    if not all(_THROTTLED.fullmatch(entry) for entry in value) or ("*" in value and len(value) > 1):
        raise ConfigError(setting, ",".join(value), "expected * or entries of the form partition:broker")


def _not_empty(setting: str, value: ConfigValue) -> None:
    if value == "":
        raise ConfigError(setting, "", f"{setting} must not be empty", whole=True)


def _not_null(setting: str, value: ConfigValue) -> None:
    if value is None:
        raise ConfigError(setting, None, f"{setting} must have a value", whole=True)


def _dead_letter_topic(setting: str, value: ConfigValue) -> None:
    assert isinstance(value, str)
    if value and (not _TOPIC.fullmatch(value) or value in (".", "..") or value.startswith("__")):
        raise ConfigError(setting, value, "expected the name of a topic that is not internal")


def validator_for(setting: str, text: str) -> Validator | None:
    """The check for a text of the `valid` column. None for no bound.

    `setting` matters only if the notation alone does not give the form of a list's entries. Raises ValueError for an
    unknown notation: the tables are part of kafkacompat, so that is a bug.
    """
    if not text:
        return None
    if text[0] == "[" and (bounds := _RANGE.fullmatch(text)):
        low, high, or_minus_one = bounds.groups()
        if or_minus_one:
            return _in_range_or_minus_one(float(low), float(high), low, high)
        return _in_range(float(low), float(high) if high else None, low, high)
    if text.startswith("distinct"):
        _, _, names = text.partition("[")
        return _list(
            "non-empty" not in text,
            "nullable" in text,
            tuple(names.rstrip("]").split(", ")) if names else (),
        )
    if text.startswith("(case insensitive) ["):
        return _one_of(tuple(text[20:-1].split(", ")), True)
    if text.startswith("[partitionId]"):
        return _throttled_replicas
    if "by_duration" in text:
        return _reset_strategy
    if text == "non-empty list":
        if setting == "controller.quorum.voters":
            return _entries(_VOTER, "id@host:port")
        return _entries(_HOST_PORT, "host:port")
    if text == "non-empty string":
        return _not_empty
    if text == "topic of dead letters":
        return _dead_letter_topic
    if text == "non-null string":
        return _not_null
    if text[0] == "[":
        return _one_of(tuple(text[1:-1].split(", ")), False)
    raise ValueError(f"{setting}: unknown notation {text!r}")
