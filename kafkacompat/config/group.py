"""The settings of groups: what a group may set, and what holds for it (Kafka's GroupConfig and GroupConfigManager).

The rows of tables/group-configs.tsv declare the settings, in the order in which they are checked. A row names the
broker setting that gives the default, and those that bound what a group may have. Checks of changes, DescribeConfigs,
checks of the broker's own settings, and the values that the coordinators read follow from it (KIP-848, KIP-932,
KIP-1071).

group.consumer.assignors, group.share.assignors and group.streams.assignors name Kafka's assignors, or their classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from kafkacompat.config.keys import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    Settings,
    as_int,
    as_list,
    broker_keys,
    group_keys,
    parse_value,
)

RACK_TAGS = "streams.rack.aware.assignment.tags"


def group_default(effective: Settings | None, key: ConfigKey) -> ConfigValue:
    """A group's value without an override. With `effective` it is that of the node, otherwise the built-in one. The first
    assignor of a node is the default."""
    if effective is None or not key.broker:
        return key.default
    if key.name == STREAMS_ASSIGNOR_NAME:
        return streams_assignors(effective.get_list(key.broker))[0]
    return effective.value(key.broker)


def group_value(effective: Settings, overrides: Mapping[str, str], name: str) -> ConfigValue:
    """What holds for a group. An invalid override is left out. One beyond the broker's bounds, which may have changed since
    it was set, is moved to the nearest bound, as in Kafka 4.4."""
    key = group_keys()[name]
    text = overrides.get(name)
    if text is None:
        return group_default(effective, key)
    try:
        value = parse_value(key, text)
    except ConfigError:
        # A record from another version may have a value that is invalid here. Then the default applies.
        return group_default(effective, key)
    if key.minimum:
        value = max(as_int(value), effective.get_int(key.minimum))
    if key.maximum:
        value = min(as_int(value), effective.get_int(key.maximum))
    return value


def group_values(effective: Settings, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every group setting's effective value. Unknown overrides are left out."""
    return {name: group_value(effective, overrides, name) for name in group_keys()}


class GroupConfigManager:
    """The values that hold for groups now."""

    __slots__ = ("_effective", "overrides")

    def __init__(
        self, effective: Callable[[], Settings], overrides: Callable[[str], Mapping[str, str]]
    ) -> None:
        """`effective` has the node's settings, `overrides` what a group has of its own, as text."""
        self._effective = effective
        self.overrides = overrides

    def get_list(self, group_id: str, name: str) -> list[str]:
        return cast(list[str], group_value(self._effective(), self.overrides(group_id), name))

    def get_int(self, group_id: str, name: str) -> int:
        return as_int(group_value(self._effective(), self.overrides(group_id), name))


def validate_group_configs(overrides: Mapping[str, str | None], effective: Settings | None = None) -> None:
    """Check all overrides of a group. Raises ConfigError for an unknown name, a bad value or one out of bounds.

    With `effective` the bounds are those of the node, otherwise the built-in ones.
    """
    keys = group_keys()
    values: dict[str, ConfigValue] = {}
    for name in overrides:
        if name not in keys:
            raise ConfigError(name, None, f"Unknown group config name: {name}", whole=True)
    tags = [each.strip() for each in (overrides.get(RACK_TAGS) or "").split(",")]
    if len(set(tags)) < len(tags):
        raise ConfigError(RACK_TAGS, None, f"{RACK_TAGS} must not contain duplicate tag keys.", whole=True)
    for name, key in keys.items():
        text = overrides.get(name)
        values[name] = group_default(effective, key) if text is None else parse_value(key, text)
    for name, key in keys.items():
        if name.endswith("assignment.interval.ms") and overrides.get(name) is None:
            continue  # the node's own may be changed at any time
        value = values[name]
        least = _bound(effective, key.minimum) if key.minimum else None
        most = _bound(effective, key.maximum) if key.maximum else None
        is_below = least is not None and as_int(value) < least
        if is_below or (most is not None and as_int(value) > most):
            raise _refused(name, value, _out_of_bounds(name, least, most))
    known = streams_assignors(
        as_list(broker_keys()[STREAMS_ASSIGNORS].default)
        if effective is None
        else effective.get_list(STREAMS_ASSIGNORS)
    )
    if values[STREAMS_ASSIGNOR_NAME] not in known:
        value = values[STREAMS_ASSIGNOR_NAME]
        raise _refused(
            STREAMS_ASSIGNOR_NAME,
            value,
            f"{STREAMS_ASSIGNOR_NAME} '{value}' is not a registered task assignor. Registered assignors are: "
            f"[{', '.join(known)}].",
        )
    for heartbeat, session in _heartbeats_and_sessions():
        if as_int(values[session]) <= as_int(values[heartbeat]):
            raise _refused(session, values[session], f"{session} must be greater than {heartbeat}")


