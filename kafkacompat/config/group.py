"""A group's settings: names, values, and their bounds from the broker's settings.

It validates overrides and computes a group's effective values. Follows Kafka 4.3's group settings of the newer group
kinds (KIP-848, KIP-932, KIP-1071).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkacompat.config.errors import ConfigError
from kafkacompat.config.keys import as_int, broker_keys, group_keys, parse_value
from kafkacompat.config.server import ServerConfig
from kafkacompat.config.synonyms import group_to_broker
from kafkacompat.config.validators import ConfigValue

_BOUNDED = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
    "streams.assignment.interval.ms",
)
"""In Kafka's order: the first that is out of bounds is told."""


def _bounds(name: str) -> tuple[str, str]:
    """The broker settings with a group setting's minimum and maximum. "" for no bound."""
    kind, _, rest = name.partition(".")
    if name == "streams.num.standby.replicas":
        return "", "group.streams.max.standby.replicas"
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def group_default(effective: ServerConfig | None, name: str) -> ConfigValue:
    """A group's value for `name` without an override."""
    broker_name = group_to_broker(name)
    if effective is None or broker_name is None:
        return group_keys()[name].default
    return effective.value(broker_name)


def group_values(effective: ServerConfig, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Every group setting's effective value. Unknown or invalid overrides are left out. Those beyond the broker's bounds,
    which may have changed since they were set, are moved to the nearest bound, as in Kafka 4.3."""
    values = {name: group_default(effective, name) for name in group_keys()}
    for name, text in overrides.items():
        key = group_keys().get(name)
        if key is None:
            continue
        try:
            values[name] = parse_value(key, text)
        except ConfigError:
            # A record from another version may have a value that is invalid here. Then the default applies.
            continue
        if name in _BOUNDED:
            low, high = group_bounds(effective, name)
            values[name] = min(max(as_int(values[name]), low), high)
    return values


def group_bounds(effective: ServerConfig | None, name: str) -> tuple[int, int]:
    """The least and the greatest value of a group setting that has bounds."""
    low, high = _bounds(name)
    return _bound(effective, low) if low else 0, _bound(effective, high)


def validate_group_configs(
    overrides: Mapping[str, str | None], effective: ServerConfig | None = None
) -> None:
    """Check all overrides of a group. Raises ConfigError for an unknown name, a bad value or one out of bounds.

    With `effective` the bounds are those of the node, otherwise the built-in ones.
    """
    keys = group_keys()
    values: dict[str, ConfigValue] = {}
    for name in overrides:
        if name not in keys:
            raise ConfigError(name, None, f"Unknown group config name: {name}", whole=True)
    for name, key in keys.items():
        text = overrides.get(name)
        values[name] = group_default(effective, name) if text is None else parse_value(key, text)
    for name in _BOUNDED:
        if name.endswith("assignment.interval.ms") and overrides.get(name) is None:
            continue  # the node's own may be changed at any time
        (least, most), (low, high) = group_bounds(effective, name), _bounds(name)
        value = as_int(values[name])
        if value < least:
            raise _refused(name, value, f"{name} must be greater than or equal to {low}")
        if value > most:
            raise _refused(name, value, f"{name} must be less than or equal to {high}")
    for kind in ("consumer", "share", "streams"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if as_int(values[session]) <= as_int(values[heartbeat]):
            raise _refused(session, values[session], f"{session} must be greater than {heartbeat}")


def _refused(name: str, value: ConfigValue, message: str) -> ConfigError:
    return ConfigError(name, value, message, whole=True)


def _bound(effective: ServerConfig | None, name: str) -> int:
    if effective is not None:
        return effective.get_int(name)
    return as_int(broker_keys()[name].default)
