"""Every setting's definition: name, type, default, bounds, and whether and where it may change at runtime.

A row of a table in config/tables is the declaration of a setting. The tables are read once. They are used to parse a
setting's text and to render its value. Names, types and defaults are those of a Kafka 4.4.0 broker. A setting is
honoured if its row has a documentation: every setting with an effect is documented there.

The text of the column `valid` becomes a check. Follows the notation of Kafka's ConfigDef: `[low,...]`,
`[low,...,high]`, `[a, b]`, `(case insensitive) [a, b]`; for lists our own `distinct [non-empty] [nullable] [[a, b]]`.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

from kafkacompat.dataclass import dataclass


class ConfigError(Exception):
    """An invalid setting.

    `setting` is its name, `value` the given value (None if the value is not the cause or must not be shown), `message`
    the reason. The text has Kafka's form "Invalid value V for configuration S: reason". With `whole` the message is
    the complete text.
    """

    def __init__(self, setting: str, value: object, message: str, *, whole: bool = False) -> None:
        super().__init__(
            message if whole else f"Invalid value {value} for configuration {setting}: {message}"
        )
        self.setting = setting
        self.value = value
        self.message = message


# --- bounds of values


ConfigValue = bool | int | float | str | tuple[str, ...] | None
Validator = Callable[[str, ConfigValue], None]

_RANGE = re.compile(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]( or -1)?")
_VOTER = re.compile(r"[0-9]{1,10}@(?:\[[0-9A-Fa-f:.%]+\]|[^:@\s\[\]]+):[0-9]{1,5}")
_HOST_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^:@\s\[\]]+):[0-9]{1,5}")
_THROTTLED = re.compile(r"\*|\d+:\d+")
_DURATION = re.compile(
    r"by_duration:(?i:P(?=\d|T\d)(?:(\d{1,19})D)?(?:T(?=\d)(?:(\d{1,19})H)?(?:(\d{1,19})M)?(?:(\d{1,19})(?:[.,]\d{0,9})?S)?)?)",
    re.ASCII,
)
_SECONDS = (86_400, 3_600, 60, 1)
"""Of the units of a duration."""


def _in_range(low: float, high: float | None, low_text: str, high_text: str | None) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        if not isinstance(value, int | float):
            raise ConfigError(setting, value, "Value must be non-null")
        if value < low:
            raise ConfigError(setting, value, f"Value must be at least {low_text}")
        if high is not None and value > high:
            raise ConfigError(setting, value, f"Value must be no more than {high_text}")

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
            kind = "one of (case insensitive)" if ignore_case else "one of"
            raise ConfigError(setting, value, f"String must be {kind}: {', '.join(names)}")

    return check


def _reset_strategy(setting: str, value: ConfigValue) -> None:
    if value in ("latest", "earliest"):
        return
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        parts = zip(found.groups("0"), _SECONDS, strict=True)
        if sum(int(number) * seconds for number, seconds in parts) < 1 << 63:
            return
    text = f"Invalid value `{value}` for configuration {setting}. The value must be either 'earliest', 'latest' or of the format "
    raise ConfigError(setting, value, text + "'by_duration:<PnDTnHnMn.nS>'.")


def _list(empty_allowed: bool, null_allowed: bool, names: tuple[str, ...]) -> Validator:
    def check(setting: str, value: ConfigValue) -> None:
        if value is None:
            if not null_allowed:
                text = f"Configuration '{setting}' values must not be null."
                raise ConfigError(setting, None, text, whole=True)
            return
        assert isinstance(value, tuple)
        if not value and not empty_allowed:
            wanted = f"[{', '.join(names)}]" if names else "any non-empty value"
            text = f"Configuration '{setting}' must not be empty. Valid values include: {wanted}"
            raise ConfigError(setting, "", text, whole=True)
        for entry in value:
            if not entry:
                text = f"Configuration '{setting}' values must not be empty."
                raise ConfigError(setting, ",".join(value), text, whole=True)
            if names and entry not in names:
                raise ConfigError(setting, entry, f"String must be one of: {', '.join(names)}")

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
        raise ConfigError(setting, "", "String must be non-empty")


def _not_null(setting: str, value: ConfigValue) -> None:
    if value is None:
        raise ConfigError(setting, None, f"{setting} must have a value", whole=True)


def _dead_letter_topic(setting: str, value: ConfigValue) -> None:
    assert isinstance(value, str)
    if value.startswith("__"):
        raise ConfigError(setting, value, f"{setting}: DLQ topic name must not start with '__'", whole=True)


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


# --- settings with the same meaning


_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FAMILY_OF = {name: family for family in _FAMILIES for name in family}
_FAMILY_OF["log.flush.interval.ms"] = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

LISTENER_PREFIX = "listener.name."
_LISTENER_SETTING = re.compile(r"listener\.name\.[^.]*\.(.*)")
_MECHANISM_SETTINGS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_OF_TOKENS = "oauthbearer."
"""The mechanism prefix of sasl.oauthbearer.*, which only this mechanism reads."""


def listener_prefix(listener: str, mechanism: str = "") -> str:
    """The prefix of a setting for one listener, or for one SASL mechanism of it."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    return f"{prefix}{mechanism.lower()}." if mechanism else prefix