def _out_of_bounds(name: str, least: int | None, most: int | None) -> str:
    if least is None:
        return f"{name} must be less than or equal to {most}"
    if most is None:
        return f"{name} must be greater than or equal to {least}"
    return f"{name} must be in the range {least} to {most} inclusive."


def check_group_defaults(effective: Settings) -> None:
    """Check that what a broker gives to groups lies within its own bounds. Raises ConfigError."""
    for key in group_keys().values():
        if not (key.minimum or key.maximum):
            continue
        name, low, high = key.broker, key.minimum, key.maximum
        value = effective.get_int(name)
        least = effective.get_int(low) if low else 0
        if not high:
            if value < least:
                raise _refused(name, value, f"{name} must be greater than or equal to {low}")
            continue
        most = effective.get_int(high)
        if most < least:
            raise _refused(high, most, f"{high} ({most}) must be at least {low} ({least})")
        if not least <= value <= most:
            bounds = f"{low or 0} ({least}) and {high} ({most})"
            raise _refused(name, value, f"{name} ({value}) must lie between {bounds}")
    for heartbeat, session in _heartbeats_and_sessions():
        name, other = group_keys()[heartbeat].broker, group_keys()[session].broker
        if effective.get_int(name) >= effective.get_int(other):
            raise _refused(name, None, f"{name} must be less than {other}")


def _heartbeats_and_sessions() -> list[tuple[str, str]]:
    """The settings of each kind of group."""
    ends = "heartbeat.interval.ms", "session.timeout.ms"
    kinds = [name.removesuffix(ends[0]) for name in group_keys() if name.endswith(ends[0])]
    return [(kind + ends[0], kind + ends[1]) for kind in kinds]


def _refused(name: str, value: ConfigValue, message: str) -> ConfigError:
    return ConfigError(name, value, message, whole=True)


def _bound(effective: Settings | None, name: str) -> int:
    return as_int(broker_keys()[name].default) if effective is None else effective.get_int(name)


# --- assignors


CONSUMER_ASSIGNORS = "group.consumer.assignors"
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_NAMES = {
    "uniform": "uniform",
    "range": "range",
    f"{_PACKAGE}UniformAssignor": "uniform",
    f"{_PACKAGE}RangeAssignor": "range",
}


def consumer_assignors(entries: Iterable[str]) -> tuple[str, ...]:
    """Their names, the default first. Raises ConfigError for a class of somebody else."""
    names: list[str] = []
    for entry in entries:
        if entry not in _NAMES:
            raise ConfigError(
                CONSUMER_ASSIGNORS, entry, "expected uniform or range; other classes cannot be loaded"
            )
        if _NAMES[entry] in names:
            raise ConfigError(CONSUMER_ASSIGNORS, entry, f"{_NAMES[entry]} is named twice")
        names.append(_NAMES[entry])
    return tuple(names)


SHARE_ASSIGNORS = "group.share.assignors"
_SHARE_NAMES = {"simple": "simple", f"{_PACKAGE}SimpleAssignor": "simple"}


def share_assignor(entries: Iterable[str]) -> str:
    """Its name: all share groups have the same. Raises ConfigError for several, or for a class of somebody else."""
    names = list(entries)
    for entry in names:
        if entry not in _SHARE_NAMES:
            raise ConfigError(SHARE_ASSIGNORS, entry, "expected simple; other classes cannot be loaded")
    if len(names) != 1:
        raise ConfigError(
            SHARE_ASSIGNORS, ",".join(names), f"expected exactly one assignor, not {len(names)}"
        )
    return _SHARE_NAMES[names[0]]


STREAMS_ASSIGNORS = "group.streams.assignors"
STREAMS_ASSIGNOR_NAME = "streams.assignor.name"
_STREAMS_NAMES = {
    "sticky": "sticky",
    "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor": "sticky",
}


def streams_assignors(entries: Iterable[str]) -> tuple[str, ...]:
    """Their names, the default first. Raises ConfigError for a class of somebody else."""
    names: list[str] = []
    for entry in entries:
        if entry not in _STREAMS_NAMES:
            raise ConfigError(STREAMS_ASSIGNORS, entry, "expected sticky; other classes cannot be loaded")
        if _STREAMS_NAMES[entry] in names:
            raise ConfigError(STREAMS_ASSIGNORS, entry, f"{_STREAMS_NAMES[entry]} is named twice")
        names.append(_STREAMS_NAMES[entry])
    return tuple(names)
