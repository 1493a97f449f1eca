"""A node's settings: what server.properties says, typed, with Kafka's defaults.

Duty: parse and hold them, resolve settings that stand for one another, give listeners. Must not know: who
uses them. Immutable. Which settings fit together is checked in constraints.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kafkacompat.config.constraints import check_constraints
from kafkacompat.config.endpoints import EndPoint, listener_name_of, parse_listeners, parse_protocol_map
from kafkacompat.config.errors import ConfigError
from kafkacompat.config.keys import broker_keys, parse_value, render_value
from kafkacompat.config.synonyms import broker_synonyms, listener_base
from kafkacompat.config.validators import ConfigValue

_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


def defaults_without_file(
    node_id: int = 1, host: str = "127.0.0.1", port: int = 9092, controller_port: int = 9093
) -> dict[str, str]:
    """The settings of a start without a file: one node with both roles, valid for Apache Kafka as well."""
    return {
        "node.id": f"{node_id}",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"{node_id}@{host}:{controller_port}",
        "log.dirs": "./kafkacompat-data",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _resolve(values: Mapping[str, ConfigValue]) -> dict[str, ConfigValue]:
    """Values that other settings decide when they are not set themselves."""

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


class ServerConfig:
    """The settings of one node. Make it with `from_properties`."""

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
    """What was set, as text; node.id and broker.id each stand in for the other."""
    unknown: tuple[str, ...]
    """Names set that are no setting of Kafka's, in the order given."""
    without_effect: tuple[str, ...]
    """Names set that are accepted but change nothing, in the order given."""
    warnings: tuple[str, ...]
    """Combinations Kafka warns about and starts with."""

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, ConfigValue]) -> None:
        """Not for callers: `values` must hold every broker setting."""
        keys = broker_keys()
        self.originals = MappingProxyType(dict(originals))
        self._values = values
        self._resolved = {**values, **_resolve(values)}
        unknown, without_effect = [], []
        for name in originals:
            key = keys.get(name) or keys.get(listener_base(name) or "")
            if key is None:
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

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], overrides: Mapping[str, str] | None = None
    ) -> ServerConfig:
        """Settings from a file's properties and a command line's overrides, which win.

        ConfigError for a value out of bounds, a missing setting, or settings that do not fit together.
        """
        originals = {**properties, **(overrides or {})}
        if "node.id" in originals:
            originals.setdefault("broker.id", originals["node.id"])
        elif "broker.id" in originals:
            originals["node.id"] = originals["broker.id"]
        _refuse_placeholders(originals)
        config = cls(originals, _parse(originals))
        config.warnings = check_constraints(config)
        return config

    def with_overrides(
        self, layers: Iterable[Mapping[str, str]]
    ) -> tuple[ServerConfig, dict[str, ConfigError]]:
        """These settings with dynamic layers over them, the later ones winning, and the values refused by
        name.

        A layer's setting replaces all that mean the same. A value that does not parse is left out, as
        Kafka does.
        """
        keys = broker_keys()
        originals, values = dict(self.originals), dict(self._values)
        refused: dict[str, ConfigError] = {}
        for layer in layers:
            for name, text in layer.items():
                key = keys.get(name)
                try:
                    value = None if key is None else parse_value(key, text)
                except ConfigError as error:
                    refused[name] = error
                    continue
                for synonym in broker_synonyms(name, with_listener_base=False):
                    if originals.pop(synonym, None) is not None:
                        values[synonym] = keys[synonym].default if synonym in keys else None
                originals[name] = text
                if key is not None:
                    values[name] = value
        return ServerConfig(originals, values), refused

    def value(self, name: str) -> ConfigValue:
        """The typed value as set or by default, without looking at other settings. KeyError if there is
        none such.
        """
        return self._values[name]

    def resolved(self, name: str) -> ConfigValue:
        """The typed value after settings that decide for one another. KeyError if there is none such."""
        return self._resolved[name]

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs renders it."""
        return render_value(broker_keys()[name], self._values[name])

    def get_int(self, name: str) -> int:
        """A whole number. log.retention.ms and its like give what their family resolves to."""
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
        """A list's entries, empty for null. log.dirs and its like give what they resolve to."""
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
        """Data directories in order; log.dir serves where log.dirs is not set."""
        return self.get_list("log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        """Where __cluster_metadata lies: metadata.log.dir, or else the first of the data directories."""
        return self.get_string("metadata.log.dir") or self.log_dirs[0]

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.get_list("controller.listener.names"))

    def listeners(self) -> tuple[EndPoint, ...]:
        """All listeners of the node, the controllers' among them."""
        return self._listeners

    def advertised_listeners(self) -> tuple[EndPoint, ...]:
        """What the node tells others; the same as listeners() where not set."""
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
        # Nobody said what the controllers' listeners speak: PLAINTEXT, unless something secured is in use.
        names = self.controller_listener_names
        used = (*names, *(listener_name_of("listeners", entry) for entry in self.get_list("listeners")))
        if not any(name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT") for name in used):
            for name in names:
                protocols.setdefault(name, "PLAINTEXT")
        return protocols


def _refuse_placeholders(originals: Mapping[str, str]) -> None:
    """Kafka would fetch the value from a provider. Taking `${file:...}` for the value itself would be worse than not starting."""
    providers = [name for name in originals.get("config.providers", "").replace(" ", "").split(",") if name]
    for name, text in originals.items():
        for provider in providers:
            if f"${{{provider}:" in text:
                raise ConfigError(
                    name,
                    None,
                    f"{name} takes its value from {provider} of config.providers, which is not supported: write the value",
                    whole=True,
                )


def _parse(originals: Mapping[str, str]) -> dict[str, ConfigValue]:
    keys = broker_keys()
    values: dict[str, ConfigValue] = {}
    for name, key in keys.items():
        if name in originals:
            values[name] = parse_value(key, originals[name])
        elif key.required:
            raise ConfigError(name, None, f"{name} must be set: it has no default", whole=True)
        else:
            values[name] = key.default
    for name, text in originals.items():
        base = listener_base(name)
        if base is not None and base in keys:
            parse_value(keys[base], text)
    return values