def listener_base(name: str) -> str | None:
    """The plain name in `listener.name.X.[mechanism.]name`. None for any other name."""
    matched = _LISTENER_SETTING.fullmatch(name)
    if matched is None:
        return None
    base = matched[1]
    plain = (setting for setting in _MECHANISM_SETTINGS if base.endswith(setting))
    return next(plain, base.removeprefix(_OF_TOKENS))


def broker_synonyms(name: str, *, with_listener_base: bool = True) -> tuple[str, ...]:
    """All names that can give `name` its value, in order of precedence."""
    family = _FAMILY_OF.get(name)
    if family is not None:
        return family
    base = listener_base(name) if with_listener_base else None
    return (name,) if base is None else (name, base)


class Settings(Protocol):
    """What a part needs to read its settings."""

    def value(self, name: str) -> ConfigValue: ...

    def get_int(self, name: str) -> int: ...

    def get_boolean(self, name: str) -> bool: ...

    def get_string(self, name: str) -> str | None: ...

    def get_list(self, name: str) -> tuple[str, ...]: ...


# --- definitions


class ConfigType(enum.IntEnum):
    """Types with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class DynamicScope(enum.Enum):
    """Where a broker setting may be changed at runtime."""

    NONE = ""
    CLUSTER = "cluster-wide"
    """For the whole cluster or for one broker."""
    PER_BROKER = "per-broker"
    """For one broker only."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting's definition. `default` is typed; None is Kafka's null. `required`: there is no default, a value
    must be given.

    `internal`: accepted, but described only if it is set.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    valid: Validator | None
    importance: str
    sensitive: bool
    documentation: str | None
    honoured: bool
    dynamic: DynamicScope
    required: bool
    internal: bool
    broker: str
    """Of a setting of topics or groups: the broker setting that gives the default. "" if there is none."""
    minimum: str
    """Of a setting of groups: the broker setting with the least value that a group may have. "" if there is none."""
    maximum: str
    """Of a setting of groups: the broker setting with the greatest value that a group may have. "" if there is none."""


_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_BLANKS = " \t\n\x0b\f\r"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_INTEGER_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}
REQUIRED_MARK = "<required>"
EMPTY_MARK = '""'


def parse_typed(name: str, config_type: ConfigType, text: str) -> ConfigValue:
    """`text` as a value of the type, without checking bounds. Raises ConfigError if it is invalid."""
    trimmed = text.strip(_JAVA_BLANKS)
    bits = _INTEGER_BITS.get(config_type)
    if bits is not None:
        if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 40:
            raise ConfigError(name, text, f"Not a number of type {config_type.name}")
        number = int(trimmed)
        if not -(1 << bits) <= number < 1 << bits:
            raise ConfigError(name, text, f"Not a number of type {config_type.name}")
        return number
    if config_type is ConfigType.BOOLEAN:
        lower = trimmed.lower()
        if lower not in ("true", "false"):
            raise ConfigError(name, text, "Expected value to be either true or false")
        return lower == "true"
    if config_type is ConfigType.LIST:
        # Of equal entries Kafka keeps the first.
        return tuple(dict.fromkeys(entries_of(trimmed))) if trimmed else ()
    if config_type is ConfigType.DOUBLE:
        if not _DOUBLE.fullmatch(trimmed):
            raise ConfigError(name, text, "Not a number of type DOUBLE")
        return float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD"))
    return trimmed


def entries_of(text: str) -> list[str]:
    """Of a trimmed text, without the blanks around its commas."""
    return [entry.strip(_BLANKS) for entry in text.split(",")]


def parse_value(key: ConfigKey, text: str) -> ConfigValue:
    """`text` as the setting's typed value, within its bounds. Raises ConfigError otherwise. A secret is not repeated
    in it."""
    value = parse_typed(key.name, key.type, text)
    if key.valid is not None:
        key.valid(key.name, value)
    return value


