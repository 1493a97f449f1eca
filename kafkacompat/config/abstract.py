"""A node's typed settings for reading: with Kafka's defaults, settings of the same meaning resolved, and listeners.

Immutable. server.py has their sources, constraints.py checks their combinations (AbstractKafkaConfig).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kafkacompat.config.endpoints import EndPoint, listener_name_of, parse_listeners, parse_protocol_map
from kafkacompat.config.keys import broker_keys, parse_value, render_value
from kafkacompat.config.synonyms import listener_base, listener_prefix
from kafkacompat.config.validators import ConfigValue

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


def _resolve(values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Values of settings that are not set themselves and depend on others."""

    def number(name: str) -> int | None:
        value = values[name]
        return value if isinstance(value, int) else None

    def first(*choices: tuple[str, int]) -> int:
        return next(value * unit for name, unit in choices if (value := number(name)) is not None)

    retention_ms = first(
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MS_PER_MINUTE),
        ("log.retention.hours", _MS_PER_HOUR),
    )
    log_dirs = values["log.dirs"] if values["log.dirs"] is not None else values["log.dir"]
    assert isinstance(log_dirs, tuple)
    resolved: dict[str, ConfigValue] = {
        "log.retention.ms": -1 if retention_ms < 0 else retention_ms,
        "log.roll.ms": first(("log.roll.ms", 1), ("log.roll.hours", _MS_PER_HOUR)),
        "log.roll.jitter.ms": first(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _MS_PER_HOUR)),
        "log.flush.interval.ms": first(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
        "log.dirs": log_dirs,
        "metadata.log.dir": values["metadata.log.dir"] or log_dirs[0],
    }
    if values["num.replica.alter.log.dirs.threads"] is None:
        resolved["num.replica.alter.log.dirs.threads"] = len(log_dirs)
    return resolved


AUTHORIZER_SETTINGS = frozenset(("super.users", "allow.everyone.if.no.acl.found"))
"""Read only by the authorizer, so they are not settings of the broker."""


class AbstractServerConfig:
    """A node's settings for constraints.py and all readers."""

    __slots__ = (
        "_advertised",
        "_listeners",
        "_resolved",
        "_values",
        "originals",
        "unknown",
        "warnings",
        "without_effect",
    )

    originals: Mapping[str, str]
    """What was set, as text. node.id and broker.id replace one another."""
    unknown: tuple[str, ...]
    """Names set that Kafka does not know, in the given order."""
    without_effect: tuple[str, ...]
    """Names set that are accepted without effect, in the given order."""
    warnings: tuple[str, ...]
    """Combinations that Kafka only warns about at a start."""

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
        """Not for callers. `values` must have every broker setting."""
        keys = broker_keys()
        self.originals = MappingProxyType(dict(originals))
        self._values = values
        self._resolved = {**values, **_resolve(values)}
        unknown, without_effect = [], []
        for name in originals:
            key = keys.get(name) or keys.get(listener_base(name) or "")
            if key is None and name in AUTHORIZER_SETTINGS:
                if not values["authorizer.class.name"]:
                    without_effect.append(name)
            elif key is None:
                unknown.append(name)
            elif not key.honoured:
                without_effect.append(name)
        self.unknown = tuple(unknown)
        self.without_effect = tuple(without_effect)
        protocols = self._protocols()
        self._listeners = parse_listeners(
            "listeners", self.get_list("listeners"), protocols, distinct_ports=True
        )
        self._advertised = (
            self._listeners
            if values["advertised.listeners"] is None
            else parse_listeners(
                "advertised.listeners", self.get_list("advertised.listeners"), protocols, distinct_ports=False
            )
        )
        self.warnings = ()

    def value(self, name: str) -> ConfigValue:
        """The typed value as set or by default, independent of other settings. Raises KeyError for an unknown name."""
        return self._values[name]

    def resolved(self, name: str) -> ConfigValue:
        """The typed value after other settings were taken into account. Raises KeyError for an unknown name."""
        return self._resolved[name]

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs renders it."""
        return render_value(broker_keys()[name], self._values[name])

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> ConfigValue:
        """The typed value of a setting for one listener, or one of its SASL mechanisms:
        listener.name.<listener>.<mechanism>.<name>, then listener.name.<listener>.<name>, then the node's value.
        Raises ConfigError, or KeyError for an unknown name."""
        for prefix in (listener_prefix(listener, mechanism), listener_prefix(listener)):
            text = self.originals.get(prefix + name)
            if text is not None:
                return parse_value(replace(broker_keys()[name], name=prefix + name), text)
        return self._values[name]

    def get_int(self, name: str) -> int:
        """A whole number. For log.retention.ms and similar settings, the resolved value of their family."""
        value = self._resolved[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a number: {value!r}")
        return value

    get_long = get_int

    def get_double(self, name: str) -> float:
        value = self._resolved[name]
        if not isinstance(value, float):
            raise TypeError(f"{name} is not a double: {value!r}")
        return value

    def get_boolean(self, name: str) -> bool:
        value = self._resolved[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean: {value!r}")
        return value

    def get_string(self, name: str) -> str | None:
        """Any setting as text, None for null."""
        return render_value(broker_keys()[name], self._resolved[name])

    def get_list(self, name: str) -> tuple[str, ...]:
        """A list's entries. Empty for null. For log.dirs and similar settings, the resolved value."""
        value = self._resolved[name]
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list: {value!r}")
        return value

    @property
    def node_id(self) -> int:
        return self.get_int("node.id")

    @property
    def roles(self) -> frozenset[str]:
        """'broker', 'controller' or both."""
        return frozenset(self.get_list("process.roles"))

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Data directories in order. log.dir is used if log.dirs is not set."""
        return self.get_list("log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        """The directory of __cluster_metadata: metadata.log.dir, or otherwise the first data directory."""
        return self.get_string("metadata.log.dir") or self.log_dirs[0]

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.get_list("controller.listener.names"))

    def listeners(self) -> tuple[EndPoint, ...]:
        """All listeners of the node, including the controller's."""
        return self._listeners

    def advertised_listeners(self) -> tuple[EndPoint, ...]:
        """The listeners as published to others. The same as listeners() if not set."""
        return self._advertised

    def broker_listeners(self) -> tuple[EndPoint, ...]:
        """The listeners that clients connect to."""
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._listeners if endpoint.listener_name not in controller)

    def controller_listeners(self) -> tuple[EndPoint, ...]:
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._listeners if endpoint.listener_name in controller)

    def advertised_broker_listeners(self) -> tuple[EndPoint, ...]:
        controller = self.controller_listener_names
        return tuple(endpoint for endpoint in self._advertised if endpoint.listener_name not in controller)

    @property
    def inter_broker_listener_name(self) -> str:
        """Upper case; by default the listener named after security.inter.broker.protocol."""
        return (
            self.get_string("inter.broker.listener.name")
            or self.get_string("security.inter.broker.protocol")
            or ""
        ).upper()

    def security_protocols(self) -> dict[str, str]:
        """Listener name, in upper case, to security protocol."""
        return self._protocols()

    def _protocols(self) -> dict[str, str]:
        setting = "listener.security.protocol.map"
        protocols = parse_protocol_map(setting, self.get_string(setting) or "")
        if setting in self.originals:
            return protocols
        # If the protocols of the controller listeners are not set, they are PLAINTEXT, unless a secure listener is in
        # use.
        names = self.controller_listener_names
        used = (*names, *(listener_name_of("listeners", entry) for entry in self.get_list("listeners")))
        if not any(name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT") for name in used):
            for name in names:
                protocols.setdefault(name, "PLAINTEXT")
        return protocols
