"""Every setting's definition: name, type, default, bounds, and whether and where it may change at runtime.

The tables in config/tables are read once. They are used to parse a setting's text and to render its value. Follows
Kafka 4.3's ConfigDef; names, types and defaults are those of a 4.3.0 broker. A setting is honoured if
tables/documentation.tsv has a line for it: every setting with an effect is documented there.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import cast

from kafkacompat.config.errors import ConfigError
from kafkacompat.config.validators import ConfigValue, Validator, validator_for


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


_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_INTEGER_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}
REQUIRED_MARK = "<required>"
EMPTY_MARK = '""'


def parse_typed(name: str, config_type: ConfigType, text: str) -> ConfigValue:
    """`text` as a value of the type, without checking bounds. Raises ConfigError if it is invalid."""
    trimmed = text.strip(_JAVA_BLANKS)
    bits = _INTEGER_BITS.get(config_type)
    if bits is not None:
        if not _INTEGER.fullmatch(trimmed) or len(trimmed) > 40:
            raise ConfigError(name, text, f"expected a whole number of type {config_type.name}")
        number = int(trimmed)
        if not -(1 << bits) <= number < 1 << bits:
            raise ConfigError(name, text, f"too large for type {config_type.name}")
        return number
    if config_type is ConfigType.BOOLEAN:
        lower = trimmed.lower()
        if lower not in ("true", "false"):
            raise ConfigError(name, text, "expected true or false")
        return lower == "true"
    if config_type is ConfigType.LIST:
        # Of equal entries Kafka keeps the first.
        return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
    if config_type is ConfigType.DOUBLE:
        if not _DOUBLE.fullmatch(trimmed):
            raise ConfigError(name, text, "expected a number of type DOUBLE")
        return float(trimmed if trimmed[-1] in "yN" else trimmed.rstrip("fFdD"))
    return trimmed


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


def _table(name: str) -> list[list[str]]:
    text = (Path(__file__).parent / "tables" / name).read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()[1:] if line]


@cache
def _own_rows(kind: str) -> list[list[str]]:
    """Settings that Kafka 4.3 does not have."""
    return _table(f"own-{kind}-configs.tsv")


@cache
def _documentation() -> Mapping[tuple[str, str], str]:
    return {(kind, name): text for kind, name, text in _table("documentation.tsv")}


def _load(kind: str) -> Mapping[str, ConfigKey]:
    documentation = _documentation()
    validators: dict[str, Validator | None] = {"": None}
    types = ConfigType.__members__
    scopes = {scope.value: scope for scope in DynamicScope}
    keys: dict[str, ConfigKey] = {}
    rows = _table(f"{kind}-configs.tsv") + _own_rows(kind)
    for name, type_name, default_text, valid_text, importance, *rest in rows:
        if valid_text not in validators or valid_text == "non-empty list":
            validators[valid_text] = validator_for(name, valid_text)
        config_type = types[type_name]
        default: ConfigValue = None
        if default_text and default_text != REQUIRED_MARK:
            default = parse_typed(name, config_type, "" if default_text == EMPTY_MARK else default_text)
        help_line = documentation.get((kind, name))
        keys[name] = ConfigKey(
            name,
            config_type,
            default,
            validators[valid_text],
            importance,
            config_type is ConfigType.PASSWORD,
            help_line,
            help_line is not None,
            scopes[rest[0]] if rest else DynamicScope.NONE,
            default_text == REQUIRED_MARK,
            importance in ("INTERNAL", "DYNAMIC"),
        )
    return MappingProxyType(keys)


@cache
def broker_keys() -> Mapping[str, ConfigKey]:
    """Every broker setting, by name."""
    return _load("broker")


@cache
def own_names(kind: str = "broker") -> frozenset[str]:
    """The settings of brokers, topics or groups that Kafka 4.3 does not have."""
    return frozenset(row[0] for row in _own_rows(kind))


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