def java_double(value: float) -> str:
    """A double as Java's Double.toString writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # Imported on demand: few doubles need it, and it would slow down the start.
    from decimal import Decimal

    digits, _, exponent = f"{Decimal(repr(abs(value))):e}".upper().partition("E")
    whole, _, fraction = digits.partition(".")
    return f"{'-' if value < 0 else ''}{whole}.{fraction.rstrip('0') or '0'}E{int(exponent)}"


def render_value(key: ConfigKey, value: ConfigValue) -> str | None:
    """The value's text as in DescribeConfigs. None stays None."""
    del key
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return java_double(value)
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _table(name: str) -> list[dict[str, str]]:
    """The rows, by column."""
    text = (Path(__file__).parent / "tables" / name).read_text("utf-8")
    head, *rows = [line.split("\t") for line in text.splitlines() if line]
    return [dict(zip(head, row, strict=True)) for row in rows]


@cache
def _own_rows(kind: str) -> list[dict[str, str]]:
    """Settings that Kafka 4.4 does not have."""
    return _table(f"own-{kind}-configs.tsv")


def _load(kind: str) -> Mapping[str, ConfigKey]:
    validators: dict[str, Validator | None] = {"": None}
    types = ConfigType.__members__
    scopes = {scope.value: scope for scope in DynamicScope}
    keys: dict[str, ConfigKey] = {}
    for row in _table(f"{kind}-configs.tsv") + _own_rows(kind):
        name, valid_text, default_text = row["name"], row["valid"], row["default"]
        if valid_text not in validators or valid_text == "non-empty list":
            validators[valid_text] = validator_for(name, valid_text)
        config_type = types[row["type"]]
        default: ConfigValue = None
        if default_text and default_text != REQUIRED_MARK:
            default = parse_typed(name, config_type, "" if default_text == EMPTY_MARK else default_text)
        keys[name] = ConfigKey(
            name,
            config_type,
            default,
            validators[valid_text],
            row["importance"],
            config_type is ConfigType.PASSWORD,
            row["documentation"] or None,
            row["documentation"] != "",
            scopes[row.get("dynamic", "")],
            default_text == REQUIRED_MARK,
            row["importance"] in ("INTERNAL", "DYNAMIC"),
            row.get("broker", ""),
            row.get("minimum", ""),
            row.get("maximum", ""),
        )
    return MappingProxyType(keys)


@cache
def broker_keys() -> Mapping[str, ConfigKey]:
    """Every broker setting, by name."""
    return _load("broker")


@cache
def own_names(kind: str = "broker") -> frozenset[str]:
    """The settings of brokers, topics or groups that Kafka 4.4 does not have."""
    return frozenset(row["name"] for row in _own_rows(kind))


@cache
def names_shown_if_set() -> frozenset[str]:
    """The settings of topics that are described only where they are set: `shown` in the table."""
    return frozenset(row["name"] for row in _own_rows("topic") if row["shown"] == "if set")


@cache
def topic_keys() -> Mapping[str, ConfigKey]:
    """Every topic setting, by name."""
    return _load("topic")


@cache
def group_keys() -> Mapping[str, ConfigKey]:
    """Every group setting, by name."""
    return _load("group")


def read_tables() -> None:
    """Read all tables now. Otherwise each is read when its first setting is looked for, from a file."""
    for read in (broker_keys, topic_keys, group_keys):
        read()


def as_list(value: ConfigValue) -> tuple[str, ...]:
    """The entries of a LIST that cannot be null."""
    return cast("tuple[str, ...]", value)


def as_int(value: ConfigValue) -> int:
    """The value of an INT, SHORT or LONG that cannot be null."""
    return cast(int, value)


# --- settings without effect, and settings that Kafka does not have


def own_table() -> list[tuple[str, str, str, str]]:
    """(kind, name, default, meaning) of each setting that Kafka 4.4 does not have."""
    return [
        (kind, name, _shown_default(keys[name]), keys[name].documentation or "")
        for kind, keys in (("broker", broker_keys()), ("topic", topic_keys()), ("group", group_keys()))
        for name in sorted(own_names(kind))
    ]


def without_effect_table() -> list[tuple[str, str, str]]:
    """(kind, name, default) of each setting that Kafka documents and this broker accepts without effect."""
    rows = []
    for kind, keys in (("broker", broker_keys()), ("topic", topic_keys()), ("group", group_keys())):
        for name, key in sorted(keys.items()):
            if not key.honoured and not key.internal:
                rows.append((kind, name, _shown_default(key)))
    return rows


def _shown_default(key: ConfigKey) -> str:
    default = "required" if key.required else render_value(key, key.default)
    return "null" if default is None else default
